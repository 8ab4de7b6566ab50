/*
  ALTER TABLE in place. What can be done so: ha_weir_alter_check.cc; how the engine does it:
  alteration.cc.

  What the engine needn't know of is done at once. New indexes are built from sorted entries while
  others read and write; what they have written meanwhile is caught up with, the rest of it when
  nobody else has the table open. FORCE, and ENGINE=WEIR, fill pages anew. Then all of the
  definition changes at once. The table's version (`Meta`) changes with that: after a crash the
  server asks for it (`check_version`) and keeps the definition that fits.

  Each partition is a table of the engine. Their indexes are built one partition after the other,
  and then all their definitions change as one.
*/

#include "alteration.h"
#include "errors.h"
#include "ha_weir.h"

using namespace weir;

// Tells the user which rows have the same key in a new index.
static void report_duplicate(TABLE *altered, std::deque<Change> &changes)
{
  Bytes name= weir_error_index(), twice= to_bytes(weir_error_key());
  const std::vector<uint> &numbers= changes.front().builder.numbers;
  for (uint32_t which= 0; which < numbers.size(); which++)
  {
    if (index_named(altered, name) != numbers[which])
      continue;
    for (Change &change : changes)
      if (change.find_duplicate(which, twice))
      {
        print_keydup_error(altered, &altered->key_info[numbers[which]], MYF(0));
        return;
      }
  }
  my_printf_error(ER_DUP_ENTRY, "Duplicate entry for key '%s'", MYF(0), name.c_str());
}

// Tells the user why an ALTER failed; whether it did.
static bool report(handler *file, TABLE *altered, std::deque<Change> &changes, WeirResult result)
{
  if (result == WEIR_RESULT_OK)
    return false;
  if (result == WEIR_RESULT_DUPLICATE)
    report_duplicate(altered, changes);
  // Unless a virtual column's value has said it.
  else if (!altered->in_use->is_error())
    file->print_error(error_of(result, altered->in_use), MYF(0));
  return true;
}

bool ha_weir::prepare_inplace_alter_table(TABLE *altered, Alter_inplace_info *info)
{
  // Of a partitioned table the first partition's is all partitions'.
  THD *thd= ha_thd();
  Session *session= Session::of(thd);
  std::shared_ptr<Alteration> alteration= session->alteration.lock();
  if (!alteration)
  {
    session->alteration= alteration= std::make_shared<Alteration>();
    if (WeirResult result= alteration->begin(thd))
      return report(this, altered, alteration->changes, result);
  }
  auto own= new (thd->mem_root) AlterContext(share, alteration);
  info->handler_ctx= own;
  if (!own)
    return true;
  if (info->handler_flags & COLUMNS && place_columns(altered, info, *own))
    return report(this, altered, alteration->changes,
                  damaged("table " + share->name +
                          " doesn't have the columns that its rows have"));
  refresh_figures();
  return report(this, altered, alteration->changes,
                alteration->add(thd, own, altered, info, stats.records));
}

bool ha_weir::inplace_alter_table(TABLE *altered, Alter_inplace_info *info)
{
  THD *thd= ha_thd();
  Alteration &alteration= *static_cast<AlterContext *>(info->handler_ctx)->alteration;
  WeirResult result= WEIR_RESULT_OK;
  if (info->handler_flags & ALTER_RECREATE)
    result= weir_table_reorganize(share->table, patience_of_change(thd));
  if (result == WEIR_RESULT_OK && info->index_add_count > 0)
    result= alteration.build(thd);
  return report(this, altered, alteration.changes, result);
}

bool ha_weir::commit_inplace_alter_table(TABLE *altered, Alter_inplace_info *info, bool commit)
{
  // There is none if the server gave up before it was made.
  auto own= static_cast<AlterContext *>(info->handler_ctx);
  if (!commit)
  {
    if (own)
      own->alteration->give_up();
    return false;
  }
  std::deque<Change> &changes= own->alteration->changes;
  for (Change &change : changes)
    if (WeirResult result= change.complete(altered, info))
      return report(this, altered, changes, result);
  // All partitions at once, if there are any.
  info->group_commit_ctx= nullptr;
  WeirResult result= own->alteration->finish(ha_thd());
  if (result == WEIR_RESULT_OK)
    for (Change &change : changes)
      if (change.numbers_begin_anew)
        change.share->forget(change.meta.number);
  return report(this, altered, changes, result);
}
