"""Random changes of several tables at once, by subqueries, and with all that SQL has beside plain INSERT, UPDATE and DELETE."""

from . import columns
from .queries import pairs
from .statements import assignments, condition, in_order, names, parts_of, row, where


def joined(rng, table, tables):
    """Two different tables, and how their rows meet."""
    others = [t for t in tables if t is not table]
    if not others:
        return None
    other = rng.choice(others)
    alike = pairs(table, other)
    if table.has_id and other.has_id and rng.random() < 0.5:
        return other, f"{table.name}.id = {other.name}.id"
    if not alike:
        return None
    mine, its = rng.choice(alike)
    return other, f"{table.name}.{mine.name} = {other.name}.{its.name}"


def one_value(rng, table):
    column = rng.choice(table.filled)
    return f"{table.name}.{column.name} = {columns.value(rng, column)}"


def is_counted(one, other):
    """Whether triggers tell which of two tables the server changes first: that depends on the plan."""
    return one.is_counted or other.is_counted


def update_of_both(rng, table, tables):
    """No column that says which rows meet, itself or by one that is computed from it: the server compares them once more after
    it has changed the first table's row, and whether others meet that then depends on the plan."""
    met = joined(rng, table, tables)
    if not met:
        return None
    other, on = met
    values = [one_value(rng, table)] + [one_value(rng, other)] * (rng.random() < 0.7 and not is_counted(table, other))
    limits = f" AND {table.name}.{condition(rng, table)}" if rng.random() < 0.8 else ""
    set_names = [value.split(" = ")[0] for value in values]
    computed = [f"{one.name}.{c.name}" for one in (table, other) for c in one.columns if c.generated]
    if any(name in f"{on}{limits}".split() for name in set_names + computed):
        return None
    kind = rng.choice(("JOIN", "JOIN", "LEFT JOIN"))
    return f"UPDATE {table.name} {kind} {other.name} ON {on}{limits} SET {', '.join(values)}"


def delete_of_both(rng, table, tables):
    met = joined(rng, table, tables)
    if not met:
        return None
    other, on = met
    of = table.name if is_counted(table, other) else rng.choice((table.name, f"{table.name}, {other.name}"))
    return f"DELETE {of} FROM {table.name} JOIN {other.name} ON {on} WHERE {table.name}.{condition(rng, table)}"


def update_by_subquery(rng, table, tables):
    """The server computes wrong values of `id = id + 1` where IN becomes a join whose rows it sorts, and finds too many rows
    for NOT IN by an index of a prefix, whatever the engine."""
    other = rng.choice(tables)
    alike = [(a, b) for a, b in pairs(table, other) if not b.has_prefixes]
    if not alike:
        return None
    mine, its = rng.choice(alike)
    return (f"UPDATE {table.name} SET {assignments(rng, table)} WHERE {mine.name} NOT IN "
            f"(SELECT {its.name} FROM {other.name}{where(rng, other, always=True)}){in_order(table)}")


def update_to_subquery(rng, table, tables):
    """A value that is looked up for each row."""
    other = rng.choice([t for t in tables if t is not table] or tables)
    alike = [(a, b) for a, b in pairs(table, other) if b.is_exact and not a.generated]
    if other is table or not alike or not table.has_id or not other.has_id:
        return None
    mine, its = rng.choice(alike)
    return (f"UPDATE {table.name} SET {mine.name} = (SELECT MAX(y.{its.name}) FROM {other.name} y WHERE y.id <= {table.name}.id)"
            f"{where(rng, table, always=True)}{in_order(table)}")


def delete_by_subquery(rng, table, tables):
    other = rng.choice(tables)
    alike = pairs(table, other)
    if not alike:
        return None
    mine, its = rng.choice(alike)
    what = rng.choice((f"{mine.name} IN (SELECT {its.name} FROM {other.name}{where(rng, other, always=True)})",
                       f"EXISTS (SELECT 1 FROM {other.name} y WHERE y.{its.name} = {table.name}.{mine.name} AND y.{condition(rng, other)})"))
    return f"DELETE FROM {table.name} WHERE {condition(rng, table)} AND {what}"


