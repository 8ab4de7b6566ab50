#include "recovery_log.h"
#include <atomic>

namespace weir {

// Between two lines that tell how far it is.
static const ulonglong INTERVAL_US= 5000000;

// Times are 0 before there was anything to tell.
struct Told
{
  std::atomic<ulonglong> begun, last;
  std::atomic<bool> applies;
};

// One database is open at a time, and told of by one thread at a time.
static Told told;

static double seconds_since_begun()
{
  return double(microsecond_interval_timer() - told.begun) / 1e6;
}

extern "C" void tell_recovery(uint64_t done_bytes, uint64_t all_bytes)
{
  ulonglong now= microsecond_interval_timer();
  double done= double(done_bytes) / (1 << 20), all= double(all_bytes) / (1 << 20);
  if (!told.begun)
    told.begun= now;
  if (all_bytes && !told.applies)
    sql_print_information(
        "WEIR: recovery: %.1f MiB of redo are to be applied, while the server is open", all);
  else if (all_bytes && done_bytes == all_bytes)
    sql_print_information("WEIR: recovery has ended after %.1f s", seconds_since_begun());
  else if (!told.last)
    sql_print_information("WEIR: recovery: the redo log is read");
  else if (now - told.last < INTERVAL_US)
    return;
  else if (all_bytes)
    sql_print_information("WEIR: recovery: %.1f of %.1f MiB of redo are applied", done, all);
  else
    sql_print_information("WEIR: recovery: %.1f MiB of redo are read", done);
  told.applies= all_bytes > 0;
  told.last= now;
}

WeirResult open_telling(WeirBytes directory, WeirOptions options, WeirDatabase **database)
{
  told.begun= told.last= 0;
  told.applies= false;
  options.on_recovery= tell_recovery;
  WeirResult result= weir_open(directory, &options, database);
  if (told.begun && result == WEIR_RESULT_OK)
    sql_print_information("WEIR: open after %.1f s", seconds_since_begun());
  return result;
}

} // namespace weir
