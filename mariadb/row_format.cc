#include "row_format.h"

namespace weir {

static bool is_in_primary(const KeyFormat *primary, const Field *field)
{
  if (!primary)
    return false;
  for (const Part &part : primary->parts())
    if (part.field == field)
      return part.is_exact();
  return false;
}

// How rows hold a column's values.
RowFormat::Column RowFormat::describe(TABLE *table, Field *field)
{
  Column c= {};
  c.field= field;
  c.index= field->field_index;
  c.offset= field->offset(table->record[0]);
  c.length= field->pack_length();
  c.null_offset= field->null_ptr ? field->null_offset(table->record[0]) : 0;
  c.null_bit= field->null_ptr ? field->null_bit : 0;
  if (field->flags & BLOB_FLAG)
    c.form= Form::Blob;
  else if (field->real_type() == MYSQL_TYPE_VARCHAR)
  {
    c.form= Form::Var;
    c.length= field->field_length;
    c.length_bytes= static_cast<Field_varstring *>(field)->length_bytes;
  }
  else if (field->real_type() == MYSQL_TYPE_STRING &&
           field->type_handler() == &type_handler_string && field->charset() != &my_charset_bin)
    c.form= Form::Char;
  else
    c.form= Form::Fixed;
  return c;
}

// Gives a column its place. False: there is no such place, or another has it.
bool RowFormat::put(const Column &c)
{
  if (c.stored >= by_place.size() || by_place[c.stored].is_taken)
    return false;
  by_place[c.stored]= c;
  by_place[c.stored].is_taken= true;
  return true;
}

// Columns that only rows have. False: the bytes make no sense.
bool RowFormat::read_dropped(const Bytes &dropped, std::vector<Column> &out)
{
  auto from= reinterpret_cast<const uchar *>(dropped.data());
  const uchar *end= from + dropped.size();
  while (from < end)
  {
    size_t stored, can_be_null, length;
    if (!take_number(from, end, stored) || !take_number(from, end, can_be_null) ||
        !take_number(from, end, length))
      return false;
    Column c= {};
    c.form= length == 0 ? Form::Var : Form::Fixed;
    c.length= length == 0 ? 0 : uint(length - 1);
    c.stored= c.told_at= uint(stored);
    c.can_be_null= can_be_null != 0;
    c.has_bytes= true;
    out.push_back(c);
  }
  return true;
}

// The table's columns. False: the bytes make no sense.
bool RowFormat::put_columns(TABLE *table, const KeyFormat *primary, const Bytes &order)
{
  auto from= reinterpret_cast<const uchar *>(order.data());
  const uchar *end= from + order.size();
  size_t place= 0, told= 0;
  for (Field **f= table->field; *f; f++)
  {
    Field *field= *f;
    if (!field->stored_in_db())
      continue;
    if (!order.empty() && !(take_number(from, end, place) && take_number(from, end, told)))
      return false;
    while (order.empty() && place < by_place.size() && by_place[place].is_taken)
      place++;
    Column c= describe(table, field);
    c.stored= uint(place);
    c.told_at= uint(told == 0 ? place : told - 1);
    c.can_be_null= field->null_ptr && told == 0;
    c.has_bytes= !is_in_primary(primary, field);
    if (!put(c))
      return false;
  }
  return from == end;
}

// Numbers the places that can be NULL. False: one that is to tell this of a column can't.
bool RowFormat::number_bits()
{
  nullable_among.assign(1, 0);
  for (Column &c : by_place)
  {
    c.nullable= nullable_among.back();
    nullable_among.push_back(c.nullable + c.can_be_null);
  }
  for (Column &c : by_place)
  {
    if (c.told_at == c.stored)
      continue;
    if (c.told_at >= by_place.size())
      return false;
    Column &bit= by_place[c.told_at];
    if (bit.field || !bit.can_be_null || bit.form != Form::Fixed || bit.length != 0)
      return false;
    bit.has_bytes= false;
    c.nullable= bit.nullable;
  }
  return true;
}

bool RowFormat::init(TABLE *table, const KeyFormat *primary, const Places &places)
{
  std::vector<Column> dropped;
  if (!read_dropped(places.dropped, dropped))
    return false;
  size_t count= dropped.size();
  for (Field **f= table->field; *f; f++)
    count+= (*f)->stored_in_db();
  by_place.assign(count, Column{});
  for (const Column &c : dropped)
    if (!put(c))
      return false;
  if (!put_columns(table, primary, places.order) || !number_bits())
    return false;
  columns.clear();
  for (const Column &c : by_place)
    if (c.has_bytes)
      columns.push_back(c);
  return true;
}

const RowFormat::Column *RowFormat::column_of(const Field *field) const
{
  for (const Column &c : by_place)
    if (c.field == field)
      return &c;
  return nullptr;
}

Places RowFormat::places_of(const TABLE *altered, const std::vector<const Field *> &before) const
{
  Places out;
  std::vector<bool> has_column(places() + altered->s->fields);
  size_t next= places(), least= 0;
  bool is_in_order= true;
  for (uint i= 0; i < altered->s->fields; i++)
  {
    const Field *field= altered->field[i];
    if (!field->stored_in_db())
      continue;
    size_t place, told= 0;
    if (const Column *c= before[i] ? column_of(before[i]) : nullptr)
    {
      place= c->stored;
      if (c->told_at != c->stored)
        told= c->told_at + 1;
      else if (field->null_ptr && !before[i]->null_ptr)
        told= ++next;
    }
    else
      place= next++;
    has_column[place]= true;
    append_length(out.order, place);
    append_length(out.order, told);
    is_in_order= is_in_order && told == 0 && place >= least;
    least= place + 1;
  }
  if (is_in_order)
    out.order.clear();
  for (size_t place= 0; place < next; place++)
  {
    if (has_column[place])
      continue;
    Column c= {}; // a NULL bit
    c.can_be_null= true;
    if (place < places())
      c= by_place[place];
    append_length(out.dropped, place);
    append_length(out.dropped, c.can_be_null);
    append_length(out.dropped, c.form == Form::Fixed ? c.length + 1 : 0);
  }
  return out;
}

void RowFormat::encode(TABLE *table, const uchar *record, Bytes &out) const
{
  append_length(out, places());
  size_t nulls= out.size();
  out.append((nullable_among.back() + 7) / 8, '\0');
  for (const Column &c : columns)
  {
    bool null= c.field ? c.null_bit && (record[c.null_offset] & c.null_bit) : c.can_be_null;
    if (null)
      out[nulls + c.nullable / 8]|= static_cast<char>(1 << c.nullable % 8);
    if (null && c.can_be_null)
      continue;
    if (null || !c.field)
    {
      // No value, or zeros.
      out.append(c.form == Form::Fixed ? c.length : 1, '\0');
      continue;
    }
    Value value= value_in(c, table, record);
    if (c.form != Form::Fixed)
      append_length(out, value.len);
    append(out, value.ptr, value.len);
  }
}

// A value that isn't NULL.
Value RowFormat::value_in(const Column &c, TABLE *table, const uchar *record)
{
  const uchar *ptr= record + c.offset;
  switch (c.form) {
  case Form::Fixed:
    break;
  case Form::Char:
    return Value{ptr, c.field->charset()->lengthsp(reinterpret_cast<const char *>(ptr), c.length)};
  case Form::Var:
    return Value{ptr + c.length_bytes, c.length_bytes == 1 ? size_t(*ptr) : size_t(uint2korr(ptr))};
  case Form::Blob:
  {
    auto blob= static_cast<Field_blob *>(c.field);
    my_ptrdiff_t diff= record - table->record[0];
    return Value{blob->get_ptr(blob->ptr + diff), blob->get_length(diff)};
  }
  }
  return Value{ptr, c.length};
}

bool RowFormat::are_same(TABLE *table, const uchar *one, const uchar *other) const
{
  for (const Column &c : columns)
  {
    if (!c.field)
      continue;
    bool null= one[c.null_offset] & c.null_bit, other_null= other[c.null_offset] & c.null_bit;
    if (null != other_null)
      return false;
    if (null)
      continue;
    Value a= value_in(c, table, one), b= value_in(c, table, other);
    if (a.len != b.len || (a.len && memcmp(a.ptr, b.ptr, a.len)))
      return false;
  }
  return true;
}

// One column; returns where it ends, or null if its bytes make no sense.
const uchar *RowFormat::take(const Column &c, const uchar *from, const uchar *end, uchar *to,
                             bool wanted)
{
  size_t len= c.length;
  if (c.form == Form::Fixed ? size_t(end - from) < len : !take_length(from, end, len))
    return nullptr;
  if (!wanted)
    return from + len;
  switch (c.form) {
  case Form::Fixed:
    memcpy(to, from, len);
    break;
  case Form::Char:
  {
    if (len > c.length)
      return nullptr;
    memcpy(to, from, len);
    CHARSET_INFO *cs= c.field->charset();
    cs->fill(reinterpret_cast<char *>(to + len), c.length - len, ' ');
    break;
  }
  case Form::Var:
    if (len > c.length)
      return nullptr;
    if (c.length_bytes == 1)
      *to= static_cast<uchar>(len);
    else
      int2store(to, static_cast<uint16>(len));
    memcpy(to + c.length_bytes, from, len);
    break;
  case Form::Blob:
  {
    uint bytes= static_cast<Field_blob *>(c.field)->pack_length_no_ptr();
    for (uint i= 0; i < bytes; i++)
      to[i]= static_cast<uchar>(len >> (8 * i));
    memcpy(to + bytes, &from, sizeof from);
    break;
  }
  }
  return from + len;
}

void RowFormat::want(const MY_BITMAP *wanted, std::vector<uchar> &out) const
{
  out.assign(columns.size(), 1);
  if (!wanted)
    return;
  size_t last= 0;
  for (size_t i= 0; i < columns.size(); i++)
    if ((out[i]= columns[i].field && bitmap_is_set(wanted, columns[i].index)))
      last= i + 1;
  out.resize(last);
}

bool RowFormat::decode(TABLE *table, WeirBytes row, const std::vector<uchar> &wanted,
                       uchar *record) const
{
  const uchar *from= row.data, *end= from + row.len;
  size_t stored;
  if (!take_number(from, end, stored) || stored >= nullable_among.size())
    return false;
  const uchar *nulls= from;
  size_t null_bytes= (nullable_among[stored] + 7) / 8;
  if (size_t(end - from) < null_bytes || (stored + 1 < nullable_among.size() && added.empty()))
    return false;
  from+= null_bytes;
  memcpy(record, table->s->default_values, table->s->null_bytes);
  for (size_t i= 0; i < wanted.size(); i++)
  {
    const Column &c= columns[i];
    bool lacks= c.stored >= stored;
    bool has_bit= !lacks && c.told_at < stored && nulls[c.nullable / 8] & 1 << c.nullable % 8;
    bool has_value= !lacks && !(c.can_be_null && has_bit);
    // The server may look at a column that it doesn't ask for (CHECKSUM): it stays as it is in the
    // default row.
    if (!c.field || !wanted[i])
    {
      if (has_value && !(from= take(c, from, end, nullptr, false)))
        return false;
      continue;
    }
    uchar *to= record + c.offset;
    bool null= c.null_bit && (lacks ? added[c.null_offset] & c.null_bit : has_bit);
    if (c.null_bit && !null)
      record[c.null_offset]&= ~c.null_bit;
    if (null)
    {
      record[c.null_offset]|= c.null_bit;
      // As the server leaves a NULL: what it compares and hashes must not be chance.
      memcpy(to, table->s->default_values + c.offset, c.field->pack_length());
      if (has_value && !(from= take(c, from, end, nullptr, false)))
        return false;
    }
    else if (lacks)
      memcpy(to, &added[c.offset], c.field->pack_length());
    else if (!(from= take(c, from, end, to, true)))
      return false;
  }
  return true;
}

bool RowFormat::set_added(TABLE *table, const Bytes &row)
{
  added.clear();
  return row.empty() || fill(table, table->s->default_values, row);
}

// Makes a record with the values of a row, and others where that lacks them, the one with the
// values that rows lack.
bool RowFormat::fill(TABLE *table, const uchar *others, const Bytes &row)
{
  std::vector<uchar> record(others, others + table->s->reclength), all;
  added= record;
  want(nullptr, all);
  bool ok= row.empty() || decode(table, bytes_of(row), all, record.data());
  added.swap(record);
  return ok;
}

Bytes RowFormat::added_row(TABLE *table, const uchar *record, const Bytes &before)
{
  Bytes row;
  if (fill(table, record, before))
    encode(table, added.data(), row);
  return row;
}

} // namespace weir
