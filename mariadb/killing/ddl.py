"""A client that changes definitions. After a crash a table is as it was before the statement that was cut
short, or as after it: definition, rows and binary log agree, and nothing else is left."""

from dataclasses import dataclass, replace

from private_server import Failure

from .load import Interrupted, Refused, Worker, brief

TABLES_AT_MOST = 7
EXTRA = "by_extra"


@dataclass(frozen=True)
class Definition:
    """A table, as far as it is looked at. `rows`: those of `id`, `a`, `b` and the added columns."""

    columns: tuple = ("id", "a", "b")
    wide: bool = False  # column `a` is a BIGINT
    indexes: frozenset = frozenset({"by_a"})
    parts: int = 0      # partitions; 0: none
    ranges: bool = False
    rows: frozenset = frozenset()


@dataclass
class Change:
    """A statement that is on: what there is if it was done, and how the binary log shows it."""

    sql: str
    after: dict
    mark: str
    # The server itself changes the table and writes the log one after the other, and ends only the
    # first at a start: TRUNCATE and changes of partitions. Of CREATE ... SELECT its log of
    # definitions may lack the transaction that it is in: then a start drops the table, though the
    # binary log has it.
    in_two_steps: bool = False
    # Whether the busy table has its extra index then, if that changes.
    has_extra: bool | None = None

    def apply(self, state):
        """Makes it part of the state."""
        state.tables = self.after
        if self.has_extra is not None:
            state.has_extra = self.has_extra


