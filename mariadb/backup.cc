#include "backup.h"
#include "errors.h"
#include "session.h"
#include "share.h"
#include "sysvars.h"
#include <atomic>
#include <mutex>
#include <thread>

namespace weir {

// One is made at a time.
static std::mutex guard; // of the text
static Bytes text= "none";
static std::thread worker;
static std::atomic<bool> stops;

Bytes backup_text()
{
  std::lock_guard<std::mutex> guarded(guard);
  return text;
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

static void copy(WeirBackup *backup, const Bytes &directory)
{
  WeirResult result= WEIR_RESULT_OK;
  bool more= true;
  while (more && !stops && result == WEIR_RESULT_OK)
    result= weir_backup_step(backup, &more);
  double mib= double(weir_backup_bytes(backup)) / (1 << 20);
  // What it says is lost with what is called next.
  Bytes reason= result == WEIR_RESULT_OK ? "the server ends" : weir_error_message();
  weir_backup_end(backup);
  if (more)
    return tell_failure(directory, reason);
  sql_print_information("WEIR: the backup in %s is complete: %.1f MiB", directory.c_str(), mib);
  tell("complete: " + directory);
}

// mariabackup passes over what it doesn't know, and ends well: who relies on it must learn that here. Tables that go
// when the server ends aren't asked for.
void prepare_for_backup()
{
  if (has_backup_dir())
    return;
  for (const Bytes &name : table_names(""))
    if (!is_temporary(name))
    {
      sql_print_warning("WEIR: a backup begins that doesn't have the tables of WEIR: mariadb/backup makes one that has, and "
                        "SET GLOBAL weir_backup_dir says where the next BACKUP STAGE copies them to");
      return;
    }
}

void end_backup()
{
  Bytes directory= take_backup_dir();
  if (directory.empty())
    return;
  THD *thd= current_thd;
  if (thd && thd->current_backup_stage != BACKUP_END)
    return tell_failure(directory, "the connection ended before BACKUP STAGE END");
  WeirBackup *backup;
  if (weir_backup_begin(database, bytes_of(directory), &backup) != WEIR_RESULT_OK)
  {
    Bytes reason= weir_error_message();
    tell_failure(directory, reason);
    if (thd)
      push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_GET_ERRMSG, "WEIR: the backup in %s failed: %s",
                          directory.c_str(), reason.c_str());
    return;
  }
  // The one before has ended, or this one could not have begun.
  if (worker.joinable())
    worker.join();
  tell("copying: " + directory);
  worker= std::thread(copy, backup, directory);
}

void stop_backup()
{
  stops= true;
  if (worker.joinable())
    worker.join();
  stops= false;
}

} // namespace weir
