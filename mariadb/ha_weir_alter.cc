/*
  ALTER TABLE in place: what the engine needn't know of is done at once.
*/

#include "ha_weir.h"
#include "errors.h"

using namespace weir;

bool ha_weir::check_if_incompatible_data(HA_CREATE_INFO *, uint)
{
  return COMPATIBLE_DATA_NO;
}

// What changes the server's definition alone.
static const alter_table_operations DEFINITION_ONLY=
    ALTER_CHANGE_COLUMN | ALTER_CHANGE_COLUMN_DEFAULT | ALTER_COLUMN_NAME | ALTER_RENAME_COLUMN |
    ALTER_RENAME | ALTER_OPTIONS | ALTER_CHANGE_INDEX_COMMENT | ALTER_DROP_CHECK_CONSTRAINT |
    ALTER_INDEX_IGNORABILITY | ALTER_COLUMN_OPTION | ALTER_PARTITIONED;

enum_alter_inplace_result ha_weir::check_if_supported_inplace_alter(TABLE *, Alter_inplace_info *info)
{
  if (info->handler_flags & ~DEFINITION_ONLY)
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  return HA_ALTER_INPLACE_NO_LOCK;
}

bool ha_weir::inplace_alter_table(TABLE *, Alter_inplace_info *)
{
  return false;
}

bool ha_weir::commit_inplace_alter_table(TABLE *altered, Alter_inplace_info *info, bool commit)
{
  if (!commit)
    return false;
  // All parts of a partitioned table are committed by the first one.
  info->group_commit_ctx= nullptr;
  Meta meta= meta_of(share->table);
  if (info->create_info->used_fields & HA_CREATE_USED_AUTO)
  {
    meta.auto_increment= info->create_info->auto_increment_value;
    share->next_auto= meta.auto_increment;
    share->auto_is_known= false;
  }
  meta.version.assign(reinterpret_cast<const char *>(altered->s->tabledef_version.str),
                      altered->s->tabledef_version.length);
  Bytes bytes= meta.encode();
  if (int error= fail(weir_table_set_meta(share->table, bytes_of(bytes))))
  {
    print_error(error, MYF(0));
    return true;
  }
  return false;
}
