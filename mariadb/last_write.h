/*
  When tables were last written: `UPDATE_TIME`. As InnoDB tells it: when the last transaction that
  has changed a row committed, since the server's start.

  A table's time outlives its handlers and its `Share`, and goes with its name.
*/
#pragma once

#include "bytes.h"
#include <atomic>
#include <memory>

namespace weir {

using LastWrite= std::shared_ptr<std::atomic<time_t>>;

// Of a table; 0 if it wasn't written yet.
LastWrite last_write_of(const Bytes &name);
void rename_last_write(const Bytes &from, const Bytes &to);
void forget_last_write(const Bytes &name);

// Tables that a transaction has written. Those of a statement are told apart until it has ended.
class Written
{
public:
  void note(const LastWrite &table);
  void end_statement();
  void rollback_statement() { in_statement.clear(); }
  // How many there are by now, without the running statement's; and forgets those that came later.
  size_t count() const { return before.size(); }
  void rollback_to(size_t count) { before.resize(count); }
  void commit();
  void rollback();

private:
  std::vector<LastWrite> before, in_statement;
};

} // namespace weir
