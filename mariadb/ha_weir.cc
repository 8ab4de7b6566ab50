#include "ha_weir.h"
#include "computed.h"
#include "errors.h"

using namespace weir;

static const uint PAGE_BYTES= 16384;

ha_weir::~ha_weir()
{
  weir_row_close(row);
  weir_row_close(stored);
}

ulonglong ha_weir::table_flags() const
{
  ulonglong flags= HA_REC_NOT_IN_SEQ | HA_NULL_IN_KEY | HA_CAN_INDEX_BLOBS |
                   HA_PRIMARY_KEY_IN_READ_INDEX | HA_PRIMARY_KEY_REQUIRED_FOR_POSITION |
                   HA_PRIMARY_KEY_REQUIRED_FOR_DELETE | HA_REQUIRES_KEY_COLUMNS_FOR_DELETE |
                   HA_TABLE_SCAN_ON_INDEX | HA_PARTIAL_COLUMN_READ | HA_CAN_SQL_HANDLER |
                   HA_CAN_VIRTUAL_COLUMNS | HA_CAN_TABLES_WITHOUT_ROLLBACK | HA_CAN_SKIP_LOCKED |
                   HA_BINLOG_ROW_CAPABLE | HA_CAN_GEOMETRY | HA_AUTO_PART_KEY | HA_ONLINE_ANALYZE |
                   HA_CONCURRENT_OPTIMIZE | HA_CRASH_SAFE | HA_CAN_ONLINE_BACKUPS |
                   HA_CAN_FORCE_BULK_DELETE;
  THD *thd= current_thd;
  if (!thd || may_log_statements(thd))
    flags|= HA_BINLOG_STMT_CAPABLE;
  if (!thd || checks_unique_after_write(thd))
    flags|= HA_CHECK_UNIQUE_AFTER_WRITE;
  // And it is checked last, whatever its place among the keys.
  if (table_share && (table_share->long_unique_table || table_share->period.unique_keys))
    flags|= HA_DUPLICATE_KEY_NOT_IN_ORDER;
  return flags;
}

// A row without a primary key is changed as a whole. What isn't stored of it isn't changed: the
// server would compute it for nothing, and fail where the value doesn't fit the column.
void ha_weir::use_hidden_primary_key()
{
  for (Field **field= table->field; *field; field++)
    if ((*field)->stored_in_db())
      bitmap_set_bit(table->read_set, (*field)->field_index);
}

ulong ha_weir::index_flags(uint index, uint, bool) const
{
  ulong flags= HA_READ_NEXT | HA_READ_PREV | HA_READ_ORDER | HA_READ_RANGE | HA_KEYREAD_ONLY |
               HA_DO_RANGE_FILTER_PUSHDOWN;
  if (index == table_share->primary_key)
    return flags | HA_CLUSTERED_INDEX;
  // Positions are then in no order of keys.
  if (key_may_be_long)
    flags|= HA_KEY_SCAN_NOT_ROR;
  return flags | HA_DO_INDEX_COND_PUSHDOWN;
}

/* Opening */

// What all handlers of the table share: found, or made.
int ha_weir::open_share(const char *name)
{
  lock_shared_ha_data();
  share= static_cast<Share *>(get_ha_share_ptr());
  int error= 0;
  if (!share)
  {
    share= new Share;
    error= share->open(table_name(name), table);
    if (error)
    {
      delete share;
      share= nullptr;
    }
    else
      set_ha_share_ptr(share);
  }
  unlock_shared_ha_data();
  return error;
}

void ha_weir::make_keys()
{
  hidden= table->s->primary_key == MAX_KEY;
  // An UPDATE that changes this key first collects the rows: else it would meet them again.
  key_used_on_scan= table->s->primary_key;
  keys.resize(table->s->keys);
  if (!hidden)
    keys[table->s->primary_key].init(table, table->s->primary_key, nullptr, share->keys_made);
  secondary.clear();
  for (uint i= 0; i < keys.size(); i++)
    if (i != table->s->primary_key)
    {
      keys[i].init(table, i, primary(), share->keys_made);
      secondary.push_back(i);
    }
  new_entries.resize(keys.size());
  old_entries.resize(keys.size());
}

