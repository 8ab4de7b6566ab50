"""What must hold after a restart."""

from dataclasses import dataclass, field

from private_server import Failure

from .binlog import Replica, files_from
from .ddl import definitions, has_extra
from .load import brief
from .model import BALANCE, OWNED, TABLES

CHECKED = ", ".join(f"load_1.{name}" for name in TABLES if name != "other")


@dataclass
class World:
    """All that is known of the tables. `clients` are those of the last round."""

    lanes: list
    definitions: object
    long: object
    states: list
    clients: list = field(default_factory=list)
    replica: Replica = field(default_factory=Replica)
    first_file: str = ""
    issued: set = field(default_factory=set)


class Check:
    """Looks at a server that has been started again."""

    def __init__(self, server, connection, world, counts):
        self.server, self.connection, self.world, self.counts = server, connection, world, counts
        self.found = {name: self.rows(name) for name in TABLES}

    def query(self, sql):
        with self.connection.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchall()

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    def rows(self, name):
        """A table by its key."""
        table = TABLES[name]
        at = table.positions()
        rows = self.query(f"SELECT {', '.join(table.columns)} FROM load_1.{name}")
        return {tuple(row[n] for n in at): row for row in rows}

    def all(self):
        """Everything but CHECK TABLE. What was in doubt is decided afterwards."""
        owners = self.by_owner()
        self.settle_clients(owners)
        self.settle_lanes(owners)
        if owners:
            raise Failure(f"rows of nobody: {brief(repr(owners))}")
        self.accounts()
        done = self.settle_definitions()
        self.settle_long()
        self.binlog(done)
        self.begin_anew()

    def by_owner(self):
        owners = {}
        for name in OWNED:
            owner = TABLES[name].columns.index("client")
            for key, row in self.found[name].items():
                owners.setdefault(row[owner], {}).setdefault(name, {})[key] = row
        return owners

    def settle_clients(self, owners):
        """Each client's rows are those of one state: before or after what is in doubt."""
        for client in self.world.clients:
            client.settle_with(owners.pop(client.number, {}))
            self.world.states[client.number] = client.state

    def settle_lanes(self, owners):
        """Transactions in two phases are listed, committed or gone, as far as was acknowledged."""
        listed = {row[3].decode() for row in self.query("XA RECOVER")}
        for lane in self.world.lanes:
            if lane.settle(lane.xid in listed, owners.pop(lane.number, {})):
                self.count("in doubt, in two phases")
        listed -= {lane.xid for lane in self.world.lanes}
        if listed:
            ended = [h[:3] for lane in self.world.lanes for h in lane.history if h[0] in listed]
            raise Failure(f"prepared transactions that nobody knows: {sorted(listed)}; how they ended: {ended}")

    def accounts(self):
        """The balances are the sums of what was acknowledged."""
        expected = dict.fromkeys((id for id, in self.found["accounts"]), BALANCE)
        for state in self.world.states:
            for account, amount in state.added.items():
                expected[account] += amount
        for account, balance in self.found["accounts"].values():
            if balance != expected[account]:
                raise Failure(f"account {account}: expected {expected[account]}, found {balance}")

    def settle_definitions(self):
        """Definitions are those before or after the statement in doubt; nothing else is left of it. Says
        whether it was done."""
        state, found = self.world.definitions, definitions(self.query)
        done = state.settle(found, has_extra(self.query))
        if state.doubt:
            self.count("definitions in doubt, done" if done else "definitions in doubt, not done")
        self.leftovers("load_2", {name: definition.parts for name, definition in found.items()})
        return done

    def settle_long(self):
        self.world.long.settle(self.query)
        self.leftovers("load_3", {name: 2 if name == "parts" else 0
                                  for name, rows in self.world.long.tables.items() if rows is not None})

    def leftovers(self, schema, parts):
        """No file and no table of the engine that no definition knows. `parts`: how many partitions each table has."""
        files, tables = {"db.opt"}, set()
        for name, count in parts.items():
            files.add(f"{name}.frm")
            tables |= {f"{name}#P#p{n}" for n in range(count)} or {name}
            if count:
                files.add(f"{name}.par")
        there = {path.name for path in (self.server.data / schema).iterdir()}
        if there != files:
            raise Failure(f"files in {schema}: {sorted(there ^ files)} too many or too few")
        there = {name for name, in self.query(
            f"SELECT DISTINCT table_name FROM information_schema.weir_index_stats WHERE table_schema = '{schema}'")}
        if there != tables:
            raise Failure(f"tables of the engine in {schema}: {sorted(there ^ tables)} too many or too few")

    def binlog(self, done):
        """The binary log, replayed, gives the tables, and has the changes of definitions that were made."""
        replica, state = self.world.replica, self.world.definitions
        replica.read(files_from(self.server.data, self.world.first_file))
        unclear = {lane.number for lane in self.world.lanes if lane.is_unclear}
        for name, found in self.found.items():
            logged = replica.tables[name]
            if found == logged:
                continue
            owner = TABLES[name].columns.index("client") if name in OWNED else None
            for key in set(found) | set(logged):
                row = found.get(key) or logged.get(key)
                # The server writes a user's XA statement to the log and to the engine one after the
                # other.
                if found.get(key) != logged.get(key) and not (owner is not None and row[owner] in unclear):
                    raise Failure(f"{name} {key}: the table has {brief(repr(found.get(key)))},"
                                  f" the binary log {brief(repr(logged.get(key)))}")
            replica.tables[name] = dict(found)
        text = "\n".join(replica.statements)
        for mark in state.marks:
            if not marked(mark, text):
                raise Failure(f"the binary log lacks a definition's change that was acknowledged: {mark}")
        doubt = state.doubt
        if doubt and marked(doubt.mark, text) != done:
            # An ALTER in place that failed (killed, say) removes its new definition before its
            # entry in the server's log of definitions. A start that finds only that takes it for
            # done, and asks no engine.
            failed = not done and marked(doubt.mark, "\n".join(replica.of_starts))
            if not (doubt.in_two_steps or failed):
                raise Failure(f"done is {done}, and in the binary log the other way: {doubt.sql}")
            self.count("definitions in the binary log or in the engine alone")

    def begin_anew(self):
        """From here on everything is known, and the binary log begins with a new file."""
        world = self.world
        for lane in world.lanes:
            lane.is_unclear = lane.is_unclear and lane.step != "idle"
        known = {lane.xid for lane in world.lanes}
        world.replica.prepared = {x: c for x, c in world.replica.prepared.items() if x in known}
        world.replica.statements.clear()
        world.replica.of_starts.clear()
        world.definitions.marks.clear()
        world.definitions.doubt = None
        self.query("FLUSH BINARY LOGS")
        world.first_file = self.query("SHOW MASTER STATUS")[0][0]
        self.query(f"PURGE BINARY LOGS TO '{world.first_file}'")

    def tables(self):
        """CHECK TABLE."""
        names = [f"load_2.{name}" for name in self.world.definitions.tables]
        names += [f"load_3.{name}" for name, rows in self.world.long.tables.items() if rows is not None]
        for name, _, kind, text in self.query(f"CHECK TABLE {', '.join([CHECKED, *names])} EXTENDED"):
            if (kind, text) != ("status", "OK"):
                raise Failure(f"CHECK TABLE {name}: {kind}: {text}")
        self.count("CHECK TABLE of all")


def marked(mark, text):
    """Whether a statement is in the log."""
    at = text.find(mark)
    # `ddl 1` isn't `ddl 12`.
    while at >= 0 and text[at + len(mark):at + len(mark) + 1].isdigit():
        at = text.find(mark, at + 1)
    return at >= 0
