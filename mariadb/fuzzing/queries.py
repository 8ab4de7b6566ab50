"""Random SELECTs that engines are asked for in many ways: several indexes at once, joins, windows, sets, functions."""

from . import columns
from .statements import comparable, condition, hint, in_order, where


def digest(table, name=""):
    """How many rows there are, and what they hold, as two numbers."""
    of = f"{name or table.name}."
    values = [f"IFNULL({of}{c.name} + 0, '-')" if c.kind == "number" else f"IFNULL(HEX({of}{c.name}), '-')" for c in table.columns]
    return f"COUNT(*), SUM(CRC32(CONCAT_WS(',', {', '.join(values)})))"


def few(table, count=25):
    """A few of the rows, the same with both engines."""
    return f"(SELECT * FROM {table.name}{in_order(table)} LIMIT {count})"


def pairs(one, other):
    return [(a, b) for a in one.columns for b in other.columns if comparable(a, b)]


def several_indexes(rng, table, _tables):
    """What unions and intersections of indexes are made for."""
    if len(table.indexes) < 2:
        return None
    firsts = [c for c in table.columns if any(c.name in text for text in table.indexes.values())]
    parts = []
    for _ in range(rng.randrange(2, 4)):
        column = rng.choice(firsts)
        some = columns.value(rng, column)
        parts.append(f"{column.name} {rng.choice(('=', '=', '=', '<', '>', '<='))} {some}")
    if table.has_id and rng.random() < 0.3:
        parts.append(f"id {rng.choice(('<', '>'))} {rng.randrange(1, 100)}")
    word = rng.choice((" AND ", " OR ", " OR "))
    names = rng.sample(list(table.indexes), rng.randrange(2, len(table.indexes) + 1))
    lock = rng.choice(("", "", " FOR UPDATE", " LOCK IN SHARE MODE"))
    return f"SELECT * FROM {table.name} FORCE INDEX ({', '.join(names)}) WHERE {word.join(parts)}{lock}"


def join(rng, table, tables):
    """Two or three tables; the first is short, so that the others are looked up."""
    other = rng.choice(tables)
    alike = pairs(table, other)
    if not alike:
        return None
    mine, its = rng.choice(alike)
    on = f"x.{mine.name} {rng.choice(('=', '=', '=', '<=>'))} y.{its.name}"
    more = pairs(table, other)
    if rng.random() < 0.3:
        mine, its = rng.choice(more)
        on += f" AND x.{mine.name} = y.{its.name}"
    source = f"{few(table)} x {rng.choice(('JOIN', 'LEFT JOIN'))} {other.name} y{hint(rng, other)} ON {on}"
    if rng.random() < 0.3 and other.has_id:
        source += f" JOIN {other.name} z ON z.id = y.id"
    conditions = f" WHERE y.{rng.choice(other.columns).name} IS {rng.choice(('', 'NOT '))}NULL" if rng.random() < 0.3 else ""
    return f"SELECT {digest(other, 'y')} FROM {source}{conditions}"


def join_of_tables(rng, table, tables):
    """By the primary key, without a copy of the first table."""
    other = rng.choice(tables)
    if not table.has_id or not other.has_id:
        return None
    kind = rng.choice(("JOIN", "LEFT JOIN", "STRAIGHT_JOIN"))
    lock = rng.choice(("", "", " FOR UPDATE"))
    return (f"SELECT {digest(other, 'y')} FROM {table.name} x{hint(rng, table)} {kind} {other.name} y ON x.id = y.id "
            f"WHERE x.{condition(rng, table)}{lock}")


def window(rng, table, _tables):
    exact = [c for c in table.columns if c.is_exact]
    if not table.has_id or table.ids_repeat or not exact:
        return None
    column = rng.choice(exact).name
    over = f"PARTITION BY {column} " if rng.random() < 0.5 else ""
    order = f"ORDER BY {rng.choice((column + ', ', ''))}id{rng.choice(('', ' DESC'))}"
    what = rng.choice(("ROW_NUMBER()", "RANK()", f"LAG({column})", f"LEAD({column}, 2)", "SUM(id)",
                       f"FIRST_VALUE({column})", "COUNT(*)", "NTILE(3)"))
    frame = rng.choice(("", " ROWS BETWEEN 2 PRECEDING AND CURRENT ROW")) if what in ("SUM(id)", "COUNT(*)") else ""
    return f"SELECT id, {what} OVER ({over}{order}{frame}) FROM {table.name}{hint(rng, table)}{where(rng, table)}"


