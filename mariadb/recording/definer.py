"""Changes the tables' definitions while clients use them."""

from pymysql import err

from private_server import Failure

from .tables import TABLES
from .worker import Worker

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


class Definer(Worker):
    """Goes on until the clients have ended."""

    def work(self):
        while not self.ended.wait(REST_S * self.rng.random()):
            self.change(self.rng.choice(CHANGES).format(self.rng.choice(TABLES).name))

    def change(self, statement):
        try:
            with self.connection.cursor() as cursor:
                cursor.execute(statement)
                rows = cursor.fetchall()
        except err.Error as error:
            if error.args[0] not in REFUSED:
                raise
            self.counts["definitions refused"] += 1
            return
        # What OPTIMIZE and ANALYZE say.
        if any(row[2] == "Error" for row in rows):
            raise Failure(f"{statement}: {rows}")
        self.counts["definitions"] += 1
