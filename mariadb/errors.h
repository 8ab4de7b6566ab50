/*
  Results of the engine as the server's error codes. What the engine says in words goes into the
  connection's warnings, or the error log, where the code alone would leave an operator guessing.
*/
#pragma once

#include "bytes.h"

namespace weir {

// The server's code; 0 for `WEIR_RESULT_OK`.
int error_of(WeirResult result);
// As `error_of`, and has the server roll back as much as the engine has.
int error_of(WeirResult result, THD *thd);

// For damage that the engine doesn't see, and for what the server or the plugin does wrong: these
// are its words then.
WeirResult damaged(const Bytes &words);
WeirResult misused(const Bytes &words);

} // namespace weir