// Which columns in indexes have to be computed.
void ha_weir::note_computed()
{
  computed_parts.assign(keys.size(), {});
  computed.clear();
  computed_blobs.clear();
  indexes_generated= false;
  for (uint i : secondary)
  {
    for (const Part &part : keys[i].parts())
      indexes_generated|= part.field->vcol_info != nullptr;
    computed_parts[i]= computed_parts_of(keys[i]);
    for (Field *field : computed_parts[i])
    {
      if (std::find(computed.begin(), computed.end(), field) != computed.end())
        continue;
      computed.push_back(field);
      if (field->flags & BLOB_FLAG)
        computed_blobs.push_back(field);
    }
  }
  indexes_generated&= std::any_of(table->field, table->field + table->s->fields, [](Field *field) {
    return field->vcol_info && field->stored_in_db();
  });
}

// A row's position is its primary key's short form.
void ha_weir::size_positions()
{
  key_is_fixed= hidden || primary()->is_fixed();
  size_t key_bytes_max= hidden ? 8 : primary()->max_bytes();
  key_may_be_long= key_bytes_max > WEIR_SHORT_FORM_BYTES_MAX;
  ref_length=
      uint(std::min<size_t>(key_bytes_max, WEIR_SHORT_FORM_BYTES_MAX)) + (key_is_fixed ? 0 : 2);
}

void ha_weir::size_rows()
{
  // What InnoDB has beside the columns of a row.
  row_bytes_min= 20;
  for (Field **f= table->field; *f; f++)
    if ((*f)->stored_in_db() && !((*f)->flags & BLOB_FLAG) &&
        (*f)->real_type() != MYSQL_TYPE_VARCHAR)
      row_bytes_min+= (*f)->pack_length();
}

int ha_weir::open(const char *name, int, uint)
{
  if (int error= open_share(name))
    return error;
  sequence= table->s->table_type == TABLE_TYPE_SEQUENCE;
  make_keys();
  note_computed();
  if (!row_format.init(table, primary(), share->places) ||
      !row_format.set_added(table, share->added))
    return fail(damaged("table " + share->name + " doesn't have the columns that its rows have"));
  want(nullptr, all);
  size_positions();
  size_rows();
  if (!row)
    row= weir_row_open();
  if (!stored)
    stored= weir_row_open();
  return info(HA_STATUS_NO_LOCK | HA_STATUS_VARIABLE | HA_STATUS_CONST);
}

int ha_weir::close()
{
  close_scan();
  // The server frees it with the table's definition.
  share= nullptr;
  return 0;
}

/* Statements */

THR_LOCK_DATA **ha_weir::store_lock(THD *, THR_LOCK_DATA **to, thr_lock_type type)
{
  // Rows are locked, and the server's metadata locks keep definitions: there are no table locks.
  if (type != TL_IGNORE)
    wanted_lock= type;
  return to;
}

// Of a table that can't be locked these tell that it is corrupt.
static bool tells_itself(THD *thd)
{
  return is_one_of(thd, {SQLCOM_CHECK, SQLCOM_ANALYZE, SQLCOM_OPTIMIZE});
}

void ha_weir::account()
{
  WeirWork work= weir_take_work();
  handler_stats->pages_accessed+= work.pages_accessed;
  handler_stats->pages_updated+= work.pages_updated;
  handler_stats->pages_read_count+= work.pages_read;
  handler_stats->pages_read_time+=
      ulonglong(double(work.pages_read_ns) * timer_tracker_frequency() / 1e9);
  handler_stats->pages_prefetched+= work.pages_prefetched;
  handler_stats->undo_records_read+= work.undo_records_read;
}

