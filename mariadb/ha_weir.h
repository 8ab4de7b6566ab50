/*
  A table of the engine, as the server handles it. The parts: opening and figures (ha_weir.cc),
  reading (ha_weir_read.cc, by the scans of ha_weir_scan.cc, many ranges at once in
  ha_weir_ranges.cc), writing (ha_weir_write.cc, many rows at once in ha_weir_bulk.cc), definition
  (ha_weir_ddl.cc), ALTER in place (ha_weir_alter.cc; what can be, in ha_weir_alter_check.cc),
  CHECK and ANALYZE (ha_weir_admin.cc).
*/
#pragma once

#include "cursor.h"
#include "engine_table.h"
#include "keys.h"
#include "own_transaction.h"
#include "ranges_ahead.h"
#include "row_format.h"
#include "session.h"
#include "share.h"

namespace weir {
struct Sum;
class AlterContext;
} // namespace weir

class ha_weir final : public handler
{
public:
  ha_weir(handlerton *hton, TABLE_SHARE *table) : handler(hton, table) {}
  ~ha_weir() override;

  /* What it can do */
  ulonglong table_flags() const override;
  ulong index_flags(uint index, uint part, bool all_parts) const override;
  const char *index_type(uint) override { return "BTREE"; }
  uint max_supported_keys() const override { return MAX_KEY < 64 ? MAX_KEY : 64; }
  uint max_supported_key_length() const override { return 3072; }
  uint max_supported_key_part_length() const override { return 3072; }
  uint lock_count() const override { return 0; }
  // What a transaction sees isn't what the next one sees: the query cache knows no snapshots.
  uint8 table_cache_type() override { return HA_CACHE_TBL_NOCACHE; }

  /* Opening, statements */
  int open(const char *name, int mode, uint test_if_locked) override;
  int close() override;
  int external_lock(THD *thd, int type) override;
  void use_hidden_primary_key() override;
  int start_stmt(THD *thd, thr_lock_type type) override;
  THR_LOCK_DATA **store_lock(THD *, THR_LOCK_DATA **to, thr_lock_type type) override;
  bool get_error_message(int error, String *text) override;
  int extra(enum ha_extra_function operation) override;
  int extra_opt(enum ha_extra_function operation, ulong argument) override;
  int reset() override;

  /* Figures */
  int info(uint flag) override;
  ha_rows records_in_range(uint index, const key_range *min, const key_range *max,
                           page_range *pages) override;
  double scan_time() override;
  ha_rows estimate_rows_upper_bound() override;
  const key_map *keys_to_use_for_scanning() override { return &key_map_full; }
  double read_time(uint index, uint ranges, ha_rows rows) override;

  /* Reading */
  int index_init(uint index, bool sorted) override;
  int index_end() override;
  int index_read_map(uchar *buf, const uchar *key, key_part_map map,
                     enum ha_rkey_function flag) override;
  int index_next(uchar *buf) override;
  int index_prev(uchar *buf) override;
  int index_first(uchar *buf) override;
  int index_last(uchar *buf) override;
  int index_next_same(uchar *buf, const uchar *key, uint length) override;
  handler *clone(const char *name, MEM_ROOT *root) override;
  int multi_range_read_init(RANGE_SEQ_IF *seq, void *of_seq, uint ranges, uint mode,
                            HANDLER_BUFFER *buffer) override;
  int multi_range_read_next(range_id_t *range) override;
  ha_rows multi_range_read_info_const(uint index, RANGE_SEQ_IF *seq, void *of_seq, uint ranges,
                                      uint *buffer_size, uint *flags, Cost_estimate *cost) override;
  ha_rows multi_range_read_info(uint index, uint ranges, uint rows, uint parts, uint *buffer_size,
                                uint *flags, Cost_estimate *cost) override;
  int multi_range_read_explain_info(uint mode, char *text, size_t size) override;
  int read_range_first(const key_range *start, const key_range *end, bool is_equal,
                       bool sorted) override;
  int read_range_next() override;
  int rnd_init(bool scan) override;
  int rnd_end() override;
  int rnd_next(uchar *buf) override;
  int rnd_pos(uchar *buf, uchar *pos) override;
  void position(const uchar *record) override;
  void unlock_row() override;
  bool was_semi_consistent_read() override;
  void try_semi_consistent_read(bool yes) override { semi_consistent= yes; }
  Item *idx_cond_push(uint index, Item *condition) override;
  bool rowid_filter_push(Rowid_filter *filter) override;

  /* Writing */
  int write_row(const uchar *buf) override;
  int update_row(const uchar *old_row, const uchar *new_row) override;
  int delete_row(const uchar *buf) override;
  void start_bulk_insert(ha_rows expected, uint flags) override;
  int end_bulk_insert() override;
  bool start_bulk_delete() override;
  int end_bulk_delete() override;
  bool autoinc_lock_mode_stmt_unsafe() const override;
  void get_auto_increment(ulonglong offset, ulonglong increment, ulonglong wanted,
                          ulonglong *first, ulonglong *reserved) override;
  int reset_auto_increment(ulonglong value) override;

