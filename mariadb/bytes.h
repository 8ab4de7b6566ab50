/* Bytes: what keys, entries and rows are put together from. */
#pragma once

#include "keys.h"

namespace weir {

static const uchar INVERT= 0xff;

inline void append(Bytes &out, const void *ptr, size_t len)
{
  out.append(static_cast<const char *>(ptr), len);
}

inline void append_length(Bytes &out, size_t n)
{
  while (n >= 0x80)
  {
    out.push_back(static_cast<char>(n | 0x80));
    n>>= 7;
  }
  out.push_back(static_cast<char>(n));
}

inline bool take_number(const uchar *&from, const uchar *end, size_t &n)
{
  n= 0;
  for (uint shift= 0; from < end && shift <= 28; shift+= 7)
  {
    uchar b= *from++;
    n|= size_t(b & 0x7f) << shift;
    if (!(b & 0x80))
      return true;
  }
  return false;
}

// The length of bytes that follow.
inline bool take_length(const uchar *&from, const uchar *end, size_t &n)
{
  return take_number(from, end, n) && size_t(end - from) >= n;
}

inline void invert(Bytes &out, size_t from)
{
  for (size_t i= from; i < out.size(); i++)
    out[i]= static_cast<char>(out[i] ^ INVERT);
}

} // namespace weir
