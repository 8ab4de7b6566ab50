/*
  The ranges of a statement, as the server gives them one by one: where their beginnings are not in
  memory, those of several ranges to come are read together.
*/
#pragma once

#include "server.h"
#include "weir.h"
#include <functional>
#include <vector>

namespace weir {

class RangesAhead
{
public:
  RangesAhead()= default;
  ~RangesAhead() { weir_ahead_close(ahead); }
  RangesAhead(const RangesAhead &)= delete;
  RangesAhead &operator=(const RangesAhead &)= delete;

  // Whether ranges of this sequence may be asked for before they are wanted.
  static bool takes(const RANGE_SEQ_IF &sequence, uint ranges, uint mode);

  // Stands in for a sequence of so many ranges, `of_sequence` being what that begins with; `read`
  // reads the beginnings of ranges together. The sequence that the server is to use, with this.
  RANGE_SEQ_IF begin(const RANGE_SEQ_IF &sequence, void *of_sequence, uint ranges,
                     std::function<void(const std::vector<KEY_MULTI_RANGE> &)> read);

private:
  RANGE_SEQ_IF sequence= {};
  void *of_sequence= nullptr;
  range_seq_t at= nullptr;
  std::function<void(const std::vector<KEY_MULTI_RANGE> &)> read;
  WeirAhead *ahead= nullptr;
  std::vector<KEY_MULTI_RANGE> taken; // from the sequence, together
  size_t given= 0;                    // of those
  uint64_t number= 0, ranges= 0;      // given in all, of so many

  bool next(KEY_MULTI_RANGE *range);
};

} // namespace weir
