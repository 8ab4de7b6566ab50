#!/usr/bin/env python3
"""Makes backups of a private server under load, restores each, and looks whether it is the server as it was at the position in the
binary log that came with it: transactions over two engines are whole, every index agrees, and what the binary log has from there on
gives what the source has in the end."""

import argparse
import pathlib
import random
import subprocess
import tempfile
import threading
import time

import pymysql

from private_server import Failure, Server, positive

HERE = pathlib.Path(__file__).resolve().parent
TABLES = ["d.w", "d.i", "d.parts"]
CLIENTS = 4
# A client that changes definitions is told so in these ways when a backup blocks them for long.
PASSING = {1205, 1213, 1412}


class Load:
    """Clients that write to tables of both engines in each transaction, and one that changes definitions."""

    def __init__(self, server):
        self.server = server
        self.stops = threading.Event()
        self.failures = []
        self.done = 0
        work = [lambda number=number: self.write(number) for number in range(CLIENTS)] + [self.define]
        self.threads = [threading.Thread(target=self.run, args=(one,)) for one in work]
        for thread in self.threads:
            thread.start()

    def run(self, work):
        try:
            work()
        except Exception as error:  # told by whoever waits
            self.failures.append(error)

    def write(self, number):
        rng = random.Random(number)
        connection = self.server.connect()
        cursor = connection.cursor()
        row = 0
        while not self.stops.is_set():
            row += 1
            key = row * CLIENTS + number
            try:
                cursor.execute("BEGIN")
                cursor.execute("INSERT INTO d.w VALUES (%s, %s, REPEAT(%s, 300))", (key, rng.randrange(1000), str(key)))
                cursor.execute("INSERT INTO d.i VALUES (%s)", (key,))
                cursor.execute("INSERT INTO d.parts VALUES (%s, %s)", (key, row))
                cursor.execute("UPDATE d.w SET a = a + 1 WHERE a = %s LIMIT 3", (rng.randrange(1000),))
                if row % 3 == 0:
                    gone = rng.randrange(row) * CLIENTS + number
                    for table in TABLES:
                        cursor.execute(f"DELETE FROM {table} WHERE id = %s", (gone,))
                cursor.execute("COMMIT" if row % 10 else "ROLLBACK")
                self.done += 1
            except pymysql.err.Error as error:
                if error.args[0] not in PASSING:
                    raise
                cursor.execute("ROLLBACK")

    def define(self):
        cursor = self.server.connect().cursor()
        number = 0
        while not self.stops.is_set():
            number += 1
            for statement in (f"CREATE TABLE d.t{number} (id INT PRIMARY KEY, a INT) ENGINE=WEIR",
                              f"INSERT INTO d.t{number} VALUES (1, {number})",
                              f"ALTER TABLE d.t{number} ADD COLUMN b INT DEFAULT {number}, ADD INDEX (a)",
                              f"DROP TABLE IF EXISTS d.t{max(number - 3, 0)}"):
                try:
                    cursor.execute(statement)
                except pymysql.err.Error as error:
                    if error.args[0] not in PASSING | {1146}:
                        raise
            time.sleep(0.02)

    def stop(self):
        self.stops.set()
        for thread in self.threads:
            thread.join()
        if self.failures:
            raise self.failures[0]


def rows(connection, statement):
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


def contents(connection):
    """Checksums of all tables of the database."""
    names = [name for (name,) in rows(connection, "SHOW TABLES FROM d")]
    return dict(rows(connection, "CHECKSUM TABLE " + ", ".join(f"d.{name}" for name in names)))


def begin_backup(server, directory, **how):
    return subprocess.Popen([HERE / "backup", directory, "--no-defaults", f"--socket={server.dir / 'socket'}", "--user=root"], **how)


def back_up(server, directory):
    first = begin_backup(server, directory)
    while not directory.exists() and first.poll() is None:
        time.sleep(0.01)
    # Another one meanwhile is refused, and leaves it alone.
    other = begin_backup(server, directory.with_name("other"), stderr=subprocess.PIPE, text=True)
    refusal = other.communicate()[1]
    if "another backup" not in refusal:
        raise Failure(f"a second backup at once isn't refused: {other.returncode}, {refusal}")
    if first.wait():
        raise Failure(f"the backup failed: {first.returncode}")
    file, position, *_ = (directory / "xtrabackup_binlog_info").read_text().split()
    return file, int(position)


