"""A random table: its columns and keys, and how they are changed."""

import re

from . import columns

PARTS_MAX = 3


def partition_names(text):
    """What the partitions are called that a definition makes."""
    count = re.search(r"PARTITIONS (\d+)", text)
    return [f"p{n}" for n in range(int(count[1]))] if count else re.findall(r"PARTITION (p\d)", text)


class Table:
    """What statements need to know of a table. It is the same with both engines."""

    def __init__(self, rng, name):
        self.rng = rng
        self.name = name
        self.names = 0
        self.columns = [columns.column(rng, self.fresh("c")) for _ in range(rng.randrange(2, 7))]
        if rng.random() < 0.35:
            self.columns.append(columns.generated(rng, self.fresh("g"), list(self.columns)))
        self.has_id = rng.random() < 0.6
        self.dividing = None          # the column that says which partition a row is in
        self.ids_repeat = False       # other columns are in the primary key, too
        self.keys_are_in_order = True # none was added to the others
        self.versioned = rng.random() < 0.07
        self.temporary = not self.versioned and rng.random() < 0.07
        self.counter = ""             # a stored function
        self.is_counted = False       # by a trigger of another table
        self.indexes = {}
        self.partitions = []

    def fresh(self, letter):
        self.names += 1
        return f"{letter}{self.names}"

    @property
    def filled(self):
        return [c for c in self.columns if not c.generated]

    def part(self, column):
        """The column, or a prefix of it, as part of a key."""
        if column.is_long or (column.has_prefixes and self.rng.random() < 0.3):
            length = self.rng.choice((1, 1, 3, 6))
            if not any(f"({n})" in column.type for n in range(length)):
                return f"{column.name}({length})"
        return column.name

    def key(self):
        """What stands between the parentheses of a key's definition."""
        # InnoDB has the others stored (`Pair.one`).
        kept = [c for c in self.columns if not ("VIRTUAL" in c.generated and c.kind == "text")]
        some = self.rng.sample(kept, min(len(kept), self.rng.randrange(1, PARTS_MAX + 1)))
        return ", ".join(self.part(c) + self.rng.choice(("", "", "", " DESC")) for c in some)

    def new_index(self):
        """Name and definition of one more index."""
        name = self.fresh("k")
        return name, f"{self.rng.choice(('UNIQUE KEY', 'KEY', 'KEY'))} {name} ({self.key()})"

    def parts_of(self, index):
        """The same of one that is there."""
        return self.indexes[index].split(" (", 1)[1][:-1]

    def primary_key(self):
        if self.has_id and self.ids_repeat:
            return ["id INT NOT NULL AUTO_INCREMENT"], [f"PRIMARY KEY (id, {self.dividing.name})"]
        if self.has_id:
            return [self.rng.choice(("id INT AUTO_INCREMENT PRIMARY KEY", "id BIGINT NOT NULL PRIMARY KEY",
                                     "id SMALLINT UNSIGNED NOT NULL PRIMARY KEY"))], []
        plain = [c for c in self.filled if not c.nullable and not c.has_prefixes]
        if plain and self.rng.random() < 0.7:
            return [], [f"PRIMARY KEY ({', '.join(c.name for c in plain[:2])})"]
        return [], []

    def divide(self):
        """Partitions by a column of the primary key, or, without one, by any."""
        rng, column = self.rng, self.dividing
        low, middle, high = {"number": ("0", "5", "100"), "time": ("'1980-01-01'", "'2001-01-01'", "'2030-01-01'"),
                             "text": ("'a'", "'b'", "'ss'")}[column.kind]
        if rng.random() < 0.6:
            return (f" PARTITION BY RANGE COLUMNS ({column.name}) (PARTITION p0 VALUES LESS THAN ({low}), PARTITION p1 VALUES LESS "
                    f"THAN ({middle}), PARTITION p2 VALUES LESS THAN ({high}), PARTITION p3 VALUES LESS THAN (MAXVALUE))")
        if rng.random() < 0.5:
            return f" PARTITION BY KEY ({column.name}) PARTITIONS 3"
        return (f" PARTITION BY LIST COLUMNS ({column.name}) (PARTITION p0 VALUES IN ({low}, {high}), "
                f"PARTITION p1 VALUES IN ({middle}), PARTITION p2 DEFAULT)")

    def can_divide(self, column):
        return column.nullable is False and (column.type in columns.INTEGERS or column.type in ("DATE", "DATETIME") or
                                             ("CHAR(" in column.type and "utf16" not in column.type))

    def create(self):
        """The statement but for the engine."""
        able = [c for c in self.filled if self.can_divide(c)]
        self.dividing = self.rng.choice(able) if able and self.rng.random() < 0.3 else None
        self.ids_repeat = self.has_id and self.dividing is not None
        first, last = self.primary_key() if self.has_id or not self.dividing else ([], [])
        definitions = [*first, *(c.definition() for c in self.columns), *last]
        for _ in range(self.rng.randrange(0, 4)):
            name, definition = self.new_index()
            if self.dividing:
                definition = definition.removeprefix("UNIQUE ")
            self.indexes[name] = definition
            definitions.append(definition)
        if self.rng.random() < 0.1 and self.filled[0].kind == "number":
            definitions.append(f"CHECK ({self.filled[0].name} <> 7)")
        if self.temporary:
            return f"CREATE TEMPORARY TABLE {self.name} ({', '.join(definitions)})", ""
        partitions = " WITH SYSTEM VERSIONING" if self.versioned else ""
        if self.dividing:
            partitions += self.divide()
        elif self.has_id and not self.versioned and self.rng.random() < 0.2 and not any("UNIQUE" in d for d in self.indexes.values()):
            partitions = self.rng.choice((" PARTITION BY HASH (id) PARTITIONS 3", " PARTITION BY KEY (id) PARTITIONS 2",
                                          " PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (20), "
                                          "PARTITION p1 VALUES LESS THAN (60), PARTITION p2 VALUES LESS THAN MAXVALUE)"))
        self.partitions = partition_names(partitions)
        return f"CREATE TABLE {self.name} ({', '.join(definitions)})", partitions

    def alter(self):
        """A change of the definition, and what is to be noted once it has succeeded."""
        rng = self.rng
        kind = rng.choice(("index", "index", "drop index", "column", "drop column", "modify", "rebuild", "rename", "null",
                           "rename index", "ignored", "several", "key", "partitions", "default", "place", "computed", "versions"))
        if kind == "index":
            name, definition = self.new_index()
            return f"ADD {definition}", lambda: self.add_index(name, definition)
        if kind == "drop index" and self.indexes:
            name = rng.choice(list(self.indexes))
            return f"DROP KEY {name}", lambda: self.indexes.pop(name)
        if kind == "rename index" and self.indexes:
            old, new = rng.choice(list(self.indexes)), self.fresh("k")
            definition = self.indexes[old].replace(f" {old} ", f" {new} ")
            return f"RENAME KEY {old} TO {new}", lambda: (self.indexes.pop(old), self.indexes.update({new: definition}))
        if kind == "several" and self.indexes:
            old, (name, definition) = rng.choice(list(self.indexes)), self.new_index()
            return (f"DROP KEY {old}, ADD {definition}",
                    lambda: (self.indexes.pop(old), self.add_index(name, definition)))
        if kind == "ignored" and self.indexes:
            name = rng.choice(list(self.indexes))
            return f"ALTER KEY {name} IGNORED, ALTER KEY {name} NOT IGNORED", lambda: None
        if kind == "key" and self.has_id:
            return "DROP PRIMARY KEY, ADD PRIMARY KEY (id)", lambda: None
        if kind == "column":
            new = columns.column(rng, self.fresh("c"))
            # What rows get must be JSON: InnoDB doesn't look.
            must = new.type == "JSON" and not new.nullable
            value = columns.expression(rng, new) if rng.random() < 0.2 and not must else columns.value(rng, new)
            default = f" DEFAULT {value}" if rng.random() < 0.5 or must else ""
            place = rng.choice(("", "", " FIRST", f" AFTER {rng.choice(self.columns).name}"))
            at = {"": len(self.columns), " FIRST": 0}.get(place, len(self.columns))
            return f"ADD COLUMN {new.definition()}{default}{place}", lambda: self.columns.insert(at, new)
        if kind == "partitions":
            change, then = rng.choice((("COALESCE PARTITION 1", self.partitions[:-1]),
                                       ("ADD PARTITION PARTITIONS 1", [*self.partitions, f"p{len(self.partitions)}"]),
                                       ("REBUILD PARTITION ALL", self.partitions), ("REMOVE PARTITIONING", []),
                                       ("TRUNCATE PARTITION p1", self.partitions),
                                       ("DROP PARTITION p1", [p for p in self.partitions if p != "p1"]),
                                       ("PARTITION BY KEY () PARTITIONS 3", partition_names("PARTITIONS 3"))))
            return change, lambda: setattr(self, "partitions", then)
        if kind == "default":
            some = rng.choice(self.filled)
            return f"ALTER COLUMN {some.name} SET DEFAULT {columns.value(rng, some)}", lambda: None
        if kind == "computed":
            new = columns.generated(rng, self.fresh("g"), self.filled)
            return f"ADD COLUMN {new.definition()}", lambda: self.columns.append(new)
        if kind == "versions":
            word, then = ("DROP", False) if self.versioned else ("ADD", True)
            return f"{word} SYSTEM VERSIONING", lambda: setattr(self, "versioned", then)
        unused = [c for c in self.filled if not any(c.name in text for text in self.indexes.values())
                  and not any(c.name in g.generated for g in self.columns)]
        if kind == "drop column" and len(unused) > 1:
            old = rng.choice(unused)
            return f"DROP COLUMN {old.name}", lambda: self.columns.remove(old)
        if kind == "modify" and unused:
            old = rng.choice(unused)
            new = columns.column(rng, old.name)
            if old.type == new.type == "JSON":
                new.nullable = old.nullable
            return f"MODIFY {new.definition()}", lambda: self.replace(old, new)
        if kind == "place" and unused:
            old = rng.choice(unused)
            return f"MODIFY {old.definition()} FIRST", lambda: (self.columns.remove(old), self.columns.insert(0, old))
        # InnoDB doesn't look whether what NULL becomes is JSON.
        changeable = [c for c in unused if c.type != "JSON"]
        if kind == "null" and changeable:
            old = rng.choice(changeable)
            new = columns.Column(old.name, old.type, old.kind, not old.nullable)
            return f"MODIFY {new.definition()}", lambda: self.replace(old, new)
        if kind == "rename" and unused:
            old = rng.choice(unused)
            new = columns.Column(self.fresh("c"), old.type, old.kind, old.nullable)
            return f"CHANGE {old.name} {new.definition()}", lambda: self.replace(old, new)
        return "FORCE", lambda: setattr(self, "keys_are_in_order", True)

    def add_index(self, name, definition):
        self.indexes[name] = definition
        self.keys_are_in_order = False

    def replace(self, old, new):
        self.columns[self.columns.index(old)] = new
