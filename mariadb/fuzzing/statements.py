"""Random statements whose outcome doesn't depend on the order in which an engine finds rows."""

from . import columns

OPERATORS = ("=", "=", "<", "<=", ">", ">=", "<>", "<=>")


def condition(rng, table):
    """One comparison of a column."""
    if table.has_id and rng.random() < 0.3:
        low = rng.randrange(0, 80)
        return rng.choice((f"id = {low}", f"id BETWEEN {low} AND {low + rng.randrange(0, 30)}",
                           f"id IN ({low}, {low + 1}, {low + 7})", f"id > {low}"))
    column = rng.choice(table.columns)
    name, some = column.name, lambda: columns.value(rng, column)
    shape = rng.randrange(0, 10)
    if shape == 0:
        return f"{name} IS {rng.choice(('', 'NOT '))}NULL"
    if shape == 1:
        return f"{name} IN ({some()}, {some()}, {some()})"
    if shape == 2:
        return f"{name} BETWEEN {some()} AND {some()}"
    if shape == 3 and column.kind == "text":
        return f"{name} LIKE '{rng.choice(('a', 'A', 'b', 's', '_', ''))}%'"
    return f"{name} {rng.choice(OPERATORS)} {some()}"


def where(rng, table, always=False):
    if not always and rng.random() < 0.1:
        return ""
    parts = [condition(rng, table) for _ in range(rng.choices((1, 2, 3), (5, 4, 1))[0])]
    text = parts[0]
    for part in parts[1:]:
        text = f"({text}) {rng.choice(('AND', 'AND', 'OR'))} {part}"
    return f" WHERE {text}"


def in_order(table):
    """An order that leaves nothing open: bytes tell apart what a collation holds for equal."""
    keys = ["id"] if table.has_id else []
    for column in table.columns:
        keys += [column.name] if column.kind in ("number", "time") else [f"HEX({column.name})"]
    return f" ORDER BY {', '.join(keys)}"


def row(rng, table):
    values = [columns.value(rng, c) for c in table.filled]
    if table.has_id:
        values.insert(0, str(rng.randrange(1, 100)))
    return f"({', '.join(values)})"


def names(table):
    return ", ".join((["id"] if table.has_id else []) + [c.name for c in table.filled])


def assignments(rng, table):
    some = rng.sample(table.filled, min(len(table.filled), rng.choice((1, 1, 2))))
    parts = []
    for column in some:
        if column.kind == "number" and rng.random() < 0.3:
            parts.append(f"{column.name} = {column.name} + {rng.choice((-1, 1, 3))}")
        else:
            parts.append(f"{column.name} = {columns.value(rng, column)}")
    if table.has_id and rng.random() < 0.1:
        parts.append(f"id = id + {rng.choice((-1, 1, 40))}")
    return ", ".join(parts)


def parts_of(rng, table):
    """The table, or some of its partitions."""
    if not table.partitions or rng.random() < 0.8:
        return table.name
    some = rng.sample(table.partitions, rng.randrange(1, len(table.partitions) + 1))
    return f"{table.name} PARTITION ({', '.join(some)})"


def insert(rng, table, tables):
    rows = ", ".join(row(rng, table) for _ in range(rng.choices((1, 2, 5, 40), (5, 3, 2, 1))[0]))
    shape = rng.randrange(0, 10)
    if shape == 0 and not table.temporary:
        return f"REPLACE INTO {parts_of(rng, table)} ({names(table)}) VALUES {rows}"
    if shape == 1:
        return f"INSERT IGNORE INTO {parts_of(rng, table)} ({names(table)}) VALUES {rows}"
    if shape == 2 and one_unique(table):
        return (f"INSERT INTO {table.name} ({names(table)}) VALUES {rows} "
                f"ON DUPLICATE KEY UPDATE {assignments(rng, table)}")
    if shape == 3:
        new = " + 100" if table.has_id and rng.random() < 0.7 else ""
        chosen = names(table).replace("id,", f"id{new},", 1) if table.has_id else names(table)
        return (f"INSERT {rng.choice(('', 'IGNORE '))}INTO {table.name} ({names(table)}) SELECT {chosen} "
                f"FROM {table.name}{where(rng, table, always=True)}{in_order(table)} LIMIT 30")
    if shape == 4:
        series = [columns.series(rng, c) for c in table.filled]
        if table.has_id:
            series.insert(0, f"seq + {rng.randrange(0, 900)}")
        return (f"INSERT IGNORE INTO {table.name} ({names(table)}) SELECT {', '.join(series)} "
                f"FROM seq_1_to_{rng.choice((20, 300, 1500))}")
    if shape == 5:
        return f"INSERT INTO {table.name} ({names(table)}) VALUES {rows} RETURNING *"
    return f"INSERT INTO {parts_of(rng, table)} ({names(table)}) VALUES {rows}"


