/*
  The binary log on its way to the device.

  With `sync_binlog=0` it lies in the page cache until that finds it old, half a minute later, and writes all of it at once:
  hundreds of MB in a second or two. That takes processors from statements, and the syncs of Weir's log, which commits and page
  writes depend on, stand in line behind it. Here the writing of each MB is begun when that is full. Nobody waits for it, and
  what is durable doesn't change.
*/
#pragma once

#include "keys.h"

namespace weir {

void start_binlog_writeback();
void stop_binlog_writeback();

// How many bytes of binary logs have been begun to be written, in whole MB.
ulonglong binlog_writeback_bytes();

} // namespace weir
