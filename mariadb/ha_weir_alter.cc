/*
  ALTER TABLE in place.

  What the engine needn't know of is done at once. New indexes are built from sorted entries while others
  read and write; what they have written meanwhile is caught up with, the rest of it when nobody else has the table
  open. Then all of the definition changes at once. The
  table's version (`Meta`) changes with that: after a crash the server asks for it (`check_version`) and
  keeps the definition that fits.

  Each partition is a table of the engine. Their indexes are built one partition after the other, and then all
  their definitions change as one.
*/

#include "ha_weir.h"
#include "computed.h"
#include "errors.h"
#include "numbers.h"

using namespace weir;

// Whether a table and a partition can change places: EXCHANGE PARTITION asks.
bool ha_weir::check_if_incompatible_data(HA_CREATE_INFO *info, uint changes)
{
  bool sets_number= info->used_fields & HA_CREATE_USED_AUTO && info->auto_increment_value != 0;
  return changes == IS_EQUAL_YES && !sets_number ? COMPATIBLE_DATA_YES : COMPATIBLE_DATA_NO;
}

// What changes definitions alone: no row, and no entry of an index.
static const alter_table_operations DEFINITION_ONLY=
    ALTER_CHANGE_COLUMN | ALTER_CHANGE_COLUMN_DEFAULT | ALTER_COLUMN_NAME | ALTER_RENAME_COLUMN |
    ALTER_RENAME | ALTER_OPTIONS | ALTER_CHANGE_INDEX_COMMENT | ALTER_DROP_CHECK_CONSTRAINT |
    ALTER_INDEX_IGNORABILITY | ALTER_INDEX_ORDER | ALTER_RENAME_INDEX | ALTER_COLUMN_OPTION | ALTER_PARTITIONED |
    ALTER_COLUMN_TYPE_CHANGE_BY_ENGINE | ALTER_COLUMN_INDEX_LENGTH;

static const alter_table_operations INDEXES=
    ALTER_ADD_INDEX | ALTER_DROP_INDEX | ALTER_ADD_NON_UNIQUE_NON_PRIM_INDEX |
    ALTER_DROP_NON_UNIQUE_NON_PRIM_INDEX | ALTER_ADD_UNIQUE_INDEX | ALTER_DROP_UNIQUE_INDEX;

static const alter_table_operations COLUMNS=
    ALTER_PARSER_ADD_COLUMN | ALTER_ADD_STORED_BASE_COLUMN | ALTER_ADD_VIRTUAL_COLUMN | ALTER_PARSER_DROP_COLUMN |
    ALTER_DROP_STORED_COLUMN | ALTER_DROP_VIRTUAL_COLUMN | ALTER_STORED_COLUMN_ORDER | ALTER_VIRTUAL_COLUMN_ORDER |
    ALTER_COLUMN_NULLABLE;

// Rows and keys hold a VARCHAR's bytes, not its length; of a COMPRESSED one those that the server has made of the value.
bool ha_weir::can_convert_nocopy(const Field &field, const Column_definition &wanted) const
{
  return field.real_type() == MYSQL_TYPE_VARCHAR && field.type_handler() == wanted.type_handler() &&
         field.charset() == wanted.charset && field.field_length <= wanted.length && !field.vcol_info &&
         !field.compression_method() == !wanted.compression_method();
}

static const KEY *index_with_part(const TABLE *table, const KEY_PART_INFO &part)
{
  for (uint i= 0; i < table->s->keys; i++)
    for (uint j= 0; j < table->key_info[i].user_defined_key_parts; j++)
      if (&table->key_info[i].key_part[j] == &part)
        return &table->key_info[i];
  return nullptr;
}

static bool drops(Alter_info *info, const KEY *index)
{
  List_iterator_fast<Alter_drop> it(info->drop_list);
  while (const Alter_drop *drop= it++)
    if (drop->type == Alter_drop::KEY && !my_strcasecmp(system_charset_info, drop->name, index->name.str))
      return true;
  return false;
}

// Whether the statement adds one of that name, in the same letters. An index without a name gets that of its first column.
static bool adds(Alter_info *info, const KEY *index)
{
  List_iterator_fast<::Key> it(info->key_list);
  while (::Key *key= it++)
    if (!strcmp(key->name.str ? key->name.str : key->columns.head()->field_name.str, index->name.str))
      return true;
  return false;
}

