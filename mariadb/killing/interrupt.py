"""Kills the statements and connections of others."""

import time

from .load import Refused, Worker

NO_SUCH_THREAD = 1094
MEAN_S = 0.03


class Interrupter(Worker):
    """Looks who is there, and kills one of them, again and again."""

    def step(self):
        time.sleep(self.rng.expovariate(1 / MEAN_S))
        kinds = self.rng.choice(("'Query'", "'Query'", "'Query'", "'Query', 'Sleep'"))
        try:
            there = self.sql.run("SELECT id FROM information_schema.processlist"
                                 f" WHERE id <> CONNECTION_ID() AND command IN ({kinds}) ORDER BY id")
            if there:
                how = self.rng.choice(("QUERY", "QUERY", "QUERY", "SOFT QUERY", "CONNECTION"))
                whom = self.rng.choice(there)[0]
                self.server.kills_begun[whom] += 1
                self.sql.run(f"KILL {how} {whom}", allowed=[NO_SUCH_THREAD])
                self.server.kills_ended[whom] += 1
                self.count("killed statements" if "QUERY" in how else "killed connections")
        except Refused:
            pass
