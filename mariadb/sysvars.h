/* Settings `weir_*`. */
#pragma once

#include "bytes.h"

namespace weir {
extern struct st_mysql_sys_var *system_variables[];
WeirOptions open_options();
void show_redo_capacity();
WeirDurability durability();
// How long the connection's statement waits for a locked row.
uint64_t lock_wait_timeout_ms(THD *thd);
// How long it waits to change a table that others use.
uint64_t definition_wait_timeout_ms(THD *thd);
// Whether the connection's tables are made without the FOREIGN KEYs that they are to have.
bool ignores_foreign_keys(THD *thd);
bool clean_shutdown();
bool binlog_writeback();

// Where the BACKUP STAGE that begins puts a copy of the database; empty: it makes none.
Bytes take_backup_dir();
} // namespace weir
