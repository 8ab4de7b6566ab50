/* What an ALTER TABLE can do in place. */

#include "alteration.h"
#include "ha_weir.h"

using namespace weir;

// Whether a table and a partition can change places: EXCHANGE PARTITION asks.
bool ha_weir::check_if_incompatible_data(HA_CREATE_INFO *info, uint changes)
{
  bool sets_number= info->used_fields & HA_CREATE_USED_AUTO && info->auto_increment_value != 0;
  return changes == IS_EQUAL_YES && !sets_number ? COMPATIBLE_DATA_YES : COMPATIBLE_DATA_NO;
}

// What changes definitions alone: no row, and no entry of an index.
static const alter_table_operations DEFINITION_ONLY=
    ALTER_CHANGE_COLUMN | ALTER_CHANGE_COLUMN_DEFAULT | ALTER_COLUMN_NAME | ALTER_RENAME_COLUMN |
    ALTER_RENAME | ALTER_OPTIONS | ALTER_CHANGE_INDEX_COMMENT | ALTER_DROP_CHECK_CONSTRAINT |
    ALTER_INDEX_IGNORABILITY | ALTER_INDEX_ORDER | ALTER_RENAME_INDEX | ALTER_COLUMN_OPTION |
    ALTER_PARTITIONED | ALTER_COLUMN_TYPE_CHANGE_BY_ENGINE | ALTER_COLUMN_INDEX_LENGTH;

static const alter_table_operations INDEXES=
    ALTER_ADD_INDEX | ALTER_DROP_INDEX | ALTER_ADD_NON_UNIQUE_NON_PRIM_INDEX |
    ALTER_DROP_NON_UNIQUE_NON_PRIM_INDEX | ALTER_ADD_UNIQUE_INDEX | ALTER_DROP_UNIQUE_INDEX;

// FORCE, or ENGINE=WEIR: pages are filled anew, in place, as by OPTIMIZE TABLE.
static const alter_table_operations REORGANIZE= ALTER_RECREATE;

// Rows and keys hold a VARCHAR's bytes, not its length; of a COMPRESSED one those that the server
// has made of the value.
bool ha_weir::can_convert_nocopy(const Field &field, const Column_definition &wanted) const
{
  return field.real_type() == MYSQL_TYPE_VARCHAR && field.type_handler() == wanted.type_handler() &&
         field.charset() == wanted.charset && field.field_length <= wanted.length &&
         !field.vcol_info && !field.compression_method() == !wanted.compression_method();
}

static const KEY *index_with_part(const TABLE *table, const KEY_PART_INFO &part)
{
  for (uint i= 0; i < table->s->keys; i++)
    for (uint j= 0; j < table->key_info[i].user_defined_key_parts; j++)
      if (&table->key_info[i].key_part[j] == &part)
        return &table->key_info[i];
  return nullptr;
}

static bool drops(Alter_info *info, const KEY *index)
{
  List_iterator_fast<Alter_drop> it(info->drop_list);
  while (const Alter_drop *drop= it++)
    if (drop->type == Alter_drop::KEY &&
        !my_strcasecmp(system_charset_info, drop->name, index->name.str))
      return true;
  return false;
}

// Whether the statement adds one of that name, in the same letters. An index without a name gets
// that of its first column.
static bool adds(Alter_info *info, const KEY *index)
{
  List_iterator_fast<::Key> it(info->key_list);
  while (::Key *key= it++)
    if (!strcmp(key->name.str ? key->name.str : key->columns.head()->field_name.str,
                index->name.str))
      return true;
  return false;
}

// Whether the statement drops the index that has this part and adds one of that name. If they are
// the same the server would do nothing: but that is how one asks for an index to be made anew,
// since it is damaged for example.
static bool makes_anew(THD *thd, const TABLE *table, const KEY_PART_INFO &part)
{
  if (!is_one_of(thd, {SQLCOM_ALTER_TABLE, SQLCOM_CREATE_INDEX}))
    return false;
  const KEY *index= index_with_part(table, part);
  // A primary key is made anew with the table.
  if (!index || uint(index - table->key_info) == table->s->primary_key)
    return false;
  Alter_info *info= &thd->lex->alter_info;
  return drops(info, index) && adds(info, index);
}