  /* Definition */
  int create(const char *name, TABLE *form, HA_CREATE_INFO *info) override;
  int delete_table(const char *name) override;
  int rename_table(const char *from, const char *to) override;
  int truncate() override;
  void update_create_info(HA_CREATE_INFO *info) override;
  bool check_if_incompatible_data(HA_CREATE_INFO *info, uint changes) override;
  bool can_convert_nocopy(const Field &field, const Column_definition &wanted) const override;
  Compare_keys compare_key_parts(const Field &before, const Column_definition &after,
                                 const KEY_PART_INFO &old_part,
                                 const KEY_PART_INFO &new_part) const override;
  enum_alter_inplace_result check_if_supported_inplace_alter(TABLE *altered,
                                                             Alter_inplace_info *info) override;
  bool prepare_inplace_alter_table(TABLE *altered, Alter_inplace_info *info) override;
  bool inplace_alter_table(TABLE *altered, Alter_inplace_info *info) override;
  bool commit_inplace_alter_table(TABLE *altered, Alter_inplace_info *info, bool commit) override;

  /* Care */
  int check(THD *thd, HA_CHECK_OPT *options) override;
  int analyze(THD *thd, HA_CHECK_OPT *options) override;
  int optimize(THD *thd, HA_CHECK_OPT *options) override;

private:
  // Lives in what the server asks of the handler: adds the pages that it took to the statement's
  // (ANALYZE, the slow log).
  class Accounted
  {
  public:
    explicit Accounted(ha_weir *whose) : whose(whose) {}
    ~Accounted()
    {
      if (unlikely(whose->handler_stats != nullptr))
        whose->account();
    }

  private:
    ha_weir *whose;
  };
  void account();

  using Bytes= weir::Bytes;

  weir::Share *share= nullptr;
  // Of each of the server's indexes, the primary key among them.
  std::vector<weir::KeyFormat> keys;
  std::vector<uint> secondary;         // numbers of those but the primary key
  std::vector<std::vector<Field *>> computed_parts; // virtual columns of each index
  std::vector<Field *> computed, computed_blobs; // those of all indexes; BLOBs among them
  weir::RowFormat row_format;
  bool hidden= false;   // no primary key: rows have a number
  bool indexes_generated= false; // columns, and there are such that are stored
  bool key_is_fixed= false; // all primary keys are of one length
  bool key_may_be_long= false; // so that a position is its short form
  uint row_bytes_min= 0;
  bool sequence= false; // writes are transactions of their own

  ulonglong told_counts= 0; // `Share::counts` when the server was told rows per key

  /* The statement */
  thr_lock_type wanted_lock= TL_UNLOCK;
  WeirLock lock= WEIR_LOCK_NONE;
  // Of the statement that has called the trigger or function that is on.
  WeirLock callers_lock= WEIR_LOCK_NONE;
  bool writes= false;
  bool is_noted= false; // among the tables that the transaction has written
  bool reads_all= false; // all columns, since the row may be written back
  bool only_index= false; // entries of the index hold all that is wanted

  /* What is decoded of rows and entries, made anew when a statement reads other columns */
  struct Wanted
  {
    std::vector<my_bitmap_map> columns;
    std::vector<uchar> row;
    size_t primary= 0;
    std::vector<size_t> entries; // of each index
  };
  Wanted all, some;
  void want(const MY_BITMAP *columns, Wanted &out) const;
  const Wanted &wanted();

  /* The scan */
  weir::Cursor cursor;
  std::vector<Bytes> merged_by; // values of virtual BLOBs of a row that was read
  WeirRow *row= nullptr;
  // As the engine has the row at hand.
  WeirRow *stored= nullptr;
  std::vector<uchar> stored_record;
  Bytes pk;            // primary key of the row at hand, unless
  bool key_is_due= false; // it is yet to be had from the entry at hand
  DsMrr_impl mrr;
  weir::RangesAhead ranges_ahead;
  /*
    Rows are read as they are committed, without lock; one that the server wants is read once more
  */
  bool semi_consistent= false, scan_is_unlocked= false, is_unlocked= false, repeats= false;
  const key_range *range_end= nullptr;
  bool ends_with_range= false; // the scan ends just where the server's range does
  std::unique_ptr<weir::OwnTransaction> own_transaction; // of a sequence, or of CHECK

  /* Room for what is encoded */
  Bytes key_bytes, row_bytes, low_bytes, high_bytes;
  struct Encoded
  {
    Bytes key, value;
  };
  std::vector<Encoded> new_entries, old_entries;
  // Indexes that an update may change; those that it leaves as they are.
  std::vector<uint> changing, stayed;
  uint duplicate= MAX_KEY;

