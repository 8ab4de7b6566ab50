"""A private server with Weir and the binary log on, which is started, killed and started again."""

import argparse
import collections
import os
import pathlib
import re
import subprocess
import sys
import time

import pymysql

HERE = pathlib.Path(__file__).resolve().parent
PATIENCE_S = 120
# A start that takes longer is told.
SLOW_S = 5
# What a healthy server never logs; and what it says of a binary log, or of its log of definitions'
# changes, that was cut short: this one when it was killed as it began a new one.
BAD = re.compile(r"\[ERROR\]|got signal|panicked|assertion|corrupt", re.IGNORECASE)
CUT_SHORT = re.compile(r"read_log_event\(\): 'Event truncated'"
                       r"|end-of-file found when reading file './ddl_recovery|Failed to read ddl log file './ddl_recovery")


class Failure(Exception):
    """Something that must not be."""


def positive(text):
    """A number of something that has to happen at all: the type of an argument."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: at least 1")
    return number


class Server:
    """One data directory, and the process that has it open."""

    def __init__(self, directory, nice):
        self.dir = pathlib.Path(directory).resolve()
        try:
            self.dir.mkdir(parents=True)
        except OSError as error:
            sys.exit(f"the server's directory {self.dir} can't be made: {error.strerror}")
        self.data = self.dir / "data"
        self.log = self.dir / "log"
        self.nice = nice
        self.preload = None  # a library
        self.options = []
        self.process = None
        # Of statements and connections, by the connection's number.
        self.kills_begun, self.kills_ended = collections.Counter(), collections.Counter()
        self.began = 0.0
        self.starts_s = []
        # A start that is waited for is no time to build the plugin.
        subprocess.run(["bash", "-euc", '. "$0"; make_ready', str(HERE / "common.sh")], check=True)

    def launch(self, rng):
        """Starts the server without waiting for it. Settings differ from start to start."""
        options = [
            "--log-bin=binlog", "--binlog-format=ROW", "--server-id=1", "--max-binlog-size=256K",
            f"--sync-binlog={rng.choice([0, 1])}",
            f"--weir-durability={rng.choice(['sync', 'write'])}",
            f"--weir-memory={rng.choice([16, 32, 64])}M",
            f"--weir-redo-capacity={rng.choice([4, 16, 128])}M",
            f"--weir-clean-shutdown={rng.choice(['OFF', 'ON'])}",
            "--weir-lock-wait-timeout=3", "--innodb-lock-wait-timeout=3", "--lock-wait-timeout=5",
            "--innodb-buffer-pool-size=16M", "--innodb-flush-log-at-trx-commit=2",
            "--innodb-log-file-size=16M", "--max-connections=60", "--performance-schema=OFF", *self.options,
        ]
        environment = {**os.environ, "LD_PRELOAD": str(self.preload)} if self.preload else None
        # However this program ends, the server does, too.
        run = ["setpriv", "--pdeathsig", "KILL", "nice", "-n", str(self.nice), str(HERE / "run"), "--dir", str(self.dir), "--", *options]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(run, stdout=log, stderr=subprocess.STDOUT, env=environment)
        self.began = time.monotonic()

    def wait_until_ready(self):
        """Waits until the server answers; returns a connection."""
        while time.monotonic() - self.began < PATIENCE_S:
            if self.process.poll() is not None:
                raise Failure(f"the server ended at its start with {self.process.returncode}")
            try:
                connection = self.connect()
            except pymysql.err.OperationalError:
                time.sleep(0.02)
                continue
            took_s = time.monotonic() - self.began
            self.starts_s.append(took_s)
            if took_s > SLOW_S:
                print(f"a start took {took_s:.1f} s, {self.cpu_s():.1f} s of them on a CPU", flush=True)
            return connection
        raise Failure(f"the server did not start within {PATIENCE_S} s")

    def connect(self):
        """A connection that commits each statement at once."""
        return pymysql.connect(unix_socket=str(self.dir / "socket"), user="root", autocommit=True,
                               charset="utf8mb4", read_timeout=PATIENCE_S)

    def cpu_s(self):
        """Seconds of CPU time that the server has had."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def kill(self):
        """kill -9."""
        self.process.kill()
        self.process.wait()

    def shut_down(self, rng=None):
        """An orderly end, asked for in one of the ways there are if there is a choice."""
        way = rng.choice(("signal", "statement", "mariadb-admin")) if rng else "signal"
        try:
            if way == "statement":
                with self.connect() as connection, connection.cursor() as cursor:
                    cursor.execute("SHUTDOWN")
            elif way == "mariadb-admin":
                subprocess.run(["mariadb-admin", "--no-defaults", f"--socket={self.dir / 'socket'}", "--user=root", "shutdown"],
                               check=True, timeout=PATIENCE_S)
            else:
                self.process.terminate()
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired as error:
            raise Failure(f"the server does not shut down ({way})") from error

    def complaints(self):
        """Lines of the error log that must not be there. A new log is begun."""
        text = self.log.read_text(errors="replace")
        self.log.rename(self.dir / "log.before")
        return [line for line in text.splitlines() if BAD.search(line) and not CUT_SHORT.search(line)]
