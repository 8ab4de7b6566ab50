#include "backup.h"
#include "engine_table.h"
#include "errors.h"
#include "session.h"
#include "sysvars.h"
#include <atomic>
#include <mutex>
#include <system_error>
#include <thread>

namespace weir {

// There is one BACKUP STAGE at a time, and the server sees to that.
static std::thread worker;
static std::atomic<ulonglong> stages;
// How often somebody has given up: a copy ends when that is more than when it was begun.
static std::atomic<ulonglong> given_up;

static std::mutex guard; // of what follows
static Bytes text= "none";
static Bytes asked_for; // of the stage that is on

static const Bytes COPYING= "copying: ";

Bytes backup_text()
{
  std::lock_guard<std::mutex> guarded(guard);
  return text;
}

ulonglong backup_stages()
{
  return stages;
}

static void tell(const Bytes &now)
{
  std::lock_guard<std::mutex> guarded(guard);
  text= now;
}

static void tell_failure(const Bytes &directory, const Bytes &reason)
{
  sql_print_error("WEIR: the backup in %s failed: %s", directory.c_str(), reason.c_str());
  tell("failed: " + directory + ": " + reason);
}

static void copy(WeirBackup *backup, const Bytes &directory, ulonglong given_up_before)
{
  WeirResult result= WEIR_RESULT_OK;
  bool more= true;
  while (more && given_up == given_up_before && result == WEIR_RESULT_OK)
    result= weir_backup_step(backup, &more);
  // What it says is lost with what is called next.
  Bytes reason= result == WEIR_RESULT_OK ? "it was given up" : weir_error_message();
  double mib= double(weir_backup_bytes(backup)) / (1 << 20);
  weir_backup_end(backup);
  if (more)
    return tell_failure(directory, reason);
  sql_print_information("WEIR: the backup in %s is complete: %.1f MiB", directory.c_str(), mib);
  tell("complete: " + directory);
}

// None is begun. One that is being made goes on, and is what there is to tell of.
static void refuse(THD *thd, const Bytes &directory, const Bytes &reason)
{
  if (backup_text().compare(0, COPYING.size(), COPYING) != 0)
    tell_failure(directory, reason);
  if (thd)
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_GET_ERRMSG,
                        "WEIR: the backup in %s failed: %s", directory.c_str(), reason.c_str());
}

// mariabackup passes over what it doesn't know, and ends well: who relies on it must learn that
// here. Tables that go when the server ends aren't asked for.
static void warn_of_tables()
{
  for (const Bytes &name : table_names(""))
    if (!is_temporary(name))
    {
      sql_print_warning(
          "WEIR: a backup begins that doesn't have the tables of WEIR: mariadb/backup makes one "
          "that has, and SET GLOBAL weir_backup_dir says where the next BACKUP STAGE copies them "
          "to");
      return;
    }
}

void prepare_for_backup()
{
  stages++;
  Bytes directory= take_backup_dir();
  if (directory.empty())
    warn_of_tables();
  std::lock_guard<std::mutex> guarded(guard);
  asked_for= directory;
}

static Bytes take_asked_for(ulonglong *given_up_before)
{
  std::lock_guard<std::mutex> guarded(guard);
  *given_up_before= given_up;
  Bytes directory;
  directory.swap(asked_for);
  return directory;
}

// Whether it is the end that comes when everything else has been copied, and not that of a tool
// that gives up or goes.
static bool blocks_commits(THD *thd)
{
  return thd && thd->current_backup_stage == BACKUP_END &&
         thd->mdl_context.is_lock_owner(MDL_key::BACKUP, "", "", MDL_BACKUP_WAIT_COMMIT);
}

void end_backup()
{
  THD *thd= current_thd;
  ulonglong given_up_before;
  Bytes directory= take_asked_for(&given_up_before);
  if (directory.empty())
    return;
  if (!blocks_commits(thd))
    return refuse(thd, directory, "BACKUP STAGE ended before BLOCK_COMMIT");
  WeirBackup *backup;
  if (weir_backup_begin(database, bytes_of(directory), &backup) != WEIR_RESULT_OK)
    return refuse(thd, directory, weir_error_message());
  // The one before has ended, or this one could not have begun.
  if (worker.joinable())
    worker.join();
  tell(COPYING + directory);
  try
  {
    worker= std::thread(copy, backup, directory, given_up_before);
  }
  catch (const std::system_error &error)
  {
    weir_backup_end(backup);
    tell_failure(directory, Bytes("no thread: ") + error.what());
  }
}

void give_up_backup()
{
  std::lock_guard<std::mutex> guarded(guard);
  asked_for.clear();
  given_up++;
}

void stop_backup()
{
  give_up_backup();
  if (worker.joinable())
    worker.join();
}

} // namespace weir