def one_unique(table):
    """With several unique keys it is the engine's order of them that says which row is the duplicate."""
    return sum("UNIQUE" in d for d in table.indexes.values()) + table.has_id < 2


def update(rng, table, tables):
    other = rng.choice(tables)
    if other is not table and other.has_id and table.has_id and rng.random() < 0.12:
        column = rng.choice(table.filled)
        return (f"UPDATE {table.name} JOIN {other.name} USING (id) "
                f"SET {table.name}.{column.name} = {columns.value(rng, column)}{where_of(rng, table)}")
    limit = f" LIMIT {rng.randrange(1, 8)}" if rng.random() < 0.2 else ""
    ignore = "IGNORE " if rng.random() < 0.15 else ""
    return f"UPDATE {ignore}{parts_of(rng, table)} SET {assignments(rng, table)}{where(rng, table)}{in_order(table)}{limit}"


def delete(rng, table, tables):
    if rng.random() < 0.15:
        other = rng.choice(tables)
        if other is not table and other.has_id and table.has_id:
            return f"DELETE {table.name} FROM {table.name} JOIN {other.name} USING (id){where_of(rng, table)}"
    limit = f" LIMIT {rng.randrange(1, 8)}" if rng.random() < 0.3 else ""
    return f"DELETE FROM {parts_of(rng, table)}{where(rng, table, always=rng.random() < 0.97)}{in_order(table)}{limit}"


def where_of(rng, table):
    """A condition with the table's name before the column."""
    column = rng.choice(table.columns)
    return f" WHERE {table.name}.{column.name} {rng.choice(OPERATORS)} {columns.value(rng, column)}"


def hint(rng, table):
    if table.indexes and rng.random() < 0.35:
        return f" FORCE INDEX ({rng.choice(list(table.indexes))})"
    return ""


def comparable(one, other):
    """Whether the two compare in one way only: a FLOAT and a DECIMAL do so in two, with an index and without."""
    return one.type == other.type or (one.type in columns.INTEGERS and other.type in columns.INTEGERS)