// Whether the statement drops the index that has this part and adds one of that name. If they are the same the server
// would do nothing: but that is how one asks for an index to be made anew, since it is damaged for example.
static bool makes_anew(THD *thd, const TABLE *table, const KEY_PART_INFO &part)
{
  if (thd_sql_command(thd) != SQLCOM_ALTER_TABLE && thd_sql_command(thd) != SQLCOM_CREATE_INDEX)
    return false;
  const KEY *index= index_with_part(table, part);
  // A primary key is made anew with the table.
  if (!index || uint(index - table->key_info) == table->s->primary_key)
    return false;
  Alter_info *info= &thd->lex->alter_info;
  return drops(info, index) && adds(info, index);
}

// An index holds the same of a longer VARCHAR, unless it held all of it and can't any more.
Compare_keys ha_weir::compare_key_parts(const Field &before, const Column_definition &after, const KEY_PART_INFO &old_part,
                                        const KEY_PART_INFO &new_part) const
{
  if (makes_anew(ha_thd(), table, old_part))
    return Compare_keys::NotEqual;
  if (before.is_equal(after) || !can_convert_nocopy(before, after))
    return handler::compare_key_parts(before, after, old_part, new_part);
  bool was_whole= old_part.length == before.field_length, is_whole= new_part.length == after.length;
  if (was_whole && is_whole)
    return Compare_keys::EqualButKeyPartLength;
  return !was_whole && old_part.length == new_part.length ? Compare_keys::Equal : Compare_keys::NotEqual;
}

// Of each column that a table has after an ALTER, what it was before; null: it is new.
static std::vector<const Field *> columns_before(const Alter_inplace_info *info)
{
  std::vector<const Field *> before;
  List_iterator_fast<Create_field> it(info->alter_info->create_list);
  while (const Create_field *one= it++)
    before.push_back(one->field);
  return before;
}

// Whether a new column's CHECK, if it has one, is for its value alone, which the server has put into the record, and allows
// that.
static bool is_allowed(Field *field)
{
  if (!field->check_constraint)
    return true;
  TABLE *altered= field->table;
  Item *check= field->check_constraint->expr;
  bitmap_clear_all(&altered->tmp_set);
  check->walk(&Item::register_field_in_bitmap, false, &altered->tmp_set);
  bitmap_clear_bit(&altered->tmp_set, field->field_index);
  return bitmap_is_clear_all(&altered->tmp_set) && (check->val_bool() || check->null_value);
}

// Whether a new column's value is the same for all rows that are there, and fits. Leaves it in the record.
static bool is_constant(Field *field)
{
  if (field->vcol_info || field->unireg_check == Field::NEXT_NUMBER || !is_allowed(field))
    return false;
  const Virtual_column_info *value= field->default_value;
  if (!value)
    return true;
  if (value->flags & ~(VCOL_SESSION_FUNC | VCOL_TIME_FUNC) || value->expr->used_tables() & RAND_TABLE_BIT)
    return false;
  // Of one that doesn't fit a copy says what is to be said, and whether it may be cut.
  static const int FITS= 0, MOMENT_CUT= 3; // to a TIME or DATE
  int stored= field->set_default();
  return (stored == FITS || stored == MOMENT_CUT) && !field->table->in_use->is_error();
}

// Whether a column is in an index, which holds a byte for each column that can be NULL.
static bool is_in_index(const TABLE *table, const Field *field)
{
  for (uint i= 0; i < table->s->keys; i++)
    for (uint part= 0; part < table->key_info[i].user_defined_key_parts; part++)
      if (table->key_info[i].key_part[part].fieldnr == field->field_index + 1)
        return true;
  return false;
}

// Whether rows stay as they are although columns come, go, change places or can be NULL.
static bool keeps_rows(TABLE *altered, const Alter_inplace_info *info)
{
  std::vector<const Field *> before= columns_before(info);
  if (before.size() != altered->s->fields)
    return false;
  for (uint i= 0; i < altered->s->fields; i++)
  {
    Field *field= altered->field[i];
    if (!field->stored_in_db())
      continue;
    if (before[i] ? field->null_ptr && !before[i]->null_ptr && is_in_index(altered, field) : !is_constant(field))
      return false;
  }
  return true;
}

