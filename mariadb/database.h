/* The engine's database, of which a server has one, open from the plugin's start to its end. */
#pragma once

#include "server.h"
#include <shared_mutex>

namespace weir {

extern handlerton *hton;
extern WeirDatabase *database;
// Its directory, beside those of the server's databases.
constexpr char DIRECTORY[]= "weir";

// Who only looks at the database: neither a handler nor a transaction keeps the server from taking
// the engine away meanwhile.
class Visitor
{
public:
  Visitor();
  // Whether there is a database.
  explicit operator bool() const { return database; }

private:
  std::shared_lock<std::shared_mutex> held;
};

// Waits for those who look, and takes the database out of sight; null if there is none.
WeirDatabase *take_database();

} // namespace weir
