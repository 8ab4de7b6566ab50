/* What a killed server has left behind, put right at the next start; what is lost is told. */
#pragma once

#include "server.h"

namespace weir {

// The database has been opened, and the server knows nothing of a crash yet.
void repair_at_start();
// The server has ended the changes of definitions that a crash has interrupted.
int ddl_is_recovered(handlerton *);
// The database is new. There may have been another one, whose tables the server still defines.
void tell_lost_tables();

} // namespace weir
