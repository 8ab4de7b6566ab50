#include "alteration.h"
#include "computed.h"
#include "numbers.h"
#include "own_transaction.h"
#include "session.h"

namespace weir {

uint added_index(const TABLE *altered, const Alter_inplace_info *info, uint nth)
{
  return index_named(altered, info->key_info_buffer[info->index_add_buffer[nth]].name.str);
}

void Progress::made_one(THD *thd)
{
  static const ulonglong REPORT_EVERY= 1024;
  if (++made % REPORT_EVERY == 0)
    thd_progress_report(thd, std::min(made, all), all);
}

/* Entries of new indexes */

IndexBuilder::IndexBuilder(TABLE *altered, const Alter_inplace_info *info, const AlterContext *of,
                           Progress *of_all)
    : table(altered), progress(of_all),
      is_lenient(info->ignore || !altered->in_use->is_strict_mode())
{
  bool hidden= altered->s->primary_key == MAX_KEY;
  if (!hidden)
    primary.init(altered, altered->s->primary_key, nullptr, of->share->keys_made);
  row_format.init(altered, hidden ? nullptr : &primary, of->places);
  row_format.set_added(altered, of->added);
  row_format.want(nullptr, all_columns);
  for (uint i= 0; i < info->index_add_count; i++)
  {
    uint at= added_index(altered, info, i);
    const KEY *definition= &altered->key_info[at];
    numbers.push_back(at);
    keys.emplace_back();
    keys.back().init(altered, at, hidden ? nullptr : &primary, of->share->keys_made);
    indexes.push_back(WeirIndex{bytes_of(definition->name), bool(definition->flags & HA_NOSAME)});
    computed.push_back(computed_parts_of(keys.back()));
  }
}

WeirResult IndexBuilder::entry(uint32_t which, WeirBytes of, WeirBytes row, WeirEntry *out)
{
  if (is_killed(table->in_use))
    return WEIR_RESULT_CANCELLED;
  uchar *record= table->record[0];
  if (!row_format.decode(table, row, all_columns, record) ||
      (table->s->primary_key != MAX_KEY &&
       !primary.decode_primary(table, of, primary.parts().size(), record)))
    return WEIR_RESULT_CORRUPT;
  for (Field *field : computed[which])
    if (compute_virtual(table, field, is_lenient))
      return WEIR_RESULT_CANCELLED;
  pk.assign(reinterpret_cast<const char *>(of.data), of.len);
  key.clear();
  value.clear();
  keys[which].entry(table, record, pk, key, value);
  *out= WeirEntry{which, bytes_of(key), bytes_of(value)};
  return WEIR_RESULT_OK;
}

extern "C" WeirResult build_entry(void *context, uint32_t which, WeirBytes key, WeirBytes row,
                                  WeirEntry *out)
{
  auto builder= static_cast<IndexBuilder *>(context);
  builder->progress->made_one(builder->table->in_use);
  return builder->entry(which, key, row, out);
}

/* A table */

static std::vector<WeirBytes> dropped(const Alter_inplace_info *info)
{
  std::vector<WeirBytes> names;
  for (uint i= 0; i < info->index_drop_count; i++)
    names.push_back(bytes_of(info->index_drop_buffer[i]->name));
  return names;
}

static std::vector<WeirRename> renamed(const Alter_inplace_info *info)
{
  std::vector<WeirRename> names;
  for (const auto &pair : info->rename_keys)
    names.push_back(WeirRename{bytes_of(pair.old_key->name), bytes_of(pair.new_key->name)});
  return names;
}

Change::Change(const AlterContext *altered_of, TABLE *altered, const Alter_inplace_info *info,
               Progress *progress)
    : share(altered_of->share), builder(altered, info, altered_of, progress), drops(dropped(info)),
      renames(renamed(info)), of(altered_of)
{
}

WeirTableChange Change::of_engine()
{
  const std::vector<WeirIndex> &adds= builder.indexes;
  return WeirTableChange{share->table,   drops.data(), drops.size(), renames.data(),
                         renames.size(), adds.data(),  adds.size(),  &builder};
}

WeirResult Change::complete(TABLE *altered, const Alter_inplace_info *info)
{
  if (WeirResult result= read_meta(share->table, share->name, &meta))
    return result;
  numbers_begin_anew= info->create_info->used_fields & HA_CREATE_USED_AUTO;
  if (numbers_begin_anew)
  {
    // It may be less than what was there before: numbers begin anew from here, or from the highest
    // row.
    meta.auto_increment= info->create_info->auto_increment_value;
    if (meta.number)
      meta.number= new_number();
  }
  meta.version= to_bytes(altered->s->tabledef_version);
  meta.added= of->added;
  meta.places= of->places;
  encoded_meta= meta.encode();
  return WEIR_RESULT_OK;
}

bool Change::find_duplicate(uint32_t which, const Bytes &key)
{
  Scanner scanner;
  WeirScanned at;
  WeirEntry entry;
  if (scanner.open(share->table, WEIR_PRIMARY, false) != WEIR_RESULT_OK)
    return false;
  while (scanner.next(&at) == WEIR_RESULT_OK &&
         builder.entry(which, at.key, at.value, &entry) == WEIR_RESULT_OK)
    if (builder.key == key)
      return true;
  return false;
}

/* All of them */

WeirResult Alteration::begin(THD *thd)
{
  return weir_alteration_begin(database, patience_of_change(thd), &begun);
}

WeirResult Alteration::add(THD *thd, const AlterContext *of, TABLE *altered,
                           const Alter_inplace_info *info, ha_rows rows)
{
  Change &change= changes.emplace_back(of, altered, info, &progress);
  progress.expect(rows * info->index_add_count);
  WeirTableChange of_engine= change.of_engine();
  return weir_alteration_add(begun, patience_of_change(thd), &of_engine);
}

WeirResult Alteration::build(THD *thd)
{
  if (std::exchange(is_built, true))
    return WEIR_RESULT_OK;
  thd_progress_init(thd, 1);
  WeirResult result= weir_alteration_build(begun, patience_of_change(thd), build_entry);
  thd_progress_end(thd);
  return result;
}

WeirResult Alteration::finish(THD *thd)
{
  for (size_t nth= 0; nth < changes.size(); nth++)
    if (WeirResult result=
            weir_alteration_set_meta(begun, nth, bytes_of(changes[nth].encoded_meta)))
      return result;
  return weir_alteration_finish(std::exchange(begun, nullptr), patience_of_change(thd),
                                build_entry);
}

void Alteration::give_up()
{
  if (WeirAlteration *given_up= std::exchange(begun, nullptr))
    weir_alteration_drop(given_up);
}

} // namespace weir
