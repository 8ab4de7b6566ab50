/*
  What all handlers of a table share: its handle in the engine, where its indexes are there,
  counters.
*/
#pragma once

#include "last_write.h"
#include "meta.h"
#include <atomic>
#include <mutex>

namespace weir {

// Bytes of the cache lines that processors fetch together.
constexpr size_t LINE= 128;

class Share : public Handler_share
{
public:
  ~Share() override;
  // Finds the table and its indexes.
  int open(const Bytes &name, TABLE *form);
  int drop_unknown(std::vector<Bytes> &names, const TABLE *form);

  WeirTable *table= nullptr;
  Bytes name;
  // Position in the engine of each of the server's indexes; WEIR_PRIMARY for the primary key.
  std::vector<uint32_t> positions;
  // See `Meta`.
  Bytes added;
  Places places;
  uchar keys_made= KEYS_NOW;
  LastWrite last_write;
  // Next key of a table without primary key, 0 if not known yet; next value of AUTO_INCREMENT. Like
  // all that writers change they lie on other cache lines than what everybody reads.
  alignas(LINE) std::atomic<ulonglong> next_hidden{0}, next_auto{0};
  std::atomic<bool> auto_is_known{false};
  // See numbers.h. Finds out what was written before; sees to it that more than `value` is.
  WeirResult recall(ulonglong *value);
  WeirResult keep(ulonglong value);
  // From now on the table's numbers begin anew, under another name.
  void forget(ulonglong number);
  // Rows that came or went, roughly.
  alignas(LINE) std::atomic<ulonglong> changes{0};
  // Figures of the table, when they were asked for last and how many changes there had been. Each
  // statement reads them: without LOCK_share, at which all connections would meet. They are
  // estimates, and needn't be of one moment.
  alignas(LINE) std::atomic<ulonglong> rows{0}, data_bytes{0}, index_bytes{0}, asked_at{0},
      changes_before{0};
  std::atomic<bool> is_known{false};
  // Rows for each distinct value of each index's first parts, and how many rows there were when
  // these were counted; see `analyze`. Under LOCK_share.
  std::vector<std::vector<ulong>> rows_per_key;
  ulonglong counted_rows= 0;
  // How often they have been; changed under LOCK_share.
  std::atomic<ulonglong> counts{0};

private:
  std::mutex keeping; // for the following
  ulonglong number= 0, ahead= 0, kept_at= 0;
  // The highest value of a row; values below `kept` are written already.
  alignas(LINE) std::atomic<ulonglong> highest{0}, kept{0};
};

// The table's index of that name, or MAX_KEY.
uint index_named(const TABLE *table, const Bytes &name);

} // namespace weir
