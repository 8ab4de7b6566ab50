/*
  Preloaded into a server: kills it with SIGKILL at the N-th step from the moment that a file named `kill-at-N` is
  created (N = 0: not at all). A step is a call that changes files: of any thread, and before it is done. The engine's own
  writes are among them, be they made by pwrite or by io_uring.
*/
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static const char ARM[]= "/kill-at-";
static atomic_long left;

static void *next(const char *name, _Atomic(void *) *kept)
{
  void *found= atomic_load(kept);
  if (!found)
    atomic_store(kept, found= dlsym(RTLD_NEXT, name));
  return found;
}

#define NEXT(name)                                                                                                     \
  static _Atomic(void *) kept;                                                                                         \
  __typeof__(&name) real= next(#name, &kept)

static void step(void)
{
  if (atomic_load(&left) > 0 && atomic_fetch_sub(&left, 1) == 1)
    kill(getpid(), SIGKILL);
}

static void arm_or_step(const char *path, int flags)
{
  const char *at= path ? strstr(path, ARM) : NULL;
  if (at)
    atomic_store(&left, atol(at + strlen(ARM)));
  else if (flags & O_CREAT)
    step();
}

#define OPEN(name)                                                                                                     \
  int name(const char *path, int flags, ...)                                                                           \
  {                                                                                                                    \
    NEXT(name);                                                                                                        \
    va_list list;                                                                                                      \
    va_start(list, flags);                                                                                             \
    mode_t mode= flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0;                                             \
    va_end(list);                                                                                                      \
    arm_or_step(path, flags);                                                                                          \
    return real(path, flags, mode);                                                                                    \
  }

OPEN(open)
OPEN(open64)

int rename(const char *from, const char *to)
{
  NEXT(rename);
  step();
  return real(from, to);
}

int unlink(const char *path)
{
  NEXT(unlink);
  step();
  return real(path);
}

ssize_t write(int fd, const void *bytes, size_t len)
{
  NEXT(write);
  step();
  return real(fd, bytes, len);
}

ssize_t pwrite(int fd, const void *bytes, size_t len, off_t at)
{
  NEXT(pwrite);
  step();
  return real(fd, bytes, len, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t len, off64_t at)
{
  NEXT(pwrite64);
  step();
  return real(fd, bytes, len, at);
}

int ftruncate64(int fd, off64_t len)
{
  NEXT(ftruncate64);
  step();
  return real(fd, len);
}

long syscall(long number, ...)
{
  NEXT(syscall);
  va_list list;
  va_start(list, number);
  long a= va_arg(list, long), b= va_arg(list, long), c= va_arg(list, long), d= va_arg(list, long),
       e= va_arg(list, long), f= va_arg(list, long);
  va_end(list);
  // Its second argument: how many operations are begun.
  if (number == SYS_io_uring_enter && b > 0)
    step();
  return real(number, a, b, c, d, e, f);
}