class Definer(Worker):
    """Changes tables of its own, one statement after the other, and an index of a busy table."""

    def __init__(self, server, rng, counts, state):
        super().__init__(server, rng, counts)
        self.state = state

    def step(self):
        change = self.choose()
        if not change:
            return
        self.state.doubt = change
        try:
            self.sql.run(change.sql)
            change.apply(self.state)
            self.count("definitions changed")
            self.state.marks.append(change.mark)
            self.state.doubt = None
        except Interrupted:
            self.settle(self.sql.surely)
        except Refused:
            self.count("refused definitions")
            self.state.doubt = None

    def settle(self, query):
        """The definitions are those before or after the statement that was killed."""
        change = self.state.doubt
        done = self.state.settle(definitions(query), has_extra(query))
        if change:
            self.count("killed definitions, done" if done else "killed definitions, not done")
            if done and not change.in_two_steps:
                self.state.marks.append(change.mark)
        self.state.doubt = None

    def choose(self):
        """The next statement."""
        tables = self.state.tables
        if not tables or (len(tables) < TABLES_AT_MOST and self.rng.random() < 0.25):
            return self.create()
        name = self.rng.choice(sorted(tables))
        kinds = [self.insert, self.insert, self.drop, self.rename, self.swap, self.truncate, self.add_index,
                 self.drop_index, self.add_column, self.copy, self.drop_column, self.add_part, self.drop_part,
                 self.create_from, self.extra]
        return self.rng.choice(kinds)(name, tables[name])

    def mark(self):
        self.state.sequence += 1
        return f"ddl {self.state.sequence}"

    def new_name(self):
        self.state.sequence += 1
        return f"d{self.state.sequence}"

    def change(self, name, sql, definition, **options):
        """A change of one table; `%s` in the statement is where its mark goes."""
        mark = self.mark()
        after = {**self.state.tables, name: definition}
        return Change(sql.replace("%s", f"/* {mark} */"), after, mark, **options)

    def create(self):
        name, way = self.new_name(), self.rng.randrange(3)
        parts = ["", " PARTITION BY HASH (id) PARTITIONS 2",
                 " PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (1000),"
                 " PARTITION p1 VALUES LESS THAN (2000))"][way]
        return self.change(
            name, f"CREATE %s TABLE load_2.{name} (id INT PRIMARY KEY, a INT, b VARCHAR(40), KEY by_a (a))"
            f" ENGINE=WEIR{parts}", Definition(parts=2 if way else 0, ranges=way == 2))

    def insert(self, name, was):
        top = 1000 * was.parts if was.ranges else 100_000
        ids = {row[0] for row in was.rows}
        free = [id for id in self.rng.sample(range(top), 60) if id not in ids][:self.rng.randint(1, 40)]
        if not free or len(ids) > 300:
            return None
        rows = [(id, id % 10, f"b{id}", *[7] * (len(was.columns) - 3)) for id in free]
        values = ", ".join(map(str, rows))
        return self.change(name, f"INSERT %s INTO load_2.{name} VALUES {values}",
                           replace(was, rows=was.rows | set(rows)))

    def drop(self, name, _was):
        after = {n: d for n, d in self.state.tables.items() if n != name}
        # The server words it anew, also when it ends it at a start.
        return Change(f"DROP TABLE load_2.{name}", after, f"`load_2`.`{name}` /* generated by")

    def rename(self, name, was):
        to, mark = self.new_name(), self.mark()
        after = {n: d for n, d in self.state.tables.items() if n != name} | {to: was}
        return Change(f"RENAME /* {mark} */ TABLE load_2.{name} TO load_2.{to}", after, mark)

    def swap(self, name, was):
        others = [n for n in self.state.tables if n != name]
        if not others:
            return None
        other, mark = self.rng.choice(others), self.mark()
        after = {**self.state.tables, name: self.state.tables[other], other: was}
        return Change(f"RENAME /* {mark} */ TABLE load_2.{name} TO load_2.between, load_2.{other} TO load_2.{name},"
                      f" load_2.between TO load_2.{other}", after, mark)

    def truncate(self, name, was):
        return self.change(name, f"TRUNCATE %s TABLE load_2.{name}", replace(was, rows=frozenset()),
                           in_two_steps=True)

    def add_index(self, name, was):
        index = f"by_b{self.rng.randrange(3)}"
        if index in was.indexes:
            return None
        kind = self.rng.choice(["INDEX", "UNIQUE INDEX"])
        return self.change(name, f"ALTER %s TABLE load_2.{name} ADD {kind} {index} (b, id)",
                           replace(was, indexes=was.indexes | {index}))

    def drop_index(self, name, was):
        if not was.indexes:
            return None
        index = self.rng.choice(sorted(was.indexes))
        return self.change(name, f"ALTER %s TABLE load_2.{name} DROP INDEX {index}",
                           replace(was, indexes=was.indexes - {index}))

    def add_column(self, name, was):
        if len(was.columns) > 8:
            return None
        column = f"c{self.mark()[4:]}"
        rows = frozenset((*row, 7) for row in was.rows)
        return self.change(name, f"ALTER %s TABLE load_2.{name} ADD COLUMN {column} INT NOT NULL DEFAULT 7",
                           replace(was, columns=(*was.columns, column), rows=rows))

    def copy(self, name, was):
        to = "INT" if was.wide else "BIGINT"
        return self.change(name, f"ALTER %s TABLE load_2.{name} MODIFY a {to}", replace(was, wide=not was.wide))

    def drop_column(self, name, was):
        if len(was.columns) < 4:
            return None
        column = was.columns[-1]
        return self.change(name, f"ALTER %s TABLE load_2.{name} DROP COLUMN {column}",
                           replace(was, columns=was.columns[:-1], rows=frozenset(r[:-1] for r in was.rows)))

    def add_part(self, name, was):
        if not was.parts or was.parts > 5:
            return None
        more = (f"(PARTITION p{was.parts} VALUES LESS THAN ({1000 * (was.parts + 1)}))" if was.ranges
                else "PARTITIONS 1")
        return self.change(name, f"ALTER %s TABLE load_2.{name} ADD PARTITION {more}",
                           replace(was, parts=was.parts + 1), in_two_steps=True)

    def drop_part(self, name, was):
        if was.parts < 2:
            return None
        if not was.ranges:
            return self.change(name, f"ALTER %s TABLE load_2.{name} COALESCE PARTITION 1",
                               replace(was, parts=was.parts - 1), in_two_steps=True)
        kept = frozenset(row for row in was.rows if row[0] < 1000 * (was.parts - 1))
        return self.change(name, f"ALTER %s TABLE load_2.{name} DROP PARTITION p{was.parts - 1}",
                           replace(was, parts=was.parts - 1, rows=kept), in_two_steps=True)

    def create_from(self, name, was):
        if len(self.state.tables) >= TABLES_AT_MOST:
            return None
        to = self.new_name()
        made = Definition(wide=was.wide, indexes=frozenset(), rows=frozenset(row[:3] for row in was.rows))
        return Change(f"CREATE TABLE load_2.{to} (PRIMARY KEY (id)) ENGINE=WEIR SELECT id, a, b FROM load_2.{name}",
                      {**self.state.tables, to: made}, f"CREATE TABLE `load_2`.`{to}`", in_two_steps=True)

    def extra(self, _name, _was):
        """An index of a table that others write to."""
        has, mark = self.state.has_extra, self.mark()
        what = f"DROP INDEX {EXTRA}" if has else f"ADD INDEX {EXTRA} (n, name)"
        return Change(f"ALTER /* {mark} */ TABLE load_1.items {what}", self.state.tables, mark, has_extra=not has)


