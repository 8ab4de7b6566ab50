"""A client that prepares transactions, and ends them later: another connection, or after a restart.

A *lane* is what one such transaction at a time writes: rows that belong to it alone.
"""

from private_server import Failure

from .load import Gone, Interrupted, Refused, Statements, Worker
from .model import TABLES, State, difference

LANES = 6
FIRST_LANE = 100
NO_SUCH_XID = 1397


class Lane:
    """One place for a transaction. `state`: what is committed; `prepared`: what it is once that commits."""

    def __init__(self, number):
        self.number = number
        self.state = State()
        self.sequence = 0
        self.xid = None       # of the transaction that is on
        self.new = None
        self.step = "idle"    # or what was asked for last, or "prepared"
        # The server writes XA statements to the binary log and to the engine one after the other:
        # the two may differ by a statement that was cut short.
        self.is_unclear = False
        # What ended last, and how: for messages.
        self.history = []

    def may_be_listed(self):
        return self.step not in ("idle", "running")

    def must_be_listed(self):
        return self.step == "prepared"

    def must_be_new(self, is_listed):
        """Whether it must have committed: it was prepared, and isn't any more."""
        return self.step == "committing" and not is_listed

    def may_be_new(self, is_listed):
        """Whether it may have committed."""
        return self.step == "committing in one phase" and not is_listed

    def in_doubt(self):
        return self.step not in ("idle", "prepared", "running")

    def touched(self, why):
        """Transactions that changed the row of a message."""
        return [(at - len(self.history), xid, how, done) for at, (xid, how, done, rows) in enumerate(self.history)
                if any(str(row[0]) in why for _, row in rows)]

    def settle(self, is_listed, rows):
        """Its transaction is listed, committed or gone, as far as was acknowledged. Says whether that was in doubt."""
        if self.must_be_listed() and not is_listed:
            raise Failure(f"the prepared transaction {self.xid} isn't listed")
        if is_listed and not self.may_be_listed():
            raise Failure(f"{self.xid} is listed; it is {self.step}")
        why = difference(self.new if self.must_be_new(is_listed) else self.state, rows)
        if self.must_be_new(is_listed) and not why:
            self.state = self.new
        elif why and self.may_be_new(is_listed) and not difference(self.new, rows):
            self.state, why = self.new, None
        if why:
            raise Failure(f"{self.xid or self.number}, which is {self.step} (listed: {is_listed}): {why};"
                          f" its last: {self.touched(why)}")
        was_in_doubt = self.in_doubt()
        self.is_unclear = self.is_unclear or was_in_doubt
        if is_listed:
            self.step = "prepared"
        else:
            self.end(False)
        return was_in_doubt

    def end(self, committed):
        self.history.append((self.xid, self.step, committed,
                             sorted(set(self.new.rows("xa").items()) ^ set(self.state.rows("xa").items()))
                             if self.new else []))
        del self.history[:-400]
        if committed:
            self.state = self.new
        self.xid, self.new, self.step = None, None, "idle"


class Preparer(Worker):
    """Runs transactions in two phases."""

    def __init__(self, server, rng, counts, lanes):
        super().__init__(server, rng, counts)
        self.lanes = lanes

    def settle(self, query):
        listed = {row[3].decode() for row in query("XA RECOVER")}
        for lane in self.lanes:
            rows = query(f"SELECT {', '.join(TABLES['xa'].columns)} FROM load_1.xa WHERE client = {lane.number}")
            if lane.settle(lane.xid in listed, {"xa": {row[:1]: row for row in rows}}):
                self.count("killed in two phases")

    def step(self):
        lane = self.rng.choice(self.lanes)
        try:
            if lane.step == "prepared":
                self.end(self.sql, lane)
            else:
                self.begin(lane)
        except Interrupted as error:
            raise Gone from error

    def begin(self, lane):
        own = self.connect()
        lane.sequence += 1
        lane.xid, lane.new, lane.step = f"{lane.number}-{lane.sequence}", lane.state.fork(), "running"
        own.run(f"XA START '{lane.xid}'")
        try:
            # The server forgets transactions that change nothing.
            for n in range(self.rng.randint(1, 5)):
                own.run(self.change(lane, inserts=n == 0))
        except Refused:
            own.run(f"XA END '{lane.xid}'", allowed=[1402, 1613, 1614])
            own.run(f"XA ROLLBACK '{lane.xid}'", allowed=[NO_SUCH_XID])
            lane.end(False)
            return
        own.run(f"XA END '{lane.xid}'")
        way = self.rng.random()
        if way < 0.1:
            own.run(f"XA ROLLBACK '{lane.xid}'")
            lane.end(False)
        elif way < 0.2:
            lane.step = "committing in one phase"
            own.run(f"XA COMMIT '{lane.xid}' ONE PHASE")
            lane.end(True)
            self.count("committed in one phase")
        else:
            lane.step = "preparing"
            own.run(f"XA PREPARE '{lane.xid}'")
            lane.step = "prepared"
            self.count("prepared")
            if way < 0.5:
                self.end(own, lane)
            elif way < 0.7:
                own.reset()
                self.count("left by a connection that was reset")
                self.end(self.rng.choice((own, self.sql)), lane)
        own.close()

    def end(self, connection, lane):
        """Commits or rolls back what is prepared."""
        commits = self.rng.random() < 0.6
        lane.step = "committing" if commits else "rolling back"
        while True:
            # The connection that prepared it may not have left it yet.
            got = connection.run(f"XA {'COMMIT' if commits else 'ROLLBACK'} '{lane.xid}'", allowed=[NO_SUCH_XID])
            if got != NO_SUCH_XID:
                break
        lane.end(commits)
        self.count("committed after prepare" if commits else "rolled back after prepare")

    def change(self, lane, inserts):
        write = Statements(lane.number, self.rng, lane.new)
        row = write.any("xa")
        if inserts or not row or self.rng.random() < 0.4:
            row = (write.free_id("xa"), lane.number, self.rng.randrange(50), write.name())
            lane.new.put("xa", row)
            return f"INSERT INTO load_1.xa VALUES {row}"
        if self.rng.random() < 0.5:
            lane.new.remove("xa", row[:1])
            return f"DELETE FROM load_1.xa WHERE id = {row[0]}"
        v = self.rng.randrange(50)
        lane.new.put("xa", (*row[:2], v, row[3]))
        return f"UPDATE load_1.xa SET v = {v} WHERE id = {row[0]}"
