"""Changes of definitions, each cut short by kill -9 at each of its steps. Afterwards everything is as before, or as
after a whole one: definitions, rows, the engine's tables, and files."""

import shutil
import subprocess
from dataclasses import dataclass

import pymysql

from private_server import HERE

DATABASE = "steps"
ROWS = 300
# A kill that comes later than the statement: so often in a row, then all its steps have been seen.
LATE_AT_END = 3
STEPS_MAX = 2000

PLAIN = "CREATE TABLE {0} (id INT PRIMARY KEY, a INT, b VARCHAR(100), KEY by_b (b))"
FILL = ("INSERT INTO {0} SELECT seq, seq % 10, REPEAT(CHAR(97 + seq % 26), 50)"
        f" FROM seq_1_to_{ROWS}")
RANGES = (PLAIN + " PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (100),"
          " PARTITION p1 VALUES LESS THAN (200), PARTITION p2 VALUES LESS THAN (1000))")
SUB = (PLAIN + " PARTITION BY RANGE (id) SUBPARTITION BY HASH (id) SUBPARTITIONS 2"
       " (PARTITION p0 VALUES LESS THAN (100), PARTITION p1 VALUES LESS THAN (1000))")
HASHED = PLAIN + " PARTITION BY HASH (id) PARTITIONS 3"


def made(*definitions):
    """Statements that make tables t, u, ... with rows."""
    return [way.replace("{0}", name) for name, of in zip("tuv", definitions) for way in (of, FILL)]


# Statements that make tables, and the one that is cut short. Not among them, since the server
# leaves something between whatever the engine: DROP DATABASE, which goes table by table; CREATE ...
# LIKE a table with partitions, whose definition may be half written; and an ALTER that gives
# partitions to another engine, which must rename them by itself.
CHANGES = [
    ([], PLAIN.replace("{0}", "t")),
    ([], RANGES.replace("{0}", "t")),
    (made(PLAIN), "CREATE TABLE u SELECT * FROM t"),
    # It fails at its last row.
    (made(PLAIN), f"CREATE TABLE u (UNIQUE KEY by_c (c)) SELECT id, a, b, id % {ROWS} AS c FROM t UNION ALL SELECT 0, 0, '', 0"),
    (made(PLAIN), RANGES.replace("{0}", "u") + f" SELECT * FROM t UNION ALL SELECT {ROWS}, 0, ''"),
    (made(PLAIN), "CREATE OR REPLACE TABLE t (k INT PRIMARY KEY)"),
    (made(RANGES), "CREATE OR REPLACE TABLE t (k INT PRIMARY KEY)"),
    (made(PLAIN, PLAIN), "CREATE OR REPLACE TABLE t LIKE u"),
    (made(PLAIN), "ALTER TABLE t ADD KEY by_a (a), ADD UNIQUE KEY by_id (b, id)"),
    (made(PLAIN), "ALTER TABLE t DROP KEY by_b, ADD KEY by_a (a)"),
    (made(PLAIN), "ALTER TABLE t RENAME KEY by_b TO by_a, MODIFY b VARCHAR(300), ADD KEY by_b (a)"),
    (made(PLAIN), "ALTER TABLE t MODIFY a BIGINT"),
    (made(PLAIN), "ALTER TABLE t MODIFY a BIGINT, RENAME TO u"),
    (made(PLAIN), "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (b, id)"),
    (made(PLAIN), "ALTER TABLE t ADD COLUMN c INT NOT NULL DEFAULT 5"),
    (made(PLAIN), "ALTER TABLE t DROP COLUMN a"),
    (made(PLAIN), "ALTER TABLE t ADD COLUMN c TEXT DEFAULT 'new' FIRST, MODIFY a INT AFTER b, ADD KEY by_a (a)"),
    (made(PLAIN), "ALTER TABLE t ENGINE={other}"),
    (made(PLAIN + " ENGINE={other}"), "ALTER TABLE t ENGINE={engine}"),
    (made(PLAIN), "ALTER TABLE t PARTITION BY HASH (id) PARTITIONS 3"),
    (made(PLAIN), "OPTIMIZE TABLE t"),
    (made(PLAIN), "TRUNCATE TABLE t"),
    (made(PLAIN), "DROP TABLE t"),
    (made(PLAIN, PLAIN), "DROP TABLE t"),
    (made(PLAIN), "RENAME TABLE t TO u, u TO v"),
    (made(RANGES), "ALTER TABLE t ADD KEY by_a (a)"),
    (made(RANGES), "ALTER TABLE t DROP KEY by_b, ADD KEY by_b (a, b), ADD UNIQUE KEY by_id (b, id)"),
    (made(RANGES), "ALTER TABLE t ADD COLUMN c INT NOT NULL DEFAULT 5"),
    (made(RANGES), "ALTER TABLE t DROP COLUMN a, ADD COLUMN c INT FIRST"),
    (made(RANGES), "ALTER TABLE t RENAME KEY by_b TO by_a, MODIFY b VARCHAR(300)"),
    (made(RANGES), "ALTER TABLE t MODIFY a BIGINT"),
    (made(RANGES), "ALTER TABLE t MODIFY a BIGINT, RENAME TO u"),
    (made(RANGES), "ALTER TABLE t REORGANIZE PARTITION p2 INTO (PARTITION p2 VALUES LESS THAN (500),"
                   " PARTITION p3 VALUES LESS THAN (5000))"),
    (made(RANGES), "ALTER TABLE t ADD PARTITION (PARTITION p3 VALUES LESS THAN (5000))"),
    (made(RANGES), "ALTER TABLE t DROP PARTITION p0, p1"),
    (made(RANGES), "ALTER TABLE t TRUNCATE PARTITION p0, p1"),
    (made(RANGES), "ALTER TABLE t CONVERT PARTITION p1 TO TABLE u"),
    (made(RANGES, PLAIN) + ["UPDATE u SET id = id + 1000"],
     "ALTER TABLE t CONVERT TABLE u TO PARTITION p3 VALUES LESS THAN (5000)"),
    (made(RANGES), "ALTER TABLE t REBUILD PARTITION p0, p1"),
    (made(HASHED), "ALTER TABLE t COALESCE PARTITION 1"),
    (made(HASHED), "ALTER TABLE t ADD PARTITION PARTITIONS 1"),
    (made(RANGES), "ALTER TABLE t REMOVE PARTITIONING"),
    (made(RANGES), "TRUNCATE TABLE t"),
    (made(RANGES), "DROP TABLE t"),
    (made(RANGES), "RENAME TABLE t TO u"),
    (made(RANGES), "ALTER TABLE t RENAME TO u"),
    (made(RANGES), "RENAME TABLE t TO other.t"),
    (made(RANGES, RANGES), "RENAME TABLE t TO w, u TO t, w TO u"),
    (made(SUB), "RENAME TABLE t TO u"),
    (made(SUB), "ALTER TABLE t TRUNCATE PARTITION p0"),
    (made(SUB), "TRUNCATE TABLE t"),
    (made(RANGES, PLAIN) + ["DELETE FROM u WHERE id >= 100"], "ALTER TABLE t EXCHANGE PARTITION p0 WITH TABLE u"),
]


