"""Types of columns, and values of few kinds, so that they meet each other and the types' limits."""

from dataclasses import dataclass

INTEGERS = ("TINYINT", "SMALLINT UNSIGNED", "MEDIUMINT", "INT", "INT UNSIGNED", "BIGINT", "BIGINT UNSIGNED")
NUMBERS = (*INTEGERS, "DECIMAL(10,3)", "DECIMAL(30,0)", "FLOAT", "DOUBLE", "YEAR", "BIT(11)")
TIMES = ("DATE", "TIME", "TIME(3)", "DATETIME", "DATETIME(6)", "TIMESTAMP(2) NULL")
COLLATIONS = ("utf8mb4_general_ci", "utf8mb4_unicode_ci", "utf8mb4_bin", "utf8mb4_nopad_bin", "latin1_swedish_ci",
              "latin1_german2_ci", "utf8mb4_unicode_nopad_ci", "utf16_general_ci", "cp1250_czech_cs")
CHOICES = ("ENUM('a','B','c','dd')", "SET('a','b','c','d')")
OTHERS = ("UUID", "INET6", "BINARY(5)", "VARBINARY(20)", "VARBINARY(700)")
LONG = ("BLOB", "MEDIUMBLOB", "JSON")

WORDS = ("", " ", "a", "A", "a ", "ä", "Ä", "ss", "ß", "b", "B", "c", "ch", "ab", "aB", "Ab ", "a\\tb", "é", "z", "Z ",
         "0", "1", "12", "日", "~", "a\\0", "cd", "dd", "{}", "[1]")


@dataclass
class Column:
    """One column. `kind`: number, text, bytes, time, choice or other."""

    name: str
    type: str
    kind: str
    nullable: bool
    generated: str = ""

    @property
    def is_long(self):
        """Whether keys take only a prefix of it."""
        return any(word in self.type for word in ("BLOB", "TEXT", "JSON"))

    @property
    def has_prefixes(self):
        return self.is_long or "CHAR(" in self.type or "BINARY(" in self.type

    @property
    def is_exact(self):
        """Whether equal values look the same, whichever of them is found first."""
        return self.kind in ("number", "time") and self.type not in ("FLOAT", "DOUBLE")

    def definition(self):
        null = "" if self.nullable else " NOT NULL"
        return f"{self.name} {self.type}{self.generated}{'' if self.generated else null}"


def text_type(rng):
    shape = rng.choice((f"VARCHAR({rng.choice((1, 8, 40, 200))})", f"CHAR({rng.choice((1, 7, 30))})", "TEXT", "LONGTEXT"))
    collations = [c for c in COLLATIONS if "nopad" not in c or not shape.startswith("CHAR")]
    collation = rng.choice(collations)
    if rng.random() < 0.1 and not shape.startswith("CHAR"):
        shape += " COMPRESSED"
    return f"{shape} CHARACTER SET {collation.split('_')[0]} COLLATE {collation}"


def column(rng, name):
    """A column that is filled by statements."""
    kind = rng.choices(("number", "text", "bytes", "time", "choice", "other"), (40, 25, 8, 12, 8, 7))[0]
    types = {"number": NUMBERS, "bytes": LONG, "time": TIMES, "choice": CHOICES, "other": OTHERS}
    of_type = text_type(rng) if kind == "text" else rng.choice(types[kind])
    return Column(name, of_type, kind, rng.random() < 0.6)


def generated(rng, name, others):
    """A column that is computed from one of `others`."""
    base = rng.choice(others)
    stored = rng.choice(("VIRTUAL", "PERSISTENT"))
    if base.kind == "number":
        return Column(name, "BIGINT", "number", True, f" AS ({base.name} % 7) {stored}")
    if base.kind == "text":
        return Column(name, "VARCHAR(9)", "text", True, f" AS (LEFT(UPPER({base.name}), 3)) {stored}")
    return Column(name, "INT", "number", True, f" AS (LENGTH({base.name})) {stored}")


