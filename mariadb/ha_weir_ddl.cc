/* Creation, removal, renaming and emptying of tables. */

#include "ha_weir.h"
#include "errors.h"
#include "numbers.h"
#include "partitions.h"
#include "sysvars.h"
#include "partition_info.h"

using namespace weir;

static bool has_foreign_key(THD *thd)
{
  if (!is_one_of(thd, {SQLCOM_CREATE_TABLE, SQLCOM_ALTER_TABLE}))
    return false;
  List_iterator<::Key> it(thd->lex->alter_info.key_list);
  while (::Key *key= it++)
    if (key->type == ::Key::FOREIGN_KEY)
      return true;
  return false;
}

// Tells what is left out: all tables are in the directory of the database, for one.
static void warn_of_ignored(THD *thd, const HA_CREATE_INFO *info)
{
  auto warn= [thd](const char *option) {
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, WARN_OPTION_IGNORED,
                        ER_THD(thd, WARN_OPTION_IGNORED), option);
  };
  if (info->data_file_name)
    warn("DATA DIRECTORY");
  if (info->index_file_name)
    warn("INDEX DIRECTORY");
  if (has_foreign_key(thd))
    warn("FOREIGN KEY");
}

// The engine's directory is none of the server's databases, though the server takes it for one that
// is there: SHOW DATABASES, a dump and a backup pass over it.
static bool is_in_own_directory(const Bytes &name)
{
  const Bytes own= Bytes(DIRECTORY) + "/";
  if (name.compare(0, own.size(), own) != 0)
    return false;
  my_error(ER_WRONG_DB_NAME, MYF(0), DIRECTORY);
  return true;
}

int ha_weir::create(const char *name, TABLE *form, HA_CREATE_INFO *info)
{
  if (is_in_own_directory(table_name(name)))
    return HA_ERR_UNSUPPORTED;
  if (has_foreign_key(ha_thd()) && !ignores_foreign_keys(ha_thd()))
  {
    my_error(ER_CHECK_NOT_IMPLEMENTED, MYF(0), "FOREIGN KEY constraints");
    return HA_ERR_UNSUPPORTED;
  }
  warn_of_ignored(ha_thd(), info);
  std::vector<WeirIndex> indexes;
  for (uint i= 0; i < form->s->keys; i++)
  {
    KEY *key= &form->key_info[i];
    if (i == form->s->primary_key)
      continue;
    indexes.push_back(WeirIndex{bytes_of(key->name), bool(key->flags & HA_NOSAME)});
  }
  Meta meta;
  meta.auto_increment= info->auto_increment_value;
  // Temporary tables don't outlive the server, and are their connection's own.
  bool is_own= info->options & HA_LEX_CREATE_TMP_TABLE;
  if (!is_own)
    meta.number= new_number();
  meta.version= to_bytes(form->s->tabledef_version);
  Bytes bytes= meta.encode(), table= table_name(name);
  WeirResult result= weir_table_create(database, bytes_of(table), indexes.data(), indexes.size(),
                                       bytes_of(bytes), is_own);
  // Of a table that lost its definition the server knows nothing.
  if (result == WEIR_RESULT_TABLE_EXISTS)
    my_error(ER_TABLE_EXISTS_ERROR, MYF(0), form->s->table_name.str);
  return error_of(result, ha_thd());
}

// Whether the statement drops tables, and none that it has made: killed, it has nothing to tidy up.
static bool drops_alone(THD *thd)
{
  if (!thd)
    return false;
  int command= thd_sql_command(thd);
  return command == SQLCOM_DROP_TABLE || command == SQLCOM_DROP_SEQUENCE ||
         command == SQLCOM_DROP_DB;
}

int ha_weir::delete_table(const char *path)
{
  Bytes name= table_name(path);
  THD *thd= current_thd;
  Session *session= thd ? Session::find(thd) : nullptr;
  if (session && session->uses(thd, name))
  {
    if (thd_sql_command(thd) != SQLCOM_CREATE_TABLE || is_temporary(name))
    {
      session->drop_later(name);
      return 0;
    }
    // CREATE ... SELECT has failed, and its transaction has nothing else. The server forgets the
    // table before it rolls that back: a crash in between would leave it.
    if (int error= session->rollback())
      return error;
  }
  WeirPatience patience= drops_alone(thd) ? patience_of_change(thd) : patience_of(thd);
  WeirResult result= weir::drop_table(name, patience);
  // A start that takes back a CREATE of a partitioned table, or drops the copy that an ALTER has
  // made of one, asks the engine of the partitions for it, instead of the server's own for
  // partitioned tables.
  if (result == WEIR_RESULT_NO_TABLE)
    result= drop_with_list(name, patience);
  return error_of(result);
}

