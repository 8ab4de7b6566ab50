/* INFORMATION_SCHEMA: WEIR_TRX and WEIR_LOCKS. */
#pragma once

#include "server.h"

namespace weir {
int init_transactions_table(void *schema);
int init_locks_table(void *schema);
} // namespace weir