// Whether columns that partitions are by come in another order: which partition a row is in by KEY depends on that.
static bool moves_partition_columns(const Alter_inplace_info *info)
{
  uint last= 0;
  for (const Field *field : columns_before(info))
  {
    if (!field || !(field->flags & FIELD_IN_PART_FUNC_FLAG))
      continue;
    if (field->field_index < last)
      return true;
    last= field->field_index;
  }
  return false;
}

// The table's index of that name, or MAX_KEY.
static uint index_named(const TABLE *table, const LEX_CSTRING &name)
{
  for (uint i= 0; i < table->s->keys; i++)
    if (table->key_info[i].name.length == name.length &&
        !memcmp(table->key_info[i].name.str, name.str, name.length))
      return i;
  return MAX_KEY;
}

// Whether rows keep their keys: the primary key is the same one, or there is none before and after.
static bool keeps_primary(const TABLE *table, const TABLE *altered, const Alter_inplace_info *info)
{
  uint before= table->s->primary_key, after= altered->s->primary_key;
  if (before == MAX_KEY || after == MAX_KEY)
    return before == after;
  const LEX_CSTRING &name= altered->key_info[after].name;
  if (index_named(table, name) != before)
    return false;
  for (uint i= 0; i < info->index_add_count; i++)
    if (index_named(altered, info->key_info_buffer[info->index_add_buffer[i]].name) == after)
      return false;
  return true;
}

// How far an ALTER of a table, or of a partition, has come.
class AlterContext : public inplace_alter_handler_ctx
{
public:
  AlterContext(Share *of, const std::shared_ptr<Alteration> &with)
      : share(of), alteration(with), places(of->places), added(of->added)
  {
  }

  Share *share;
  std::shared_ptr<Alteration> alteration;
  // As they are then.
  Places places;
  Bytes added;
};

// Finds the places that the altered table's columns will have, and the values that rows lack. True: it failed.
bool ha_weir::place_columns(TABLE *altered, const Alter_inplace_info *info, AlterContext &out) const
{
  out.places= row_format.places_of(altered, columns_before(info));
  KeyFormat key;
  if (!hidden)
    key.init(altered, altered->s->primary_key, nullptr, share->keys_made);
  RowFormat then;
  if (!then.init(altered, hidden ? nullptr : &key, out.places))
    return true;
  // The server has put the columns' defaults there.
  if (then.places() > row_format.places())
    out.added= then.added_row(altered, altered->record[0], share->added);
  return false;
}

// Whether the engine has room for what it is to keep with the altered table.
bool ha_weir::fits_meta(TABLE *altered, const Alter_inplace_info *info) const
{
  // For what comes later: a partition's other name.
  static const size_t LEFT_FREE= 4096;
  AlterContext then(share, nullptr);
  Meta meta;
  if (place_columns(altered, info, then) || read_meta(share->table, share->name, &meta) != WEIR_RESULT_OK)
    return false;
  meta.added= then.added;
  meta.places= then.places;
  return meta.encode().size() + LEFT_FREE <= WEIR_META_BYTES_MAX;
}

