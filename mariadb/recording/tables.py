"""The tables whose rows are lists, and the statements that append to them and read them."""

IDS = 48
# Rows that most transactions use.
HOT = 8
GROUPS = 5
# So much further on, in another partition, a row may be for a moment.
ELSEWHERE = 1000


class Table:
    """A table `(id, n, g, list)`: `list` has `n` values, each with a comma behind it; `g` stays as it is."""

    def __init__(self, name, partitions=""):
        self.name = name
        self.partitions = partitions

    def statements_of_creation(self, engine):
        """Creates the table, with all its rows."""
        return (
            f"CREATE TABLE {self.name} (id INT PRIMARY KEY, n INT NOT NULL, g INT NOT NULL, list LONGTEXT NOT NULL,"
            f" KEY by_n (n), KEY by_g (g, n)) ENGINE={engine} {self.partitions}",
            f"INSERT INTO {self.name} SELECT seq, 0, seq % {GROUPS}, '' FROM seq_1_to_{IDS}",
        )

    def some(self, rng, number):
        """Ids of some rows, in any order."""
        return rng.sample(range(1, (HOT if rng.random() < 0.7 else IDS) + 1), min(number, HOT))

    def append(self, rng, ids, value):
        """A value for each of the rows."""
        index = rng.choice(("PRIMARY", "by_n", "by_g"))
        return f"UPDATE {self.name} x FORCE INDEX ({index}) SET {_longer('x', value)} WHERE id IN ({_listed(ids)}) AND n >= 0"

    def append_to_both(self, other, ids, value):
        """A value for each of the rows here, and for those of another table with the same ids."""
        return (f"UPDATE {self.name} x JOIN {other.name} y ON y.id = x.id SET {_longer('x', value)}, {_longer('y', value)}"
                f" WHERE x.id IN ({_listed(ids)})")

    def insert_or_append(self, each, value):
        """A value for a row, by way of an INSERT that finds it there."""
        return (f"INSERT INTO {self.name} VALUES ({each}, 1, {each % GROUPS}, '{value},')"
                f" ON DUPLICATE KEY UPDATE {_longer(self.name, value)}")

    def put(self, rng, each, text, n):
        """Statements that put another list in place of the one that a row has."""
        new = f"INTO {self.name} VALUES ({each}, {n}, {each % GROUPS}, '{text}')"
        return rng.choice((
            (f"UPDATE {self.name} SET list = '{text}', n = {n} WHERE id = {each}",),
            (f"REPLACE {new}",),
            (f"DELETE FROM {self.name} WHERE id = {each}", f"INSERT {new}"),
            (f"UPDATE {self.name} SET id = {each + ELSEWHERE} WHERE id = {each}",
             f"UPDATE {self.name} SET id = {each}, list = '{text}', n = {n} WHERE id = {each + ELSEWHERE}"),
        ))

    def by_ids(self, ids):
        """A read of rows by the primary key."""
        return f"{self.select('PRIMARY')} WHERE x.id IN ({_listed(ids)})"

    def read(self, rng, other):
        """A read in one of many ways, of `other` too, and the rows that it must give: none if that can't be told."""
        order = rng.choice(("", " DESC"))
        text = rng.choice(("x.list", "NULL"))
        group, low = rng.randrange(GROUPS), rng.randint(1, IDS)
        high = rng.randint(low, IDS)
        some = sorted(self.some(rng, rng.randint(1, HOT)))
        of_group = [each for each in range(1, IDS + 1) if each % GROUPS == group]
        whole, of_both = self.all_rows(), self.rows(of_group) + other.rows(of_group)
        by_n = f"{self.select('by_n', text)} WHERE x.n >= 0"
        in_group = f"{self.select('by_g', text)} WHERE x.g = {group}"
        return rng.choice((
            (self.by_ids(some), self.rows(some)),
            (f"{self.select('PRIMARY')} WHERE x.id BETWEEN {low} AND {high} ORDER BY x.id{order}", self.rows(range(low, high + 1))),
            (self.select("PRIMARY"), whole),
            (f"{by_n} ORDER BY x.n{order}", whole),
            (f"{by_n} AND x.list LIKE '%'", whole),
            (f"{by_n} ORDER BY x.n{order} LIMIT 7", None),
            (f"{in_group} ORDER BY x.n{order}", self.rows(of_group)),
            (f"{in_group} AND x.n % 2 < 2", self.rows(of_group)),
            (f"{in_group} UNION ALL {other.select('by_g', text)} WHERE x.g = {group}", of_both),
            (f"{self.select('by_g')} WHERE x.g = {group} OR x.id IN ({_listed(some)})", self.rows({*of_group, *some})),
            (f"{self.select('PRIMARY')} STRAIGHT_JOIN {other.name} y ON y.id = x.id WHERE y.g = {group}", self.rows(of_group)),
            (f"{self.select('PRIMARY')} WHERE x.id IN (SELECT y.id FROM {other.name} y FORCE INDEX (by_g) WHERE y.g = {group})",
             self.rows(of_group)),
        ))

    def with_least(self, rng, least):
        """A read of the rows that have so many values, or more."""
        return f"{self.select('by_n', rng.choice(('x.list', 'NULL')))} WHERE x.n >= {least} ORDER BY x.n{rng.choice(('', ' DESC'))}"

    def all_rows(self):
        return self.rows(range(1, IDS + 1))

    def rows(self, ids):
        """The rows with these ids."""
        return [(self.name, each) for each in ids]

    def select(self, index, text="x.list"):
        """The beginning of a read by an index."""
        return f"SELECT '{self.name}', x.id, x.n, {text} FROM {self.name} x FORCE INDEX ({index})"


def _longer(table, value):
    """What an UPDATE sets to append a value."""
    return f"{table}.list = CONCAT({table}.list, '{value},'), {table}.n = {table}.n + 1"


def _listed(ids):
    return ", ".join(map(str, ids))


TABLES = (Table("plain"), Table("parts", "PARTITION BY HASH (id) PARTITIONS 3"))
