#include "binlog_writeback.h"
#include "sysvars.h"
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <fcntl.h>
#include <mutex>
#include <system_error>
#include <thread>
#include <unistd.h>

namespace weir {

static const std::chrono::milliseconds REST(200);
static const my_off_t PIECE= 1 << 20, TO_END= 0;

static std::atomic<ulonglong> begun_bytes;
static std::thread worker;
static std::mutex mutex;
static std::condition_variable wake;
static bool ends;

// Begins to write `length` bytes of a file from a place on, or, if that is TO_END, all that follow.
// Whether it did: the file may have been removed.
static bool begin_writing(const Bytes &name, my_off_t from, my_off_t length)
{
  int file= open(name.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return false;
  bool has_begun= !sync_file_range(file, off64_t(from), off64_t(length), SYNC_FILE_RANGE_WRITE);
  close(file);
  return has_begun;
}

// Follows the binary log from where it is found.
class Follower
{
public:
  void step()
  {
    char now[FN_REFLEN];
    mysql_bin_log.lock_binlog_end_pos();
    my_off_t end= mysql_bin_log.get_binlog_end_pos(now);
    mysql_bin_log.unlock_binlog_end_pos();
    end-= end % PIECE;
    if (name.empty())
      begun= end;
    else if (name != now)
    {
      begin_writing(name, begun, TO_END);
      begun= 0;
    }
    else if (end < begun) // RESET MASTER
      begun= 0;
    name= now;
    if (end == begun)
      return;
    if (begin_writing(name, begun, end - begun))
      begun_bytes+= end - begun;
    begun= end;
  }

  void forget() { name.clear(); }

private:
  Bytes name;
  my_off_t begun= 0;
};

static void follow()
{
  pthread_setname_np(pthread_self(), "weir-binlog");
  Follower follower;
  std::unique_lock<std::mutex> guard(mutex);
  while (!wake.wait_for(guard, REST, [] { return ends; }))
    // A start that fails closes the log without a word.
    if (binlog_writeback() && mysqld_server_started && mysql_bin_log.is_open())
      follower.step();
    else
      follower.forget();
}

void start_binlog_writeback()
{
  if (!opt_bin_log)
    return;
  try
  {
    worker= std::thread(follow);
  }
  catch (const std::system_error &error)
  {
    sql_print_warning(
        "WEIR: the binary log is written when the page cache sees to it: no thread for that: %s",
        error.what());
  }
}

void stop_binlog_writeback()
{
  if (!worker.joinable())
    return;
  {
    std::lock_guard<std::mutex> guard(mutex);
    ends= true;
  }
  wake.notify_all();
  worker.join();
  ends= false;
}

ulonglong binlog_writeback_bytes()
{
  return begun_bytes;
}

} // namespace weir
