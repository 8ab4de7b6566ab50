/*
  An ALTER in place (ha_weir_alter.cc) as the engine does it: of a table, or of all partitions of
  one at once.
*/
#pragma once

#include "share.h"
#include <deque>

namespace weir {

static const alter_table_operations COLUMNS=
    ALTER_PARSER_ADD_COLUMN | ALTER_ADD_STORED_BASE_COLUMN | ALTER_ADD_VIRTUAL_COLUMN |
    ALTER_PARSER_DROP_COLUMN | ALTER_DROP_STORED_COLUMN | ALTER_DROP_VIRTUAL_COLUMN |
    ALTER_STORED_COLUMN_ORDER | ALTER_VIRTUAL_COLUMN_ORDER | ALTER_COLUMN_NULLABLE;

// The altered table's number of an index that is added, or MAX_KEY.
uint added_index(const TABLE *altered, const Alter_inplace_info *info, uint nth);

class Alteration;

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

// How many entries have been made of all that new indexes are expected to have: SHOW PROCESSLIST
// tells. Those of a table are then merged, and written, which it doesn't tell.
class Progress
{
public:
  void expect(ulonglong entries) { all+= entries; }
  void made_one(THD *thd);

private:
  ulonglong made= 0, all= 0;
};

// Makes the entries that a table's rows have in its new indexes.
struct IndexBuilder
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

  IndexBuilder(TABLE *altered, const Alter_inplace_info *info, const AlterContext *of,
               Progress *of_all);
  // The entry that a row has in one of them; valid until the next one's is made.
  WeirResult entry(uint32_t which, WeirBytes pk, WeirBytes row, WeirEntry *out);
};

// What happens to a table of the engine, and what that is made of.
struct Change
{
  Share *share;
  IndexBuilder builder;
  std::vector<WeirBytes> drops;
  std::vector<WeirRename> renames;
  bool numbers_begin_anew= false;
  const AlterContext *of;
  Meta meta;
  Bytes encoded_meta;

  Change(const AlterContext *of, TABLE *altered, const Alter_inplace_info *info,
         Progress *progress);
  WeirTableChange of_engine();
  // Says what is kept with the table from then on.
  WeirResult complete(TABLE *altered, const Alter_inplace_info *info);
  // Puts the first row with that key in a new index into the record; false if none was found.
  bool find_duplicate(uint32_t which, const Bytes &key);
};

class Alteration
{
public:
  ~Alteration() { give_up(); }
  WeirResult begin(THD *thd);
  // `rows`: about how many the table has.
  WeirResult add(THD *thd, const AlterContext *of, TABLE *altered, const Alter_inplace_info *info,
                 ha_rows rows);
  // Builds the indexes of all partitions, unless that has been done.
  WeirResult build(THD *thd);
  WeirResult finish(THD *thd);
  void give_up();

  // In one place: the engine is given pointers to them.
  std::deque<Change> changes;

private:
  WeirAlteration *begun= nullptr;
  Progress progress;
  bool is_built= false;
};

} // namespace weir
