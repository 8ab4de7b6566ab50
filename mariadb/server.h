/*
  The server's headers, and checks that they are those of the server that loads the plugin.
  Licence: GPL-2.0, see mariadb/LICENSE-GPL2.
*/
#pragma once

#define MYSQL_SERVER 1
#include <my_global.h>
#include <my_config.h>
#include <sql_class.h>
#include <handler.h>
#include <field.h>
#include <key.h>
#include <table.h>
#include <sql_plugin.h>
#include <set_var.h>
#include <sql_show.h>
#include <sql_table.h>
#include <sql_parse.h>
#include <sql_partition.h>
#include <log.h>
#include <xa.h>
#include <mysql/plugin.h>
#include <mysql/service_thd_wait.h>

#undef pthread_mutex_t

#include "weir.h"

// The server exports these, and no header says so.
void ignore_db_dirs_append(const char *directory);
extern "C" int thd_binlog_format(const MYSQL_THD thd);
extern "C" bool thd_binlog_filter_ok(const MYSQL_THD thd);
extern "C" bool thd_sqlcom_can_generate_row_events(const MYSQL_THD thd);
extern "C" int thd_need_wait_reports(const MYSQL_THD thd);
extern "C" int thd_rpl_deadlock_check(MYSQL_THD thd, MYSQL_THD other);

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <string>
#include <vector>
