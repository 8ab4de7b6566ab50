"""HANDLER: an index, or the rows, read step by step."""

from . import columns


class Handlers:
    """Which of the tables are open so."""

    def __init__(self, rng):
        self.rng = rng
        self.open = {}
        # Those that have come to an end: what has come behind it since InnoDB gives or not, or all
        # but the first row.
        self.ended = set()

    def statement(self, table):
        rng = self.rng
        if self.open.get(table.name) is not table:
            self.open[table.name] = table
            self.ended.discard(table.name)
            return f"HANDLER {table.name} OPEN AS h_{table.name}"
        if rng.random() < 0.1:
            del self.open[table.name]
            return f"HANDLER h_{table.name} CLOSE"
        limit = f" LIMIT {rng.randrange(1, 9)}"
        steps = () if table.name in self.ended else ("NEXT", "NEXT")
        # Of equal keys in several partitions of a table without primary key any may come first.
        whole = [name for name in table.indexes if "(" not in table.parts_of(name) and not table.dividing]
        if not whole or rng.random() < 0.3:
            return f"HANDLER h_{table.name} READ {rng.choice(('FIRST', *steps))}{limit}"
        index = rng.choice(whole)
        if rng.random() < 0.5:
            where = rng.choice(("FIRST", *steps, *(step.replace("NEXT", "PREV") for step in steps), "LAST"))
            return f"HANDLER h_{table.name} READ {index} {where}{limit}"
        parts = [p.split()[0] for p in table.parts_of(index).split(", ")]
        of = [next((c for c in table.columns if c.name == p), None) for p in parts[:rng.randrange(1, len(parts) + 1)]]
        if None in of:
            return f"HANDLER h_{table.name} READ {index} FIRST{limit}"
        values = ", ".join(columns.value(rng, c) for c in of)
        return f"HANDLER h_{table.name} READ {index} {rng.choice(('=', '>=', '<=', '<', '>'))} ({values}){limit}"

    def note(self, table, statement, outcome):
        """What a statement has given."""
        if outcome.error or " LIMIT " not in statement:
            return
        if outcome.count < int(statement.rsplit(" ", 1)[1]):
            self.ended.add(table.name)
        else:
            self.ended.discard(table.name)

    def forget(self, table):
        """Its definition changes: the server closes it."""
        self.open.pop(table.name, None)
