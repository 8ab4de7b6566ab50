#include "computed.h"

namespace weir {

std::vector<Field *> computed_parts_of(const KeyFormat &key)
{
  std::vector<Field *> columns;
  for (const Part &part : key.parts())
    if (!part.field->stored_in_db())
      columns.push_back(part.field);
  return columns;
}

int compute_virtual(TABLE *table, Field *column, bool is_lenient)
{
  THD *thd= table->in_use;
  Counting_error_handler counted;
  Suppress_warnings_error_handler no_warnings;
  Query_arena kept_arena;
  bool kept= thd->abort_on_warning;
  thd->push_internal_handler(&counted);
  if (is_lenient)
  {
    thd->abort_on_warning= false;
    thd->push_internal_handler(&no_warnings);
  }
  thd->set_n_backup_active_arena(table->expr_arena, &kept_arena);
  MY_BITMAP *done= &table->tmp_set;
  bitmap_clear_all(done);
  for (Field **field= table->vfield; *field; field++)
    if ((*field)->stored_in_db())
      bitmap_set_bit(done, (*field)->field_index);
  Item *expression= column->vcol_info->expr;
  expression->walk(&Item::update_vcol_processor, false, done);
  expression->save_in_field(column, false);
  thd->restore_active_arena(table->expr_arena, &kept_arena);
  if (is_lenient)
  {
    thd->pop_internal_handler();
    thd->abort_on_warning= kept;
  }
  thd->pop_internal_handler();
  return counted.errors;
}

Computed::Computed(TABLE *of, const std::vector<Field *> &columns, const uchar *row)
    : table(of), record(const_cast<uchar *>(row))
{
  if (columns.empty())
    return;
  kept.assign(record, record + table->s->reclength);
  for (Field **field= table->vfield; *field; field++)
    if (((*field)->flags & BLOB_FLAG) && !(*field)->stored_in_db())
      blobs.push_back(static_cast<Field_blob *>(*field));
  buffers.reset(new String[blobs.size()]);
  swap_buffers();
  compute(columns);
}

Computed::~Computed()
{
  if (kept.empty())
    return;
  memcpy(record, kept.data(), kept.size());
  swap_buffers();
}

void Computed::keep(Field *column, std::string &value)
{
  my_ptrdiff_t diff= record - table->record[0];
  size_t offset= column->offset(table->record[0]);
  if (column->null_ptr)
  {
    uint at= column->null_offset(table->record[0]);
    kept[at]= uchar((kept[at] & ~column->null_bit) | (record[at] & column->null_bit));
  }
  memcpy(&kept[offset], record + offset, column->pack_length());
  if (!(column->flags & BLOB_FLAG) || column->is_null(diff))
    return;
  auto blob= static_cast<Field_blob *>(column);
  value.assign(reinterpret_cast<const char *>(blob->get_ptr(blob->ptr + diff)),
               blob->get_length(diff));
  const char *at= value.data();
  memcpy(&kept[offset + blob->pack_length_no_ptr()], &at, sizeof at);
}

void Computed::swap_buffers()
{
  for (size_t i= 0; i < blobs.size(); i++)
    blobs[i]->swap(buffers[i], false);
}

// They are computed from the table's first record; and in a bitmap that may be the one of the
// columns that are read.
void Computed::compute(const std::vector<Field *> &columns)
{
  bool is_elsewhere= record != table->record[0];
  std::vector<my_bitmap_map> columns_read(table->tmp_set.bitmap,
                                          table->tmp_set.bitmap + no_words_in_map(&table->tmp_set));
  if (is_elsewhere)
    table->move_fields(table->field, record, table->record[0]);
  for (Field *field : columns)
    compute_virtual(table, field, true);
  if (is_elsewhere)
    table->move_fields(table->field, table->record[0], record);
  std::copy(columns_read.begin(), columns_read.end(), table->tmp_set.bitmap);
}

} // namespace weir
