//! Restart after a crash: how long until the first row is read, and until all is as it was.
//!
//! `cargo run --release -p weir --example restart -- [REDO_MIB] [ROWS] [UNCOMMITTED] [UPDATES]`
//! loads rows with three indexes and after each 100 changes a counter, so often that it comes to
//! UPDATES in all; then it writes more rows in a transaction that doesn't commit, and ends its
//! process at once (`abort`). Then it opens the database, reads the counter, and rows at random,
//! while the log is applied and the transaction taken back.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use weir::{Database, Durability, Isolation, Options, Schema, Table, Transaction, Type, Value};

const MEMORY: u64 = 8 << 30;
const READS: usize = 20_000;

fn schema() -> Schema {
    Schema::builder()
        .column("id", Type::U64)
        .column("customer", Type::U64)
        .column("product", Type::U64)
        .column("price", Type::U64)
        .column("data", Type::Text)
        .primary_key(&["id"])
        .index("product", &["product", "customer", "price"])
        .index("customer", &["customer", "price"])
        .index("price", &["price", "customer"])
        .build()
        .expect("the schema is valid")
}

fn insert(
    txn: &mut Transaction,
    table: &Table,
    id: u64,
    rng: &mut fastrand::Rng,
) -> weir::Result<()> {
    let (customer, product, price) = (rng.u64(..100_000), rng.u64(..10_000), rng.u64(..500));
    let numbers = [id, customer, product, price].map(Value::U64);
    let row: Vec<Value> = numbers.into_iter().chain([Value::Text("a row's text")]).collect();
    txn.insert(table, &row)
}

/// Loads rows, changes a counter meanwhile, leaves some rows uncommitted, and ends the process.
fn load(
    dir: &Path,
    redo_bytes: u64,
    rows: u64,
    uncommitted: u64,
    updates: u64,
) -> weir::Result<()> {
    let options = Options::default().memory_bytes(MEMORY).redo_capacity_bytes(redo_bytes);
    let db = Database::open(dir, options.durability(Durability::Relaxed))?;
    let table = db.create_table("items", schema())?;
    let counter = Schema::builder().column("id", Type::U64).column("count", Type::U64);
    let counters = db.create_table("counters", counter.primary_key(&["id"]).build()?)?;
    let mut rng = fastrand::Rng::with_seed(1);
    let mut counted = 0;
    for first in (0..rows).step_by(100) {
        let mut txn = db.begin(Isolation::RepeatableRead)?;
        (first..first + 100).try_for_each(|id| insert(&mut txn, &table, id, &mut rng))?;
        txn.commit()?;
        while counted < updates * (first + 100) / rows {
            let mut txn = db.begin(Isolation::RepeatableRead)?;
            counted += 1;
            txn.upsert(&counters, &[Value::U64(0), Value::U64(counted)])?;
            txn.commit()?;
        }
    }
    let mut txn = db.begin(Isolation::RepeatableRead)?;
    (rows..rows + uncommitted).try_for_each(|id| insert(&mut txn, &table, id, &mut rng))?;
    db.sync()?;
    std::process::abort()
}

fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted[(sorted.len() - 1) * percent / 100]
}

fn restart(dir: &Path, rows: u64) -> weir::Result<()> {
    let began = Instant::now();
    let db = Database::open(dir, Options::default().memory_bytes(MEMORY).create(false))?;
    let opened = began.elapsed();
    let table = db.table("items").expect("it was made");
    let counters = db.table("counters").expect("it was made");
    let read = Instant::now();
    let mut txn = db.begin(Isolation::RepeatableRead)?;
    let counter = txn.get(&counters, &[Value::U64(0)])?;
    txn.rollback()?;
    let counter_read = read.elapsed();
    let mut rng = fastrand::Rng::with_seed(2);
    let mut first = None;
    let mut times = Vec::with_capacity(READS);
    for _ in 0..READS {
        let read = Instant::now();
        let mut txn = db.begin(Isolation::RepeatableRead)?;
        let found = txn.get(&table, &[Value::U64(rng.u64(..rows))])?.is_some();
        txn.rollback()?;
        assert!(found, "a committed row is missing");
        times.push(read.elapsed());
        first.get_or_insert_with(|| began.elapsed());
    }
    times.sort_unstable();
    let at_reads = db.status();
    let left = at_reads.recovery_log_bytes_left;
    db.finish_recovery()?;
    let done = began.elapsed();
    let status = db.status();
    let mib = |bytes: u64| bytes >> 20;
    println!("log to be applied    {} MiB", mib(status.recovery_log_bytes));
    println!("open after           {opened:.2?}");
    println!("first row after      {:.2?}", first.expect("rows were read"));
    if let Some(row) = counter {
        println!("the counter          {counter_read:.2?}: {:?}", row.get(1));
    }
    println!(
        "{READS} rows at random  {:.2?} in all; p50 {:.1?}, p99 {:.1?}, longest {:.1?}; {} MiB were left then",
        times.iter().sum::<Duration>(),
        percentile(&times, 50),
        percentile(&times, 99),
        percentile(&times, 100),
        mib(left)
    );
    println!(
        "all done after       {done:.2?}: {} records applied, {} pages on demand",
        status.recovered_records, status.recovered_pages_on_demand
    );
    Ok(())
}

fn main() -> weir::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [dir, numbers @ ..] = &args[..]
        && let [redo, rows, uncommitted, updates] =
            numbers.iter().flat_map(|n| n.parse()).collect::<Vec<_>>()[..]
        && dir.parse::<u64>().is_err()
    {
        return load(Path::new(dir), redo, rows, uncommitted, updates);
    }
    let number = |nth: usize, default| args.get(nth).map_or(Ok(default), |arg| arg.parse());
    let (Ok(redo_mib), Ok(rows), Ok(uncommitted), Ok(updates)) =
        (number(0, 1024), number(1, 6_000_000_u64), number(2, 100_000), number(3, 0))
    else {
        eprintln!("usage: restart [REDO_MIB] [ROWS] [UNCOMMITTED] [UPDATES]");
        std::process::exit(2);
    };
    // They are committed a hundred at a time.
    let rows = rows.max(1).next_multiple_of(100);
    let dir = tempfile::tempdir().expect("a directory for the database");
    let program = std::env::current_exe().expect("the path of this program");
    println!(
        "{rows} rows and {uncommitted} uncommitted ones, {updates} updates, {redo_mib} MiB of redo"
    );
    let child = Command::new(program)
        .arg(dir.path())
        .args([redo_mib << 20, rows, uncommitted, updates].map(|n| n.to_string()))
        .status()
        .expect("this program runs itself");
    if child.signal().is_none() {
        eprintln!("restart: the load failed");
        std::process::exit(1);
    }
    restart(dir.path(), rows)
}
