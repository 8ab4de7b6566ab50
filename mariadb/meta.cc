#include "meta.h"
#include "engine_table.h"
#include "errors.h"

namespace weir {

/*
  Format, value of AUTO_INCREMENT, length of the version; from format 2 on the name among the
  numbers; from 3 on the length of the name of the table before; from 4 on how keys are made; from 5
  on the length of the dropped columns; from 6 on that of the order of columns; version, that name,
  dropped columns, order, added. What an older format lacks is 0, or empty.
*/
static constexpr uchar META_FIRST= 1, META_NOW= 6;
static constexpr size_t META_HEADS[]= {0, 13, 21, 25, 26, 30, 34};

Bytes Meta::encode() const
{
  uchar head[34];
  static_assert(sizeof head == META_HEADS[META_NOW], "head");
  head[0]= META_NOW;
  int8store(head + 1, auto_increment);
  int4store(head + 9, static_cast<uint32>(version.size()));
  int8store(head + 13, number);
  int4store(head + 21, static_cast<uint32>(table_before.size()));
  head[25]= keys_made;
  int4store(head + 26, static_cast<uint32>(places.dropped.size()));
  int4store(head + 30, static_cast<uint32>(places.order.size()));
  return Bytes(reinterpret_cast<const char *>(head), sizeof head) + version + table_before +
         places.dropped + places.order + added;
}

bool Meta::decode(WeirBytes from)
{
  if (from.len == 0 || from.data[0] < META_FIRST || from.data[0] > META_NOW)
    return false;
  size_t len_of_head= META_HEADS[from.data[0]];
  if (from.len < len_of_head)
    return false;
  uchar head[34]= {};
  memcpy(head, from.data, len_of_head);
  auto_increment= uint8korr(head + 1);
  number= uint8korr(head + 13);
  keys_made= head[25];
  if (keys_made > KEYS_NOW)
    return false;
  auto rest= reinterpret_cast<const char *>(from.data) + len_of_head;
  size_t left= from.len - len_of_head;
  auto take= [&](const uchar *len, Bytes &to) {
    size_t count= uint4korr(len);
    if (count > left)
      return false;
    to.assign(rest, count);
    rest+= count;
    left-= count;
    return true;
  };
  if (!take(head + 9, version) || !take(head + 21, table_before) ||
      !take(head + 26, places.dropped) || !take(head + 30, places.order))
    return false;
  added.assign(rest, left);
  return true;
}

struct Decoded
{
  Meta *meta;
  bool ok;
};

extern "C" void take_meta(void *context, WeirBytes bytes)
{
  auto to= static_cast<Decoded *>(context);
  to->ok= to->meta->decode(bytes);
}

WeirResult read_meta(const WeirTable *table, const Bytes &name, Meta *meta)
{
  Decoded to= {meta, false};
  WeirResult result= weir_table_meta(table, take_meta, &to);
  if (result != WEIR_RESULT_OK || to.ok)
    return result;
  return damaged("what is kept for the server with table " + name +
                 " is damaged, or of a newer format");
}

WeirResult write_meta(const WeirTable *table, const Meta &meta)
{
  Bytes encoded= meta.encode();
  return weir_table_set_meta(table, bytes_of(encoded));
}

WeirResult read_meta(const Bytes &name, Meta *meta)
{
  OpenTable open;
  WeirResult result= open.open(name);
  return result == WEIR_RESULT_OK ? read_meta(open.table, name, meta) : result;
}

} // namespace weir
