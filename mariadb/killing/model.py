"""What the tables must hold: the rows of each client, as far as its transactions were acknowledged.

A client owns its rows: no other client touches them, so what they are is known exactly. Each of its transactions
takes a `fork` of its state, changes that beside the tables, and the fork becomes the client's state with
the server's answer to COMMIT. A client whose COMMIT was never answered is *in doubt*: its rows must be those
of one of the two states, all of them.

Accounts belong to everybody. A state holds what the client has added to each of them: the sums over all
clients are the accounts' balances.
"""

from dataclasses import dataclass

CLIENTS = 6
ACCOUNTS = 12
BALANCE = 1000


@dataclass(frozen=True)
class Table:
    """A table of the load. Its first column but for the key's is always the owner's number."""

    columns: tuple
    key: tuple
    definition: str

    def positions(self):
        """Places of the key's columns."""
        return [self.columns.index(name) for name in self.key]


TABLES = {
    "items": Table(
        ("id", "client", "part", "name", "n"), ("id",),
        "id BIGINT PRIMARY KEY, client INT NOT NULL, part INT NOT NULL, name VARCHAR(300), n INT,"
        " KEY by_client (client, part), KEY by_name (name), UNIQUE KEY by_n (client, n)"),
    "texts": Table(
        ("client", "id", "body"), ("client", "id"),
        "client INT, id INT, body LONGTEXT, PRIMARY KEY (client, id), KEY by_body (body(40))"),
    "bare": Table(
        ("client", "v", "s"), ("client", "v"),
        "client INT NOT NULL, v INT NOT NULL, s VARCHAR(40), KEY by_v (client, v)"),
    "numbered": Table(
        ("id", "client", "v"), ("id",),
        "id BIGINT AUTO_INCREMENT PRIMARY KEY, client INT NOT NULL, v INT, KEY by_client (client)"),
    "parts": Table(
        ("id", "client", "v"), ("id", "client"),
        "id BIGINT, client INT, v INT, KEY by_v (v), PRIMARY KEY (id, client)"),
    "journal": Table(("client", "number"), ("client",), "client INT PRIMARY KEY, number INT NOT NULL"),
    # Of transactions that end in two phases by themselves (XA).
    "xa": Table(
        ("id", "client", "v", "name"), ("id",),
        "id BIGINT PRIMARY KEY, client INT NOT NULL, v INT, name VARCHAR(200), KEY by_v (client, v),"
        " KEY by_name (name)"),
    # Of another engine: a transaction that writes to both must be there in both or in none.
    "other": Table(
        ("id", "client", "v"), ("id",), "id BIGINT PRIMARY KEY, client INT NOT NULL, v INT"),
    "accounts": Table(("id", "balance"), ("id",), "id INT PRIMARY KEY, balance BIGINT NOT NULL"),
}
OWNED = [name for name in TABLES if name != "accounts"]


def statements_of_creation():
    """Makes the tables, empty but for the accounts."""
    yield "CREATE DATABASE load_1"
    yield "CREATE DATABASE load_2"
    for name, table in TABLES.items():
        engine = "InnoDB" if name == "other" else "WEIR"
        more = " PARTITION BY HASH (client) PARTITIONS 3" if name == "parts" else ""
        yield f"CREATE TABLE load_1.{name} ({table.definition}) ENGINE={engine}{more}"
    rows = ", ".join(f"({id}, {BALANCE})" for id in range(ACCOUNTS))
    yield f"INSERT INTO load_1.accounts VALUES {rows}"


class State:
    """The rows of one client: by table and key. A fork shares tables with its origin until it writes."""

    def __init__(self, tables=None, added=None):
        self.tables = tables or {name: {} for name in OWNED}
        self.added = added or {}
        self.own = set()

    def fork(self):
        self.own = set()
        return State(dict(self.tables), dict(self.added))

    def rows(self, table):
        return self.tables[table]

    def _writable(self, table):
        if table not in self.own:
            self.tables[table] = dict(self.tables[table])
            self.own.add(table)
        return self.tables[table]

    def put(self, table, row):
        key = tuple(row[at] for at in TABLES[table].positions())
        self._writable(table)[key] = tuple(row)

    def remove(self, table, key):
        del self._writable(table)[key]

    def add(self, account, amount):
        self.added[account] = self.added.get(account, 0) + amount

    def restore(self, saved):
        """Takes back what was done since `saved` was forked off."""
        self.tables, self.added, self.own = dict(saved.tables), dict(saved.added), set()


def difference(expected, found):
    """The first row in which a client's tables aren't as expected; `None` if there is none."""
    for name in OWNED:
        want, have = expected.rows(name), found.get(name, {})
        if want == have:
            continue
        for key in sorted(set(want) | set(have)):
            if want.get(key) != have.get(key):
                return f"{name} {key}: expected {brief(want.get(key))}, found {brief(have.get(key))}"
    return None


def brief(row):
    """A row for a message."""
    text = repr(row)
    return text if len(text) < 200 else text[:200] + "..."
