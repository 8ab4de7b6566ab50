//! What threads cost one another: small transactions on cached data, by ever more threads.
//!
//! `cargo run --release -p weir --example scaling -- [THREADS] [ROUNDS]` prints transactions per
//! second and processor time per transaction, purge's included, for 1, 2, 4, ... threads (default:
//! one for each processor), as medians of rounds (default 5). Each transaction locks a row of its
//! own choice, changes it and its entry in an index, prepares and commits; nobody waits for the
//! device. Seeds are fixed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use weir::{Database, Durability, Isolation, Options, Schema, Table, Type, Value};
use weir_os::process::cpu_time;

const ROWS: u64 = 200_000;
const PAD: [u8; 100] = [7; 100];
const RUN: Duration = Duration::from_millis(1500);

fn schema() -> Schema {
    Schema::builder()
        .column("id", Type::U64)
        .column("k", Type::U64)
        .column("pad", Type::Bytes)
        .primary_key(&["id"])
        .index("k", &["k"])
        .build()
        .expect("the schema is valid")
}

fn fill(db: &Database, table: &Table) -> weir::Result<()> {
    let mut rng = fastrand::Rng::with_seed(1);
    for first in (0..ROWS).step_by(1000) {
        let mut txn = db.begin(Isolation::RepeatableRead)?;
        txn.set_durability(Durability::Relaxed);
        for id in first..first + 1000 {
            txn.insert(table, &[Value::U64(id), Value::U64(rng.u64(0..ROWS)), Value::Bytes(&PAD)])?;
        }
        txn.commit()?;
    }
    Ok(())
}

/// Changes rows until told to stop; returns how many.
fn change(db: &Database, table: &Table, thread: u64, stop: &AtomicBool) -> weir::Result<u64> {
    let mut rng = fastrand::Rng::with_seed(thread);
    let mut changed = 0u64;
    let mut txn = db.begin(Isolation::RepeatableRead)?;
    while !stop.load(Ordering::Relaxed) {
        txn.set_durability(Durability::Relaxed);
        let id = Value::U64(rng.u64(0..ROWS));
        txn.get_for_update(table, &[id])?;
        txn.update(table, &[id, Value::U64(rng.u64(0..ROWS)), Value::Bytes(&PAD)])?;
        changed += 1;
        txn.prepare(&[thread.to_be_bytes(), changed.to_be_bytes()].concat())?;
        db.wait(txn.commit_in_order()?)?;
        txn.begin_again(Isolation::RepeatableRead)?;
    }
    Ok(changed)
}

/// One round: transactions per second, and microseconds of a processor for each.
fn round(db: &Database, table: &Table, threads: u64) -> (f64, f64) {
    let (stop, changed) = (AtomicBool::new(false), AtomicU64::new(0));
    let used = || {
        let time = cpu_time().expect("there is /proc");
        (time.user + time.system).as_secs_f64()
    };
    let (began, used_before) = (Instant::now(), used());
    thread::scope(|scope| {
        for thread in 0..threads {
            let (stop, changed) = (&stop, &changed);
            scope.spawn(move || {
                let rows = change(db, table, thread, stop).expect("nothing is in the way");
                changed.fetch_add(rows, Ordering::Relaxed);
            });
        }
        thread::sleep(RUN);
        stop.store(true, Ordering::Relaxed);
    });
    let changed = changed.into_inner() as f64;
    (changed / began.elapsed().as_secs_f64(), (used() - used_before) / changed * 1e6)
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn main() -> weir::Result<()> {
    let mut args = std::env::args().skip(1).filter_map(|argument| argument.parse::<u64>().ok());
    let processors = thread::available_parallelism().map_or(1, usize::from) as u64;
    let most = args.next().unwrap_or(processors).max(1);
    let rounds = args.next().unwrap_or(5).max(1);
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let options = Options::default().memory_bytes(1 << 30).redo_capacity_bytes(1 << 30);
    let db = Database::open(dir.path(), options)?;
    let table = db.create_table("rows", schema())?;
    fill(&db, &table)?;
    let counts: Vec<u64> =
        std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|n| *n <= most).collect();
    // In turn, so that a change of the machine's pace meets all of them.
    let all: Vec<Vec<(f64, f64)>> = (0..rounds)
        .map(|_| counts.iter().map(|threads| round(&db, &table, *threads)).collect())
        .collect();
    println!("threads  transactions/s  speedup  CPU us each");
    let of = |nth: usize, figure: fn(&(f64, f64)) -> f64| {
        median(all.iter().map(|round| figure(&round[nth])).collect())
    };
    for (nth, threads) in counts.iter().enumerate() {
        let rate = of(nth, |round| round.0);
        let (speedup, cpu) = (rate / of(0, |round| round.0), of(nth, |round| round.1));
        println!("{threads:>7}  {rate:>14.0}  {speedup:>7.2}  {cpu:>11.2}");
    }
    Ok(())
}
