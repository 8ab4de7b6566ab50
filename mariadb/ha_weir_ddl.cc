/* Creation, removal, renaming and emptying of tables. */

#include "ha_weir.h"
#include "errors.h"
#include "numbers.h"

using namespace weir;

static bool has_foreign_key(THD *thd)
{
  switch (thd_sql_command(thd)) {
  case SQLCOM_CREATE_TABLE:
  case SQLCOM_ALTER_TABLE:
    break;
  default:
    return false;
  }
  List_iterator<::Key> it(thd->lex->alter_info.key_list);
  while (::Key *key= it++)
    if (key->type == ::Key::FOREIGN_KEY)
      return true;
  return false;
}

int ha_weir::create(const char *name, TABLE *form, HA_CREATE_INFO *info)
{
  if (has_foreign_key(ha_thd()))
  {
    my_error(ER_CHECK_NOT_IMPLEMENTED, MYF(0), "FOREIGN KEY constraints");
    return HA_ERR_UNSUPPORTED;
  }
  std::vector<WeirIndex> indexes;
  for (uint i= 0; i < form->s->keys; i++)
  {
    KEY *key= &form->key_info[i];
    if (i == form->s->primary_key)
      continue;
    indexes.push_back(WeirIndex{{reinterpret_cast<const uint8_t *>(key->name.str), key->name.length},
                                bool(key->flags & HA_NOSAME)});
  }
  Meta meta;
  meta.auto_increment= info->auto_increment_value;
  // Temporary tables don't outlive the server.
  if (!(info->options & HA_LEX_CREATE_TMP_TABLE))
    meta.number= new_number();
  meta.version.assign(reinterpret_cast<const char *>(form->s->tabledef_version.str),
                      form->s->tabledef_version.length);
  Bytes bytes= meta.encode(), table= table_name(name);
  return error_of(weir_table_create(database, bytes_of(table), indexes.data(), indexes.size(),
                                    bytes_of(bytes)));
}

extern "C" void collect_partition(void *context, const char *name)
{
  static_cast<std::vector<Bytes> *>(context)->emplace_back(name);
}

static std::vector<Bytes> partitions_of(const Bytes &name)
{
  std::vector<Bytes> names;
  Bytes prefix= name + "#P#";
  weir_table_names(database, bytes_of(prefix), collect_partition, &names);
  return names;
}

/*
  A start that takes back a CREATE of a partitioned table, or drops the copy that an ALTER has made of one, asks the
  engine of the partitions to drop the table, instead of the server's own for partitioned tables. So it
  is done here: partitions, then the server's list of them. False: there are none.
*/
static bool drop_each_partition(const char *path)
{
  std::vector<Bytes> names= partitions_of(table_name(path));
  for (const Bytes &name : names)
    if (weir::drop_table(name, patience_of(current_thd)) != WEIR_RESULT_OK)
      sql_print_error("WEIR: table %s could not be dropped: %s", name.c_str(), weir_error_message());
  if (names.empty())
    return false;
  my_delete((Bytes(path) + ".par").c_str(), MYF(0));
  return true;
}

int ha_weir::delete_table(const char *path)
{
  Bytes name= table_name(path);
  THD *thd= current_thd;
  Session *session= thd ? Session::find(thd) : nullptr;
  if (session && session->uses(name))
  {
    session->drop_later(name);
    return 0;
  }
  WeirResult result= weir::drop_table(name, patience_of(thd));
  if (result == WEIR_RESULT_NO_TABLE && drop_each_partition(path))
    return 0;
  return error_of(result);
}

/*
  A start that ends an ALTER which copied a partitioned table has dropped the old one, and asks the engine of
  the new one's partitions, instead of the server's own for partitioned tables, to give that the old name. So
  it is done here: partitions, then the server's list of them, in the server's own order: what was cut short may
  have left none but the list. False: there is nothing.
*/
static bool rename_each_partition(const char *from, const char *to)
{
  Bytes old_name= table_name(from), new_name= table_name(to);
  std::vector<Bytes> names= partitions_of(old_name);
  for (const Bytes &name : names)
  {
    Bytes renamed= new_name + name.substr(old_name.size());
    if (weir_table_rename(database, bytes_of(name), bytes_of(renamed), patience_of(current_thd)) != WEIR_RESULT_OK)
      sql_print_error("WEIR: table %s could not be renamed: %s", name.c_str(), weir_error_message());
  }
  Bytes old_list= Bytes(from) + ".par", new_list= Bytes(to) + ".par";
  bool has_list= my_access(old_list.c_str(), F_OK) == 0;
  if (has_list)
    my_rename(old_list.c_str(), new_list.c_str(), MYF(MY_WME));
  return has_list || !names.empty();
}

int ha_weir::rename_table(const char *from, const char *to)
{
  Bytes old_name= table_name(from), new_name= table_name(to);
  THD *thd= current_thd;
  Session *session= thd ? Session::find(thd) : nullptr;
  // EXCHANGE PARTITION has read the table in its own transaction, which has done its work now.
  if (session && session->uses(old_name) && thd_sql_command(thd) == SQLCOM_ALTER_TABLE)
    if (int error= session->rollback())
      return error;
  WeirResult result= weir_table_rename(database, bytes_of(old_name), bytes_of(new_name), patience_of(thd));
  if (result == WEIR_RESULT_NO_TABLE && rename_each_partition(from, to))
    return 0;
  return error_of(result);
}

// Deletes row by row: of a temporary table in a transaction that has used it before.
int ha_weir::delete_rows()
{
  bool kept= reads_all;
  reads_all= true;
  int error= rnd_init(true);
  while (!error && !(error= rnd_next(table->record[0])))
  {
    if (table->vfield)
      table->update_virtual_fields(this, VCOL_UPDATE_INDEXED);
    error= delete_row(table->record[0]);
  }
  rnd_end();
  reads_all= kept;
  return error == HA_ERR_END_OF_FILE ? 0 : error;
}

int ha_weir::truncate()
{
  close_scan();
  Session *session= Session::find(ha_thd());
  if (session && session->uses(share->name))
    return delete_rows();
  if (int error= fail(weir_table_truncate(share->table, patience_of(ha_thd()))))
    return error;
  mysql_mutex_lock(&table->s->LOCK_share);
  share->is_known= false;
  mysql_mutex_unlock(&table->s->LOCK_share);
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
