/* Settings `weir_*`. */
#pragma once

#include "server.h"

namespace weir {
extern struct st_mysql_sys_var *system_variables[];
WeirOptions open_options();
void show_redo_capacity();
bool clean_shutdown();
} // namespace weir
