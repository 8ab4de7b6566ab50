"""A client whose statements take long enough to be killed in their middle: scans, sorts, joins, changes of many rows at once,
and of definitions that copy rows or build indexes. Each is done whole or not at all."""

import os

from private_server import Failure

from .load import Interrupted, Refused, Worker, brief

ROWS = 3000
NO_TABLE = 1146
DEFINITION = ("(id INT PRIMARY KEY, a INT NOT NULL, b INT NOT NULL, c VARCHAR(100), KEY by_a (a), KEY by_b (b), KEY by_c (c))"
              " ENGINE=WEIR")
PARTITIONS = " PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (1000), PARTITION p1 VALUES LESS THAN MAXVALUE)"


def rows_at_first():
    """Rows by their id: `a` and `b`."""
    return {id: (id % 50, id % 71) for id in range(ROWS)}


def statements_of_creation():
    """Makes the tables."""
    yield "CREATE DATABASE load_3"
    for name in ("big", "other", "copy"):
        yield f"CREATE TABLE load_3.{name} {DEFINITION}"
    yield f"CREATE TABLE load_3.parts {DEFINITION}{PARTITIONS}"
    for name in ("big", "other", "parts"):
        yield (f"INSERT INTO load_3.{name} SELECT seq, seq % 50, seq % 71, CONCAT('text ', seq * 7919 % {ROWS})"
               f" FROM load_3.seq_0_to_{ROWS - 1}")


class State:
    """What the tables hold; and what they do if the statement in doubt was done."""

    def __init__(self):
        self.tables = {name: rows_at_first() for name in ("big", "other", "parts")} | {"copy": {}}
        self.doubt = None

    def settle(self, query):
        """The tables are as before or as after the statement in doubt. Says whether it was done."""
        found = {name: fingerprint_of_table(query, name) for name in self.tables}
        if found == fingerprints(self.tables):
            done = False
        elif self.doubt and found == fingerprints(self.doubt):
            self.tables, done = self.doubt, True
        else:
            raise Failure(f"long statements: found {found}, expected {fingerprints(self.tables)}"
                          f"{', or ' + str(fingerprints(self.doubt)) if self.doubt else ''}")
        self.doubt = None
        return done


def fingerprint_of_table(query, name):
    """As of `fingerprints`; `None` if there is no such table."""
    if not query(f"SELECT 1 FROM information_schema.tables WHERE table_schema = 'load_3' AND table_name = '{name}'"):
        return None
    got = query("SELECT COUNT(*), SUM(id), SUM(a), SUM(b), SUM(id * a % 1009), SUM(id * b % 1013)"
                f" FROM load_3.{name} FORCE INDEX (PRIMARY)")
    return tuple(int(n or 0) for n in got[0])


def fingerprints(tables):
    """What tells tables from others, by name."""
    return {name: None if rows is None else fingerprint(rows) for name, rows in tables.items()}


def fingerprint(rows):
    """Number of rows, and sums."""
    sums = [0] * 6
    for id, (a, b) in rows.items():
        for n, value in enumerate((1, id, a, b, id * a % 1009, id * b % 1013)):
            sums[n] += value
    return tuple(sums)


def sums_of(ids):
    return (len(ids), sum(ids))


