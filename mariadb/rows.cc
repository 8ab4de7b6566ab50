#include "rows.h"
#include "bytes.h"

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

// Makes a column the next of those that are stored.
void Rows::place(Column &c, bool can_be_null)
{
  c.stored= uint(nullable_among.size()) - 1;
  c.nullable= nullable_among.back();
  c.can_be_null= can_be_null;
  nullable_among.push_back(c.nullable + can_be_null);
}

// The columns that were dropped and whose places come next. False: the bytes make no sense.
bool Rows::place_dropped(const uchar *&from, const uchar *end)
{
  while (from < end)
  {
    const uchar *at= from;
    size_t stored, can_be_null, length;
    if (!take_number(at, end, stored) || !take_number(at, end, can_be_null) || !take_number(at, end, length) ||
        stored + 1 < nullable_among.size())
      return false;
    if (stored + 1 > nullable_among.size())
      return true;
    Column c= {};
    c.form= length == 0 ? Form::Var : Form::Fixed;
    c.length= length == 0 ? 0 : uint(length - 1);
    place(c, can_be_null != 0);
    columns.push_back(c);
    from= at;
  }
  return true;
}

Bytes Rows::with_dropped(const std::vector<const Field *> &kept) const
{
  Bytes out;
  for (const Column &c : columns)
  {
    if (c.field && std::find(kept.begin(), kept.end(), c.field) != kept.end())
      continue;
    append_length(out, c.stored);
    append_length(out, c.can_be_null);
    append_length(out, c.form == Form::Fixed ? c.length + 1 : 0);
  }
  return out;
}

bool Rows::init(TABLE *table, const KeyFormat *primary, const Bytes &dropped)
{
  columns.clear();
  nullable_among.assign(1, 0);
  auto gone= reinterpret_cast<const uchar *>(dropped.data());
  const uchar *gone_end= gone + dropped.size();
  for (Field **f= table->field; *f; f++)
  {
    Field *field= *f;
    if (!field->stored_in_db())
      continue;
    if (!place_dropped(gone, gone_end))
      return false;
    Column c= {};
    place(c, field->null_ptr);
    if (is_in_primary(primary, field))
      continue;
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
    else if (field->real_type() == MYSQL_TYPE_STRING && field->type_handler() == &type_handler_string &&
             field->charset() != &my_charset_bin)
      c.form= Form::Char;
    else
      c.form= Form::Fixed;
    columns.push_back(c);
  }
  return place_dropped(gone, gone_end) && gone == gone_end;
}

void Rows::encode(TABLE *table, const uchar *record, Bytes &out) const
{
  append_length(out, nullable_among.size() - 1);
  size_t nulls= out.size();
  out.append((nullable_among.back() + 7) / 8, '\0');
  for (const Column &c : columns)
  {
    if (c.field ? c.null_bit && (record[c.null_offset] & c.null_bit) : c.can_be_null)
    {
      out[nulls + c.nullable / 8]|= static_cast<char>(1 << c.nullable % 8);
      continue;
    }
    if (!c.field)
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
Value Rows::value_in(const Column &c, TABLE *table, const uchar *record)
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

bool Rows::are_same(TABLE *table, const uchar *one, const uchar *other) const
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
const uchar *Rows::take(const Column &c, const uchar *from, const uchar *end, uchar *to, bool wanted)
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

void Rows::want(const MY_BITMAP *wanted, std::vector<uchar> &out) const
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

bool Rows::decode(TABLE *table, WeirBytes row, const std::vector<uchar> &wanted, uchar *record) const
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
    if (!c.field)
    {
      bool has_value= !lacks && !(c.can_be_null && (nulls[c.nullable / 8] & 1 << c.nullable % 8));
      if (has_value && !(from= take(c, from, end, nullptr, false)))
        return false;
      continue;
    }
    uchar *to= record + c.offset;
    bool is_wanted= wanted[i];
    bool null= c.null_bit && (lacks ? added[c.null_offset] & c.null_bit
                                    : nulls[c.nullable / 8] & 1 << c.nullable % 8);
    if (c.null_bit && !null)
      record[c.null_offset]&= ~c.null_bit;
    if (null)
    {
      record[c.null_offset]|= c.null_bit;
      // As the server leaves a NULL: what it compares and hashes must not be chance.
      if (is_wanted)
        memcpy(to, table->s->default_values + c.offset, c.field->pack_length());
    }
    else if (lacks)
      memcpy(to, &added[c.offset], c.field->pack_length());
    else if (!(from= take(c, from, end, to, is_wanted)))
      return false;
  }
  return true;
}

bool Rows::set_added(TABLE *table, const Bytes &row)
{
  added.clear();
  if (row.empty())
    return true;
  const uchar *defaults= table->s->default_values;
  std::vector<uchar> record(defaults, defaults + table->s->reclength);
  added= record;
  std::vector<uchar> all;
  want(nullptr, all);
  bool ok= decode(table, bytes_of(row), all, record.data());
  added.swap(record);
  return ok;
}

Bytes Rows::added_row(TABLE *table) const
{
  Bytes row;
  encode(table, added.empty() ? table->s->default_values : added.data(), row);
  return row;
}

} // namespace weir