  const weir::KeyFormat *primary() const
  {
    return hidden ? nullptr : &keys[table->s->primary_key];
  }
  int open_share(const char *name);
  void make_keys();
  void note_computed();
  void size_positions();
  void size_rows();
  WeirTransaction *transaction();
  WeirResult begin_own(WeirIsolation isolation);
  int fail(WeirResult result);
  int bad_row();
  int bad_entry();
  void refresh_figures();
  void tell_times();
  void tell_duplicate();
  void ask_figures(ulonglong now);
  void tell_rows_per_key(bool anew);
  int count_values();
  int start(THD *thd, thr_lock_type type);

  WeirBound bound(WeirBoundKind kind, const Bytes &key) const
  {
    return WeirBound{kind, weir::bytes_of(key)};
  }
  WeirBound no_bound() const { return WeirBound{WEIR_BOUND_KIND_OPEN, {nullptr, 0}}; }
  WeirBound bound_of_end(uint index, const key_range *end);
  uint32_t index_position(uint index) const { return share->positions[index]; }
  int open_scan(uint32_t index, WeirBound low, WeirBound high, bool back);
  void close_scan();
  void pause_scan();
  void leave_entry();
  int step();
  bool reads_committed() const;
  bool scans_rows() const;
  bool keeps_matches_locked_only() const;
  bool is_record_of_entry() const;
  bool find_key();
  bool find_key_of(const uchar *record);
  int next_entry(uchar *buf);
  int repeat_locked(uchar *buf);
  int read_entry(uchar *buf, bool &skip);
  int read_row_of_entry(uchar *buf, bool &skip);
  void read_rows_ahead(size_t rows);
  void read_ranges_ahead(const std::vector<KEY_MULTI_RANGE> &next);
  void read_ahead(uint32_t index, const std::vector<Bytes> &of);
  int check_entry(uchar *buf, bool asks, bool &skip);
  int read_primary(uchar *buf, WeirBytes key, WeirBytes row);
  bool decode_row(WeirBytes key, WeirBytes from, const Wanted &what, uchar *record) const;
  int get_row(uchar *buf);
  int get_row_at(uchar *buf, WeirBytes short_form);
  int go_on(uint32_t index, bool back, WeirBoundKind from, uchar *buf);
  int turn(bool back, uchar *buf);
  bool entry_is_of(uchar *buf, uint index);
  void compute_for_merge(uchar *buf);
  void encode_primary(const uchar *record, Bytes &out);
  int found(uchar *buf, int error_at_end);

  void note_write();
  void encode_entry(uint index, const uchar *record, const Bytes &of, Encoded &out);
  const uchar *as_stored(const uchar *record);
  void encode_old(const std::vector<uint> &indexes, const uchar *record);
  void encode_new(const std::vector<uint> &indexes, const uchar *record);
  size_t list_entries(const std::vector<uint> &indexes, const std::vector<Encoded> &entries,
                      WeirEntry *out) const;
  int insert(const uchar *record);
  int insert_or_lock(const uchar *record);
  size_t encode_inserted(const uchar *record, WeirEntry *entries);
  WeirResult lock_row(const Bytes &key);
  WeirResult lock_duplicate();
  WeirResult keep_free_before_duplicate();
  WeirResult find_owner(uint index, Bytes &owner);
  int duplicate_error(WeirResult result);
  int update_same_key(const uchar *old_row, const uchar *new_row);
  int update_new_key(const uchar *old_row, const uchar *new_row, const Bytes &new_pk);
  std::vector<Bytes> to_be_emptied() const;
  int delete_encoded();
  int touch_stayed(const uchar *record);
  bool index_may_change(uint index) const;
  bool place_columns(TABLE *altered, const Alter_inplace_info *info,
                     weir::AlterContext &out) const;
  const char *reason_of_meta(TABLE *altered, const Alter_inplace_info *info) const;
  const char *reason_for_copy(TABLE *altered, const Alter_inplace_info *info) const;

  /* CHECK */
  int sum_rows(THD *thd, std::vector<weir::Sum> &sums);
  int sum_entries(THD *thd, uint index, weir::Sum &sum);
  WeirResult is_of_its_row(uint index, bool &is);

  /* Many rows at once */
  weir::Bulk *bulk= nullptr;       // the connection's, while rows to be inserted are collected
  weir::Bulk *leaving= nullptr;    // the same, of rows to be deleted
  ulong first_collected= 0;        // number in its statement of the first of them
  bool expects_duplicates= false;  // the server deals with rows that are there already
  bool changes_duplicates= false;  // and changes or replaces them
  bool is_alone(enum_sql_command statement) const;
  bool may_collect_inserted() const;
  bool may_collect_deleted() const;
  weir::Bulk *begin_bulk() const;
  static void end_bulk(weir::Bulk *&);
  int write_collected(weir::Bulk *collected, decltype(weir_insert_many) *how);
  int collect_deleted();
  int delete_collected();
  int collect(const uchar *record);
  int insert_collected();
  int insert_one_by_one(WeirTransaction *with);
  void show_collected(size_t at);

  /* Numbers that the engine gives */
  int note_auto_increment(const uchar *record);
  int last_value(uint index, Field *field, ulonglong *value);
  int know_next_auto();
  int know_next_hidden();
};
