/* What the error log is told of recovery, which may take long. */
#pragma once

#include "server.h"

namespace weir {

// Opens the database in a directory; sets the callback of `options`. Recovery goes on afterwards.
WeirResult open_telling(WeirBytes directory, WeirOptions options, WeirDatabase **database);

} // namespace weir
