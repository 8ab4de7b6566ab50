"""What the binary log says: its row events, applied as a replica would, and its statements.

The log is read as `mariadb-binlog` prints it. A group of events counts if it is whole; what a prepared
transaction did counts when its XA COMMIT comes.
"""

import re
import subprocess

from .model import TABLES

ROW = re.compile(r"### (INSERT INTO|UPDATE|DELETE FROM) `(\w+)`\.`(\w+)`")
VALUE = re.compile(r"###   @\d+=(.*)")
XA = re.compile(r"XA (START|END|PREPARE|COMMIT|ROLLBACK) X'([0-9a-f]*)',X'[0-9a-f]*',1", re.IGNORECASE)
BEGINS = re.compile(r"#.*\tGTID ")
QUIET = ("#", "/*!", "SET ", "DELIMITER", "BEGIN", "START TRANSACTION", "ROLLBACK")


def value_of(text):
    """A value as it is printed: NULL, a number, or a text in quotes."""
    if text == "NULL":
        return None
    if text.startswith("'"):
        return text[1:text.rindex("'")]
    return int(text.split(" ")[0])


class Replica:
    """Tables as the binary log makes them."""

    def __init__(self):
        self.tables = {name: {} for name in TABLES}
        self.prepared = {}   # changes of prepared transactions, by xid
        self.statements = []
        self.of_starts = []  # those of them that a start has written

    def read(self, files):
        """Applies files, oldest first."""
        for file in files:
            self._read_file(file)

    def _read_file(self, file):
        printed = subprocess.run(
            ["mariadb-binlog", "--no-defaults", "--base64-output=decode-rows", "-v", str(file)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace", check=False)
        # Of a group that isn't whole, nothing counts.
        group, of_start = Group(), False
        for line in printed.stdout.splitlines():
            if line.startswith("###"):
                group.take(line)
            elif BEGINS.match(line):
                group = Group()
            elif line.startswith("#Q> "):
                group.statements.append(line)
            elif line.startswith("COMMIT"):
                self._apply(group)
                group = Group()
            elif step := XA.match(line):
                group = self._two_phase(step[1].upper(), bytes.fromhex(step[2]).decode(), group)
            elif line.startswith("SET TIMESTAMP="):
                of_start = line.startswith("SET TIMESTAMP=0/")
            elif not line.startswith(QUIET):
                self.statements.append(line)
                if of_start:
                    self.of_starts.append(line)

    def _two_phase(self, step, xid, group):
        """A step of a transaction in two phases; gives the group that goes on."""
        if step == "PREPARE":
            self.prepared[xid] = group
        elif step == "COMMIT":
            # In one phase: there was no PREPARE.
            self._apply(self.prepared.pop(xid, group))
        elif step == "ROLLBACK":
            self.prepared.pop(xid, None)
        else:
            return group
        return Group()

    def _apply(self, group):
        self.statements += group.statements
        for what, name, images in group.changes:
            rows, at = self.tables[name], TABLES[name].positions()
            if what != "INSERT INTO":
                rows.pop(tuple(images["WHERE"][n] for n in at), None)
            if what != "DELETE FROM":
                row = tuple(images["SET"])
                rows[tuple(row[n] for n in at)] = row


class Group:
    """Row events that count together."""

    def __init__(self):
        self.changes, self.statements = [], []
        self.images, self.image = None, None

    def take(self, line):
        """A line of a row event: its kind and table, WHERE or SET, or a column's value."""
        if row := ROW.match(line):
            self.images = None
            if row[2] == "load_1":
                self.images = {}
                self.changes.append((row[1], row[3], self.images))
        elif self.images is None:
            return
        elif value := VALUE.match(line):
            self.image.append(value_of(value[1]))
        elif line[4:] in ("WHERE", "SET"):
            self.image = self.images.setdefault(line[4:], [])


def files_from(data, first):
    """Paths of the log's files from one on."""
    return sorted(f for f in data.glob("binlog.[0-9]*") if f.name >= first and f.suffix != ".idx")
