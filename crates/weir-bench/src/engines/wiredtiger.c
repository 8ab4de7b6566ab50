/*
 * WiredTiger as plain functions, for wiredtiger.rs. Every function returns WiredTiger's own code. Keys and
 * values are raw bytes ("u").
 */
#include <stddef.h>
#include <wiredtiger.h>

const char *weir_wt_version(void)
{
    return wiredtiger_version(NULL, NULL, NULL);
}

int weir_wt_not_found(void)
{
    return WT_NOTFOUND;
}

int weir_wt_rollback(void)
{
    return WT_ROLLBACK;
}

int weir_wt_open(const char *home, const char *config, WT_CONNECTION **connection)
{
    return wiredtiger_open(home, NULL, config, connection);
}

int weir_wt_close(WT_CONNECTION *connection)
{
    return connection->close(connection, NULL);
}

int weir_wt_session(WT_CONNECTION *connection, WT_SESSION **session)
{
    return connection->open_session(connection, NULL, "isolation=snapshot", session);
}

int weir_wt_session_close(WT_SESSION *session)
{
    return session->close(session, NULL);
}

int weir_wt_create(WT_SESSION *session, const char *uri, const char *config)
{
    return session->create(session, uri, config);
}

int weir_wt_cursor(WT_SESSION *session, const char *uri, const char *config, WT_CURSOR **cursor)
{
    return session->open_cursor(session, uri, NULL, config, cursor);
}

int weir_wt_cursor_close(WT_CURSOR *cursor)
{
    return cursor->close(cursor);
}

int weir_wt_begin(WT_SESSION *session)
{
    return session->begin_transaction(session, NULL);
}

int weir_wt_commit(WT_SESSION *session)
{
    return session->commit_transaction(session, NULL);
}

int weir_wt_abort(WT_SESSION *session)
{
    return session->rollback_transaction(session, NULL);
}

int weir_wt_log_flush(WT_SESSION *session)
{
    return session->log_flush(session, "sync=on");
}

static void set_key(WT_CURSOR *cursor, const void *key, size_t size)
{
    WT_ITEM item = {0};
    item.data = key;
    item.size = size;
    cursor->set_key(cursor, &item);
}

int weir_wt_insert(WT_CURSOR *cursor, const void *key, size_t key_size, const void *value, size_t value_size)
{
    WT_ITEM item = {0};
    item.data = value;
    item.size = value_size;
    set_key(cursor, key, key_size);
    cursor->set_value(cursor, &item);
    return cursor->insert(cursor);
}

int weir_wt_remove(WT_CURSOR *cursor, const void *key, size_t size)
{
    set_key(cursor, key, size);
    return cursor->remove(cursor);
}

int weir_wt_search(WT_CURSOR *cursor, const void *key, size_t size)
{
    set_key(cursor, key, size);
    return cursor->search(cursor);
}

/* Moves to the first key at or after the given one. */
int weir_wt_seek(WT_CURSOR *cursor, const void *key, size_t size)
{
    int exact = 0;
    set_key(cursor, key, size);
    int code = cursor->search_near(cursor, &exact);
    return code != 0 || exact >= 0 ? code : cursor->next(cursor);
}

int weir_wt_next(WT_CURSOR *cursor)
{
    return cursor->next(cursor);
}

int weir_wt_reset(WT_CURSOR *cursor)
{
    return cursor->reset(cursor);
}

int weir_wt_key(WT_CURSOR *cursor, const void **data, size_t *size)
{
    WT_ITEM item = {0};
    int code = cursor->get_key(cursor, &item);
    *data = item.data;
    *size = item.size;
    return code;
}

int weir_wt_value(WT_CURSOR *cursor, const void **data, size_t *size)
{
    WT_ITEM item = {0};
    int code = cursor->get_value(cursor, &item);
    *data = item.data;
    *size = item.size;
    return code;
}
