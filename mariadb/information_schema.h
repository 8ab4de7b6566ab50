/* INFORMATION_SCHEMA: WEIR_TRX, WEIR_LOCKS, WEIR_INDEX_STATS. */
#pragma once

#include "server.h"

namespace weir {
int init_transactions_table(void *schema);
int init_locks_table(void *schema);
int init_index_table(void *schema);
} // namespace weir
