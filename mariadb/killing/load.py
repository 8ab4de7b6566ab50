"""Clients that change their rows until the server is gone. Their statements and connections may be killed."""

import threading
import time

import pymysql

from private_server import PATIENCE_S, Failure

from .model import ACCOUNTS, OWNED, TABLES, difference

DUPLICATE, LOCK_TIMEOUT, DEADLOCK, INTERRUPTED = 1062, 1205, 1213, 1317
RESET_CONNECTION = 0x1F
RETRIED = {LOCK_TIMEOUT, DEADLOCK}
# Nobody listens any more, or the server ends.
NO_SERVER = {2002, 2003, 1053}
WORDS = "ash birch cedar elm fir hazel larch maple oak pine rowan willow yew".split()


class Gone(Exception):
    """The connection is lost: it was killed, or the server."""


class NoServer(Gone):
    """The server isn't there any more."""


class Refused(Exception):
    """The server has rolled the transaction back, or the statement could not have its lock."""


class Interrupted(Refused):
    """The statement was killed: it has done nothing."""


class Connection:
    """A connection that tells a server that is gone from one that says no."""

    def __init__(self, server):
        self.server = server
        try:
            self.connection = server.connect()
        except pymysql.err.OperationalError as error:
            raise (NoServer if error.args[0] in NO_SERVER else Gone) from error
        except (pymysql.err.Error, OSError, IndexError, ValueError) as error:
            raise Gone from error
        self.id = self.connection.thread_id()
        self.last_id = 0

    def run(self, sql, allowed=()):
        """Runs a statement; gives its rows, or the code of an error that is allowed."""
        kills = self.server.kills_ended[self.id]
        try:
            with self.connection.cursor() as cursor:
                changed = cursor.execute(sql)
                self.last_id, rows = cursor.lastrowid, cursor.fetchall()
            # Whatever the engine: a DELETE that is killed while the server plans it is answered
            # like one that found no row, a CHECK of partitions like one that failed, and a CHECK or
            # ANALYZE whose table is just being opened like one of a corrupt table.
            tells = ("returned error", "Query execution was interrupted")
            cut_short = (changed == 0 if sql.startswith("DELETE") else
                         sql.startswith(("CHECK", "ANALYZE")) and any(row[-1].endswith(tells) for row in rows))
            if cut_short and self.server.kills_begun[self.id] > kills:
                raise Interrupted(INTERRUPTED)
            return rows
        except pymysql.err.InterfaceError as error:
            raise Gone from error
        except pymysql.err.MySQLError as error:
            code = error.args[0] if error.args else 0
            if code in (2006, 2013, 2014, 1927, 1053, 1152) or not isinstance(code, int) or code == 0:
                raise Gone from error
            if code in allowed:
                return code
            if code in RETRIED:
                raise Refused(code) from error
            if code == INTERRUPTED:
                raise Interrupted(code) from error
            raise Failure(f"{brief(sql)}: {error}") from error
        except (OSError, AttributeError, ValueError, IndexError) as error:
            raise Gone from error

    def surely(self, sql):
        """Runs a statement, again and again if it is killed or can't have its lock."""
        while True:
            try:
                return self.run(sql)
            except Refused:
                pass

    def reset(self):
        """As a pool of connections does it before somebody else gets the connection."""
        try:
            # pylint: disable=protected-access
            self.connection._execute_command(RESET_CONNECTION, b"")
            self.connection._read_ok_packet()
        except (pymysql.err.Error, OSError, AttributeError, ValueError, IndexError) as error:
            raise Gone from error

    def close(self):
        try:
            self.connection.close()
        except (pymysql.err.Error, OSError):
            pass


def brief(sql):
    return sql if len(sql) < 300 else sql[:300] + "..."


