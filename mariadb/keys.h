/*
  Keys as bytes that memcmp orders as the server orders the values.

  A key is its parts, one after the other. A part: 1 byte if the column may be NULL (0 NULL, 1 not),
  then the value by its kind (`Kind`). A descending part has all its bytes inverted. Parts are
  prefix-free: no part's bytes begin with those of another value. So the bytes of the first parts of
  a key are a prefix of just those keys that have these values, and keys of several parts compare
  part by part.

  Not every value can be had back from its bytes (a collation's weights say nothing of upper case).
  What is lacking goes to the entry's *cover*, which the entry holds beside its key, so that scans
  of an index alone can give back every whole column.

  Text that is compared as if followed by endless spaces (PAD SPACE) ends with a space's weight and
  0x80; a run of n spaces inside is followed by n if what comes then is less than a space, by 255 -
  n if it is greater. So the end, an endless run, lies between the two. Other text (NO PAD) is less
  than what it is the beginning of, as Binary.

  Weights come level by level, but for one collation that compares word by word. NO PAD is the first
  level's: letters that differ on none of a collation's levels may have more or fewer weights on the
  others (an accent's), which are therefore compared as if followed by spaces. A CHAR is as many
  characters long as its column, and NO PAD counts its spaces: two letters and three spaces aren't
  one that is expanded to the same weights, and four.
*/
#pragma once

#include "bytes.h"

namespace weir {

enum class Kind : uchar
{
  Unsigned,      // little-endian integer: big-endian
  Signed,        // the same with its sign inverted
  Copy,          // fixed bytes that are ordered already
  Real,          // float or double
  Binary,        // bytes of any length: 0 is 0 255, the end 0 0
  Text,          // text whose bytes are its weights, PAD SPACE
  Weights,       // weights of the collation
  Sorted         // fixed bytes that Field::sort_string makes
};

// How keys of a table were made, which is kept with it. Before 1, a CHAR of a NO PAD collation was
// compared as PAD SPACE, all levels of other columns as NO PAD, Big5 by numbers of strokes. Before
// 2, latin2_czech_cs was compared level by level.
static const uchar KEYS_BEFORE_NO_PAD= 0, KEYS_BEFORE_WORDS= 1, KEYS_NOW= 2;

// A value in the format of a record or of a key image.
struct Value
{
  const uchar *ptr;
  size_t len;
};

class Part
{
public:
  void init(TABLE *table, KEY_PART_INFO *info, uchar keys_made);

  Field *field;
  uint16 length;       // bytes of the value, where they are fixed
  uint16 store_length; // bytes in a key image, with NULL byte and length
  Kind kind;
  bool nullable, descending, whole, variable;

  // Whether the value can be had back from the key alone, so that the row needs no copy of it.
  bool is_exact() const
  {
    return whole && (kind == Kind::Unsigned || kind == Kind::Signed || kind == Kind::Copy ||
                     kind == Kind::Binary);
  }
  void append_from_record(TABLE *table, const uchar *record, Bytes &out) const;
  void append_from_image(const uchar *image, Bytes &out) const;
  // Where the part's bytes end; null if they don't.
  const uchar *skip(const uchar *from, const uchar *end) const;
  void append_cover(TABLE *table, const uchar *record, Bytes &out) const;
  // Puts the value into a record; `cover` moves on. False: the bytes make no sense.
  bool decode(TABLE *table, const uchar *from, const uchar *end, const uchar *&cover,
              const uchar *cover_end, uchar *record) const;
  size_t max_bytes() const;

private:
  uint null_offset, offset, chars;
  uchar null_bit;
  CHARSET_INFO *cs;
  // Of each level of the collation: its flag, a space's weight, and what a value is compared as.
  enum class End : uchar
  {
    Padded, // as if followed by endless spaces
    Bare    // as it is
  };
  struct Level
  {
    uint flag;
    uint width;
    uchar space[8];
    End end;
  };
  Level levels[6];
  uint level_count;
  bool trims;   // spaces at the end are taken off
  bool by_code; // instead of by the collation's weights
  bool ends_at_zero; // one of the server's collations compares so

  bool is_null(const uchar *record) const
  {
    return nullable && (record[null_offset] & null_bit);
  }
  void init_text(uchar keys_made);
  End end_of_level(uint number, uchar keys_made) const;
  Value value_in(TABLE *table, const uchar *record) const;
  Value cut(Value v) const;
  void append_value(Value v, Bytes &out) const;
  size_t weigh(Value v, const Level &level, uchar *to, size_t room) const;
  void append_weights(Value v, Bytes &out) const;
  bool decode_value(const uchar *from, const uchar *end, const uchar *&cover,
                    const uchar *cover_end, uchar *to) const;
  bool decode_real(const uchar *from, const uchar *&cover, const uchar *cover_end, uchar *to) const;
  bool decode_text(const uchar *from, const uchar *end, const uchar *&cover, const uchar *cover_end,
                   uchar *to) const;
  bool needs_cover() const { return kind >= Kind::Real && kind != Kind::Binary; }
};

// An index of a table, or its primary key.
class KeyFormat
{
public:
  // For an index: `primary` is the primary key, or null if that is hidden.
  void init(TABLE *table, uint number, const KeyFormat *primary, uchar keys_made);

  const std::vector<Part> &parts() const { return own; }
  void primary_key(TABLE *table, const uchar *record, Bytes &out) const;
  // Bytes of the first parts of a key image, as many as `map` says.
  void from_image(const uchar *image, key_part_map map, Bytes &out) const;
  // Whether these bytes stand for all parts: keys of a unique index lack those of the primary key.
  bool takes(key_part_map map) const { return !(map >> own.size() >> (unique ? 0 : extension)); }

  // The entry of a row. `pk`: the row's primary key.
  void entry(TABLE *table, const uchar *record, const Bytes &pk, Bytes &key, Bytes &value) const;
  // The primary key of an entry.
  bool primary_of(WeirBytes key, WeirBytes value, Bytes &pk) const;
  // How many of an entry's first parts hold all of these columns that it has; null: all. Behind the
  // index's own parts come those of the primary key.
  size_t reach(const MY_BITMAP *columns) const;
  // Puts the columns of an entry's first parts into a record.
  bool decode(TABLE *table, WeirBytes key, WeirBytes value, size_t parts, uchar *record) const;
  // Puts those columns of a primary key's first parts that rows don't hold into a record.
  bool decode_primary(TABLE *table, WeirBytes key, size_t parts, uchar *record) const;
  // Parts of an entry's key, those of the primary key among them; and where each of them ends.
  size_t part_count() const { return own.size() + (unique ? 0 : appended.size()); }
  size_t split(WeirBytes key, size_t *ends, size_t count) const;
  size_t max_bytes() const;
  // Whether all its keys are of one length.
  bool is_fixed() const;
  // Whether its entries hold all their columns as a whole, those of the primary key among them.
  bool is_whole() const { return whole; }
  // Whether a column of the index is among these.
  bool touches(const MY_BITMAP *columns) const;

private:
  std::vector<Part> own;      // as defined
  std::vector<Part> appended; // of the primary key, those that the index lacks
  std::vector<Part> primary;  // parts of the primary key
  std::vector<int> source;    // of each of these: >= 0 in `own`, else ~ in `appended`
  // How many of `appended` the server knows of: none behind a hash (UNIQUE of a BLOB).
  size_t extension;
  bool unique, hidden, nulls, whole;

  bool has_null(const uchar *record, TABLE *table) const;
  bool decode_appended(TABLE *table, WeirBytes pk, const uchar *cover, const uchar *cover_end,
                       uchar *record) const;
};

} // namespace weir
