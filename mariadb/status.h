/* Figures: status variables `Weir_*` and SHOW ENGINE WEIR STATUS. */
#pragma once

#include "server.h"

namespace weir {
extern struct st_mysql_show_var status_variables[];
bool show_status(handlerton *hton, THD *thd, stat_print_fn *print, enum ha_stat_type type);
} // namespace weir
