//! What the tests of the public interface share.
#![allow(dead_code, clippy::unwrap_used)]

pub mod definitions;
pub mod plan;
pub mod staged;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir::{
    BackgroundStep, Bounds, Database, Direction, Durability, Error, IndexRef, Isolation, Options,
    RawEntry, Row, Schema, Table, Transaction, Type, Value,
};

/// A step of those that go on beside statements all the time: none of recovery.
pub fn step_beside_work(rng: &mut fastrand::Rng) -> BackgroundStep {
    use BackgroundStep::{
        FreeFrames, MoveCheckpoint, MoveStaged, Purge, SyncLog, TrimFile, WritePages,
    };
    let steps = [WritePages, MoveCheckpoint, Purge, FreeFrames, SyncLog, TrimFile, MoveStaged];
    steps[rng.usize(..steps.len())]
}

/// Whether this process has these limits, arguments of the shell's `ulimit`. If not, the named
/// test, which asks, is run again, alone, in one that has.
pub fn is_limited(test: &str, limits: &str) -> bool {
    const LIMITED: &str = "WEIR_TEST_LIMITED";
    if std::env::var_os(LIMITED).is_some() {
        return true;
    }
    let limited = format!("ulimit {limits}; exec \"$0\" --exact {test}");
    let ran = Command::new("sh")
        .args(["-c", &limited])
        .arg(std::env::current_exe().unwrap())
        .env(LIMITED, "")
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
    false
}

/// Aborts the process if it lives longer than a hang can be told from slow work.
pub struct Watchdog(Arc<AtomicBool>);

