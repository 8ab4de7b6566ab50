/*
  What is kept with a table for the server, as builds of each format have written it, whose own code
  made these bytes. A format that is written no more is still read.
*/

#include "../meta.h"
#include <cstdio>

using namespace weir;

#define BYTES_OF(literal) Bytes(literal, sizeof(literal) - 1)

struct Sample
{
  Bytes bytes;
  ulonglong number; // 0: the format lacks it
  Bytes table_before, dropped, order;
  uchar keys_made;
};

#define AUTO_BYTES "\010\007\006\005\004\003\002\001"
#define NUMBER_BYTES "\030\027\026\025\024\023\022\021"
#define LENGTH_3 "\003\000\000\000"
#define FORMAT_3 AUTO_BYTES LENGTH_3 NUMBER_BYTES LENGTH_3
static const ulonglong AUTO_VALUE= 0x0102030405060708ULL, NUMBER_VALUE= 0x1112131415161718ULL;

static const Sample FORMATS[]= {
    {BYTES_OF("\001" AUTO_BYTES LENGTH_3 "uid" "added"), 0, "", "", "", KEYS_BEFORE_NO_PAD},
    {BYTES_OF("\002" AUTO_BYTES LENGTH_3 NUMBER_BYTES "uid" "added"),
     NUMBER_VALUE, "", "", "", KEYS_BEFORE_NO_PAD},
    {BYTES_OF("\003" FORMAT_3 "uid" "d/t" "added"),
     NUMBER_VALUE, "d/t", "", "", KEYS_BEFORE_NO_PAD},
    {BYTES_OF("\004" FORMAT_3 "\001" "uid" "d/t" "added"),
     NUMBER_VALUE, "d/t", "", "", KEYS_BEFORE_WORDS},
    {BYTES_OF("\005" FORMAT_3 "\001" LENGTH_3 "uid" "d/t" "\001\001\005" "added"),
     NUMBER_VALUE, "d/t", "\001\001\005", "", KEYS_BEFORE_WORDS},
    {BYTES_OF("\006" FORMAT_3 "\001" LENGTH_3 "\004\000\000\000" "uid" "d/t" "\001\001\005"
              "\002\000\000\000" "added"),
     NUMBER_VALUE, "d/t", "\001\001\005", BYTES_OF("\002\000\000\000"), KEYS_BEFORE_WORDS},
};

static int failures= 0;

static void expect(bool is_so, size_t format, const char *what)
{
  if (is_so)
    return;
  printf("format %zu: %s\n", format, what);
  failures++;
}

int main()
{
  size_t format= 0;
  for (const Sample &one : FORMATS)
  {
    format++;
    Meta meta;
    expect(meta.decode(bytes_of(one.bytes)), format, "isn't read");
    expect(meta.auto_increment == AUTO_VALUE && meta.number == one.number, format,
           "its numbers differ");
    expect(meta.version == "uid" && meta.added == "added", format,
           "its version or added row differs");
    expect(meta.table_before == one.table_before, format, "its table before differs");
    expect(meta.places.dropped == one.dropped && meta.places.order == one.order, format,
           "its places differ");
    expect(meta.keys_made == one.keys_made, format, "its keys differ");
    Meta again;
    Bytes now= meta.encode();
    expect(again.decode(bytes_of(now)) && again.encode() == now, format,
           "isn't the same once written anew");
    for (size_t len= 0; len + sizeof "added" <= one.bytes.size(); len++)
    {
      Bytes cut= one.bytes.substr(0, len);
      expect(!Meta().decode(bytes_of(cut)), format, "is read though it is cut short");
    }
  }
  const Sample &last= FORMATS[format - 1];
  Meta meta;
  expect(meta.decode(bytes_of(last.bytes)) && meta.encode() == last.bytes, format,
         "isn't the one that is written");
  Bytes newer= last.bytes;
  newer[0]++;
  expect(!meta.decode(bytes_of(newer)), format + 1, "is read");
  return failures != 0;
}