def replay(source, restored, file, position):
    """Gives the restored server what the source's binary log has from a position on."""
    files = [path for path in sorted(source.data.glob("binlog.[0-9]*")) if path.name >= file]
    log = subprocess.Popen(["mariadb-binlog", "--no-defaults", f"--start-position={position}", *files], stdout=subprocess.PIPE)
    subprocess.run(["mariadb", "--no-defaults", f"--socket={restored.dir / 'socket'}", "--user=root"], stdin=log.stdout, check=True)
    if log.wait():
        raise Failure("mariadb-binlog failed")


def check(source, end, restored, file, position):
    connection = restored.wait_until_ready()
    tables = {name for (name,) in rows(connection, "SHOW TABLES FROM d")}
    for name in sorted(tables):
        findings = [line for line in rows(connection, f"CHECK TABLE d.{name}") if line[2:] != ("status", "OK")]
        if findings:
            raise Failure(f"CHECK TABLE: {findings}")
    for other in ("i", "parts"):
        lone = rows(connection, f"SELECT (SELECT COUNT(*) FROM d.w LEFT JOIN d.{other} o USING (id) WHERE o.id IS NULL), "
                                f"(SELECT COUNT(*) FROM d.{other} o LEFT JOIN d.w USING (id) WHERE w.id IS NULL)")[0]
        if lone != (0, 0):
            raise Failure(f"transactions are torn: {lone[0]} rows of d.w that d.{other} lacks, {lone[1]} that d.w lacks")
    count = rows(connection, "SELECT COUNT(*) FROM d.w")[0][0]
    replay(source, restored, file, position)
    found = contents(connection)
    if found != end:
        differ = sorted(name for name in found.keys() | end.keys() if found.get(name) != end.get(name))
        raise Failure(f"with the binary log from {file}:{position} on, these tables differ from the source's: {differ}")
    connection.close()
    return count


def main():
    parser = argparse.ArgumentParser(prog="mariadb/backup --check", description=__doc__)
    parser.add_argument("--backups", type=positive, default=3)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    rng = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory(prefix="weir-backup-") as place:
        place = pathlib.Path(place)
        servers = [Server(place / "source", 0)]
        try:
            source = servers[0]
            source.launch(rng)
            connection = source.wait_until_ready()
            rows(connection, "CREATE DATABASE d")
            rows(connection, "CREATE TABLE d.w (id BIGINT PRIMARY KEY, a INT, b VARCHAR(6000), KEY (a)) ENGINE=WEIR")
            rows(connection, "CREATE TABLE d.i (id BIGINT PRIMARY KEY) ENGINE=INNODB")
            rows(connection, "CREATE TABLE d.parts (id BIGINT PRIMARY KEY, a INT, KEY (a)) ENGINE=WEIR "
                             "PARTITION BY HASH (id) PARTITIONS 3")
            load = Load(source)
            positions = []
            for number in range(arguments.backups):
                time.sleep(rng.uniform(0.5, 2))
                restored = Server(place / f"restored-{number}", 0)
                positions.append(back_up(source, restored.data))
                servers.append(restored)
            time.sleep(0.5)
            load.stop()
            end = contents(connection)
            connection.close()
            for restored, (file, position) in zip(servers[1:], positions):
                restored.launch(rng)
                count = check(source, end, restored, file, position)
                print(f"backup at {file}:{position}: {count} rows, whole; with the log from there on as the source", flush=True)
                restored.shut_down()
            source.shut_down()
            for server in servers:
                if complaints := server.complaints():
                    raise Failure(f"the error log of {server.dir.name} says: {complaints}")
            print(f"{len(positions)} backups under {load.done} transactions: passed")
        finally:
            for server in servers:
                if server.process and server.process.poll() is None:
                    server.kill()


if __name__ == "__main__":
    main()
