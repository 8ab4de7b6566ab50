#include "left_tables.h"
#include "engine_table.h"
#include <mutex>

namespace weir {

static std::mutex leaving;
static std::vector<Bytes> left;

void leave_table(const Bytes &name)
{
  std::lock_guard<std::mutex> guard(leaving);
  left.push_back(name);
}

size_t drop_left_tables()
{
  std::lock_guard<std::mutex> guard(leaving);
  std::vector<Bytes> used;
  size_t dropped= 0;
  for (const Bytes &name : left)
    switch (drop_table(name, WeirPatience{nullptr, 0})) {
    case WEIR_RESULT_OK:
      dropped++;
      break;
    case WEIR_RESULT_NO_TABLE:
      break;
    case WEIR_RESULT_TABLE_IN_USE:
      used.push_back(name);
      break;
    default:
      warn_of_drop(name);
    }
  left.swap(used);
  return dropped;
}

} // namespace weir