enum_alter_inplace_result ha_weir::check_if_supported_inplace_alter(TABLE *altered,
                                                                    Alter_inplace_info *info)
{
  if (info->handler_flags & ~(DEFINITION_ONLY | INDEXES | COLUMNS) ||
      !keeps_primary(table, altered, info))
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  // A new column's value may not be one that the statement allows: a copy finds the first row.
  if (info->error_if_not_empty)
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  // Rows that are duplicates of others are left out: only a copy lacks them.
  if (info->ignore && info->handler_flags & ALTER_ADD_UNIQUE_INDEX)
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  // What a sequence has is checked row by row.
  if (info->create_info->sequence != (table->s->sequence != nullptr))
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  if (moves_partition_columns(info))
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  // A temporary table in a transaction that has used it: the engine would wait for that to end.
  Session *session= Session::find(ha_thd());
  if (session && session->uses(ha_thd(), share->name))
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  // A table that is given columns and loses them again and again is copied now and then.
  static const size_t PLACES_MAX= 2 * MAX_FIELDS;
  bool has_room= row_format.places() + altered->s->fields <= PLACES_MAX;
  if (info->handler_flags & COLUMNS && !(has_room && keeps_rows(altered, info) && fits_meta(altered, info)))
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  if (!(info->handler_flags & INDEXES))
    return HA_ALTER_INPLACE_INSTANT;
  for (uint i= 0; i < info->index_add_count; i++)
  {
    uint at= index_named(altered, info->key_info_buffer[info->index_add_buffer[i]].name);
    if (at == MAX_KEY || altered->key_info[at].algorithm == HA_KEY_ALG_LONG_HASH)
      return HA_ALTER_INPLACE_NOT_SUPPORTED;
  }
  if (info->index_add_count == 0)
    return HA_ALTER_INPLACE_NO_LOCK;
  // For a moment, to begin with, nobody else uses the table: the server waits for them, and sees who waits for whom.
  return HA_ALTER_INPLACE_NOCOPY_NO_LOCK;
}

static WeirBytes bytes_of_name(const KEY *index)
{
  return WeirBytes{reinterpret_cast<const uint8_t *>(index->name.str), index->name.length};
}

// How many entries have been made of all that new indexes are expected to have: SHOW PROCESSLIST tells. Those of a table are
// then merged, and written, which it doesn't tell.
class Progress
{
public:
  void expect(ulonglong entries) { all+= entries; }

  void made_one(THD *thd)
  {
    static const ulonglong REPORT_EVERY= 1024;
    if (++made % REPORT_EVERY == 0)
      thd_progress_report(thd, std::min(made, all), all);
  }

private:
  ulonglong made= 0, all= 0;
};

// Makes the entries that a table's rows have in its new indexes.
struct Builder
{
  TABLE *table;
  Progress *progress;
  KeyFormat primary;
  RowFormat row_format;
  std::vector<KeyFormat> keys;
  std::vector<WeirIndex> indexes;
  std::vector<uint> numbers; // of the indexes in the altered table
  std::vector<std::vector<Field *>> computed; // virtual columns of each
  bool is_lenient; // as to values of those that don't fit
  std::vector<uchar> all_columns;
  Bytes pk, key, value;

  Builder(TABLE *altered, const Alter_inplace_info *info, const AlterContext *of, Progress *of_all)
      : table(altered), progress(of_all), is_lenient(info->ignore || !altered->in_use->is_strict_mode())
  {
    bool hidden= altered->s->primary_key == MAX_KEY;
    if (!hidden)
      primary.init(altered, altered->s->primary_key, nullptr, of->share->keys_made);
    row_format.init(altered, hidden ? nullptr : &primary, of->places);
    row_format.set_added(altered, of->added);
    row_format.want(nullptr, all_columns);
    for (uint i= 0; i < info->index_add_count; i++)
    {
      uint at= index_named(altered, info->key_info_buffer[info->index_add_buffer[i]].name);
      const KEY *definition= &altered->key_info[at];
      numbers.push_back(at);
      keys.emplace_back();
      keys.back().init(altered, at, hidden ? nullptr : &primary, of->share->keys_made);
      indexes.push_back(WeirIndex{bytes_of_name(definition), bool(definition->flags & HA_NOSAME)});
      computed.push_back(computed_parts_of(keys.back()));
    }
  }

  WeirResult entry(uint32_t which, WeirBytes of, WeirBytes row, WeirEntry *out)
  {
    if (is_killed(table->in_use))
      return WEIR_RESULT_CANCELLED;
    uchar *record= table->record[0];
    if (!row_format.decode(table, row, all_columns, record) ||
        (table->s->primary_key != MAX_KEY &&
         !primary.decode_primary(table, of, primary.parts().size(), record)))
      return WEIR_RESULT_CORRUPT;
    for (Field *field : computed[which])
      if (table->update_virtual_field(field, is_lenient))
        return WEIR_RESULT_CANCELLED;
    pk.assign(reinterpret_cast<const char *>(of.data), of.len);
    key.clear();
    value.clear();
    keys[which].entry(table, record, pk, key, value);
    *out= WeirEntry{which, bytes_of(key), bytes_of(value)};
    return WEIR_RESULT_OK;
  }
};