int ha_weir::start(THD *thd, thr_lock_type type)
{
  // What this thread has done before was for others.
  if (unlikely(handler_stats != nullptr))
    weir_take_work();
  wanted_lock= type;
  writes= type >= TL_FIRST_WRITE;
  is_noted= false;
  lock= lock_for(thd, type, table, weir::is_temporary(share->name));
  if (!thd->in_sub_stmt)
    callers_lock= lock;
  else if (lock == WEIR_LOCK_NONE && callers_lock != WEIR_LOCK_NONE && locks_as_caller(thd, type))
    lock= WEIR_LOCK_SHARED;
  reads_all= writes;
  if (sequence)
    return 0;
  Session *session= Session::of(thd);
  if (int error= session->begin_statement(thd, lock == WEIR_LOCK_NONE, locks_ranges(thd, table)))
  {
    // Of a deadlock it is told already that all is rolled back.
    if (!thd->transaction_rollback_request)
      thd->mark_transaction_to_rollback(false);
    return tells_itself(thd) ? 0 : error;
  }
  // The copy that an ALTER makes lasts, though the server opens it as a temporary table.
  if (writes && !weir::is_temporary(share->name))
    session->note_write();
  return 0;
}

int ha_weir::external_lock(THD *thd, int type)
{
  if (type == F_UNLCK)
  {
    pause_scan();
    return 0;
  }
  thr_lock_type wanted= wanted_lock;
  if (type == F_WRLCK && wanted < TL_FIRST_WRITE)
    wanted= TL_WRITE;
  if (type == F_WRLCK && needs_rows_logged(thd))
    return HA_ERR_LOGGING_IMPOSSIBLE;
  return start(thd, wanted);
}

int ha_weir::start_stmt(THD *thd, thr_lock_type type)
{
  // The server asks as it locks: for the statement that has called this one's trigger or function.
  cached_table_flags= table_flags();
  // Of a partitioned table it asks the whole's handler, which has asked as it was locked.
  Table_flags &of_whole= table->file->*&ha_weir::cached_table_flags;
  of_whole&= ~HA_CHECK_UNIQUE_AFTER_WRITE;
  of_whole|= cached_table_flags & HA_CHECK_UNIQUE_AFTER_WRITE;
  return start(thd, type);
}

WeirTransaction *ha_weir::transaction()
{
  if (own_transaction)
    return own_transaction->transaction;
  Session *session= Session::find(ha_thd());
  return session ? session->transaction : nullptr;
}

// From now on, until it is given up, the handler works in a transaction of its own.
WeirResult ha_weir::begin_own(WeirIsolation isolation)
{
  own_transaction= std::make_unique<OwnTransaction>();
  WeirResult result= own_transaction->begin(isolation);
  if (result != WEIR_RESULT_OK)
    own_transaction.reset();
  return result;
}

int ha_weir::fail(WeirResult result)
{
  return result == WEIR_RESULT_OK ? 0 : error_of(result, ha_thd());
}

// What is stored of a row makes no sense.
int ha_weir::bad_row()
{
  return fail(damaged("table " + share->name + " has a row that makes no sense"));
}

// What is stored of the entry at hand makes no sense.
int ha_weir::bad_entry()
{
  if (active_index == MAX_KEY)
    return bad_row();
  const LEX_CSTRING &index= table->key_info[active_index].name;
  return fail(damaged("index `" + Bytes(index.str, index.length) + "` of table " + share->name +
                      " has an entry that makes no sense"));
}

// What the server adds to an error that it has no words for; whether trying again may help.
bool ha_weir::get_error_message(int error, String *text)
{
  const char *words= weir_error_message();
  if (error == HA_ERR_INTERNAL_ERROR)
    text->copy(words, uint32(strlen(words)), system_charset_info);
  return false;
}

int ha_weir::extra(enum ha_extra_function operation)
{
  switch (operation) {
  case HA_EXTRA_KEYREAD:
    // Asked for behind the server's back (DS-MRR), it computes virtual columns all the same, from
    // what they are made of.
    only_index= !table->vfield;
    break;
  case HA_EXTRA_NO_KEYREAD:
    only_index= false;
    break;
  case HA_EXTRA_IGNORE_DUP_KEY:
    expects_duplicates= true;
    // Where there are triggers for DELETE the server doesn't say that it replaces rows.
    changes_duplicates|= ha_thd()->lex->duplicates == DUP_REPLACE;
    break;
  case HA_EXTRA_WRITE_CAN_REPLACE:
  case HA_EXTRA_INSERT_WITH_UPDATE:
    expects_duplicates= changes_duplicates= true;
    break;
  default:
    break;
  }
  return 0;
}

