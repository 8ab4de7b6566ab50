"""What a client and the definer have in common: a thread with a connection, which ends when somebody has failed."""

import collections
import threading


class Worker(threading.Thread):
    """Works until it is done, or `ended` is set; whoever fails sets it."""

    def __init__(self, name, connection, rng, ended):
        super().__init__(name=name, daemon=True)
        self.connection = connection
        self.rng = rng
        self.ended = ended
        self.counts = collections.Counter()
        self.failure = None

    def run(self):
        try:
            self.work()
        except Exception as error:  # pylint: disable=broad-except
            self.failure = f"{self.name}: {error!r}"
            self.ended.set()
        finally:
            # Its locks are in nobody's way.
            self.connection.close()