def definitions(query):
    """The tables of the definitions' client as they are."""
    columns, indexes, parts = {}, {}, {}
    for name, column, kind in query(
            "SELECT table_name, column_name, data_type FROM information_schema.columns"
            " WHERE table_schema = 'load_2' ORDER BY table_name, ordinal_position"):
        columns.setdefault(name, []).append((column, kind))
    for name, index in query(
            "SELECT DISTINCT table_name, index_name FROM information_schema.statistics"
            " WHERE table_schema = 'load_2' AND index_name <> 'PRIMARY'"):
        indexes.setdefault(name, set()).add(index)
    for name, method in query(
            "SELECT table_name, partition_method FROM information_schema.partitions"
            " WHERE table_schema = 'load_2' AND partition_name IS NOT NULL"):
        parts.setdefault(name, []).append(method)
    return {name: Definition(
        columns=tuple(column for column, _ in of), wide=("a", "bigint") in of,
        indexes=frozenset(indexes.get(name, ())), parts=len(parts.get(name, ())),
        ranges="RANGE" in parts.get(name, ()),
        rows=frozenset(query(f"SELECT * FROM load_2.{name}"))) for name, of in columns.items()}


def has_extra(query):
    """Whether the busy table has its extra index."""
    return bool(query("SELECT 1 FROM information_schema.statistics WHERE table_schema = 'load_1'"
                      f" AND table_name = 'items' AND index_name = '{EXTRA}'"))


def different(expected, found):
    """The first definition that isn't as expected."""
    for name in sorted(set(expected) | set(found)):
        if expected.get(name) != found.get(name):
            return f"{name}: expected {brief(repr(expected.get(name)))}, found {brief(repr(found.get(name)))}"
    return "the extra index"


class State:
    """What the tables of the definitions' client are, and what it is at."""

    def __init__(self):
        self.tables = {}
        self.has_extra = False
        self.sequence = 0
        self.doubt = None
        self.marks = []

    def settle(self, found, found_extra):
        """Definitions are those before or after the statement in doubt, which is done in the second case. Says whether."""
        if found == self.tables and found_extra == self.has_extra:
            return False
        is_done = self.doubt is not None and found == self.doubt.after and found_extra == (
            self.has_extra if self.doubt.has_extra is None else self.doubt.has_extra)
        if not is_done:
            raise Failure(f"definitions: {different(self.tables, found)};"
                          f" in doubt: {self.doubt.sql if self.doubt else 'nothing'}")
        self.doubt.apply(self)
        return True
