#include "status.h"
#include "backup.h"
#include "binlog_writeback.h"
#include "database.h"
#include "engine_table.h"
#include <tztime.h>

namespace weir {

struct Figure
{
  Bytes name;
  ulonglong value;
};

extern "C" void collect_figure(void *context, WeirBytes name, uint64_t value)
{
  static_cast<std::vector<Figure> *>(context)->push_back(Figure{to_bytes(name), value});
}

static std::vector<Figure> figures()
{
  std::vector<Figure> all;
  Visitor visitor;
  if (visitor)
    weir_status(database, collect_figure, &all);
  return all;
}

// The server copies what it is shown before it asks again; two connections may ask at once.
static int show_figures(MYSQL_THD thd, struct st_mysql_show_var *var, void *,
                        struct system_status_var *, enum enum_var_type)
{
  std::vector<Figure> all= figures();
  auto vars= static_cast<SHOW_VAR *>(thd_calloc(thd, (all.size() + 1) * sizeof(SHOW_VAR)));
  auto values= static_cast<ulonglong *>(thd_alloc(thd, all.size() * sizeof(ulonglong) + 1));
  var->type= SHOW_ARRAY;
  if (!vars || !values)
    return 1;
  for (size_t i= 0; i < all.size(); i++)
  {
    values[i]= all[i].value;
    vars[i].name= thd_strmake(thd, all[i].name.data(), all[i].name.size());
    vars[i].value= &values[i];
    vars[i].type= SHOW_ULONGLONG;
  }
  var->value= vars;
  return 0;
}

static int show_backup(MYSQL_THD thd, struct st_mysql_show_var *var, void *,
                       struct system_status_var *, enum enum_var_type)
{
  Bytes text= backup_text();
  var->type= SHOW_CHAR;
  var->value= thd_strmake(thd, text.data(), text.size());
  return 0;
}

template <ulonglong number()>
static int show_number(MYSQL_THD thd, st_mysql_show_var *var, void *, system_status_var *,
                       enum_var_type)
{
  auto value= static_cast<ulonglong *>(thd_alloc(thd, sizeof(ulonglong)));
  if (!value)
    return 1;
  *value= number();
  var->type= SHOW_ULONGLONG;
  var->value= value;
  return 0;
}

// mariadb/build makes it of what git says.
extern const char build_text[];

struct st_mysql_show_var status_variables[]= {
    {"Weir", reinterpret_cast<void *>(show_figures), SHOW_FUNC},
    {"Weir_backup", reinterpret_cast<void *>(show_backup), SHOW_FUNC},
    {"Weir_backup_stages", reinterpret_cast<void *>(show_number<backup_stages>), SHOW_FUNC},
    {"Weir_binlog_writeback_bytes",
     reinterpret_cast<void *>(show_number<binlog_writeback_bytes>), SHOW_FUNC},
    {"Weir_build", const_cast<char *>(build_text), SHOW_CHAR},
    {nullptr, nullptr, SHOW_UNDEF}};

extern "C" void collect_wait(void *context, const WeirLockInfo *info, uint64_t connection)
{
  Bytes &text= *static_cast<Bytes *>(context);
  text+= "transaction " + std::to_string(info->transaction);
  if (connection)
    text+= " of thread " + std::to_string(connection);
  text+= " waited for transaction " + std::to_string(info->waits_for);
  // Not if that one's end was all it waited for, or the table is gone.
  if (info->table.len)
  {
    text+= info->exclusive ? ", to lock exclusively " : ", to lock shared ";
    text+= info->index == WEIR_PRIMARY ? "a row" : "index `" + to_bytes(info->index_name) + "`";
    text+= " of " + shown_table(to_bytes(info->table)) + ", key " + hex_beginning(info->key);
  }
  text+= '\n';
}

static void append_last_deadlock(THD *thd, Bytes &text)
{
  WeirDeadlock deadlock;
  Bytes waits;
  Visitor visitor;
  if (!visitor || !weir_last_deadlock(database, &deadlock, collect_wait, &waits))
    return;
  MYSQL_TIME at;
  thd->variables.time_zone->gmt_sec_to_TIME(&at, my_time_t(deadlock.at_s));
  char time[MAX_DATE_STRING_REP_LENGTH];
  my_datetime_to_str(&at, time, 0);
  text+= Bytes("\nLATEST DETECTED DEADLOCK\n") + time + ", transaction " +
         std::to_string(deadlock.victim) + " was rolled back\n" + waits;
}

bool show_status(handlerton *, THD *thd, stat_print_fn *print, enum ha_stat_type type)
{
  if (type != HA_ENGINE_STATUS)
    return false;
  Bytes text;
  for (const Figure &figure : figures())
  {
    text+= figure.name;
    text.append(figure.name.size() < 32 ? 32 - figure.name.size() : 1, ' ');
    text+= std::to_string(figure.value) + '\n';
  }
  append_last_deadlock(thd, text);
  return print(thd, STRING_WITH_LEN("WEIR"), STRING_WITH_LEN(""), text.data(), uint(text.size()));
}

} // namespace weir
