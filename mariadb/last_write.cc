#include "last_write.h"
#include <mutex>
#include <unordered_map>

namespace weir {

static std::mutex guard; // for the following
static std::unordered_map<Bytes, LastWrite> times;

LastWrite last_write_of(const Bytes &name)
{
  std::lock_guard<std::mutex> held(guard);
  LastWrite &time= times[name];
  if (!time)
    time= std::make_shared<std::atomic<time_t>>(0);
  return time;
}

void rename_last_write(const Bytes &from, const Bytes &to)
{
  std::lock_guard<std::mutex> held(guard);
  auto found= times.find(from);
  if (found == times.end())
  {
    times.erase(to);
    return;
  }
  LastWrite time= found->second;
  times.erase(found);
  times[to]= time;
}

void forget_last_write(const Bytes &name)
{
  std::lock_guard<std::mutex> held(guard);
  times.erase(name);
}

static void add(std::vector<LastWrite> &to, const LastWrite &table)
{
  if (std::find(to.begin(), to.end(), table) == to.end())
    to.push_back(table);
}

void Written::note(const LastWrite &table)
{
  add(in_statement, table);
}

void Written::end_statement()
{
  for (const LastWrite &table : in_statement)
    add(before, table);
  in_statement.clear();
}

void Written::commit()
{
  end_statement();
  if (before.empty())
    return;
  time_t now= time(nullptr);
  for (const LastWrite &table : before)
    if (*table != now) // all who write to the table look, and one of them a second writes
      *table= now;
  before.clear();
}

void Written::rollback()
{
  before.clear();
  in_statement.clear();
}

} // namespace weir
