// Keys as bytes (keys.h): where parts end, and their values out of their bytes.
#include "keys.h"

namespace weir {

static void read_integer(const uchar *from, uchar *ptr, uint len, bool is_signed)
{
  reverse(from, ptr, len);
  if (is_signed)
    ptr[len - 1]^= 0x80;
}

static void read_real(const uchar *from, uchar *ptr, uint len)
{
  bool positive= from[0] & 0x80;
  for (uint i= 0; i < len; i++)
    ptr[i]= positive ? from[len - 1 - i] : from[len - 1 - i] ^ INVERT;
  if (positive)
    ptr[len - 1]&= 0x7f;
}

/* Parts */

// Where bytes that end in 0 0 end. `x` inverts a descending part.
static const uchar *skip_escaped(const uchar *from, const uchar *end, uchar x)
{
  while (end - from >= 2)
  {
    if ((*from ^ x) != 0)
      from++;
    else if ((from[1] ^ x) == 0)
      return from + 2;
    else
      from+= 2;
  }
  return nullptr;
}

static const uchar *skip_padded(const uchar *from, const uchar *end, uchar x, const uchar *space,
                                uint width)
{
  while (size_t(end - from) > width)
  {
    bool is_space= true;
    for (uint i= 0; i < width; i++)
      is_space&= (from[i] ^ x) == space[i];
    from+= width;
    if (!is_space)
      continue;
    uchar code= *from++ ^ x;
    if (code == 128)
      return from;
    while (code == 127 || code == 129)
    {
      if (from >= end)
        return nullptr;
      code= *from++ ^ x;
    }
  }
  return nullptr;
}

const uchar *Part::skip(const uchar *from, const uchar *end) const
{
  uchar x= descending ? INVERT : 0;
  if (nullable)
  {
    if (from >= end)
      return nullptr;
    if ((*from++ ^ x) == 0)
      return from;
  }
  switch (kind) {
  case Kind::Binary:
    return skip_escaped(from, end, x);
  case Kind::Text:
    return skip_padded(from, end, x, BLANK, 1);
  case Kind::Weights:
    for (uint i= 0; from && i < level_count; i++)
      from= levels[i].end == End::Padded
                ? skip_padded(from, end, x, levels[i].space, levels[i].width)
                : skip_escaped(from, end, x);
    return from;
  default:
    return size_t(end - from) >= length ? from + length : nullptr;
  }
}

// Writes a value of a length into a field of a record.
static bool store_bytes(Field *field, bool variable, const uchar *ptr, size_t len, uchar *to)
{
  if (variable)
  {
    auto f= static_cast<Field_varstring *>(field);
    if (len > f->field_length)
      return false;
    if (f->length_bytes == 1)
      *to= static_cast<uchar>(len);
    else
      int2store(to, static_cast<uint16>(len));
    memcpy(to + f->length_bytes, ptr, len);
    return true;
  }
  if (len > field->field_length)
    return false;
  memcpy(to, ptr, len);
  CHARSET_INFO *cs= field->charset();
  cs->fill(reinterpret_cast<char *>(to + len), field->field_length - len, cs->pad_char);
  return true;
}

static bool store_bytes(Field *field, bool variable, const Bytes &value, uchar *to)
{
  return store_bytes(field, variable, reinterpret_cast<const uchar *>(value.data()), value.size(),
                     to);
}

static void unescape(const uchar *from, const uchar *end, Bytes &out)
{
  for (end-= 2; from < end; from++)
  {
    out.push_back(static_cast<char>(*from));
    if (*from == 0)
      from++;
  }
}

static void unpad(const uchar *from, const uchar *end, Bytes &out)
{
  // The end is a space and 128.
  for (end-= 2; from < end;)
  {
    out.push_back(static_cast<char>(*from));
    if (*from++ != ' ')
      continue;
    size_t n= 0;
    uchar code;
    while ((code= *from++) == 127 || code == 129)
      n+= MAX_RUN;
    n+= code < 127 ? code : 255 - code;
    if (n > 1)
      out.append(n - 1, ' ');
  }
}

bool Part::decode(TABLE *table, const uchar *from, const uchar *end, const uchar *&cover,
                  const uchar *cover_end, uchar *record) const
{
  Bytes inverted;
  if (descending)
  {
    append(inverted, from, end - from);
    invert(inverted, 0);
    from= reinterpret_cast<const uchar *>(inverted.data());
    end= from + inverted.size();
  }
  uchar *to= record + offset;
  if (nullable)
  {
    if (*from++ == 0)
    {
      record[null_offset]|= null_bit;
      if (!(field->flags & BLOB_FLAG))
        memcpy(to, table->s->default_values + offset, field->pack_length());
      return true;
    }
    record[null_offset]&= ~null_bit;
  }
  return !whole || decode_value(from, end, cover, cover_end, to);
}

// A value that isn't NULL.
bool Part::decode_value(const uchar *from, const uchar *end, const uchar *&cover,
                        const uchar *cover_end, uchar *to) const
{
  switch (kind) {
  case Kind::Unsigned:
  case Kind::Signed:
    read_integer(from, to, length, kind == Kind::Signed);
    return true;
  case Kind::Copy:
    memcpy(to, from, length);
    return true;
  case Kind::Real:
    return decode_real(from, cover, cover_end, to);
  case Kind::Binary:
  {
    Bytes value;
    unescape(from, end, value);
    return store_bytes(field, variable, value, to);
  }
  case Kind::Text:
    return decode_text(from, end, cover, cover_end, to);
  case Kind::Sorted:
    if (size_t(cover_end - cover) < length)
      return false;
    memcpy(to, cover, length);
    cover+= length;
    return true;
  case Kind::Weights:
    break;
  }
  size_t len;
  if (!take_length(cover, cover_end, len))
    return false;
  bool ok= store_bytes(field, variable, cover, len, to);
  cover+= len;
  return ok;
}

// Of zero, the cover has the sign.
bool Part::decode_real(const uchar *from, const uchar *&cover, const uchar *cover_end,
                       uchar *to) const
{
  read_real(from, to, length);
  if (!std::all_of(to, to + length, [](uchar byte) { return byte == 0; }))
    return true;
  if (cover >= cover_end)
    return false;
  to[length - 1]= *cover++ ? 0x80 : 0;
  return true;
}

// The cover has the number of spaces at the end.
bool Part::decode_text(const uchar *from, const uchar *end, const uchar *&cover,
                       const uchar *cover_end, uchar *to) const
{
  Bytes value;
  unpad(from, end, value);
  size_t spaces= 0;
  if (variable && !take_number(cover, cover_end, spaces))
    return false;
  value.append(spaces, ' ');
  return store_bytes(field, variable, value, to);
}

} // namespace weir
