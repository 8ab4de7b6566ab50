"""Two databases of one server, a storage engine each, that are given the same statements."""

import re
from collections import Counter

from pymysql import err

from private_server import Failure

ENGINES = ("innodb", "weir")
# Errors that tell the same in two ways: which of several faults of a statement is found first is an
# engine's affair.
ALIKE = {1062: "data", 1048: "data", 1264: "data", 1265: "data", 1366: "data", 1406: "data", 1292: "data", 1690: "data",
         1365: "data", 1526: "data", 1022: "data", 4025: "data"}


class Outcome:
    """What a statement gave: an error, or rows in no order and what it counted."""

    def __init__(self, error=None, count=0, rows=(), ordered=False):
        self.error = error
        self.count = count
        self.rows = list(rows) if ordered else Counter(rows)

    def __eq__(self, other):
        if self.error or other.error:
            return ALIKE.get(self.error, self.error) == ALIKE.get(other.error, other.error)
        return (self.count, self.rows) == (other.count, other.rows)

    def told(self):
        """The outcome on a line."""
        if self.error:
            return f"error {self.error}"
        rows = self.rows if isinstance(self.rows, list) else list(self.rows.elements())
        return f"{self.count} rows: {sorted(map(repr, rows))[:6]}"


class Pair:
    """A connection to each of the two databases."""

    def __init__(self, server, script=None):
        self.script = script
        self.connections = {}
        for engine in ENGINES:
            connection = server.connect()
            with connection.cursor() as cursor:
                cursor.execute(f"CREATE DATABASE IF NOT EXISTS in_{engine}")
                cursor.execute(f"USE in_{engine}")
                cursor.execute(f"SET default_storage_engine = {engine}, timestamp = 1700000000")
            self.connections[engine] = connection

    def close(self):
        for connection in self.connections.values():
            connection.close()

    def one(self, engine, statement):
        """The outcome with one engine. A server that is gone ends the run."""
        connection = self.connections[engine]
        if engine == "innodb" and "UPPER" not in statement:
            # By an index of a virtual column it gave none of 309 rows. One of text may be refused,
            # or not fit, when it is stored.
            statement = statement.replace("VIRTUAL", "PERSISTENT")
        try:
            with connection.cursor() as cursor:
                count = cursor.execute(statement)
                rows = cursor.fetchall() if cursor.description else ()
                return Outcome(count=count, rows=rows, ordered=ordered_in_full(statement))
        except err.MySQLError as error:
            code = error.args[0] if error.args else 0
            if not isinstance(code, int) or code == 0 or 2000 <= code < 3000:
                raise Failure(f"{engine}: the connection is lost: {error}\n  {statement}") from error
            return Outcome(error=code)

    def both(self, statement, counted=True):
        """The outcome, which must be one and the same, also as to the rows that were `counted`."""
        if self.script is not None:
            self.script.append(statement)
        first, second = (self.one(engine, statement) for engine in ENGINES)
        if not counted:
            first.count = second.count
        if first != second:
            raise Failure(f"{statement}\n  {ENGINES[0]}: {first.told()}\n  {ENGINES[1]}: {second.told()}"
                          f"{difference(first, second)}")
        return second


def ordered_in_full(statement):
    """Whether the statement says the order of its rows, outside of parentheses."""
    inner = re.compile(r"\([^()]*\)")
    while inner.search(statement):
        statement = inner.sub("", statement)
    return re.match(r"SELECT .* ORDER BY ", statement, re.DOTALL) is not None and "COUNT" not in statement


def difference(first, second):
    if first.error or second.error or isinstance(first.rows, list):
        return ""
    return f"\n  only in {ENGINES[0]}: {list((first.rows - second.rows).elements())[:3]}" \
           f"\n  only in {ENGINES[1]}: {list((second.rows - first.rows).elements())[:3]}"
