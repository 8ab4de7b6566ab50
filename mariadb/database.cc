#include "database.h"
#include <mutex>

namespace weir {

handlerton *hton;
WeirDatabase *database;

static std::shared_mutex door;

Visitor::Visitor() : held(door) {}

WeirDatabase *take_database()
{
  std::lock_guard<std::shared_mutex> guard(door);
  WeirDatabase *taken= database;
  database= nullptr;
  return taken;
}

} // namespace weir