// An index holds the same of a longer VARCHAR, unless it held all of it and can't any more.
Compare_keys ha_weir::compare_key_parts(const Field &before, const Column_definition &after,
                                        const KEY_PART_INFO &old_part,
                                        const KEY_PART_INFO &new_part) const
{
  if (makes_anew(ha_thd(), table, old_part))
    return Compare_keys::NotEqual;
  if (before.is_equal(after) || !can_convert_nocopy(before, after))
    return handler::compare_key_parts(before, after, old_part, new_part);
  bool was_whole= old_part.length == before.field_length, is_whole= new_part.length == after.length;
  if (was_whole && is_whole)
    return Compare_keys::EqualButKeyPartLength;
  return !was_whole && old_part.length == new_part.length ? Compare_keys::Equal
                                                          : Compare_keys::NotEqual;
}

// Of each column that a table has after an ALTER, what it was before; null: it is new.
static std::vector<const Field *> columns_before(const Alter_inplace_info *info)
{
  std::vector<const Field *> before;
  List_iterator_fast<Create_field> it(info->alter_info->create_list);
  while (const Create_field *one= it++)
    before.push_back(one->field);
  return before;
}

// Whether a new column's CHECK, if it has one, is for its value alone, which the server has put
// into the record, and allows that.
static bool is_allowed(Field *field)
{
  if (!field->check_constraint)
    return true;
  TABLE *altered= field->table;
  Item *check= field->check_constraint->expr;
  bitmap_clear_all(&altered->tmp_set);
  check->walk(&Item::register_field_in_bitmap, false, &altered->tmp_set);
  bitmap_clear_bit(&altered->tmp_set, field->field_index);
  return bitmap_is_clear_all(&altered->tmp_set) && (check->val_bool() || check->null_value);
}

// Whether a new column's value is the same for all rows, and fits. Leaves it in the record.
static bool is_constant(Field *field)
{
  if (field->vcol_info || field->unireg_check == Field::NEXT_NUMBER || !is_allowed(field))
    return false;
  const Virtual_column_info *value= field->default_value;
  if (!value)
    return true;
  if (value->flags & ~(VCOL_SESSION_FUNC | VCOL_TIME_FUNC) ||
      value->expr->used_tables() & RAND_TABLE_BIT)
    return false;
  // Of one that doesn't fit a copy says what is to be said, and whether it may be cut.
  static const int FITS= 0, MOMENT_CUT= 3; // to a TIME or DATE
  int stored= field->set_default();
  return (stored == FITS || stored == MOMENT_CUT) && !field->table->in_use->is_error();
}

// Whether a column is in an index, which holds a byte for each column that can be NULL.
static bool is_in_index(const TABLE *table, const Field *field)
{
  for (uint i= 0; i < table->s->keys; i++)
    for (uint part= 0; part < table->key_info[i].user_defined_key_parts; part++)
      if (table->key_info[i].key_part[part].fieldnr == field->field_index + 1)
        return true;
  return false;
}

// Why rows don't stay as they are when columns come, go, change places or can be NULL; null: they
// do.
static const char *reason_for_other_rows(TABLE *altered, const Alter_inplace_info *info)
{
  std::vector<const Field *> before= columns_before(info);
  if (before.size() != altered->s->fields)
    return "the server adds columns of its own";
  for (uint i= 0; i < altered->s->fields; i++)
  {
    Field *field= altered->field[i];
    if (!field->stored_in_db())
      continue;
    if (!before[i] && !is_constant(field))
      return "a new column's value differs from row to row, or isn't allowed";
    if (before[i] && field->null_ptr && !before[i]->null_ptr && is_in_index(altered, field))
      return "a column in an index is to take NULL";
  }
  return nullptr;
}

// Whether columns that partitions are by come in another order: KEY finds rows' partitions by that.
static bool moves_partition_columns(const Alter_inplace_info *info)
{
  uint last= 0;
  for (const Field *field : columns_before(info))
  {
    if (!field || !(field->flags & FIELD_IN_PART_FUNC_FLAG))
      continue;
    if (field->field_index < last)
      return true;
    last= field->field_index;
  }
  return false;
}

// Whether rows keep their keys: the primary key is the same one, or there is none before and after.
static bool keeps_primary(const TABLE *table, const TABLE *altered, const Alter_inplace_info *info)
{
  uint before= table->s->primary_key, after= altered->s->primary_key;
  if (before == MAX_KEY || after == MAX_KEY)
    return before == after;
  if (index_named(table, altered->key_info[after].name.str) != before)
    return false;
  for (uint i= 0; i < info->index_add_count; i++)
    if (added_index(altered, info, i) == after)
      return false;
  return true;
}

