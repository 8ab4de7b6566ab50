//! What the plugin keeps in its database, changed from outside while it is unloaded.
//!
//! These start private servers and so need MariaDB and the plugin: `mariadb/test` runs them.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use mysql::prelude::Queryable;
use mysql::{Conn, OptsBuilder};
use std::thread;
use std::time::Duration;
use weir::{Database, Options, Shutdown, Table};
use weir_bench::engine::{Durability, Limits};
use weir_bench::server::{PrivateServer, ServerSetup};

fn server() -> PrivateServer {
    let limits =
        Limits { memory_bytes: 64 << 20, redo_bytes: 48 << 20, durability: Durability::Write };
    let command = ServerSetup::default_command();
    let setup = ServerSetup { command, limits, binlog: false, dir: None };
    setup.start(&"weir".parse().unwrap()).unwrap()
}

fn connect(server: &PrivateServer) -> Conn {
    let options = OptsBuilder::new().user(Some("root")).socket(server.socket().to_str());
    Conn::new(options).unwrap()
}

fn number(conn: &mut Conn, query: &str) -> u64 {
    conn.query_first(query).unwrap().unwrap()
}

/// Does something to the database of a server's plugin, which is unloaded meanwhile.
fn unloaded<T>(server: &PrivateServer, act: impl FnOnce(&Database) -> T) -> T {
    let mut conn = connect(server);
    conn.query_drop("UNINSTALL SONAME 'ha_weir'").unwrap();
    let left = "SELECT COUNT(*) FROM information_schema.plugins WHERE plugin_name = 'WEIR'";
    // Connections that have used it, and tables, let go of it after their client has heard that they are closed.
    while number(&mut conn, left) > 0 {
        thread::sleep(Duration::from_millis(10));
    }
    let options = Options::default().memory_bytes(16 << 20);
    let database = Database::open(server.data_dir().join("weir"), options).unwrap();
    let done = act(&database);
    database.close(Shutdown::Fast, &mut |_| {}).unwrap();
    conn.query_drop("INSTALL SONAME 'ha_weir'").unwrap();
    done
}

fn table(database: &Database) -> Table {
    database.table("d/t").unwrap()
}

#[test]
#[ignore = "needs MariaDB; mariadb/test runs it"]
fn what_a_newer_plugin_keeps_with_a_table_is_not_written_over() {
    let server = server();
    let mut conn = connect(&server);
    for statement in [
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY, a INT) ENGINE=WEIR",
        "INSERT INTO d.t VALUES (1, 1), (2, 2)",
        "ALTER TABLE d.t ADD COLUMN b INT NOT NULL DEFAULT 7, ALGORITHM=INSTANT",
        "FLUSH TABLES",
    ] {
        conn.query_drop(statement).unwrap();
    }
    drop(conn);
    let (meta, newer) = unloaded(&server, |database| {
        let meta = table(database).meta().unwrap();
        let newer = [&[9], &meta[1..]].concat();
        database.set_meta(&table(database), &newer).unwrap();
        (meta, newer)
    });
    let mut conn = connect(&server);
    for statement in [
        "SELECT * FROM d.t",
        "INSERT INTO d.t (a) VALUES (3)",
        "ALTER TABLE d.t AUTO_INCREMENT = 100",
        "ALTER TABLE d.t ADD KEY (a), ALGORITHM=INPLACE",
        "TRUNCATE TABLE d.t",
    ] {
        assert!(conn.query_drop(statement).is_err(), "{statement}");
    }
    drop(conn);
    unloaded(&server, |database| {
        assert_eq!(table(database).meta().unwrap(), newer);
        database.set_meta(&table(database), &meta).unwrap();
    });
    let mut conn = connect(&server);
    assert_eq!(number(&mut conn, "SELECT SUM(b) FROM d.t"), 14);
    conn.query_drop("INSERT INTO d.t (a) VALUES (3)").unwrap();
    assert_eq!(number(&mut conn, "SELECT MAX(id) FROM d.t"), 3);
    drop(conn);
    server.stop().unwrap();
}
