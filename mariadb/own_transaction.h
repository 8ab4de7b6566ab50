/* Transactions apart from those of connections. */
#pragma once

#include "server.h"

namespace weir {

// A transaction for a statement, or a part of it, whatever becomes of the connection's.
class OwnTransaction
{
public:
  OwnTransaction();
  ~OwnTransaction();
  WeirResult begin(WeirIsolation isolation= WEIR_ISOLATION_READ_COMMITTED);
  WeirResult commit();
  WeirTransaction *transaction= nullptr;

private:
  WeirCanceller *canceller;
};

// A scan of what there is, committed or not, in a transaction of its own.
class Scanner
{
public:
  ~Scanner() { weir_scan_close(scan); }
  WeirResult open(const WeirTable *table, uint32_t index, bool backward);
  WeirResult next(WeirScanned *at) { return weir_scan_next(scan, reader.transaction, at, nullptr); }

private:
  OwnTransaction reader;
  WeirScan *scan= nullptr;
};

} // namespace weir