int ha_weir::extra_opt(enum ha_extra_function operation, ulong argument)
{
  if (operation != HA_EXTRA_KEYREAD)
    return handler::extra_opt(operation, argument);
  only_index= true;
  return 0;
}

int ha_weir::reset()
{
  mrr.dsmrr_close();
  close_scan();
  cursor.forget_ahead();
  range_end= nullptr;
  only_index= semi_consistent= expects_duplicates= changes_duplicates= false;
  end_bulk(bulk);
  end_bulk(leaving);
  // What a large row needed isn't kept.
  static const size_t KEPT= 1 << 20;
  if (row_bytes.capacity() > KEPT)
    Bytes().swap(row_bytes);
  weir_row_trim(row, KEPT);
  weir_row_trim(stored, KEPT);
  return 0;
}

/* Figures */

/*
  Figures are asked for anew once enough rows have come or gone: of a small table, which is counted,
  one; of a larger one, which is judged by a few pages, a sixteenth. What others' statements did to
  the pages, or purge, is seen after a while.
*/
static const ulonglong SMALL_ROWS= 1000, GOOD_FOR_US= 10000000;

static bool is_good(const Share *share, ulonglong now)
{
  ulonglong changes= share->changes - share->changes_before;
  ulonglong allowed= share->rows < SMALL_ROWS ? 0 : share->rows / 16;
  return share->is_known && changes <= allowed && now - share->asked_at < GOOD_FOR_US;
}

void ha_weir::refresh_figures()
{
  ulonglong now= microsecond_interval_timer();
  if (!is_good(share, now))
    ask_figures(now);
  stats.records= share->rows;
  stats.data_file_length= share->data_bytes;
  stats.index_file_length= share->index_bytes;
}

void ha_weir::ask_figures(ulonglong now)
{
  ulonglong changes= share->changes;
  WeirIndexFigures of_rows= {};
  weir_index_figures(share->table, WEIR_PRIMARY, &of_rows);
  ulonglong index_bytes= 0;
  for (uint i : secondary)
  {
    WeirIndexFigures figures= {};
    weir_index_figures(share->table, index_position(i), &figures);
    index_bytes+= figures.size_bytes;
  }
  mysql_mutex_lock(&table->s->LOCK_share);
  ulonglong rows_before= share->counted_rows;
  ulonglong differs= of_rows.entries > rows_before ? of_rows.entries - rows_before
                                                   : rows_before - of_rows.entries;
  bool is_out_of_date= share->counts == 0 || differs > rows_before / 10 + 20;
  mysql_mutex_unlock(&table->s->LOCK_share);
  share->rows= of_rows.entries;
  share->data_bytes= of_rows.size_bytes;
  share->index_bytes= index_bytes;
  share->changes_before= changes;
  share->asked_at= now;
  share->is_known= true;
  if (is_out_of_date)
    count_values();
}

int ha_weir::info(uint flag)
{
  Accounted accounted(this);
  if (flag & (HA_STATUS_VARIABLE | HA_STATUS_CONST))
    refresh_figures();
  if (flag & HA_STATUS_VARIABLE)
  {
    // As InnoDB: the optimizer takes an empty table for one that stays so, except where it asks for
    // the table's state.
    if (stats.records == 0 && !(flag & (HA_STATUS_TIME | HA_STATUS_OPEN)))
      stats.records= 1;
    stats.deleted= 0;
    stats.mean_rec_length= stats.records ? ulong(stats.data_file_length / stats.records) : 0;
    stats.check_time= 0;
    stats.delete_length= 0;
  }
  if (flag & HA_STATUS_CONST)
  {
    stats.block_size= PAGE_BYTES;
    stats.mrr_length_per_rec= ref_length + sizeof(void *);
  }
  if (flag & (HA_STATUS_VARIABLE | HA_STATUS_CONST))
    tell_rows_per_key(flag & HA_STATUS_CONST);
  // A table with partitions asks for when it was made among what doesn't change.
  if (flag & (HA_STATUS_TIME | HA_STATUS_CONST))
    tell_times();
  if (flag & HA_STATUS_ERRKEY)
    tell_duplicate();
  if ((flag & HA_STATUS_AUTO) && table->found_next_number_field)
  {
    if (int error= know_next_auto())
      return error;
    stats.auto_increment_value= share->next_auto;
  }
  return 0;
}