int ha_weir::rename_table(const char *from, const char *to)
{
  Bytes old_name= table_name(from), new_name= table_name(to);
  if (is_in_own_directory(new_name))
    return HA_ERR_UNSUPPORTED;
  THD *thd= current_thd;
  Session *session= thd ? Session::find(thd) : nullptr;
  // EXCHANGE PARTITION has read the table in its own transaction, which has done its work now.
  if (session && session->uses(thd, old_name) && thd_sql_command(thd) == SQLCOM_ALTER_TABLE)
    if (int error= session->rollback())
      return error;
  WeirResult result= weir::rename_table(old_name, new_name, patience_of(thd));
  // A start that ends an ALTER which copied a partitioned table has dropped the old one, and asks
  // the engine of the new one's partitions to give that the old name. What was cut short may have
  // left none but the list.
  if (result == WEIR_RESULT_NO_TABLE)
    result= rename_with_list(old_name, new_name, patience_of(thd));
  if (!thd)
    return error_of(result);
  int error= error_of(result, thd);
  // The server would tell of a rename that failed, and the code alone.
  if (error == HA_ERR_LOCK_WAIT_TIMEOUT)
    my_error(ER_LOCK_WAIT_TIMEOUT, MYF(0));
  else if (error == HA_ERR_ABORTED_BY_USER)
    thd->send_kill_message();
  return error;
}

// Whether a statement that empties partitions empties this one, which can be a part of one with the
// name.
static bool is_to_be_emptied(THD *thd, partition_info *partitions, const Bytes &name)
{
  if (thd_sql_command(thd) == SQLCOM_TRUNCATE)
    return true;
  List_iterator<partition_element> it(partitions->partitions);
  while (partition_element *one= it++)
  {
    char encoded[FN_REFLEN];
    Bytes with_table= table_of_partition(name) + "#P#";
    with_table.append(encoded, tablename_to_filename(one->partition_name, encoded, sizeof encoded));
    if (one->part_state == PART_ADMIN &&
        (name == with_table || name.rfind(with_table + "#SP#", 0) == 0))
      return true;
  }
  return false;
}

// What the statement empties: this table, or of a partitioned one all partitions that are meant.
std::vector<Bytes> ha_weir::to_be_emptied() const
{
  std::vector<Bytes> names= {share->name};
  if (!table->part_info || !is_partition(share->name))
    return names;
  for (const Bytes &name : partitions_of(table_of_partition(share->name)))
    if (name != share->name && is_to_be_emptied(ha_thd(), table->part_info, name))
      names.push_back(name);
  return names;
}

// The server has committed before, of temporary tables, too: the connection's own transaction
// doesn't use the table.
int ha_weir::truncate()
{
  close_scan();
  Session *session= Session::of(ha_thd());
  // The server asks partition by partition: the first time it is done for all.
  if (!session->has_emptied(ha_thd()))
  {
    std::vector<WeirBytes> names;
    std::vector<Bytes> emptied= to_be_emptied();
    for (const Bytes &name : emptied)
      names.push_back(bytes_of(name));
    WeirPatience patience= patience_of_change(ha_thd());
    if (int error= fail(weir_tables_truncate(database, names.data(), names.size(), patience)))
      return error;
    session->note_emptied(ha_thd());
  }
  share->is_known= false;
  share->next_hidden= 0;
  if (table->found_next_number_field)
    return reset_auto_increment(0);
  return 0;
}

void ha_weir::update_create_info(HA_CREATE_INFO *create)
{
  if (create->used_fields & HA_CREATE_USED_AUTO || !table->found_next_number_field)
    return;
  info(HA_STATUS_AUTO);
  create->auto_increment_value= stats.auto_increment_value;
}