extern "C" WeirResult build_entry(void *context, uint32_t which, WeirBytes key, WeirBytes row,
                                  WeirEntry *out)
{
  Builder *builder= static_cast<Builder *>(context);
  builder->progress->made_one(builder->table->in_use);
  return builder->entry(which, key, row, out);
}

static std::vector<WeirBytes> dropped(const Alter_inplace_info *info)
{
  std::vector<WeirBytes> names;
  for (uint i= 0; i < info->index_drop_count; i++)
    names.push_back(bytes_of_name(info->index_drop_buffer[i]));
  return names;
}

static std::vector<WeirRename> renamed(const Alter_inplace_info *info)
{
  std::vector<WeirRename> names;
  for (const auto &pair : info->rename_keys)
    names.push_back(WeirRename{bytes_of_name(pair.old_key), bytes_of_name(pair.new_key)});
  return names;
}

// What happens to a table of the engine, and what that is made of.
struct Change
{
  Share *share;
  Builder builder;
  std::vector<WeirBytes> drops;
  std::vector<WeirRename> renames;
  bool numbers_begin_anew= false;
  const AlterContext *of;
  Meta meta;
  Bytes encoded_meta;

  Change(const AlterContext *altered_of, TABLE *altered, const Alter_inplace_info *info, Progress *progress)
      : share(altered_of->share), builder(altered, info, altered_of, progress), drops(dropped(info)), renames(renamed(info)),
        of(altered_of)
  {
  }

  WeirTableChange of_engine()
  {
    return WeirTableChange{share->table,
                           drops.data(),
                           drops.size(),
                           renames.data(),
                           renames.size(),
                           builder.indexes.data(),
                           builder.indexes.size(),
                           &builder};
  }
};

// In one place: the engine is given pointers to them.
using Changes= std::deque<Change>;

// An ALTER in place, of a table or of all partitions of one.
class weir::Alteration
{
public:
  ~Alteration() { give_up(); }

  WeirResult begin(THD *thd) { return weir_alteration_begin(database, patience_of(thd), &begun); }

  // `rows`: about how many the table has.
  WeirResult add(THD *thd, const AlterContext *altered_of, TABLE *altered, const Alter_inplace_info *info, ha_rows rows)
  {
    Change &change= changes.emplace_back(altered_of, altered, info, &progress);
    progress.expect(rows * info->index_add_count);
    WeirTableChange of_engine= change.of_engine();
    return weir_alteration_add(begun, patience_of(thd), &of_engine);
  }

  // Builds the indexes of all partitions, unless that has been done.
  WeirResult build(THD *thd)
  {
    if (std::exchange(is_built, true))
      return WEIR_RESULT_OK;
    thd_progress_init(thd, 1);
    WeirResult result= weir_alteration_build(begun, patience_of(thd), build_entry);
    thd_progress_end(thd);
    return result;
  }

  WeirResult finish(THD *thd)
  {
    for (size_t nth= 0; nth < changes.size(); nth++)
      if (WeirResult result= weir_alteration_set_meta(begun, nth, bytes_of(changes[nth].encoded_meta)))
        return result;
    return weir_alteration_finish(std::exchange(begun, nullptr), patience_of(thd), build_entry);
  }

  void give_up()
  {
    if (WeirAlteration *given_up= std::exchange(begun, nullptr))
      weir_alteration_drop(given_up);
  }

  Changes changes;

private:
  WeirAlteration *begun= nullptr;
  Progress progress;
  bool is_built= false;
};

// Puts the first row with that key in a new index into the record; false if none was found.
static bool find_duplicate(Change &change, uint32_t which, const Bytes &key)
{
  Scanner scanner;
  WeirScanned at;
  WeirEntry entry;
  if (scanner.open(change.share->table, WEIR_PRIMARY, false) != WEIR_RESULT_OK)
    return false;
  while (scanner.next(&at) == WEIR_RESULT_OK &&
         change.builder.entry(which, at.key, at.value, &entry) == WEIR_RESULT_OK)
    if (change.builder.key == key)
      return true;
  return false;
}