void ha_weir::tell_duplicate()
{
  Session *session= Session::find(ha_thd());
  errkey= session && !sequence ? session->duplicate : duplicate;
}

// The definition's file is as old as the table.
void ha_weir::tell_times()
{
  char path[FN_REFLEN];
  MY_STAT found;
  strxnmov(path, sizeof path - 1, table->s->normalized_path.str, reg_ext, NullS);
  if (my_stat(path, &found, MYF(0)))
    stats.create_time= found.st_ctime;
  stats.update_time= *share->last_write;
}

// Tells the server how many rows there are for a value of each index's first parts.
void ha_weir::tell_rows_per_key(bool anew)
{
  if (!anew && told_counts == share->counts)
    return;
  ulong praise= 1 + thd_double_innodb_cardinality(ha_thd());
  mysql_mutex_lock(&table->s->LOCK_share);
  for (uint i= 0; i < keys.size(); i++)
  {
    KEY *info= &table->key_info[i];
    for (uint n= 0; n < info->ext_key_parts; n++)
    {
      // A key with parts of columns, or of a table without a primary key, isn't extended by one.
      bool is_extended= info->ext_key_parts > info->user_defined_key_parts;
      bool is_whole= n + 1 >= info->user_defined_key_parts &&
                     ((info->flags & HA_NOSAME) || (is_extended && n + 1 == info->ext_key_parts));
      bool is_counted= i < share->rows_per_key.size() && n < share->rows_per_key[i].size();
      // As InnoDB: the server favours scans of tables, so that indexes are praised twice as much,
      // unless it is told not to (`optimizer_adjust_secondary_key_costs`).
      info->rec_per_key[n]=
          is_whole || !is_counted ? 1 : std::max(share->rows_per_key[i][n] / praise, 1UL);
    }
  }
  told_counts= share->counts;
  mysql_mutex_unlock(&table->s->LOCK_share);
}

double ha_weir::scan_time()
{
  return std::max(1.0, double(stats.data_file_length) / PAGE_BYTES);
}

double ha_weir::read_time(uint index, uint ranges, ha_rows found)
{
  if (index != table->s->primary_key)
    return handler::read_time(index, ranges, found);
  if (found <= 2)
    return double(found);
  double all= scan_time();
  ha_rows most= estimate_rows_upper_bound();
  return most < found ? all : ranges + double(found) / double(most) * all;
}

// As InnoDB reckons: twice as many as the smallest rows that fill the pages. Costs of reads by the
// primary key are in proportion to it.
ha_rows ha_weir::estimate_rows_upper_bound()
{
  return 2 * std::max<ulonglong>(stats.data_file_length, PAGE_BYTES) / row_bytes_min;
}

ha_rows ha_weir::records_in_range(uint index, const key_range *min, const key_range *max,
                                  page_range *)
{
  Accounted accounted(this);
  WeirBound low= no_bound(), high= no_bound();
  const KeyFormat &key= keys[index];
  if (min)
  {
    low_bytes.clear();
    key.from_image(min->key, min->keypart_map, low_bytes);
    low= bound(min->flag == HA_READ_AFTER_KEY ? WEIR_BOUND_KIND_EXCLUDED : WEIR_BOUND_KIND_INCLUDED,
               low_bytes);
  }
  if (max)
    high= bound_of_end(index, max);
  uint64_t entries= 0;
  if (weir_table_range(share->table, index_position(index), low, high, &entries) != WEIR_RESULT_OK)
    return HA_POS_ERROR;
  // Few are counted. Of more, nearly all counts as seven eighths: no estimate is closer, and of two
  // indexes for the same rows the server would take one by chance.
  static const uint64_t FEW= 1000;
  if (entries > FEW)
  {
    uint64_t most= stats.records - stats.records / 8;
    entries= std::min<uint64_t>(entries, std::max(FEW, most));
  }
  // 0 would mean that there are none for sure.
  return entries ? entries : 1;
}
