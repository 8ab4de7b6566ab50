/* Temporary tables that their connections couldn't drop. */
#pragma once

#include "bytes.h"

namespace weir {

// Temporary tables that prepared transactions whose connections have gone may still use: a table is
// added; those that nobody uses any more are dropped, and counted.
void leave_table(const Bytes &name);
size_t drop_left_tables();

} // namespace weir
