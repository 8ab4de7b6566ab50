/* Bytes, and what keys, entries and rows are put together from. */
#pragma once

#include "server.h"

namespace weir {

using Bytes = std::string;

inline WeirBytes bytes_of(const Bytes &b)
{
  return WeirBytes{reinterpret_cast<const uint8_t *>(b.data()), b.size()};
}

inline WeirBytes bytes_of(const LEX_CSTRING &s)
{
  return WeirBytes{reinterpret_cast<const uint8_t *>(s.str), s.length};
}

// A copy, for what only lasts until the engine is called again.
inline Bytes to_bytes(WeirBytes b)
{
  return Bytes(reinterpret_cast<const char *>(b.data), b.len);
}

// The first 128 of them, in hexadecimal.
inline Bytes hex_beginning(WeirBytes b)
{
  static const size_t MOST= 128;
  Bytes text;
  for (size_t i= 0; i < std::min(b.len, MOST); i++)
    text+= {_dig_vec_upper[b.data[i] >> 4], _dig_vec_upper[b.data[i] & 15]};
  return text;
}

static const uchar INVERT= 0xff;
// Most spaces that one byte counts in text that is compared as if followed by spaces.
static const uint MAX_RUN= 120;
static const uchar BLANK[]= {' '};

inline void append(Bytes &out, const void *ptr, size_t len)
{
  if (len)
    out.append(static_cast<const char *>(ptr), len);
}

// Bytes the other way round.
inline void reverse(const uchar *from, uchar *to, uint len)
{
  if (len == 4)
  {
    uint32 four;
    memcpy(&four, from, 4);
    four= __builtin_bswap32(four);
    memcpy(to, &four, 4);
    return;
  }
  if (len == 8)
  {
    uint64_t eight;
    memcpy(&eight, from, 8);
    eight= __builtin_bswap64(eight);
    memcpy(to, &eight, 8);
    return;
  }
  for (uint i= 0; i < len; i++)
    to[i]= from[len - 1 - i];
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