def combined(rng, table, tables):
    other = rng.choice(tables)
    alike = [(a, b) for a, b in pairs(table, other) if a.is_exact and b.is_exact]
    if not alike:
        return None
    mine, its = rng.choice(alike)
    word = rng.choice(("UNION", "UNION ALL", "EXCEPT", "INTERSECT"))
    return (f"SELECT {mine.name} FROM {table.name}{hint(rng, table)}{where(rng, table)} {word} "
            f"SELECT {its.name} FROM {other.name}{where(rng, other)}")


def rows_of_values(rng, table, _tables):
    """Comparisons of several columns at once."""
    some = rng.sample(table.columns, min(2, len(table.columns)))
    if len(some) < 2:
        return None
    names = ", ".join(c.name for c in some)
    tuple_ = lambda: "(" + ", ".join(columns.value(rng, c) for c in some) + ")"
    test = rng.choice((f"({names}) IN ({tuple_()}, {tuple_()}, {tuple_()})", f"({names}) = {tuple_()}",
                       f"({names}) > {tuple_()}", f"({names}) <= {tuple_()}", f"({names}) <=> {tuple_()}"))
    return f"SELECT * FROM {table.name}{hint(rng, table)} WHERE {test}{rng.choice(('', ' FOR UPDATE'))}"


def correlated(rng, table, tables):
    other = rng.choice(tables)
    alike = pairs(table, other)
    if not alike:
        return None
    mine, its = rng.choice(alike)
    test = rng.choice(("EXISTS", "NOT EXISTS"))
    return (f"SELECT {digest(table, 'x')} FROM {few(table, 40)} x WHERE {test} (SELECT 1 FROM {other.name} y{hint(rng, other)} "
            f"WHERE x.{mine.name} = y.{its.name} AND y.{condition(rng, other)})")


def semijoin(rng, table, tables):
    other = rng.choice(tables)
    alike = pairs(table, other)
    if not alike:
        return None
    mine, its = rng.choice(alike)
    return (f"SELECT {digest(table)} FROM {table.name} WHERE {table.name}.{mine.name} IN "
            f"(SELECT y.{its.name} FROM {other.name} y WHERE y.{condition(rng, other)}) AND {table.name}.{condition(rng, table)}")


def ordered(rng, table, _tables):
    """By an index, forwards or backwards, from some place on."""
    exact = [c for c in table.columns if c.is_exact]
    if not exact:
        return None
    some = [c.name for c in rng.sample(exact, min(len(exact), rng.choice((1, 2))))]
    if table.has_id and rng.random() < 0.5:
        some.append("id")
    way = rng.choice(("", " DESC"))
    order = ", ".join(name + way for name in some)
    lock = rng.choice(("", "", "", " FOR UPDATE", " FOR UPDATE SKIP LOCKED", " LOCK IN SHARE MODE NOWAIT"))
    return (f"SELECT {', '.join(some)} FROM {table.name}{hint(rng, table)}{where(rng, table)} ORDER BY {order} "
            f"LIMIT {rng.randrange(1, 30)} OFFSET {rng.choice((0, 0, 3))}{lock}")


def grouped(rng, table, _tables):
    exact = [c for c in table.columns if c.is_exact]
    if not exact:
        return None
    some = ", ".join(c.name for c in rng.sample(exact, min(len(exact), 2)))
    what = "COUNT(*)"
    if table.has_id:
        what = rng.choice((what, "SUM(id)", "MIN(id), MAX(id)", "COUNT(DISTINCT id)", "GROUP_CONCAT(id ORDER BY id)"))
    rollup = rng.choice(("", "", " WITH ROLLUP"))
    return f"SELECT {some}, {what} FROM {table.name}{hint(rng, table)}{where(rng, table)} GROUP BY {some}{rollup}"


def prepared(rng, table, _tables):
    column = rng.choice(table.columns)
    return (f"EXECUTE IMMEDIATE 'SELECT * FROM {table.name}{hint(rng, table)} WHERE {column.name} {rng.choice(('=', '<', '>=', '<=>'))} ?' "
            f"USING {columns.value(rng, column)}")


def by_function(rng, table, tables):
    """A stored function reads for each row."""
    other = rng.choice(tables)
    if not table.has_id or not other.counter:
        return None
    return f"SELECT id, {other.counter}(id) FROM {table.name} WHERE {condition(rng, table)} ORDER BY id LIMIT 12"


def checksum(_rng, table, _tables):
    return f"SELECT {digest(table)} FROM {table.name}"


READS = (several_indexes, several_indexes, join, join, join_of_tables, window, combined, rows_of_values, correlated, semijoin,
         ordered, ordered, grouped, prepared, by_function, checksum)


def query(rng, table, tables):
    """One of them that the tables allow."""
    while True:
        text = rng.choice(READS)(rng, table, tables)
        if text:
            return text
