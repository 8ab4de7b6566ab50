"""A client whose transactions append to lists and read them, in as many ways as SQL has, and that notes what it did and saw."""

import dataclasses
import time

from pymysql import err

from private_server import Failure

from .history import Absent, History, Moment, Seen, values_of
from .tables import TABLES
from .worker import Worker

# The statement has failed, and with it its transaction is given up: a deadlock, a lock wait that was too long, a
# definition that changed after the snapshot.
GIVEN_UP = {1213, 1205, 1412}
# What XA statements then say: the transaction has been rolled back, or is in no state for this one.
GIVEN_UP_XA = {1399, 1402, 1614}
LEVELS = ("READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")
# At most as many, as values tell them apart.
CLIENTS = 50
REST_S = 0.05
# Rows with so many values are looked for.
LEAST_MOST = 30
LOCKING = (" FOR UPDATE", " LOCK IN SHARE MODE")
SKIPPING = " SKIP LOCKED"
HASTY = ("", "", " NOWAIT", SKIPPING)


@dataclasses.dataclass
class Running:
    """A transaction that is on."""

    level: str
    commit: Moment
    # Of its plain reads together.
    snapshot: Moment
    is_single: bool = False
    xid: str | None = None
    appended: list = dataclasses.field(default_factory=list)
    # Reads under locks count once it has committed.
    locked: list = dataclasses.field(default_factory=list)

    def own(self, row):
        """The values that it has appended to a row."""
        return [value for at, value in self.appended if at == row]


