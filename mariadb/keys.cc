// Keys as bytes (keys.h): parts made of values.
#include "keys.h"

namespace weir {

// No character's weights of one level have more bytes.
static const size_t WEIGHT_BYTES= 64;

/* Bytes and numbers */

static void append_integer(Bytes &out, const uchar *ptr, uint len, bool is_signed)
{
  uchar b[8]= {};
  reverse(ptr, b, len);
  if (is_signed)
    b[0]^= 0x80;
  append(out, b, len);
}

// A real's bits, big-endian: positive ones with the sign set, negative ones inverted. -0 is +0.
static void append_real(Bytes &out, const uchar *ptr, uint len)
{
  static const uchar minus_zero_4[]= {0, 0, 0, 0x80};
  static const uchar minus_zero_8[]= {0, 0, 0, 0, 0, 0, 0, 0x80};
  uchar b[8]= {};
  bool minus_zero= !memcmp(ptr, len == 4 ? minus_zero_4 : minus_zero_8, len);
  for (uint i= 0; i < len; i++)
    b[i]= minus_zero ? 0 : ptr[len - 1 - i];
  if (b[0] & 0x80)
    for (uint i= 0; i < len; i++)
      b[i]^= INVERT;
  else
    b[0]|= 0x80;
  append(out, b, len);
}

static void append_escaped(Bytes &out, const uchar *ptr, size_t len)
{
  const uchar *end= ptr + len;
  // An empty BLOB's may be null.
  while (ptr != end)
  {
    auto zero= static_cast<const uchar *>(memchr(ptr, 0, end - ptr));
    if (!zero)
      break;
    append(out, ptr, zero - ptr + 1);
    out.push_back(static_cast<char>(0xff));
    ptr= zero + 1;
  }
  append(out, ptr, end - ptr);
  out.append(2, '\0');
}

static bool equals(const uchar *a, const uchar *b, uint len)
{
  for (uint i= 0; i < len; i++)
    if (a[i] != b[i])
      return false;
  return true;
}

// The codes for a run of spaces in front of something less or greater.
static void append_run(Bytes &out, size_t n, bool less)
{
  for (; n >= MAX_RUN; n-= MAX_RUN)
    out.push_back(static_cast<char>(less ? 127 : 129));
  out.push_back(static_cast<char>(less ? n : 255 - n));
}

// Where the next space begins, or the end. Wide weights begin at a multiple of the width.
static const uchar *next_space(const uchar *ptr, const uchar *end, const uchar *space, uint width)
{
  if (width == 1)
  {
    const void *found= memchr(ptr, *space, end - ptr);
    return found ? static_cast<const uchar *>(found) : end;
  }
  for (; size_t(end - ptr) >= width; ptr+= width)
    if (equals(ptr, space, width))
      return ptr;
  return end;
}

// Weights as if followed by endless spaces, `width` bytes each.
static void append_padded(Bytes &out, const uchar *ptr, size_t len, const uchar *space, uint width)
{
  while (len >= width && equals(ptr + len - width, space, width))
    len-= width;
  const uchar *end= ptr + len;
  for (;;)
  {
    const uchar *run= next_space(ptr, end, space, width);
    append(out, ptr, run - ptr);
    ptr= run;
    if (ptr == end)
      break;
    size_t n= 0;
    while (size_t(end - ptr) >= width && equals(ptr, space, width))
    {
      ptr+= width;
      n++;
    }
    uint rest= size_t(end - ptr) < width ? uint(end - ptr) : width;
    append(out, space, width);
    append_run(out, n, memcmp(ptr, space, rest) < 0);
  }
  append(out, space, width);
  out.push_back(static_cast<char>(128));
}

/* Parts */

static bool is_utf8(CHARSET_INFO *cs)
{
  return cs->mbminlen == 1 && cs->cs_name.str && !strncmp(cs->cs_name.str, "utf8", 4);
}

// Whether it is by a character set, the binary one included, that its values are ordered.
static bool is_text(const Field *field)
{
  switch (field->real_type()) {
  case MYSQL_TYPE_STRING:
    return field->type_handler() == &type_handler_string;
  case MYSQL_TYPE_VARCHAR:
  case MYSQL_TYPE_VAR_STRING:
  case MYSQL_TYPE_TINY_BLOB:
  case MYSQL_TYPE_MEDIUM_BLOB:
  case MYSQL_TYPE_LONG_BLOB:
  case MYSQL_TYPE_BLOB:
  case MYSQL_TYPE_GEOMETRY:
    return true;
  default:
    return false;
  }
}

// Of what is no text.
static Kind kind_of(const Field *field)
{
  switch (field->real_type()) {
  case MYSQL_TYPE_TINY:
  case MYSQL_TYPE_SHORT:
  case MYSQL_TYPE_INT24:
  case MYSQL_TYPE_LONG:
  case MYSQL_TYPE_LONGLONG:
    return field->flags & UNSIGNED_FLAG ? Kind::Unsigned : Kind::Signed;
  case MYSQL_TYPE_YEAR:
  case MYSQL_TYPE_ENUM:
  case MYSQL_TYPE_SET:
  case MYSQL_TYPE_NEWDATE:
    return Kind::Unsigned;
  case MYSQL_TYPE_TIME2:
  case MYSQL_TYPE_DATETIME2:
  case MYSQL_TYPE_TIMESTAMP2:
  case MYSQL_TYPE_NEWDECIMAL:
  case MYSQL_TYPE_BIT:
    return Kind::Copy;
  case MYSQL_TYPE_FLOAT:
  case MYSQL_TYPE_DOUBLE:
    return Kind::Real;
  default:
    return Kind::Sorted;
  }
}

void Part::init(TABLE *table, KEY_PART_INFO *info, uchar keys_made)
{
  field= table->field[info->fieldnr - 1];
  length= info->length;
  store_length= info->store_length;
  nullable= info->null_bit != 0;
  descending= info->key_part_flag & HA_REVERSE_SORT;
  offset= field->offset(table->record[0]);
  null_offset= nullable ? field->null_offset(table->record[0]) : 0;
  null_bit= nullable ? field->null_bit : 0;
  cs= field->charset();
  variable= info->key_part_flag & (HA_VAR_LENGTH_PART | HA_BLOB_PART);
  whole= !(info->key_part_flag & HA_PART_KEY_SEG) && !(field->flags & BLOB_FLAG);
  chars= 0;
  level_count= 0;
  trims= by_code= ends_at_zero= false;
  if (is_text(field))
    init_text(keys_made);
  else
    kind= kind_of(field);
  if (kind == Kind::Sorted)
    length= static_cast<uint16>(field->pack_length());
}

static bool is_collation(CHARSET_INFO *cs, const char *name)
{
  return !strcmp(cs->coll_name.str, name);
}

// It compares its first two levels word by word, as its weights of all levels do.
static bool is_by_words(CHARSET_INFO *cs)
{
  return is_collation(cs, "latin2_czech_cs");
}

// Two collations take off spaces at the end and compare the rest, though they aren't NO PAD.
static bool is_trimmed(CHARSET_INFO *cs)
{
  return is_by_words(cs) || is_collation(cs, "cp1250_czech_cs");
}

/*
  Whether a CHAR is as long as its column to its collation. Where each character has one weight, all
  values have as many, and endless spaces change nothing.
*/
static bool counts_spaces(CHARSET_INFO *cs)
{
  return (cs->state & MY_CS_NOPAD) && cs->uca;
}

// What values are compared as on a level, the first being 0.
Part::End Part::end_of_level(uint number, uchar keys_made) const
{
  if (is_trimmed(cs))
    return End::Bare;
  bool no_pad= cs->state & MY_CS_NOPAD;
  if (keys_made == KEYS_BEFORE_NO_PAD)
    return variable && no_pad ? End::Bare : End::Padded;
  if (variable)
    return no_pad && number == 0 ? End::Bare : End::Padded;
  return counts_spaces(cs) ? End::Bare : End::Padded;
}

void Part::init_text(uchar keys_made)
{
  if (cs == &my_charset_bin)
  {
    kind= variable ? Kind::Binary : Kind::Copy;
    return;
  }
  chars= length / cs->mbmaxlen;
  if (variable)
    trims= !(cs->state & MY_CS_NOPAD);
  else
    trims= !counts_spaces(cs) || keys_made == KEYS_BEFORE_NO_PAD;
  if ((cs->state & MY_CS_BINSORT) && (cs->mbmaxlen == 1 || is_utf8(cs)))
  {
    kind= trims || !variable ? Kind::Text : Kind::Binary;
    return;
  }
  kind= Kind::Weights;
  ends_at_zero= keys_made != KEYS_BEFORE_NO_PAD && variable &&
                is_collation(cs, "tis620_thai_nopad_ci");
  by_code= keys_made != KEYS_BEFORE_NO_PAD && !strncmp(cs->coll_name.str, "big5_chinese_", 13);
  bool by_level= cs->levels_for_order && (!is_by_words(cs) || keys_made <= KEYS_BEFORE_WORDS);
  uchar blank[8];
  cs->fill(reinterpret_cast<char *>(blank), cs->mbminlen, ' ');
  for (uint i= 0; i < array_elements(levels); i++)
  {
    if (by_level && !(cs->levels_for_order & (1U << i)))
      continue;
    Level &level= levels[level_count++];
    level.flag= by_level ? 1U << i : 0;
    level.end= end_of_level(i, keys_made);
    level.width=
        uint(cs->strnxfrm(level.space, sizeof level.space, 1, blank, cs->mbminlen, level.flag));
    // A level on which spaces have no weights has nothing to be followed by.
    if (level.width == 0)
      level.end= End::Bare;
    if (!by_level)
      break;
  }
}

Value Part::value_in(TABLE *table, const uchar *record) const
{
  const uchar *ptr= record + offset;
  if (field->flags & BLOB_FLAG)
  {
    auto blob= static_cast<Field_blob *>(field);
    my_ptrdiff_t diff= record - table->record[0];
    return Value{blob->get_ptr(blob->ptr + diff), blob->get_length(diff)};
  }
  if (variable)
  {
    uint bytes= static_cast<Field_varstring *>(field)->length_bytes;
    return Value{ptr + bytes, bytes == 1 ? size_t(*ptr) : size_t(uint2korr(ptr))};
  }
  return Value{ptr, length};
}

// As much of the value as the index holds.
Value Part::cut(Value v) const
{
  if (kind == Kind::Binary && chars == 0)
    v.len= std::min<size_t>(v.len, length);
  else if (chars > 0)
  {
    if (cs->mbmaxlen > 1)
      v.len= std::min<size_t>(v.len, cs->charpos(v.ptr, v.ptr + v.len, chars));
    else
      v.len= std::min<size_t>(v.len, length);
  }
  return v;
}

// Text by its codes, as the collations of Big5 compare it. Their own weights are coarser.
static size_t append_codes(CHARSET_INFO *cs, uchar *to, size_t room, Value v)
{
  uchar *begin= to;
  const uchar *from= v.ptr, *end= v.ptr + v.len;
  while (from < end && size_t(to - begin) + 2 <= room)
    if (my_ismbchar(cs, reinterpret_cast<const char *>(from), reinterpret_cast<const char *>(end)))
    {
      *to++= *from++;
      *to++= *from++;
    }
    else if (*from < 0x80)
      *to++= cs->to_upper[*from++];
    else
    {
      // Half of a character, behind all whole ones.
      *to++= 0xff;
      *to++= *from++;
    }
  return to - begin;
}

// Weights on one level, as many as there is room for.
size_t Part::weigh(Value v, const Level &level, uchar *to, size_t room) const
{
  return by_code ? append_codes(cs, to, room, v)
                 : cs->strnxfrm(to, room, UINT_MAX32, v.ptr, v.len, level.flag);
}

void Part::append_weights(Value v, Bytes &out) const
{
  if (trims)
    v.len= cs->lengthsp(reinterpret_cast<const char *>(v.ptr), v.len);
  if (ends_at_zero)
    v.len= strnlen(reinterpret_cast<const char *>(v.ptr), v.len);
  uchar small[512];
  Bytes large;
  uchar *weights= small;
  size_t room= sizeof small;
  auto make_room= [&](size_t bytes) {
    large.resize(bytes);
    weights= reinterpret_cast<uchar *>(&large[0]);
    room= bytes;
  };
  if (size_t most= cs->strnxfrmlen(v.len) + WEIGHT_BYTES; most > room)
    make_room(most);
  for (uint i= 0; i < level_count; i++)
  {
    const Level &level= levels[i];
    size_t len;
    // Full to the brim, the room may have been too small, whatever the collation says.
    while ((len= weigh(v, level, weights, room)) + WEIGHT_BYTES > room)
      make_room(2 * room);
    if (level.end == End::Bare)
      append_escaped(out, weights, len);
    else
      append_padded(out, weights, len, level.space, level.width);
  }
}

void Part::append_value(Value v, Bytes &out) const
{
  switch (kind) {
  case Kind::Unsigned:
  case Kind::Signed:
    append_integer(out, v.ptr, length, kind == Kind::Signed);
    break;
  case Kind::Copy:
    append(out, v.ptr, length);
    break;
  case Kind::Real:
    append_real(out, v.ptr, length);
    break;
  case Kind::Binary:
    v= cut(v);
    append_escaped(out, v.ptr, v.len);
    break;
  case Kind::Text:
    v= cut(v);
    append_padded(out, v.ptr, v.len, BLANK, 1);
    break;
  case Kind::Weights:
    append_weights(cut(v), out);
    break;
  case Kind::Sorted:
  {
    uchar *kept= field->ptr;
    size_t from= out.size();
    out.resize(from + length);
    field->ptr= const_cast<uchar *>(v.ptr);
    field->sort_string(reinterpret_cast<uchar *>(&out[from]), length);
    field->ptr= kept;
    break;
  }
  }
}

void Part::append_from_record(TABLE *table, const uchar *record, Bytes &out) const
{
  size_t from= out.size();
  bool null= is_null(record);
  if (nullable)
    out.push_back(null ? 0 : 1);
  if (!null)
    append_value(value_in(table, record), out);
  if (descending)
    invert(out, from);
}

void Part::append_from_image(const uchar *image, Bytes &out) const
{
  size_t from= out.size();
  bool null= nullable && *image;
  if (nullable)
  {
    out.push_back(null ? 0 : 1);
    image++;
  }
  if (!null)
    append_value(variable ? Value{image + HA_KEY_BLOB_LENGTH, uint2korr(image)}
                          : Value{image, length}, out);
  if (descending)
    invert(out, from);
}

void Part::append_cover(TABLE *table, const uchar *record, Bytes &out) const
{
  if (!whole || !needs_cover() || is_null(record))
    return;
  Value v= value_in(table, record);
  switch (kind) {
  case Kind::Real:
  {
    // Only the sign of zero is lacking.
    bool zero= true;
    for (uint i= 0; i + 1 < length; i++)
      zero&= v.ptr[i] == 0;
    if (zero && (v.ptr[length - 1] & 0x7f) == 0)
      out.push_back(v.ptr[length - 1] ? 1 : 0);
    break;
  }
  case Kind::Text:
    if (variable)
      append_length(out, v.len - cs->lengthsp(reinterpret_cast<const char *>(v.ptr), v.len));
    break;
  case Kind::Sorted:
    append(out, v.ptr, length);
    break;
  default:
    if (!variable)
      v.len= cs->lengthsp(reinterpret_cast<const char *>(v.ptr), v.len);
    append_length(out, v.len);
    append(out, v.ptr, v.len);
    break;
  }
}

size_t Part::max_bytes() const
{
  size_t n= nullable;
  switch (kind) {
  case Kind::Binary:
    return n + 2 * size_t(length) + 2;
  case Kind::Text:
    return n + length + length / 2 + 4;
  case Kind::Weights:
    return n + level_count * (2 * cs->strnxfrmlen(length) + 16);
  default:
    return n + length;
  }
}

} // namespace weir