class Long(Worker):
    """Runs one such statement after the other."""

    def __init__(self, server, rng, counts, state):
        super().__init__(server, rng, counts)
        self.state = state
        self.file = server.dir / "rows.txt"
        if not self.file.exists():
            self.file.write_text("".join(f"{id}\t{a}\t{b}\ttext {id}\n" for id, (a, b) in rows_at_first().items()))
            os.chmod(self.file, 0o644)

    def settle(self, query):
        self.state.settle(query)

    def step(self):
        what = self.rng.choice([self.read, self.read, self.change, self.change, self.define, self.care, self.take_back])
        try:
            what()
        except Interrupted:
            self.count(f"killed: {what.__name__}")
            self.sql.surely("ROLLBACK")
            self.sql.surely("UNLOCK TABLES")
            self.settle(self.sql.surely)
        except Refused:
            self.sql.surely("ROLLBACK")
            self.settle(self.sql.surely)

    def read(self):
        """What it gives must be right."""
        big = self.state.tables["big"]
        kinds = {
            "SELECT COUNT(*), SUM(a) FROM load_3.big IGNORE INDEX (by_a, by_b, by_c)":
                lambda: (len(big), sum(a for a, _ in big.values())),
            "SELECT COUNT(*), SUM(b) FROM (SELECT b FROM load_3.big ORDER BY REVERSE(c), b LIMIT 100000) AS sorted":
                lambda: (len(big), sum(b for _, b in big.values())),
            "SELECT COUNT(*), SUM(x.a) FROM load_3.big x JOIN load_3.other y ON x.id = y.id":
                lambda: (len(self.both()), sum(big[id][0] for id in self.both())),
            "SELECT COUNT(*), SUM(id) FROM load_3.big FORCE INDEX (by_a, by_b) WHERE a = 7 OR b = 5":
                lambda: sums_of([id for id, (a, b) in big.items() if a == 7 or b == 5]),
            "SELECT COUNT(*), SUM(id) FROM load_3.big FORCE INDEX (by_c) WHERE c > '' LOCK IN SHARE MODE":
                lambda: sums_of(big),
        }
        sql = self.rng.choice(list(kinds))
        count, total = self.sql.run(sql)[0]
        if (count, int(total or 0)) != kinds[sql]():
            raise Failure(f"{sql}: found {count}, {total}, expected {kinds[sql]()}")
        self.count("long reads")

    def both(self):
        return self.state.tables["big"].keys() & self.state.tables["other"].keys()

    def do(self, sql, **changes):
        """A statement, and what the tables that it changes hold then."""
        self.state.doubt = {**self.state.tables, **changes}
        self.sql.run(sql)
        self.state.tables, self.state.doubt = self.state.doubt, None

    def change(self):
        tables = self.state.tables
        big, other, copy = tables["big"], tables["other"], tables["copy"]
        kind = self.rng.randrange(7)
        n = self.rng.randrange(7)
        if copy is None or kind == 0:
            self.fill()
        elif kind == 1:
            self.do("DELETE FROM load_3.copy", copy={})
        elif kind == 2:
            self.do(f"UPDATE load_3.big SET a = a + 1 WHERE b % 7 <> {n}",
                    big={id: (a + (b % 7 != n), b) for id, (a, b) in big.items()})
        elif kind == 3:
            self.do("UPDATE load_3.big x JOIN load_3.other y ON x.id = y.id SET x.b = x.b + 1, y.a = y.a + 2",
                    big={id: (a, b + (id in other)) for id, (a, b) in big.items()},
                    other={id: (a + 2 * (id in big), b) for id, (a, b) in other.items()})
        elif kind == 4:
            self.do(f"DELETE load_3.big, load_3.other FROM load_3.big JOIN load_3.other ON big.id = other.id WHERE big.id % 7 = {n}",
                    big={id: r for id, r in big.items() if id % 7 != n or id not in other},
                    other={id: r for id, r in other.items() if id % 7 != n or id not in big})
        elif kind == 5:
            self.do(f"REPLACE INTO load_3.big SELECT seq, 1, 2, 'text' FROM load_3.seq_0_to_{ROWS - 1}",
                    big={id: (1, 2) for id in range(ROWS)})
        else:
            self.do(f"INSERT IGNORE INTO load_3.other SELECT seq, 3, 4, 'text' FROM load_3.seq_0_to_{ROWS - 1}",
                    other={id: other.get(id, (3, 4)) for id in range(ROWS)})
        self.count("long changes")

    def fill(self):
        """The table `copy` gets rows in one way or another."""
        if self.state.tables["copy"] is None:
            self.do(f"CREATE TABLE load_3.copy {DEFINITION} SELECT * FROM load_3.big",
                    copy=self.state.tables["big"])
        elif self.state.tables["copy"]:
            self.do("TRUNCATE TABLE load_3.copy", copy={})
        elif self.rng.random() < 0.5:
            self.do("INSERT INTO load_3.copy SELECT * FROM load_3.big", copy=self.state.tables["big"])
        else:
            self.do(f"LOAD DATA INFILE '{self.file}' INTO TABLE load_3.copy", copy=rows_at_first())

    def define(self):
        """Definitions change; some rows change places with others."""
        parts, copy = self.state.tables["parts"], self.state.tables["copy"]
        kind = self.rng.randrange(6)
        if kind == 0 and copy is not None:
            self.do("DROP TABLE load_3.copy", copy=None)
        elif kind == 1 and copy is not None and all(id < 1000 for id in copy):
            self.do("ALTER TABLE load_3.parts EXCHANGE PARTITION p0 WITH TABLE load_3.copy",
                    parts={id: r for id, r in parts.items() if id >= 1000} | copy,
                    copy={id: r for id, r in parts.items() if id < 1000})
        elif kind == 2:
            self.do("ALTER TABLE load_3.parts TRUNCATE PARTITION p0", parts={id: r for id, r in parts.items() if id >= 1000})
        else:
            # A partition changes places with a table of the same definition only.
            table = self.rng.choice(("big", "other"))
            self.do(self.rng.choice((
                f"ALTER TABLE load_3.{table} FORCE", "ALTER TABLE load_3.parts FORCE",
                f"ALTER TABLE load_3.{table} ADD KEY IF NOT EXISTS extra (c, b, a)",
                f"ALTER TABLE load_3.{table} ADD UNIQUE KEY IF NOT EXISTS extra (c, id)",
                f"ALTER TABLE load_3.{table} DROP KEY IF EXISTS extra",
                f"ALTER TABLE load_3.{table} MODIFY a INT NOT NULL, ALGORITHM=COPY",
                "ALTER TABLE load_3.parts REBUILD PARTITION p1",
                "ALTER TABLE load_3.parts REORGANIZE PARTITION p0 INTO (PARTITION p0 VALUES LESS THAN (1000))",
                f"OPTIMIZE TABLE load_3.{table}")))
        self.count("long changes of definitions")

    def care(self):
        """Statements that look after tables."""
        table = self.rng.choice(("big", "other", "parts"))
        sql = self.rng.choice((f"CHECK TABLE load_3.{table} EXTENDED", f"ANALYZE TABLE load_3.{table} PERSISTENT FOR ALL",
                               f"FLUSH TABLES load_3.{table}", "FLUSH TABLES WITH READ LOCK",
                               f"FLUSH TABLES load_3.{table} WITH READ LOCK"))
        for _, _, kind, text in self.sql.run(sql) or ():
            if kind == "error" or "orrupt" in text:
                raise Failure(f"{sql}: {kind}: {text}")
        if "READ LOCK" in sql:
            self.sql.surely("UNLOCK TABLES")
        self.count("tables looked after")

    def take_back(self):
        """A large transaction that is rolled back, or waits for locks meanwhile."""
        self.sql.run("BEGIN")
        self.sql.run(self.rng.choice((
            "UPDATE load_3.big SET a = a + 1, c = REVERSE(c)", "DELETE FROM load_3.other",
            f"INSERT INTO load_3.big SELECT seq, 1, 2, 'more' FROM load_3.seq_{ROWS}_to_{2 * ROWS}",
            "SELECT COUNT(*) FROM load_3.big FORCE INDEX (by_a) WHERE a >= 0 FOR UPDATE")))
        self.sql.surely("ROLLBACK")
        self.count("taken back")


class Locker(Worker):
    """Locks rows that `Long` changes, for a moment: it has to wait."""

    def step(self):
        try:
            self.sql.run("BEGIN")
            self.sql.run(f"SELECT COUNT(*) FROM load_3.big WHERE id BETWEEN {self.rng.randrange(ROWS)} AND {ROWS} FOR UPDATE")
            self.sql.run(f"SELECT SLEEP({self.rng.uniform(0, 0.1):.3f})")
        except Refused:
            pass
        self.sql.surely("ROLLBACK")
        self.sql.surely(f"DO SLEEP({self.rng.uniform(0, 0.3):.3f})")