def select(rng, table, tables):
    shape = rng.randrange(0, 12)
    source = f"{parts_of(rng, table)}{hint(rng, table)}"
    lock = rng.choice(("", "", "", " FOR UPDATE", " LOCK IN SHARE MODE"))
    if shape == 0:
        return f"SELECT COUNT(*) FROM {source}{where(rng, table)}{lock}"
    exact = [c for c in table.columns if c.is_exact]
    if shape == 1 and exact:
        column = rng.choice(exact).name
        return f"SELECT MIN({column}), MAX({column}), COUNT(DISTINCT {column}) FROM {source}{where(rng, table)}"
    if shape == 2:
        return f"SELECT COUNT(*) FROM {source}{where(rng, table)} GROUP BY {rng.choice(table.columns).name}"
    if shape == 3:
        return f"SELECT * FROM {source}{where(rng, table)}{in_order(table)} LIMIT {rng.randrange(1, 20)}{lock}"
    other = rng.choice(tables)
    if shape == 4:
        pairs = [(a, b) for a in table.columns for b in other.columns if comparable(a, b)]
        if pairs:
            mine, its = rng.choice(pairs)
            kind = rng.choice(("JOIN", "LEFT JOIN"))
            return (f"SELECT COUNT(*) FROM (SELECT * FROM {table.name}{in_order(table)} LIMIT 25) x {kind} "
                    f"{other.name}{hint(rng, other)} ON x.{mine.name} = {other.name}.{its.name}")
    if shape == 5 and exact:
        column = rng.choice(exact).name
        way = rng.choice(("", " DESC"))
        return f"SELECT {column} FROM {source}{where(rng, table)} ORDER BY {column}{way} LIMIT {rng.randrange(1, 30)}{lock}"
    if shape == 6 and exact:
        column = rng.choice(exact).name
        return f"SELECT DISTINCT {column} FROM {source}{where(rng, table)}"
    if shape == 8 and len(exact) > 1:
        group, least = rng.sample(exact, 2)
        return f"SELECT {group.name}, MIN({least.name}) FROM {source}{where(rng, table)} GROUP BY {group.name}"
    if shape == 9:
        kind, its = rng.choice(("IN", "NOT IN")), rng.choice(other.columns)
        alike = [c for c in table.columns if comparable(c, its)]
        if alike:
            return (f"SELECT * FROM {source} WHERE {rng.choice(alike).name} {kind} "
                    f"(SELECT {its.name} FROM {other.name}{where(rng, other, always=True)})")
    if shape == 10 and exact:
        column = rng.choice(exact)
        return (f"SELECT COUNT(*) FROM {source} WHERE {column.name} = "
                f"(SELECT MAX({column.name}) FROM {table.name}{hint(rng, table)}{where(rng, table)}){lock}")
    if shape == 7 and table.indexes:
        return f"SELECT * FROM {table.name} USE INDEX ({', '.join(table.indexes)}){where(rng, table, always=True)}"
    return f"SELECT * FROM {source}{where(rng, table)}{lock}"


def settings(rng):
    """What changes the way a statement is carried out."""
    return rng.choice((
        "SET optimizer_switch = 'mrr=on,mrr_cost_based=off,mrr_sort_keys=on'", "SET optimizer_switch = 'mrr=off'",
        "SET join_cache_level = 8, optimizer_switch = 'join_cache_hashed=on,join_cache_bka=on'", "SET join_cache_level = 2",
        "SET optimizer_switch = 'index_condition_pushdown=off'", "SET optimizer_switch = 'index_condition_pushdown=on'",
        "SET optimizer_switch = 'index_merge=off'", "SET optimizer_switch = 'index_merge=on,index_merge_sort_intersection=on'",
        "SET optimizer_switch = 'rowid_filter=off'", "SET optimizer_switch = 'rowid_filter=on'",
        "SET sql_mode = 'STRICT_TRANS_TABLES'", "SET sql_mode = ''", "SET sql_mode = 'NO_AUTO_VALUE_ON_ZERO,STRICT_TRANS_TABLES'",
        "SET optimizer_switch = 'extended_keys=off'", "SET optimizer_switch = 'extended_keys=on'",
        "SET optimizer_switch = 'semijoin=off,materialization=off'", "SET optimizer_switch = 'semijoin=on,materialization=off'",
        "SET optimizer_switch = 'semijoin=on,materialization=on,firstmatch=on,loosescan=on'",
        "SET optimizer_switch = 'firstmatch=off,loosescan=off,materialization=off'",
        "SET optimizer_switch = 'derived_merge=off'", "SET optimizer_switch = 'derived_merge=on'",
        "SET optimizer_use_condition_selectivity = 1", "SET optimizer_use_condition_selectivity = 4",
        "SET join_buffer_size = 256", "SET join_buffer_size = 262144", "SET sort_buffer_size = 131072", "SET sort_buffer_size = 2097152",
        "SET tmp_memory_table_size = 0", "SET tmp_memory_table_size = 16777216", "SET in_predicate_conversion_threshold = 2",
    ))


CHANGES = (insert, insert, insert, update, update, delete)
