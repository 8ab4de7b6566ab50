/* INFORMATION_SCHEMA: WEIR_TRX, WEIR_LOCKS and WEIR_TABLES. */
#pragma once

#include "server.h"

namespace weir {
int init_transactions_table(void *schema);
int init_locks_table(void *schema);
int init_tables_table(void *schema);
} // namespace weir
