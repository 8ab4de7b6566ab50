//! A real process under load, killed at random moments and opened again.
//!
//! Threads of a child process commit transactions that follow from seed, thread and number alone,
//! and note each commit that has returned in a file. The parent kills the child, opens the database
//! itself, and compares: what was acknowledged is there; of each thread's next transaction all or
//! nothing; what was rolled back is not there; indexes agree; the structure is sound. The next
//! child goes on from there. Some are killed while they recover.
//!
//! `WEIR_KILLS=1000` for more rounds than 20.

#![allow(clippy::unwrap_used)]

mod common;

use common::plan::*;
use common::*;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use weir::{Database, Durability, Error, Options};

fn small() -> Options {
    options(2 << 20, 1 << 20)
}

fn acks(dir: &Path, thread: u64) -> PathBuf {
    dir.with_extension(format!("acks-{thread}"))
}

/// Runs until it is killed. `next` is each thread's first number.
fn child(dir: &Path, seed: u64, next: &[u64]) {
    let db = Database::open(dir, small()).unwrap();
    let table = match db.table("items") {
        Some(table) => table,
        None => db.create_table("items", items()).unwrap(),
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (db, table, mut number) = (&db, &table, next[thread as usize]);
            scope.spawn(move || {
                let path = acks(dir, thread);
                let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
                loop {
                    let plan = Plan::of(seed, thread, number);
                    plan.run(db, table, Durability::Write).unwrap();
                    file.write_all(&number.to_le_bytes()).unwrap();
                    number += 1;
                }
            });
        }
        let (db, table) = (&db, &table);
        scope.spawn(move || {
            for round in 0.. {
                std::thread::sleep(Duration::from_millis(20));
                match round % 4 {
                    0 => db.set_redo_capacity(4 << 20).map(drop).unwrap(),
                    1 => db.set_redo_capacity(1 << 20).map(drop).unwrap(),
                    2 if table.schema().unwrap().indexes().len() == 2 => {
                        db.create_index(table, "extra", &["a", "b"], true).unwrap();
                    }
                    2 => db.drop_index(table, "extra").unwrap(),
                    _ => {
                        let other = db.create_table("passing", items());
                        if let Some(other) = other.ok().or_else(|| db.table("passing")) {
                            db.drop_table(&other).unwrap();
                        }
                    }
                }
            }
        });
    });
}

/// The last number that the thread has noted, if any.
fn acknowledged(dir: &Path, thread: u64) -> Option<u64> {
    let bytes = fs::read(acks(dir, thread)).ok()?;
    let whole = bytes.len() / 8 * 8;
    let last = bytes[..whole].last_chunk::<8>()?;
    Some(u64::from_le_bytes(*last))
}

/// What somebody finds who opens the directory to be read only, and leaves it as it is.
fn read_only(dir: &Path) -> Vec<(u64, Item)> {
    let before = dir.exists().then(|| seen(dir));
    let found = match Database::open(dir, small().read_only(true)) {
        Ok(db) => db.table("items").map_or_else(Vec::new, |table| found_in(&db, &table)),
        // It was killed before there was one.
        Err(Error::NoDatabase { .. }) => Vec::new(),
        Err(error) => panic!("read-only: {error}"),
    };
    assert!(dir.exists().then(|| seen(dir)) == before, "a reader has changed something");
    found
}

#[test]
fn what_was_acknowledged_survives_a_kill() {
    if let Ok(next) = std::env::var("WEIR_TEST_CHILD") {
        let next: Vec<u64> = next.split(',').map(|n| n.parse().unwrap()).collect();
        let dir = std::env::var_os("WEIR_TEST_DIR").unwrap();
        child(Path::new(&dir), env_number("WEIR_SEED", 0), &next);
    }
    let _watchdog = Watchdog::new("kills");
    let (seed, scratch) = (seed(), tempfile::tempdir().unwrap());
    let dir = scratch.path().join("db");
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut next = [0u64; THREADS as usize];
    let mut models: Vec<Model> = vec![Model::new(); THREADS as usize];
    for round in 0..env_number("WEIR_KILLS", 20) {
        let numbers: Vec<String> = next.iter().map(u64::to_string).collect();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "what_was_acknowledged_survives_a_kill", "--nocapture"])
            .env("WEIR_TEST_CHILD", numbers.join(","))
            .env("WEIR_TEST_DIR", &dir)
            .env("WEIR_SEED", seed.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let wait_ms = if rng.u8(..3) == 0 { rng.u64(..30) } else { rng.u64(..500) };
        std::thread::sleep(Duration::from_millis(wait_ms));
        let ended = child.try_wait().unwrap();
        child.kill().unwrap();
        let output = child.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(ended.is_none(), "round {round}: the child ended by itself: {told}");

        for thread in 0..THREADS {
            let last = acknowledged(&dir, thread);
            while last.is_some_and(|last| next[thread as usize] <= last) {
                Plan::of(seed, thread, next[thread as usize]).apply(&mut models[thread as usize]);
                next[thread as usize] += 1;
            }
        }
        // What was in doubt is done again by the next child, which changes nothing if it was done.
        if rng.u8(..4) == 0 {
            // Left for the next child to recover, perhaps to be killed in the midst of it.
            continue;
        }
        let what = |thread: u64| format!("seed {seed}, round {round}, thread {thread}");
        let read = read_only(&dir);
        let db = Database::open(&dir, small()).unwrap_or_else(|e| panic!("{}: {e}", what(0)));
        let found = match db.table("items") {
            Some(table) => found_in(&db, &table),
            None => Vec::new(),
        };
        same(&read, &found, "read-only and afterwards");
        for thread in 0..THREADS {
            let (at, model) = (thread as usize, &mut models[thread as usize]);
            let found = found_of(&found, thread);
            if found != rows_of(model) {
                // The transaction in flight may have been committed, and then all of it.
                Plan::of(seed, thread, next[at]).apply(model);
                next[at] += 1;
                same(&rows_of(model), &found, &what(thread));
            }
        }
        check_quiet(&db);
    }
    assert!(next.iter().sum::<u64>() > 0, "something was committed");
    eprintln!("transactions: {next:?}");
}