def number(rng, of_type):
    small = rng.randrange(0, 12)
    if of_type == "YEAR":
        return str(rng.choice((0, 1901, 1999, 2155, 2000 + small)))
    if rng.random() < 0.08:
        return rng.choice(("-1", "127", "128", "255", "65535", "2147483647", "-2147483648", "4294967295",
                           "9223372036854775807", "18446744073709551615", "1e10"))
    if "DECIMAL(10" in of_type or of_type in ("FLOAT", "DOUBLE"):
        return rng.choice((str(small), f"{small}.5", f"-{small}.125", "0.001", "-0"))
    return str(small if rng.random() < 0.7 else rng.randrange(-20, 200))


def word(rng):
    text = "".join(rng.choice(WORDS) for _ in range(rng.choices((1, 2, 3), (6, 3, 1))[0]))
    if rng.random() < 0.05:
        text *= rng.choice((5, 60, 900))
    return f"'{text}'"


def moment(rng, of_type):
    day, second = rng.randrange(1, 29), rng.randrange(0, 60)
    date = f"{rng.choice((1971, 2000, 2026, 2037))}-{rng.randrange(1, 13):02}-{day:02}"
    fraction = rng.choice(("", ".5", ".123456"))
    if of_type.startswith("TIME("):
        return f"'{rng.choice(('', '-'))}{rng.randrange(0, 300)}:10:{second:02}{fraction}'"
    if of_type == "TIME":
        return f"'{rng.randrange(0, 24):02}:00:{second:02}'"
    return f"'{date}'" if of_type == "DATE" else f"'{date} 12:00:{second:02}{fraction}'"


def other(rng, of_type):
    n = rng.randrange(0, 20)
    if of_type == "UUID":
        return f"'123e4567-e89b-12d3-a456-4266554400{n:02}'"
    if of_type == "INET6":
        return rng.choice((f"'2001:db8::{n}'", f"'::ffff:10.0.0.{n}'"))
    return rng.choice((f"x'{n:02x}'", f"x'00{n:02x}ff'", f"REPEAT(x'{n:02x}', {rng.choice((3, 5, 20, 300))})"))


def value(rng, of):
    """A literal for the column; now and then one that it does not take."""
    if rng.random() < (0.12 if of.nullable else 0.01):
        return "NULL"
    if rng.random() < 0.01:
        return word(rng)
    if of.kind == "number":
        return number(rng, of.type)
    if of.kind == "time":
        return moment(rng, of.type)
    if of.kind == "other":
        return other(rng, of.type)
    if of.kind == "choice":
        return rng.choice(("'a'", "'B'", "'b'", "'c'", "1", "'dd'" if "ENUM" in of.type else "'a,d'"))
    if of.type == "JSON":
        return rng.choice(("'{}'", "'[1, 2]'", "'\"a\"'", "'{\"a\": 1}'"))
    return word(rng)


def expression(rng, of):
    """One that has the same value within a connection, which may be none, or not fit: a copy cuts it, or fails."""
    if rng.random() < 0.1:
        return "(EXP(CONNECTION_ID() + 1000))"
    if of.kind == "number":
        return f"(LENGTH(USER()) * {rng.choice((0, 1, 90, 10_000_000))})"
    return f"(REPEAT(USER(), {rng.choice((0, 1, 30))}))"


def series(rng, of):
    """An expression of the number `seq`, for many rows at once."""
    n = rng.choice((3, 7, 100, 10_000))
    if of.kind == "number":
        if of.type == "YEAR":
            return "1950 + seq % 90"
        return f"seq % {min(n, 100)}" if "TINY" in of.type or "BIT" in of.type else f"seq % {n}"
    if of.kind == "time":
        return "'2001-01-01'" if of.type.startswith("TIME ") else f"'2001-01-01' + INTERVAL seq % {n} DAY"
    if of.kind in ("text", "bytes") and of.type != "JSON":
        return rng.choice((f"CONCAT('a', seq % {n})", f"REPEAT(CHAR(97 + seq % 26), seq % {min(n, 100)})", f"LEFT(MD5(seq % {n}), 5)"))
    return value(rng, of)