class Client(Worker):
    """Runs transactions until there have been enough of them."""

    def __init__(self, connection, rng, number, transactions, ended):
        super().__init__(f"client {number}", connection, rng, ended)
        self.number = number
        self.transactions = transactions
        self.history = History()
        self.values = 0
        self.on = None

    def work(self):
        for nth in range(self.transactions):
            if self.ended.is_set():
                break
            self.transaction(nth)

    def count(self, what):
        self.counts[what] += 1

    def execute(self, statement):
        """Rows of the statement."""
        with self.connection.cursor() as cursor:
            cursor.execute(statement)
            rows = cursor.fetchall()
        if self.on:
            self.on.commit.script.append(f"{statement}: {len(rows)} rows")
        return rows

    def transaction(self, nth):
        rng = self.rng
        level = rng.choice(LEVELS)
        name = f"{self.number}.{nth} ({level})"
        script = []
        self.on = Running(level, Moment(f"commit {name}", script=script), Moment(f"snapshot {name}", script=script))
        self.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
        try:
            if rng.random() < 0.15:
                self.single()
            else:
                self.on.xid = f"'{self.number}','{nth}'" if rng.random() < 0.15 else None
                self.several()
        except err.Error as error:
            if error.args[0] not in GIVEN_UP:
                raise
            self.count(f"given up ({error.args[0]})")
            self.give_up()

    def give_up(self):
        """Ends what an error has left of the transaction: a deadlock has taken all of it back, other errors only the statement."""
        for statement in (f"XA END {self.on.xid}", f"XA ROLLBACK {self.on.xid}") if self.on.xid else ("ROLLBACK",):
            try:
                self.execute(statement)
            except err.Error as error:
                if error.args[0] not in GIVEN_UP_XA:
                    raise

    def single(self):
        """One statement, which commits at once."""
        self.on.is_single = True
        self.on.commit.begin = time.monotonic_ns()
        self.rng.choice((self.append, self.read))()
        self.on.commit.end = time.monotonic_ns()
        self.keep()

    def several(self):
        """A transaction of some statements, which ends in one of the ways there are."""
        rng, on = self.rng, self.on
        on.snapshot.begin = time.monotonic_ns()
        self.begin()
        savepoint = None
        for nth in range(rng.randint(1, 6)):
            # A savepoint before all else would make a rollback to it one of the whole transaction, in any engine.
            what = rng.random() if nth else 0.85 * rng.random()
            if what < 0.45:
                self.append()
            elif what < 0.85:
                self.read()
            elif savepoint is None:
                self.execute("SAVEPOINT s")
                savepoint = len(on.appended)
            elif what < 0.92:
                # Others go on, and purge with them.
                time.sleep(rng.random() * REST_S)
            else:
                self.execute("ROLLBACK TO SAVEPOINT s")
                del on.appended[savepoint:]
                self.count("taken back to a savepoint")
        end = ["COMMIT"]
        if on.xid:
            self.execute(f"XA END {on.xid}")
            end = rng.choice(([f"XA COMMIT {on.xid} ONE PHASE"], [f"XA PREPARE {on.xid}", f"XA COMMIT {on.xid}"]))
        for statement in end[:-1]:
            self.execute(statement)
        if rng.random() < 0.15:
            self.execute(f"XA ROLLBACK {on.xid}" if on.xid else "ROLLBACK")
            self.count("rolled back")
            return
        on.commit.begin = time.monotonic_ns()
        self.execute(end[-1])
        on.commit.end = time.monotonic_ns()
        self.keep()

    def begin(self):
        rng, on = self.rng, self.on
        if on.xid:
            self.execute(f"XA START {on.xid}")
        elif on.level == "REPEATABLE READ" and rng.random() < 0.3:
            self.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            on.snapshot.end = time.monotonic_ns()
        else:
            self.execute("BEGIN")

    def keep(self):
        """The transaction has committed."""
        for row, value in self.on.appended:
            self.history.committed[row, value] = self.on.commit
        self.history.seen.extend(self.on.locked)
        self.count("committed")

    def append(self):
        """Appends a value to a row, or to a few."""
        rng, on = self.rng, self.on
        table, other = rng.sample(TABLES, 2)
        self.values += 1
        value = self.values * CLIENTS + self.number
        ids = table.some(rng, rng.choice((1, 1, 2, 3)))
        rows = table.rows(ids)
        kind = rng.random()
        if on.is_single or kind < 0.4:
            self.execute(table.append(rng, ids, value))
        elif kind < 0.5:
            self.execute(table.append_to_both(other, ids, value))
            rows += other.rows(ids)
        elif kind < 0.65:
            del rows[1:]
            self.execute(table.insert_or_append(ids[0], value))
        else:
            del rows[1:]
            _, [(_, each, n, text)] = self.see(table.by_ids(ids[:1]) + " FOR UPDATE", rows, is_locking=True)
            for statement in table.put(rng, each, f"{text}{value},", n + 1):
                self.execute(statement)
        on.appended.extend((row, value) for row in rows)
        self.count("appended")

    def read(self):
        rng, on = self.rng, self.on
        table, other = rng.sample(TABLES, 2)
        # Below SERIALIZABLE others may move entries of an index meanwhile, but not those of the primary key.
        if not on.is_single and rng.random() < 0.25:
            ids, hasty = table.some(rng, rng.randint(1, 8)), rng.choice(HASTY)
            self.see(table.by_ids(ids) + rng.choice(LOCKING) + hasty, None if hasty == SKIPPING else table.rows(ids), is_locking=True)
        else:
            is_locking = on.level == "SERIALIZABLE" and not on.is_single
            if rng.random() < 0.2:
                self.see_long(table, rng.randint(1, LEAST_MOST), is_locking)
            else:
                statement, rows = table.read(rng, other)
                self.see(statement, rows, is_locking)

    def see_long(self, table, least, is_locking):
        """Reads the rows with so many values or more, and notes which are not among them."""
        moment, rows = self.see(table.with_least(self.rng, least), None, is_locking)
        if moment:
            for row in {*table.all_rows()} - {row[:2] for row in rows}:
                if not self.on.own(row):
                    self.note(Absent(moment, row, least), is_locking)

    def see(self, statement, there, is_locking):
        """Reads rows (table's name, id, length, list or NULL), and notes what they are. `there`: which must be found, if that is known.
        Returns the moment at which they were read, none if that can't be told, and the rows."""
        on = self.on
        begin = time.monotonic_ns()
        rows = self.execute(statement)
        end = time.monotonic_ns()
        self.count("read under locks" if is_locking else "read")
        found = sorted(row[:2] for row in rows)
        if on.level == "READ UNCOMMITTED" and not is_locking:
            return None, rows
        if there is not None and found != sorted(there):
            raise Failure(f"{on.commit.what}: {statement} gave {found}, and there are {sorted(there)}")
        moment = self.moment(begin, end, is_locking)
        for name, each, length, text in rows:
            values = None if text is None else values_of(text)
            if values is not None and len(values) != length:
                raise Failure(f"{on.commit.what}: {statement} gave {length} and {text}")
            self.note(Seen(moment, (name, each), values, length, on.own((name, each))), is_locking)
        return moment, rows

    def moment(self, begin, end, is_locking):
        """When a statement reads that went on between these two times."""
        on = self.on
        if is_locking:
            return on.commit
        if on.level == "READ COMMITTED" or on.is_single:
            return Moment(f"statement of {on.commit.what}", begin, end, on.commit.script)
        on.snapshot.end = on.snapshot.end or end
        return on.snapshot

    def note(self, seen, is_locking):
        (self.on.locked if is_locking else self.history.seen).append(seen)