class Worker(threading.Thread):
    """What all kinds of clients have: they go on until the server is gone or something is wrong."""

    def __init__(self, server, rng, counts):
        super().__init__(daemon=True)
        self.server, self.rng, self.counts = server, rng, counts
        self.sql = None
        self.connections = []
        self.failure = None

    def run(self):
        try:
            while True:
                try:
                    self.begin_anew()
                    while True:
                        self.step()
                except Gone as gone:
                    if isinstance(gone, NoServer):
                        break
        except Failure as failure:
            self.failure = str(failure)
        except Exception as error:  # pylint: disable=broad-except
            self.failure = f"{type(self).__name__}: {error!r}"

    def connect(self):
        """A connection, of which nothing is left when the next begins anew."""
        connection = Connection(self.server)
        self.connections.append(connection)
        return connection

    def begin_anew(self):
        """Connects, and finds out what became of that to which no answer came."""
        for lost in self.connections:
            lost.close()
        self.sql = Connection(self.server)
        ids = ", ".join(str(lost.id) for lost in self.connections) or "0"
        began = time.monotonic()
        while self.sql.surely(f"SELECT 1 FROM information_schema.processlist WHERE id IN ({ids})"):
            if time.monotonic() - began > PATIENCE_S:
                raise Failure(f"connections {ids} are killed, and still there after {PATIENCE_S} s")
            time.sleep(0.002)
        self.connections = [self.sql]
        self.settle(self.sql.surely)

    def settle(self, query):
        """Nothing is in doubt afterwards."""

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1


