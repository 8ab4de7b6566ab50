/* CHECK, ANALYZE and OPTIMIZE TABLE. */

#include "ha_weir.h"
#include "errors.h"

using namespace weir;

// An order-independent sum of entries: equal sets have equal sums.
struct weir::Sum
{
  ulonglong entries= 0, hash= 0;

  void add(const void *key, size_t key_len, const void *value, size_t value_len)
  {
    ulonglong h= 14695981039346656037ULL;
    mix(h, key, key_len);
    h= (h ^ key_len) * 1099511628211ULL;
    mix(h, value, value_len);
    h^= h >> 29;
    hash+= h * 0x9E3779B97F4A7C15ULL;
    entries++;
  }
  bool operator!=(const Sum &other) const { return entries != other.entries || hash != other.hash; }

private:
  static void mix(ulonglong &h, const void *ptr, size_t len)
  {
    auto p= static_cast<const uchar *>(ptr);
    for (size_t i= 0; i < len; i++)
      h= (h ^ p[i]) * 1099511628211ULL;
  }
};

static void complain(THD *thd, TABLE *table, const char *text)
{
  Protocol *protocol= thd->protocol;
  protocol->prepare_for_resend();
  Bytes name= Bytes(table->s->db.str, table->s->db.length) + "." + table->s->table_name.str;
  protocol->store(name.data(), name.size(), system_charset_info);
  protocol->store(STRING_WITH_LEN("check"), system_charset_info);
  protocol->store(STRING_WITH_LEN("error"), system_charset_info);
  protocol->store(text, strlen(text), system_charset_info);
  protocol->write();
}

// What the engine has said of the last failure, and where. A KILL says enough itself.
static void complain_of_failure(THD *thd, TABLE *table, const Bytes &where)
{
  const char *words= weir_error_message();
  if (!is_killed(thd))
    complain(thd, table, (where + ": " + (*words ? words : "a row can't be decoded")).c_str());
}

static Bytes words_of_index(const TABLE *table, uint index)
{
  return Bytes("index `") + table->key_info[index].name.str + "`";
}

static void complain_of_index(THD *thd, TABLE *table, uint index, const Sum &seen,
                              const Sum &expected)
{
  char text[256];
  my_snprintf(text, sizeof text, "index `%s` has %llu entries that differ from the rows' %llu",
              table->key_info[index].name.str, seen.entries, expected.entries);
  complain(thd, table, text);
}

// Sums up the entries that the rows ask for.
int ha_weir::sum_rows(THD *thd, std::vector<Sum> &sums)
{
  uchar *buf= table->record[0];
  int error= open_scan(WEIR_PRIMARY, no_bound(), no_bound(), false);
  while (!error && !(error= next_entry(buf)))
  {
    if (is_killed(thd))
      return HA_ERR_ABORTED_BY_USER;
    if (!find_key())
      return bad_row();
    encode_old(secondary, buf);
    for (uint i : secondary)
    {
      const Encoded &e= old_entries[i];
      sums[i].add(e.key.data(), e.key.size(), e.value.data(), e.value.size());
    }
  }
  return error == HA_ERR_END_OF_FILE ? 0 : error;
}

// Whether the entry at hand is its row's: of one that isn't current only the row can tell.
WeirResult ha_weir::is_of_its_row(uint index, bool &is)
{
  key_is_due= false;
  if ((is= cursor.entry().current))
    return WEIR_RESULT_OK;
  pk.clear();
  if (!keys[index].primary_of(cursor.entry().key, cursor.entry().value, pk))
    return WEIR_RESULT_OK;
  uchar *buf= table->record[0];
  WeirBytes found;
  WeirResult result= weir_get(transaction(), share->table, bytes_of(pk), lock, row, &found);
  is= !result && !read_primary(buf, bytes_of(pk), found) && entry_is_of(buf, index);
  return result == WEIR_RESULT_NOT_FOUND ? WEIR_RESULT_OK : result;
}

// Sums up the entries that an index has.
int ha_weir::sum_entries(THD *thd, uint index, Sum &sum)
{
  if (int error= open_scan(index_position(index), no_bound(), no_bound(), false))
    return error;
  const WeirScanned &at= cursor.entry();
  WeirResult result;
  while (!(result= cursor.take() ? WEIR_RESULT_OK : cursor.read(transaction())))
  {
    if (is_killed(thd))
      return HA_ERR_ABORTED_BY_USER;
    bool is;
    if ((result= is_of_its_row(index, is)))
      return fail(result);
    if (is)
      sum.add(at.key.data, at.key.len, at.value.data, at.value.len);
  }
  return result == WEIR_RESULT_NOT_FOUND ? 0 : fail(result);
}