@dataclass
class Case:
    """One change of definitions."""

    make: list
    sql: str
    before: dict = None
    # The server's manual allows that a CREATE OR REPLACE leaves no table.
    between: dict = None
    after: dict = None


class Steps:
    """Kills a server at each step of each change."""

    def __init__(self, server, engine, rng, counts):
        self.server, self.engine, self.rng, self.counts = server, engine, rng, counts
        self.other = "InnoDB" if engine.upper() == "WEIR" else "WEIR"
        self.arm_dir = server.dir / "arm"
        self.connection = None

    def build(self):
        """The library that counts steps."""
        library = self.server.dir / "steps.so"
        source = HERE / "killing" / "steps.c"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Wno-nonnull-compare", "-o", str(library),
                        str(source), "-ldl"], check=True)
        self.arm_dir.mkdir()
        return library

    def run(self, sql):
        with self.connection.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchall()

    def change(self, sql):
        """Runs the change: it may fail."""
        try:
            self.run(sql)
        except pymysql.err.IntegrityError:
            pass

    def start(self):
        self.server.launch(self.rng)
        self.connection = self.server.wait_until_ready()

    def arm(self, step):
        """Has the server killed at that step from now on."""
        path = self.arm_dir / f"kill-at-{step}"
        path.unlink(missing_ok=True)
        self.run(f"SELECT 1 INTO OUTFILE '{path}'")

    def make(self, case):
        """What there is before the change."""
        for name in (DATABASE, "other"):
            self.run(f"DROP DATABASE IF EXISTS {name}")
        for name in ("other", DATABASE):
            self.run(f"CREATE DATABASE {name}")
        self.connection.select_db(DATABASE)
        for sql in case.make:
            self.run(sql)

    def clear(self):
        """Takes away what a kill has left that should not be there."""
        for name in (DATABASE, "other"):
            try:
                self.run(f"DROP DATABASE IF EXISTS {name}")
            except pymysql.err.MySQLError:
                shutil.rmtree(self.server.data / name)

    def state(self):
        """Definitions, rows, the engine's tables and files."""
        state = {"files": set(), "engine": set(self.engine_tables())}
        for name in (DATABASE, "other"):
            directory = self.server.data / name
            if directory.exists():
                state["files"] |= {f"{name}/{path.name}" for path in directory.iterdir()}
        for schema, name in self.run("SELECT table_schema, table_name FROM information_schema.tables"
                                     f" WHERE table_schema IN ('{DATABASE}', 'other')"):
            table = f"`{schema}`.`{name}`"
            try:
                created = self.run(f"SHOW CREATE TABLE {table}")[0][1]
                says = [row[3] for row in self.run(f"CHECK TABLE {table} EXTENDED")]
                state[table] = (created, says, frozenset(self.run(f"SELECT * FROM {table}")))
            except pymysql.err.MySQLError as error:
                state[table] = str(error)
        return state

    def engine_tables(self):
        if self.engine.upper() == "INNODB":
            return [name for name, in self.run("SELECT name FROM information_schema.innodb_sys_tables"
                                               f" WHERE name LIKE '{DATABASE}/%' OR name LIKE 'other/%'")]
        return [f"{schema}/{name}" for schema, name in self.run(
            "SELECT DISTINCT table_schema, table_name FROM information_schema.weir_index_stats"
            f" WHERE table_schema IN ('{DATABASE}', 'other')")]

    def learn(self, case):
        """Sees what the change does when nobody disturbs it."""
        self.make(case)
        if "OR REPLACE" in case.sql:
            self.run("DROP TABLE t")
            case.between = self.state()
            self.make(case)
        case.before = self.state()
        self.change(case.sql)
        case.after = self.state()

    def cut_short(self, case, step):
        """Has the change cut short; false if it came to its end first."""
        self.make(case)
        try:
            self.arm(step)
            self.change(case.sql)
            self.arm(0)
            return False
        except (pymysql.err.OperationalError, pymysql.err.InterfaceError):
            self.server.process.wait()
            return True

    def judge(self, case, step):
        """What is wrong after the restart, or None."""
        complaints = self.server.complaints()
        found = self.state()
        if found == case.before:
            self.count("as before")
        elif found == case.after:
            self.count("as after")
        elif found == case.between:
            self.count("between, as the server's manual has it")
        else:
            return f"step {step}: {difference(case, found)}" + "".join(f"\n    {line}" for line in complaints[:5])
        if complaints:
            return f"step {step}: the error log says: " + "; ".join(complaints[:5])
        return None

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    def each_step(self, make, sql, stride):
        """Kills at each step, or at each `stride`-th beginning with a random one; what went wrong."""
        named = [text.replace("{engine}", self.engine).replace("{other}", self.other) for text in (*make, sql)]
        case = Case(named[:-1], named[-1])
        self.learn(case)
        wrong, late, step = [], 0, 1 + self.rng.randrange(stride)
        while late < LATE_AT_END and step < STEPS_MAX:
            if self.cut_short(case, step):
                late = 0
                self.start()
                problem = self.judge(case, step)
                if problem:
                    wrong.append(problem)
                    self.clear()
                    self.server.log_kept = self.server.dir / f"log-{len(wrong)}"
                    (self.server.dir / "log.before").rename(self.server.log_kept)
            else:
                late += 1
            step += stride
        return wrong, step


def difference(case, found):
    """What is neither as before nor as after."""
    out = []
    for name in sorted({*case.before, *case.after, *found}):
        states = [state.get(name) for state in (case.before, case.after, found)]
        if states[2] in states[:2] and states[0] == states[1]:
            continue
        if isinstance(states[2], set):
            out.append(f"{name}: {sorted(states[2])}")
        elif states[2] in states[:2]:
            out.append(f"{name} as {'before' if states[2] == states[0] else 'after'}")
        elif isinstance(states[2], tuple):
            out.append(f"{name}: {states[2][1]}, {len(states[2][2])} rows, {states[2][0]}")
        else:
            out.append(f"{name}: {states[2]}")
    return "; ".join(out)

