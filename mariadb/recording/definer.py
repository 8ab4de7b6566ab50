"""Changes the tables' definitions while clients use them."""

import threading

from pymysql import err

from .tables import TABLES

# The table is in use; an index that is there already, or isn't; tables are being changed by another statement.
REFUSED = {1205, 1061, 1091, 1213}
REST_S = 0.3
CHANGES = (
    "ALTER TABLE {} ADD INDEX also (n, id)",
    "ALTER TABLE {} DROP INDEX also",
    "ALTER TABLE {} DROP INDEX by_n, ADD INDEX by_n (n)",
    "ALTER TABLE {} FORCE",
    "OPTIMIZE TABLE {}",
    "ANALYZE TABLE {}",
    "FLUSH TABLES {}",
)


class Definer(threading.Thread):
    """Goes on until it is told to end."""

    def __init__(self, connection, rng, counts):
        super().__init__(name="definer", daemon=True)
        self.connection = connection
        self.rng = rng
        self.counts = counts
        self.failure = None
        self.ended = threading.Event()

    def end(self):
        self.ended.set()
        self.join()

    def run(self):
        while not self.ended.wait(REST_S * self.rng.random()):
            statement = self.rng.choice(CHANGES).format(self.rng.choice(TABLES).name)
            try:
                with self.connection.cursor() as cursor:
                    cursor.execute(statement)
                    cursor.fetchall()
            except err.Error as error:
                if error.args[0] not in REFUSED:
                    self.failure = f"{statement}: {error}"
                    return
            self.counts["definitions"] = self.counts.get("definitions", 0) + 1
