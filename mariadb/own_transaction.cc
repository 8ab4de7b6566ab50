#include "own_transaction.h"
#include "database.h"
#include "sysvars.h"

namespace weir {

OwnTransaction::OwnTransaction() : canceller(weir_canceller_open(nullptr)) {}

OwnTransaction::~OwnTransaction()
{
  weir_transaction_close(transaction);
  weir_canceller_close(canceller);
}

WeirResult OwnTransaction::begin(WeirIsolation isolation)
{
  return weir_begin(database, isolation, canceller, &transaction);
}

WeirResult OwnTransaction::commit()
{
  return weir_commit(transaction, durability());
}

WeirResult Scanner::open(const WeirTable *table, uint32_t index, bool backward)
{
  WeirBound all= {WEIR_BOUND_KIND_OPEN, {nullptr, 0}};
  if (WeirResult result= reader.begin(WEIR_ISOLATION_READ_UNCOMMITTED))
    return result;
  return weir_scan_open(reader.transaction, table, index, all, all, backward, WEIR_LOCK_NONE,
                        &scan);
}

} // namespace weir