// Finds the places that the altered table's columns will have, and the values that rows lack. True:
// it failed.
bool ha_weir::place_columns(TABLE *altered, const Alter_inplace_info *info, AlterContext &out) const
{
  out.places= row_format.places_of(altered, columns_before(info));
  KeyFormat key;
  if (!hidden)
    key.init(altered, altered->s->primary_key, nullptr, share->keys_made);
  RowFormat then;
  if (!then.init(altered, hidden ? nullptr : &key, out.places))
    return true;
  // The server has put the columns' defaults there.
  if (then.places() > row_format.places())
    out.added= then.added_row(altered, altered->record[0], share->added);
  return false;
}

// Why the engine can't keep what it is to keep with the altered table; null: it can.
const char *ha_weir::reason_of_meta(TABLE *altered, const Alter_inplace_info *info) const
{
  // For what comes later: a partition's other name.
  static const size_t LEFT_FREE= 4096;
  AlterContext then(share, nullptr);
  Meta meta;
  if (place_columns(altered, info, then))
    return "rows have no place for the columns";
  if (read_meta(share->table, share->name, &meta) != WEIR_RESULT_OK)
    return "what the engine keeps with the table can't be read";
  meta.added= then.added;
  meta.places= then.places;
  if (meta.encode().size() + LEFT_FREE > WEIR_META_BYTES_MAX)
    return "new columns' values are too long to be kept once for all rows";
  return nullptr;
}

// Why only a copy can do what an ALTER asks for, where the statement doesn't say it itself.
const char *ha_weir::reason_for_copy(TABLE *altered, const Alter_inplace_info *info) const
{
  const alter_table_operations wanted= info->handler_flags;
  if (!keeps_primary(table, altered, info))
    return "rows get another primary key";
  if (wanted & (ALTER_STORED_COLUMN_TYPE | ALTER_VIRTUAL_COLUMN_TYPE))
    return "a column gets another type, length or character set";
  if (wanted & ALTER_COLUMN_NOT_NULLABLE)
    return "a column is forbidden NULL";
  if (wanted & (ALTER_STORED_GCOL_EXPR | ALTER_VIRTUAL_GCOL_EXPR | ALTER_COLUMN_VCOL))
    return "a generated column's expression is given anew";
  // A copy finds the first row.
  if (info->error_if_not_empty)
    return "the statement doesn't allow a new column's value";
  // Only a copy lacks them.
  if (info->ignore && wanted & ALTER_ADD_UNIQUE_INDEX)
    return "rows that are duplicates of others are left out";
  if (info->create_info->sequence != (table->s->sequence != nullptr))
    return "what a sequence has is checked row by row";
  if (moves_partition_columns(info))
    return "columns that partitions are by change places";
  // The engine would wait for that to end.
  Session *session= Session::find(ha_thd());
  if (session && session->uses(ha_thd(), share->name))
    return "this transaction has used the temporary table";
  // A table that is given columns and loses them again and again is copied now and then.
  static const size_t PLACES_MAX= 2 * MAX_FIELDS;
  if (wanted & COLUMNS)
  {
    if (row_format.places() + altered->s->fields > PLACES_MAX)
      return "rows keep the places of too many dropped columns";
    if (const char *reason= reason_for_other_rows(altered, info))
      return reason;
    if (const char *reason= reason_of_meta(altered, info))
      return reason;
  }
  if (wanted & REORGANIZE)
  {
    if (wanted & COLUMNS)
      return "pages are filled anew while columns change";
    // Only a copy is without them.
    if (!share->places.dropped.empty())
      return "rows keep dropped columns' places";
    if (share->keys_made != KEYS_NOW)
      return "keys are those of an older version";
  }
  for (uint i= 0; i < info->index_add_count; i++)
  {
    uint at= added_index(altered, info, i);
    if (at == MAX_KEY || altered->key_info[at].algorithm == HA_KEY_ALG_LONG_HASH)
      return "a unique index is by a hash of its columns";
  }
  return nullptr;
}

enum_alter_inplace_result ha_weir::check_if_supported_inplace_alter(TABLE *altered,
                                                                    Alter_inplace_info *info)
{
  info->unsupported_reason= reason_for_copy(altered, info);
  bool is_known= !(info->handler_flags & ~(DEFINITION_ONLY | INDEXES | COLUMNS | REORGANIZE));
  if (info->unsupported_reason || !is_known)
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  if (info->handler_flags & REORGANIZE)
    return HA_ALTER_INPLACE_COPY_NO_LOCK;
  if (!(info->handler_flags & INDEXES))
    return HA_ALTER_INPLACE_INSTANT;
  if (info->index_add_count == 0)
    return HA_ALTER_INPLACE_NO_LOCK;
  // For a moment, to begin with, nobody else uses the table: the server waits for them.
  return HA_ALTER_INPLACE_NOCOPY_NO_LOCK;
}