def delete_returning(rng, table, _tables):
    return f"DELETE FROM {parts_of(rng, table)}{where(rng, table, always=True)} RETURNING *"


def replace_returning(rng, table, _tables):
    """InnoDB has lost the row of a temporary table that a REPLACE had replaced when a later value was refused."""
    if table.temporary:
        return None
    some = ", ".join(row(rng, table) for _ in range(rng.choice((1, 3))))
    return f"REPLACE INTO {table.name} ({names(table)}) VALUES {some} RETURNING *"


def upsert(rng, table, _tables):
    """Its keys say in one order which row is the duplicate, as long as none was added later."""
    if not table.keys_are_in_order:
        return None
    rows = ", ".join(row(rng, table) for _ in range(rng.choice((1, 2, 6))))
    ignore = "IGNORE " if rng.random() < 0.2 else ""
    column = rng.choice(table.filled)
    what = rng.choice((assignments(rng, table), f"{column.name} = VALUES({column.name})"))
    return f"INSERT {ignore}INTO {table.name} ({names(table)}) VALUES {rows} ON DUPLICATE KEY UPDATE {what}"


def insert_from_other(rng, table, tables):
    other = rng.choice(tables)
    if not other.has_id or not table.has_id:
        return None
    chosen, values = ["id"], [f"{other.name}.id{rng.choice(('', ' + 50'))}"]
    for column in table.filled:
        alike = [c for c in other.columns if c.type == column.type]
        chosen.append(column.name)
        values.append(f"{other.name}.{rng.choice(alike).name}" if alike else columns.value(rng, column))
    word = rng.choice(("INSERT INTO", "INSERT IGNORE INTO", "INSERT INTO" if table.temporary else "REPLACE INTO"))
    new = ""
    if word == "INSERT INTO" and table.keys_are_in_order and rng.random() < 0.5:
        column = rng.choice(table.filled)
        new = f" ON DUPLICATE KEY UPDATE {table.name}.{column.name} = {columns.value(rng, column)}"
    return (f"{word} {table.name} ({', '.join(chosen)}) SELECT {', '.join(values)} FROM {other.name}"
            f"{where(rng, other)}{in_order(other)} LIMIT 40{new}")


def some_columns(rng, table, _tables):
    """The others get their defaults."""
    some = [c for c in table.filled if not c.nullable or rng.random() < 0.5]
    lists = [[columns.value(rng, c) for c in some] for _ in range(rng.choice((1, 2, 9)))]
    chosen = [c.name for c in some]
    if table.has_id:
        chosen.insert(0, "id")
        for values in lists:
            values.insert(0, str(rng.randrange(1, 100)))
    if not chosen:
        return None
    rows = ", ".join(f"({', '.join(values)})" for values in lists)
    return f"INSERT {rng.choice(('', 'IGNORE '))}INTO {table.name} ({', '.join(chosen)}) VALUES {rows}"


def update_by_range(rng, table, _tables):
    """Of the columns of an index itself, found by that."""
    if not table.indexes:
        return None
    index = rng.choice(list(table.indexes))
    inside = [c for c in table.filled if c.name in table.indexes[index]]
    if not inside:
        return None
    column = rng.choice(inside)
    new = f"{column.name} + 1" if column.kind == "number" and rng.random() < 0.5 else columns.value(rng, column)
    return (f"UPDATE {table.name} FORCE INDEX ({index}) SET {column.name} = {new} "
            f"WHERE {column.name} {rng.choice(('>', '<', '=', '>=', '<=>'))} {columns.value(rng, column)}{in_order(table)}")


KINDS = (update_of_both, update_of_both, delete_of_both, update_by_subquery, update_to_subquery, delete_by_subquery, delete_returning,
         replace_returning, upsert, upsert, insert_from_other, some_columns, update_by_range)


def change(rng, table, tables):
    """One of them that the tables allow."""
    while True:
        text = rng.choice(KINDS)(rng, table, tables)
        if text:
            return text
