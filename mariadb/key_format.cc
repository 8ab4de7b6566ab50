// Keys and entries of an index, made of parts (keys.cc).
#include "keys.h"

namespace weir {

void KeyFormat::init(TABLE *table, uint number, const KeyFormat *of_rows, uchar keys_made)
{
  KEY *info= &table->key_info[number];
  unique= info->flags & HA_NOSAME;
  hidden= of_rows == nullptr && number != table->s->primary_key;
  nulls= false;
  whole= true;
  own.resize(info->user_defined_key_parts);
  extension= info->ext_key_parts - info->user_defined_key_parts;
  for (uint i= 0; i < own.size(); i++)
  {
    own[i].init(table, &info->key_part[i], keys_made);
    nulls|= own[i].nullable;
    whole&= own[i].whole;
  }
  appended.clear();
  primary.clear();
  source.clear();
  if (!of_rows)
    return;
  primary= of_rows->own;
  for (const Part &part : primary)
  {
    whole&= part.whole;
    int found= -1;
    for (uint i= 0; i < own.size() && found < 0; i++)
      if (own[i].field == part.field && own[i].length == part.length && own[i].kind == part.kind)
        found= int(i);
    if (found < 0)
    {
      found= ~int(appended.size());
      appended.push_back(part);
    }
    source.push_back(found);
  }
}

void KeyFormat::primary_key(TABLE *table, const uchar *record, Bytes &out) const
{
  for (const Part &part : own)
    part.append_from_record(table, record, out);
}

void KeyFormat::from_image(const uchar *image, key_part_map map, Bytes &out) const
{
  size_t i= 0;
  for (; i < own.size() && (map & 1); i++, map>>= 1)
  {
    own[i].append_from_image(image, out);
    image+= own[i].store_length;
  }
  for (i= 0; i < appended.size() && i < extension && (map & 1) && !unique; i++, map>>= 1)
  {
    appended[i].append_from_image(image, out);
    image+= appended[i].store_length;
  }
}

bool KeyFormat::has_null(const uchar *record, TABLE *table) const
{
  for (const Part &part : own)
    if (part.nullable && part.field->is_null(record - table->record[0]))
      return true;
  return false;
}

void KeyFormat::entry(TABLE *table, const uchar *record, const Bytes &pk, Bytes &key,
                      Bytes &value) const
{
  for (const Part &part : own)
    part.append_from_record(table, record, key);
  if (unique)
  {
    // NULL equals nothing: the primary key makes such entries distinct.
    if (nulls && has_null(record, table))
      key+= pk;
    append_length(value, pk.size());
    value+= pk;
  }
  else if (hidden)
    key+= pk;
  else
    for (const Part &part : appended)
      part.append_from_record(table, record, key);
  for (const Part &part : own)
    part.append_cover(table, record, value);
  for (const Part &part : appended)
    part.append_cover(table, record, value);
}

bool KeyFormat::primary_of(WeirBytes key, WeirBytes value, Bytes &pk) const
{
  if (unique)
  {
    const uchar *from= value.data, *end= from + value.len;
    size_t len;
    if (!take_length(from, end, len))
      return false;
    append(pk, from, len);
    return true;
  }
  const uchar *end= key.data + key.len;
  const uchar *starts[2 * MAX_REF_PARTS + 1];
  const uchar *at= key.data;
  for (uint i= 0; i < own.size(); i++)
  {
    starts[i]= at;
    if (!(at= own[i].skip(at, end)))
      return false;
  }
  if (hidden)
  {
    append(pk, at, end - at);
    return true;
  }
  starts[own.size()]= at;
  for (uint i= 0; i < appended.size(); i++)
  {
    if (!(at= appended[i].skip(at, end)))
      return false;
    starts[own.size() + i + 1]= at;
  }
  // Parts of the primary key in its order; an index may hold one the other way round.
  for (uint i= 0; i < source.size(); i++)
  {
    int s= source[i];
    size_t n= s >= 0 ? size_t(s) : own.size() + size_t(~s);
    size_t from= pk.size();
    append(pk, starts[n], starts[n + 1] - starts[n]);
    if (s >= 0 && own[s].descending != primary[i].descending)
      invert(pk, from);
  }
  return true;
}

size_t KeyFormat::reach(const MY_BITMAP *columns) const
{
  size_t all= own.size() + appended.size();
  for (size_t n= all; n > 0; n--)
  {
    const Part &part= n > own.size() ? appended[n - own.size() - 1] : own[n - 1];
    if (!columns || bitmap_is_set(columns, part.field->field_index))
      return n;
  }
  return 0;
}

bool KeyFormat::decode(TABLE *table, WeirBytes key, WeirBytes value, size_t parts,
                       uchar *record) const
{
  const uchar *cover= value.data, *cover_end= cover + value.len;
  const uchar *at= key.data, *end= at + key.len;
  WeirBytes pk= {nullptr, 0};
  if (unique)
  {
    if (!take_length(cover, cover_end, pk.len))
      return false;
    pk.data= cover;
    cover+= pk.len;
  }
  for (size_t i= 0; i < own.size() && i < parts; i++)
  {
    const uchar *next= own[i].skip(at, end);
    if (!next || !own[i].decode(table, at, next, cover, cover_end, record))
      return false;
    at= next;
  }
  if (parts <= own.size())
    return true;
  if (!unique)
    pk= WeirBytes{at, size_t(end - at)};
  return hidden || decode_appended(table, pk, cover, cover_end, record);
}

// Columns of the primary key that the index itself lacks. A unique index holds all of that.
bool KeyFormat::decode_appended(TABLE *table, WeirBytes pk, const uchar *cover,
                                const uchar *cover_end, uchar *record) const
{
  const uchar *at= pk.data, *end= at + pk.len;
  for (uint i= 0; i < primary.size(); i++)
  {
    bool lacking= source[i] < 0;
    if (!lacking && !unique)
      continue;
    const uchar *next= primary[i].skip(at, end);
    if (!next || (lacking && !primary[i].decode(table, at, next, cover, cover_end, record)))
      return false;
    at= next;
  }
  return true;
}

bool KeyFormat::decode_primary(TABLE *table, WeirBytes key, size_t parts, uchar *record) const
{
  const uchar *at= key.data, *end= at + key.len;
  const uchar *no_cover= nullptr;
  for (size_t i= 0; i < parts; i++)
  {
    const Part &part= own[i];
    const uchar *next= part.skip(at, end);
    if (!next ||
        (part.is_exact() && !part.decode(table, at, next, no_cover, no_cover, record)))
      return false;
    at= next;
  }
  return true;
}

size_t KeyFormat::split(WeirBytes key, size_t *ends, size_t count) const
{
  const uchar *at= key.data, *end= at + key.len;
  for (size_t n= 0; n < count; n++)
  {
    const Part &part= n < own.size() ? own[n] : appended[n - own.size()];
    if (!(at= part.skip(at, end)))
      return n;
    ends[n]= size_t(at - key.data);
  }
  return count;
}

size_t KeyFormat::max_bytes() const
{
  size_t n= 0;
  for (const Part &part : own)
    n+= part.max_bytes();
  return n;
}

bool KeyFormat::is_fixed() const
{
  for (const Part &part : own)
    if (part.nullable || part.kind == Kind::Binary || part.kind == Kind::Text ||
        part.kind == Kind::Weights)
      return false;
  return true;
}

bool KeyFormat::touches(const MY_BITMAP *columns) const
{
  for (const Part &part : own)
    if (bitmap_is_set(columns, part.field->field_index))
      return true;
  // Of the primary key's columns, the entry may hold what their bytes don't tell: upper case.
  for (const Part &part : appended)
    if (bitmap_is_set(columns, part.field->field_index))
      return true;
  return false;
}

} // namespace weir
