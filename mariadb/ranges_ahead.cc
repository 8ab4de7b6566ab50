#include "ranges_ahead.h"
#include <algorithm>

namespace weir {

bool RangesAhead::takes(const RANGE_SEQ_IF &sequence, uint ranges, uint mode)
{
  // Ranges made from rows of another table are valid for a moment only.
  bool is_of_rows= sequence.get_key_info || sequence.skip_record || sequence.skip_index_tuple;
  return ranges > 1 && mode & HA_MRR_USE_DEFAULT_IMPL && !is_of_rows;
}

RANGE_SEQ_IF RangesAhead::begin(const RANGE_SEQ_IF &from, void *of_from, uint count,
                                std::function<void(const std::vector<KEY_MULTI_RANGE> &)> reads)
{
  sequence= from;
  of_sequence= of_from;
  read= std::move(reads);
  weir_ahead_close(ahead);
  ahead= weir_ahead_open();
  taken.clear();
  given= 0;
  number= 0;
  ranges= count;
  RANGE_SEQ_IF ours= {};
  ours.init= [](void *self, uint n, uint flags) -> range_seq_t {
    auto of= static_cast<RangesAhead *>(self);
    of->at= of->sequence.init(of->of_sequence, n, flags);
    return self;
  };
  ours.next= [](range_seq_t self, KEY_MULTI_RANGE *range) {
    return static_cast<RangesAhead *>(self)->next(range);
  };
  return ours;
}

// True at the end.
bool RangesAhead::next(KEY_MULTI_RANGE *range)
{
  size_t due= weir_ahead_due(ahead, number, ranges > number ? ranges - number : 1);
  if (given == taken.size())
  {
    taken.clear();
    given= 0;
    KEY_MULTI_RANGE next;
    while (taken.size() < std::max<size_t>(due, 1) && !sequence.next(at, &next))
      taken.push_back(next);
    if (taken.empty())
      return true;
    if (taken.size() > 1)
      read(taken);
  }
  *range= taken[given++];
  number++;
  return false;
}

} // namespace weir
