#include "binlog_writeback.h"
#include "sysvars.h"
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <fcntl.h>
#include <mutex>
#include <thread>
#include <unistd.h>

namespace weir {

static const std::chrono::milliseconds REST(200);
static const my_off_t PIECE= 1 << 20;

static std::atomic<ulonglong> begun_bytes;
static std::thread worker;
static std::mutex mutex;
static std::condition_variable wake;
static bool ends;

// Begins to write what lies between two places of a file, of which `end` 0 is the file's end.
static void begin_writing(const Bytes &name, my_off_t from, my_off_t end)
{
  // It may have been removed.
  int file= open(name.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return;
  sync_file_range(file, off64_t(from), end ? off64_t(end - from) : 0, SYNC_FILE_RANGE_WRITE);
  close(file);
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
    bool is_next= !name.empty() && name != now;
    if (is_next)
      begin_writing(name, begun, 0);
    if (is_next || end < begun)
      begun= 0;
    else if (name.empty())
      begun= end;
    name= now;
    if (end == begun)
      return;
    begin_writing(name, begun, end);
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
  Follower follower;
  std::unique_lock<std::mutex> guard(mutex);
  while (!wake.wait_for(guard, REST, [] { return ends; }))
    if (binlog_writeback() && mysql_bin_log.is_open())
      follower.step();
    else
      follower.forget();
}

void start_binlog_writeback()
{
  if (opt_bin_log)
    worker= std::thread(follow);
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
