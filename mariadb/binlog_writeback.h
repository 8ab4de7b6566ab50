/*
  The binary log on its way to the device.

  With `sync_binlog=0` it lies in the page cache until that finds it old, half a minute later, and
  writes all of it at once: hundreds of MB in a second or two. That takes processors from
  statements, and the syncs of Weir's log, which commits and page writes depend on, stand in line
  behind it. Here the writing of each MB is begun when that is full, and that of a file's end when
  the next file is there. Nobody waits for it, and what is durable doesn't change. Where and when a
  file is, is looked at five times a second: of small files that come and go meanwhile some are left
  to the page cache.
*/
#pragma once

#include "bytes.h"

namespace weir {

void start_binlog_writeback();

// Before the server closes its binary log.
void stop_binlog_writeback();

// How many bytes of binary logs have been begun to be written, without the ends of files.
ulonglong binlog_writeback_bytes();

} // namespace weir
