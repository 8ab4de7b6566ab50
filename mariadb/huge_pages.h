/*
  Huge pages of memory, which the kernel makes by itself where a program asks for them, as the
  engine does for its buffer pool.

  The server turns them off for its whole process at the end of its start, for the sake of its heap.
  Here they are turned on again, but only if that means the pool and not the heap: Linux 6.18 and
  later can be told so; before, it is so where the system's setting is `madvise`.
*/
#pragma once

namespace weir {

// Tells the log, once, if it can't. For every new connection: the server's start has no end that
// can be seen.
void allow_huge_pages();

} // namespace weir