// Tells the user which rows have the same key in a new index.
static void report_duplicate(TABLE *altered, Changes &changes)
{
  Bytes name= weir_error_index();
  Bytes twice= to_bytes(weir_error_key());
  const std::vector<uint> &numbers= changes.front().builder.numbers;
  for (uint32_t which= 0; which < numbers.size(); which++)
  {
    if (index_named(altered, LEX_CSTRING{name.data(), name.size()}) != numbers[which])
      continue;
    for (Change &change : changes)
      if (find_duplicate(change, which, twice))
      {
        print_keydup_error(altered, &altered->key_info[numbers[which]], MYF(0));
        return;
      }
  }
  my_printf_error(ER_DUP_ENTRY, "Duplicate entry for key '%s'", MYF(0), name.c_str());
}

// Tells the user why an ALTER failed; whether it did.
static bool report(handler *file, TABLE *altered, Changes &changes, WeirResult result)
{
  if (result == WEIR_RESULT_OK)
    return false;
  if (result == WEIR_RESULT_DUPLICATE)
    report_duplicate(altered, changes);
  // Unless a virtual column's value has said it.
  else if (!altered->in_use->is_error())
    file->print_error(error_of(result, altered->in_use), MYF(0));
  return true;
}

bool ha_weir::prepare_inplace_alter_table(TABLE *altered, Alter_inplace_info *info)
{
  // Of a partitioned table the first partition's is all partitions'.
  THD *thd= ha_thd();
  Session *session= Session::of(thd);
  std::shared_ptr<Alteration> alteration= session->alteration.lock();
  if (!alteration)
  {
    session->alteration= alteration= std::make_shared<Alteration>();
    if (WeirResult result= alteration->begin(thd))
      return report(this, altered, alteration->changes, result);
  }
  auto own= new (thd->mem_root) AlterContext(share, alteration);
  info->handler_ctx= own;
  if (!own || (info->handler_flags & COLUMNS && place_columns(altered, info, *own)))
    return true;
  refresh_figures();
  return report(this, altered, alteration->changes, alteration->add(thd, own, altered, info, stats.records));
}

bool ha_weir::inplace_alter_table(TABLE *altered, Alter_inplace_info *info)
{
  if (info->index_add_count == 0)
    return false;
  Alteration &alteration= *static_cast<AlterContext *>(info->handler_ctx)->alteration;
  return report(this, altered, alteration.changes, alteration.build(ha_thd()));
}

// Says what is kept with a table from then on.
static WeirResult complete(Change &change, TABLE *altered, const Alter_inplace_info *info)
{
  Meta &meta= change.meta;
  if (WeirResult result= read_meta(change.share->table, change.share->name, &meta))
    return result;
  change.numbers_begin_anew= info->create_info->used_fields & HA_CREATE_USED_AUTO;
  if (change.numbers_begin_anew)
  {
    // It may be less than what was there before: numbers begin anew from here, or from the highest row.
    meta.auto_increment= info->create_info->auto_increment_value;
    if (meta.number)
      meta.number= new_number();
  }
  meta.version= to_bytes(altered->s->tabledef_version);
  meta.added= change.of->added;
  meta.places= change.of->places;
  change.encoded_meta= meta.encode();
  return WEIR_RESULT_OK;
}

bool ha_weir::commit_inplace_alter_table(TABLE *altered, Alter_inplace_info *info, bool commit)
{
  // There is none if the server gave up before it was made.
  auto own= static_cast<AlterContext *>(info->handler_ctx);
  if (!commit)
  {
    if (own)
      own->alteration->give_up();
    return false;
  }
  Changes &changes= own->alteration->changes;
  for (Change &change : changes)
    if (WeirResult result= complete(change, altered, info))
      return report(this, altered, changes, result);
  // All partitions at once, if there are any.
  info->group_commit_ctx= nullptr;
  WeirResult result= own->alteration->finish(ha_thd());
  if (result == WEIR_RESULT_OK)
    for (Change &change : changes)
      if (change.numbers_begin_anew)
        change.share->forget(change.meta.number);
  return report(this, altered, changes, result);
}