class Client(Worker):
    """Runs transactions over a client's own rows and the accounts."""

    def __init__(self, server, rng, counts, number, state, issued):
        super().__init__(server, rng, counts)
        self.number = number
        # Values of AUTO_INCREMENT that rows had which were committed: none may come again.
        self.issued = issued
        self.state = state
        self.doubt = None

    def settle(self, query):
        """The rows are those before or after what is in doubt."""
        found = {}
        for name in OWNED:
            table = TABLES[name]
            at = table.positions()
            rows = query(f"SELECT {', '.join(table.columns)} FROM load_1.{name} WHERE client = {self.number}")
            found[name] = {tuple(row[n] for n in at): row for row in rows}
        self.settle_with(found)

    def settle_with(self, rows):
        why = difference(self.state, rows)
        if self.doubt:
            after = difference(self.doubt, rows)
            if why and after:
                raise Failure(f"client {self.number}, in doubt: {why}; if it was done: {after}")
            if why:
                self.state = self.doubt
            self.count("in doubt, done" if why else "in doubt, not done")
        elif why:
            raise Failure(f"client {self.number}: {why}")
        self.doubt = None

    def step(self):
        if self.rng.random() < 0.2:
            self.single()
        else:
            self.transaction()

    def single(self):
        """One statement that is a transaction by itself."""
        new = self.state.fork()
        sql = Statements(self.number, self.rng, new).one_row()
        if not sql:
            return
        self.doubt = new
        try:
            self.sql.run(sql)
            self.state = new
            self.count("committed")
        except Refused:
            self.count("refused")
        self.doubt = None

    def transaction(self):
        new = self.state.fork()
        write = Statements(self.number, self.rng, new)
        level = self.rng.choice(["READ COMMITTED", "REPEATABLE READ", "REPEATABLE READ", "SERIALIZABLE"])
        try:
            self.sql.run(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
            self.sql.run("BEGIN")
            for _ in range(self.rng.randint(1, 7)):
                self.some(write, new)
            self.sql.run(write.journal())
        except Refused:
            self.count("refused")
            self.sql.surely("ROLLBACK")
            return
        if self.rng.random() < 0.15:
            self.sql.surely("ROLLBACK")
            self.count("rolled back")
            return
        self.doubt = new
        try:
            self.sql.run("COMMIT")
        except Interrupted:
            self.count("interrupted commits")
            self.sql.surely("ROLLBACK")
            self.doubt = None
            return
        self.issued.update(id for id, in new.rows("numbered"))
        self.state = new
        self.doubt = None
        self.count("committed")

    def some(self, write, new):
        """A statement, sometimes taken back with a savepoint."""
        if self.rng.random() > 0.2:
            self.write(write)
            return
        saved = new.fork()
        self.sql.run("SAVEPOINT s")
        for _ in range(self.rng.randint(1, 3)):
            self.write(write)
        if self.rng.random() < 0.6:
            self.sql.run("ROLLBACK TO SAVEPOINT s")
            new.restore(saved)

    def write(self, write):
        kind = self.rng.random()
        if kind < 0.1:
            row = write.numbered()
            self.sql.run(f"INSERT INTO load_1.numbered (client, v) VALUES ({row[1]}, {row[2]})")
            if self.sql.last_id in self.issued:
                raise Failure(f"AUTO_INCREMENT gives {self.sql.last_id} again")
            write.new.put("numbered", (self.sql.last_id, *row[1:]))
        elif kind < 0.15:
            self.read(write)
        elif kind < 0.2:
            self.duplicate(write)
        elif kind < 0.35:
            for sql in write.transfer():
                self.sql.run(sql)
        else:
            for sql in filter(None, [write.one_row() if kind < 0.8 else write.many_rows()]):
                self.sql.run(sql)

    def read(self, write):
        """A transaction sees what it has done."""
        lock = self.rng.choice(["", "LOCK IN SHARE MODE", "FOR UPDATE"])
        rows = self.sql.run(f"SELECT id, client, part, name, n FROM load_1.items WHERE client = {self.number} {lock}")
        found, expected = {row[:1]: row for row in rows}, write.new.rows("items")
        if found != expected:
            both = set(found.items()) ^ set(expected.items())
            raise Failure(f"client {self.number} doesn't see its own rows of items ({lock or 'no lock'}): {len(found)} "
                          f"seen, {len(expected)} there, differ: {sorted(row for _, row in both)[:10]}")

    def duplicate(self, write):
        """A statement that fails does nothing, and its transaction goes on."""
        rows = write.new.rows("items")
        if not rows:
            return
        row = self.rng.choice(list(rows.values()))
        id, n = write.free_id("items"), row[4]
        got = self.sql.run(
            f"INSERT INTO load_1.items VALUES ({id}, {self.number}, 1, 'first', {-id}),"
            f" ({id + 1}, {self.number}, 1, 'twice', {n})", allowed=[DUPLICATE])
        if got != DUPLICATE:
            raise Failure(f"a second row with n = {n} of client {self.number} was let in")


class Statements:
    """Makes statements, and does in the client's state what they do in the tables."""

    def __init__(self, client, rng, new):
        self.client, self.rng, self.new = client, rng, new

    def any(self, table):
        rows = self.new.rows(table)
        return rows[self.rng.choice(list(rows))] if rows else None

    def free_id(self, table):
        """A number that none of the client's rows has, nor its neighbour."""
        rows = self.new.rows(table)
        while True:
            id = self.client * 10_000_000 + self.rng.randrange(1_000_000) * 2
            if (id,) not in rows and (id, self.client) not in rows:
                return id

    def name(self):
        return " ".join(self.rng.choices(WORDS, k=self.rng.randint(1, 20)))

    def journal(self):
        number = self.new.rows("journal").get((self.client,), (0, 0))[1] + 1
        self.new.put("journal", (self.client, number))
        return f"REPLACE INTO load_1.journal VALUES ({self.client}, {number})"

    def numbered(self):
        return (0, self.client, self.rng.randrange(1000))

    def transfer(self):
        """From one account to another, in any order: clients meet here, and may lock each other out."""
        amount = self.rng.randint(1, 5)
        one, other = self.rng.sample(range(ACCOUNTS), 2)
        for account, sign in ((one, -1), (other, 1)):
            yield f"UPDATE load_1.accounts SET balance = balance + {sign * amount} WHERE id = {account}"
            self.new.add(account, sign * amount)

    def one_row(self):
        return self.rng.choice([
            self.insert_item, self.insert_item, self.update_item, self.delete_item, self.insert_text,
            self.change_text, self.insert_bare, self.change_bare, self.insert_part, self.change_part,
            self.change_other, self.delete_numbered])()

    def many_rows(self):
        return self.rng.choice([self.insert_items, self.update_items, self.delete_items])()

    def item(self):
        id = self.free_id("items")
        return (id, self.client, self.rng.randrange(8), self.name(), id % 1_000_003)

    def insert_item(self):
        row = self.item()
        if any(row[4] == other[4] for other in self.new.rows("items").values()):
            return None
        self.new.put("items", row)
        return f"INSERT INTO load_1.items VALUES {row}"

    def insert_items(self):
        taken = {row[4] for row in self.new.rows("items").values()}
        rows = []
        for _ in range(self.rng.randint(2, 40)):
            row = self.item()
            if row[4] not in taken:
                taken.add(row[4])
                rows.append(row)
                self.new.put("items", row)
        return f"INSERT INTO load_1.items VALUES {', '.join(map(str, rows))}" if rows else None

    def update_item(self):
        row = self.any("items")
        if not row:
            return self.insert_item()
        name = self.name()
        self.new.put("items", (*row[:3], name, row[4]))
        return f"UPDATE load_1.items SET name = '{name}' WHERE id = {row[0]}"

    def update_items(self):
        part, to = self.rng.randrange(8), self.rng.randrange(8)
        for row in [r for r in self.new.rows("items").values() if r[2] == part]:
            self.new.put("items", (*row[:2], to, row[3], row[4]))
        return f"UPDATE load_1.items SET part = {to} WHERE client = {self.client} AND part = {part}"

    def delete_item(self):
        row = self.any("items")
        if not row:
            return self.insert_item()
        self.new.remove("items", row[:1])
        return f"DELETE FROM load_1.items WHERE id = {row[0]}"

    def delete_items(self):
        part = self.rng.randrange(8)
        for row in [r for r in self.new.rows("items").values() if r[2] == part]:
            self.new.remove("items", row[:1])
        return f"DELETE FROM load_1.items WHERE client = {self.client} AND part = {part}"

    def insert_text(self):
        rows = self.new.rows("texts")
        if len(rows) > 12:
            return self.change_text()
        id = next(n for n in range(100) if (self.client, n) not in rows)
        length = self.rng.choice([10, 300, 5000, 40_000])
        row = (self.client, id, self.rng.choice("abcdefgh") * length)
        self.new.put("texts", row)
        return f"INSERT INTO load_1.texts VALUES {row}"

    def change_text(self):
        row = self.any("texts")
        if not row:
            return self.insert_text()
        where = f"WHERE client = {self.client} AND id = {row[1]}"
        if self.rng.random() < 0.4:
            self.new.remove("texts", row[:2])
            return f"DELETE FROM load_1.texts {where}"
        body = self.rng.choice("ijklmnop") * self.rng.choice([1, 900, 20_000])
        self.new.put("texts", (*row[:2], body))
        return f"UPDATE load_1.texts SET body = '{body}' {where}"

    def insert_bare(self):
        v = max((v for _, v in self.new.rows("bare")), default=0) + 1
        row = (self.client, v, self.rng.choice(WORDS))
        self.new.put("bare", row)
        return f"INSERT INTO load_1.bare VALUES {row}"

    def change_bare(self):
        row = self.any("bare")
        if not row:
            return self.insert_bare()
        where = f"WHERE client = {self.client} AND v = {row[1]}"
        if self.rng.random() < 0.5:
            self.new.remove("bare", row[:2])
            return f"DELETE FROM load_1.bare {where}"
        s = self.rng.choice(WORDS)
        self.new.put("bare", (*row[:2], s))
        return f"UPDATE load_1.bare SET s = '{s}' {where}"

    def insert_part(self):
        row = (self.free_id("parts"), self.client, self.rng.randrange(100))
        self.new.put("parts", row)
        return f"INSERT INTO load_1.parts VALUES {row}"

    def change_part(self):
        row = self.any("parts")
        if not row:
            return self.insert_part()
        where = f"WHERE id = {row[0]} AND client = {self.client}"
        if self.rng.random() < 0.4:
            self.new.remove("parts", row[:2])
            return f"DELETE FROM load_1.parts {where}"
        v = self.rng.randrange(100)
        self.new.put("parts", (*row[:2], v))
        return f"UPDATE load_1.parts SET v = {v} {where}"

    def change_other(self):
        row = self.any("other")
        if not row or self.rng.random() < 0.4:
            row = (self.free_id("other"), self.client, self.rng.randrange(100))
            self.new.put("other", row)
            return f"INSERT INTO load_1.other VALUES {row}"
        if self.rng.random() < 0.4:
            self.new.remove("other", row[:1])
            return f"DELETE FROM load_1.other WHERE id = {row[0]}"
        v = self.rng.randrange(100)
        self.new.put("other", (*row[:2], v))
        return f"UPDATE load_1.other SET v = {v} WHERE id = {row[0]}"

    def delete_numbered(self):
        """Often the highest one: its number must not come again."""
        rows = self.new.rows("numbered")
        if not rows:
            return None
        key = max(rows) if self.rng.random() < 0.5 else self.rng.choice(list(rows))
        self.new.remove("numbered", key)
        return f"DELETE FROM load_1.numbered WHERE id = {key[0]}"