/*
  Reads all rows and all entries of each index in one snapshot, and compares: each index must hold
  just the entries that the rows have. The connection's own transaction may see what isn't
  committed, or lock all that it reads.
*/
int ha_weir::check(THD *thd, HA_CHECK_OPT *)
{
  // A note says why.
  if (!transaction())
    return HA_ADMIN_FAILED;
  close_scan();
  if (WeirResult result= begin_own(WEIR_ISOLATION_REPEATABLE_READ))
  {
    fail(result);
    return HA_ADMIN_FAILED;
  }
  std::vector<Sum> expected(keys.size()), seen(keys.size());
  MY_BITMAP *kept_read= dbug_tmp_use_all_columns(table, &table->read_set);
  bool kept_all= reads_all;
  WeirLock kept_lock= lock;
  reads_all= true;
  lock= WEIR_LOCK_NONE;
  weir_error_set(WeirBytes{nullptr, 0});
  active_index= MAX_KEY;
  int error= sum_rows(thd, expected);
  if (error)
    complain_of_failure(thd, table, "rows");
  for (uint i : secondary)
    if (!error && (error= sum_entries(thd, i, seen[i])))
      complain_of_failure(thd, table, words_of_index(table, i));
  close_scan();
  own_transaction.reset();
  dbug_tmp_restore_column_map(&table->read_set, kept_read);
  reads_all= kept_all;
  lock= kept_lock;
  if (error)
    return error == HA_ERR_CRASHED ? HA_ADMIN_CORRUPT : HA_ADMIN_FAILED;
  bool ok= true;
  for (uint i= 0; i < keys.size(); i++)
    if (expected[i] != seen[i])
    {
      complain_of_index(thd, table, i, seen[i], expected[i]);
      ok= false;
    }
  return ok ? HA_ADMIN_OK : HA_ADMIN_CORRUPT;
}

struct Splitter
{
  const KeyFormat *key;
  size_t parts;
};

extern "C" size_t split_key(void *context, WeirBytes key, size_t *ends)
{
  auto splitter= static_cast<Splitter *>(context);
  return splitter->key->split(key, ends, splitter->parts);
}

// Counts the rows for each value of each index's first parts, in samples of large tables.
int ha_weir::count_values()
{
  WeirIndexFigures of_rows= {};
  if (WeirResult result= weir_index_figures(share->table, WEIR_PRIMARY, &of_rows))
    return error_of(result);
  double entries= std::max<double>(1, double(of_rows.entries));
  std::vector<std::vector<ulong>> counted(keys.size());
  for (uint i= 0; i < keys.size(); i++)
  {
    Splitter splitter= {&keys[i], keys[i].part_count()};
    std::vector<uint64_t> different(splitter.parts);
    WeirResult result= weir_table_cardinality(share->table, index_position(i), splitter.parts,
                                              split_key, &splitter, different.data());
    if (result != WEIR_RESULT_OK)
      return error_of(result);
    for (uint64_t n : different)
      counted[i].push_back(ulong(std::max(1.0, entries / double(std::max<uint64_t>(n, 1)))));
  }
  mysql_mutex_lock(&table->s->LOCK_share);
  share->rows_per_key.swap(counted);
  share->counted_rows= of_rows.entries;
  share->counts++;
  mysql_mutex_unlock(&table->s->LOCK_share);
  return 0;
}

int ha_weir::analyze(THD *, HA_CHECK_OPT *)
{
  // A note says why.
  if (!transaction())
    return HA_ADMIN_FAILED;
  share->is_known= false;
  if (count_values())
    return HA_ADMIN_FAILED;
  info(HA_STATUS_CONST | HA_STATUS_VARIABLE);
  return HA_ADMIN_OK;
}

// Fills the pages of the table and of its indexes anew, in place. Where a dropped column has left
// its place, all rows are copied.
int ha_weir::optimize(THD *thd, HA_CHECK_OPT *options)
{
  // A note says why.
  if (!transaction())
    return HA_ADMIN_FAILED;
  if (!share->places.dropped.empty())
    return HA_ADMIN_TRY_ALTER;
  if (int error= fail(weir_table_reorganize(share->table, patience_of_change(thd))))
  {
    print_error(error, MYF(0));
    return HA_ADMIN_FAILED;
  }
  return analyze(thd, options);
}
