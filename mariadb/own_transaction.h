/* Transactions apart from those of connections. */
#pragma once

#include "database.h"
#include "sysvars.h"

namespace weir {

// A transaction for a statement, or a part of it, whatever becomes of the connection's.
class OwnTransaction
{
public:
  OwnTransaction()= default;
  ~OwnTransaction()
  {
    weir_transaction_close(transaction);
    weir_canceller_close(canceller);
  }
  OwnTransaction(const OwnTransaction &)= delete;
  OwnTransaction &operator=(const OwnTransaction &)= delete;
  WeirResult begin(WeirIsolation isolation= WEIR_ISOLATION_READ_COMMITTED)
  {
    return weir_begin(database, isolation, canceller, &transaction);
  }
  WeirResult commit() { return weir_commit(transaction, durability()); }
  WeirTransaction *transaction= nullptr;

private:
  WeirCanceller *const canceller=
      weir_canceller_open(nullptr, current_thd ? current_thd->thread_id : 0);
};

// A scan of what there is, committed or not, in a transaction of its own.
class Scanner
{
public:
  ~Scanner() { weir_scan_close(scan); }
  WeirResult open(const WeirTable *table, uint32_t index, bool backward)
  {
    WeirBound all= {WEIR_BOUND_KIND_OPEN, {nullptr, 0}};
    if (WeirResult result= reader.begin(WEIR_ISOLATION_READ_UNCOMMITTED))
      return result;
    return weir_scan_open(reader.transaction, table, index, all, all, backward, WEIR_LOCK_NONE,
                          &scan);
  }
  WeirResult next(WeirScanned *at) { return weir_scan_next(scan, reader.transaction, at, nullptr); }

private:
  OwnTransaction reader;
  WeirScan *scan= nullptr;
};

} // namespace weir