impl Watchdog {
    pub fn new(what: &'static str) -> Watchdog {
        let done = Arc::new(AtomicBool::new(false));
        let seen = done.clone();
        let limit = Duration::from_secs(60 * env_number("WEIR_TEST_MINUTES", 5));
        std::thread::spawn(move || {
            let started = Instant::now();
            while !seen.load(Ordering::Acquire) {
                if started.elapsed() > limit {
                    eprintln!("{what}: hangs (no end after {limit:?}); see WEIR_TEST_MINUTES");
                    std::process::abort();
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        Watchdog(done)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Whatever can be seen of a directory, but for when it was read last.
pub fn seen(dir: &Path) -> BTreeMap<String, (Vec<u8>, [i64; 7])> {
    let of = |path: &Path| {
        let found = fs::metadata(path).unwrap();
        let times = [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()];
        let [a, b, c, d] = times;
        [a, b, c, d, found.ino() as i64, i64::from(found.mode()), found.blocks() as i64]
    };
    let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let named = |path: PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, (fs::read(&path).unwrap(), of(&path)))
    };
    files.map(named).chain([(".".to_string(), (Vec::new(), of(dir)))]).collect()
}

/// `check` finds nothing.
pub fn assert_sound(db: &Database) {
    let mut findings = Vec::new();
    db.check(&mut |finding| findings.push(finding.to_string())).unwrap();
    assert!(findings.is_empty(), "{findings:#?}");
}

pub fn env_number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

/// How much longer than usual a test runs.
pub fn factor() -> u64 {
    env_number("WEIR_STRESS", 1)
}

/// The seed of this run; printed when a test fails.
pub fn seed() -> u64 {
    let seed = env_number("WEIR_SEED", fastrand::u64(..1 << 32));
    eprintln!("seed: WEIR_SEED={seed}");
    seed
}

/// `WEIR_STAGING_LEAVES=n` stages most index entries and merges them past that many leaves.
pub fn options(memory: u64, redo: u64) -> Options {
    let options = Options::default();
    let options = match std::env::var("WEIR_STAGING_LEAVES") {
        Ok(leaves) => options.staging_leaves(leaves.parse().unwrap()),
        Err(_) => options,
    };
    options
        .memory_bytes(memory)
        .redo_capacity_bytes(redo)
        .durability(Durability::Relaxed)
        .lock_wait_timeout(Duration::from_secs(60))
}

/// The same, with most index entries staged in so many leaves if there is a number.
pub fn with_staging(options: Options, leaves: Option<usize>) -> Options {
    match leaves {
        None => options,
        Some(leaves) => options.staging_leaves(leaves),
    }
}

/// `items(id, a, b unique, body)` with indexes `by_a` and `by_b`.
pub fn items() -> Schema {
    Schema::builder()
        .column("id", Type::U64)
        .column("a", Type::I64)
        .column("b", Type::Text)
        .column("body", Type::Bytes)
        .primary_key(&["id"])
        .index("by_a", &["a"])
        .unique_index("by_b", &["b"])
        .build()
        .unwrap()
}

/// A row of `items` as a model keeps it.
pub type Item = (i64, String, Vec<u8>);

pub fn item_of(row: &Row) -> (u64, Item) {
    let id = row.get(0).as_u64().unwrap();
    let b = row.get(2).as_str().unwrap().to_string();
    (id, (row.get(1).as_i64().unwrap(), b, row.get(3).as_bytes().unwrap().to_vec()))
}

pub fn values<'a>(id: u64, item: &'a Item) -> [Value<'a>; 4] {
    [Value::U64(id), Value::I64(item.0), Value::Text(&item.1), Value::Bytes(&item.2)]
}

/// All rows by an index.
pub fn rows(
    txn: &mut Transaction,
    table: &Table,
    index: IndexRef<'_>,
    direction: Direction,
) -> Result<Vec<Row>, Error> {
    let mut cursor = txn.scan(table, index, Bounds::all(), direction)?;
    let mut rows = Vec::new();
    while let Some(row) = cursor.next()? {
        rows.push(row.to_row()?);
    }
    Ok(rows)
}

/// All items of one snapshot; fails if any index in any direction tells another story.
pub fn all_items(txn: &mut Transaction, table: &Table) -> Vec<(u64, Item)> {
    let by_key: Vec<_> = rows(txn, table, IndexRef::Primary, Direction::Forward)
        .unwrap()
        .iter()
        .map(item_of)
        .collect();
    assert!(by_key.is_sorted_by(|x, y| x.0 < y.0), "the primary key is ascending");
    for index in [IndexRef::Primary, IndexRef::Named("by_a"), IndexRef::Named("by_b")] {
        for direction in [Direction::Forward, Direction::Backward] {
            let mut found: Vec<_> =
                rows(txn, table, index, direction).unwrap().iter().map(item_of).collect();
            if direction == Direction::Backward {
                found.reverse();
            }
            match index {
                IndexRef::Named("by_a") => {
                    assert!(found.is_sorted_by(|x, y| (x.1.0, x.0) < (y.1.0, y.0)), "by_a");
                }
                IndexRef::Named(_) => assert!(found.is_sorted_by(|x, y| x.1.1 < y.1.1), "by_b"),
                IndexRef::Primary => {}
            }
            found.sort_by_key(|item| item.0);
            same(&by_key, &found, &format!("{index:?} {direction:?}"));
        }
    }
    by_key
}

/// Where in memory a scan's entry lies: `take_rest` leaves it there, for callers who keep no more
/// than that.
pub struct Given([(*const u8, usize); 2]);

impl Given {
    pub fn of(entry: &RawEntry<'_>) -> Given {
        Given([entry.key, entry.value].map(|bytes| (bytes.as_ptr(), bytes.len())))
    }

    /// Key and value are there still. The scan has not gone on since.
    pub fn assert_is(&self, (key, value): &(Vec<u8>, Vec<u8>)) {
        for ((at, len), bytes) in self.0.into_iter().zip([key, value]) {
            // SAFETY: what a scan gives stays where it is until the scan goes on.
            assert!(unsafe { std::slice::from_raw_parts(at, len) } == bytes, "the entry has moved");
        }
    }
}

/// Compares without printing all of both.
pub fn same(expected: &[(u64, Item)], found: &[(u64, Item)], what: &str) {
    if expected == found {
        return;
    }
    let at = expected.iter().zip(found).position(|(x, y)| x != y);
    let at = at.unwrap_or(expected.len().min(found.len()));
    let brief = |rows: &[(u64, Item)]| {
        rows.get(at)
            .map(|(id, (a, b, body))| format!("id {id}, a {a}, b {b}, {} bytes", body.len()))
    };
    panic!(
        "{what}: {} rows expected, {} found; first difference at {at}: expected {:?}, found {:?}",
        expected.len(),
        found.len(),
        brief(expected),
        brief(found)
    );
}

/// What an engine that is in order has nothing left of, once no transaction runs.
pub fn check_quiet(db: &Database) {
    db.purge_all().unwrap();
    let status = db.status();
    assert_eq!(status.history_list_length, 0, "purge catches up");
    db.checkpoint().unwrap();
    let mut findings = Vec::new();
    db.check(&mut |finding| findings.push(finding.to_string())).unwrap();
    assert!(findings.is_empty(), "{findings:#?}");
    let status = db.status();
    assert!(status.checkpoint_age <= status.checkpoint_max_age);
}

/// Runs `step` again and again until it has committed; deadlock victims begin anew.
pub fn retried<T>(
    db: &Database,
    isolation: Isolation,
    mut step: impl FnMut(&mut Transaction) -> Result<T, Error>,
) -> T {
    loop {
        let mut txn = db.begin(isolation).unwrap();
        match step(&mut txn) {
            Ok(done) => {
                txn.commit().unwrap();
                return done;
            }
            Err(Error::Deadlock) => {}
            Err(error) => panic!("{error}"),
        }
    }
}
