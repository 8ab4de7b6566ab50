//! What an embedding program does every day: a table with indexes, transactions of several threads
//! that may have to be tried again, ranges, duplicates, an index added later, a backup, figures for
//! Prometheus.
//!
//! `cargo run --release -p weir --example accounts -- [DIR]`; without a directory a temporary one
//! is used and removed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use weir::{
    Bounds, Database, Direction, Error, Isolation, Options, Result, Schema, Shutdown,
    StatusAddress, Table, Transaction, Type, Value,
};

const ACCOUNTS: u64 = 100;
const BALANCE: i64 = 1000;
/// Places of columns.
const ID: usize = 0;
const CENTS: usize = 2;

fn main() -> Result<()> {
    let temporary = tempfile::tempdir().expect("a temporary directory");
    let dir = std::env::args().nth(1).map_or(temporary.path().to_path_buf(), PathBuf::from);
    let db = open(&dir)?;
    let accounts = accounts(&db)?;
    fill(&db, &accounts)?;

    // A `Database` is shared by threads; each transaction belongs to one of them.
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (db, accounts) = (&db, &accounts);
            scope.spawn(move || work(db, accounts, thread).expect("nothing else goes wrong"));
        }
    });

    print_owner(&db, &accounts, "Ada")?;
    print_richest(&db, &accounts)?;
    println!("all together: {}", sum(&db, &accounts)?);
    back_up(&db)?;
    if let Some(address) = db.status_address() {
        println!("figures: curl http://{address}/metrics, or weir top {address}");
    }
    // Without this the next open applies the log, which is as safe. (A failed drop has nobody to
    // tell.)
    db.close(Shutdown::Clean, &mut |_| {})
}

fn open(dir: &Path) -> Result<Database> {
    let options = Options::default()
        .memory_bytes(64 << 20)
        .redo_capacity_bytes(64 << 20)
        .lock_wait_timeout(Duration::from_secs(5))
        // Port 0: any that is free.
        .status_listen(StatusAddress::loopback(0));
    Database::open(dir, options)
}

/// The table, made when the database is new.
fn accounts(db: &Database) -> Result<Table> {
    if let Some(table) = db.table("accounts") {
        return Ok(table);
    }
    let schema = Schema::builder()
        .column("id", Type::U64)
        .column("owner", Type::Text)
        .column("cents", Type::I64)
        .primary_key(&["id"])
        .index("by_owner", &["owner"])
        .build()?;
    db.create_table("accounts", schema)
}

/// Rows of one statement are inserted together, which is faster than one by one.
fn fill(db: &Database, accounts: &Table) -> Result<()> {
    let owners = ["Ada", "Charles", "Grace"];
    let row = |id: u64| {
        let owner = owners[id as usize % owners.len()];
        [Value::from(id), Value::from(owner), Value::from(BALANCE)]
    };
    let rows: Vec<_> = (0..ACCOUNTS).map(row).collect();
    let mut txn = db.begin(Isolation::RepeatableRead)?;
    match txn.insert_many(accounts, &rows) {
        Ok(()) => txn.commit(),
        // The statement did nothing, the transaction could go on: here it has nothing else to do.
        Err(Error::Duplicate { index, .. }) => {
            println!("filled by an earlier run: duplicate in {index}");
            txn.rollback()
        }
        Err(error) => Err(error),
    }
}

fn work(db: &Database, accounts: &Table, thread: u64) -> Result<()> {
    for n in 0..1000 {
        let (from, to) = ((thread * 31 + n * 7) % ACCOUNTS, (thread * 17 + n * 3) % ACCOUNTS);
        let cents = 1 + (n % 7) as i64;
        if from != to {
            // Whoever is rolled back for a deadlock, for example, begins again.
            db.run(Isolation::RepeatableRead, |txn| transfer(txn, accounts, from, to, cents))?;
        }
    }
    Ok(())
}

fn transfer(txn: &mut Transaction, accounts: &Table, from: u64, to: u64, cents: i64) -> Result<()> {
    for (id, change) in [(from, -cents), (to, cents)] {
        // What is read to be changed is locked: `get` alone reads the snapshot, which others may
        // have left behind.
        let row = txn.get_for_update(accounts, &[id.into()])?.expect("accounts stay");
        let balance = row.get(CENTS).as_i64().expect("it is a number") + change;
        txn.update_columns(accounts, &[id.into()], &[("cents", balance.into())])?;
    }
    Ok(())
}

/// A range of an index, by its first columns. The rows borrow from the cursor: it is no `Iterator`.
fn print_owner(db: &Database, accounts: &Table, owner: &str) -> Result<()> {
    let mut txn = db.begin(Isolation::RepeatableRead)?;
    let bounds = [owner.into()];
    let mut rows = txn.scan(accounts, "by_owner", Bounds::prefix(&bounds), Direction::Forward)?;
    let (mut count, mut cents) = (0, 0);
    while let Some(row) = rows.next()? {
        count += 1;
        cents += row.get(CENTS)?.as_i64().expect("it is a number");
    }
    println!("{owner} has {count} accounts with {cents} cents");
    Ok(())
}

/// An index can be added while the table is filled; `scan_keys` reads it alone, without the rows.
fn print_richest(db: &Database, accounts: &Table) -> Result<()> {
    match db.create_index(accounts, "by_cents", &["cents"], false) {
        Ok(()) | Err(Error::IndexExists { .. }) => {}
        Err(error) => return Err(error),
    }
    let mut txn = db.begin(Isolation::RepeatableRead)?;
    let mut keys = txn.scan_keys(accounts, "by_cents", Bounds::all(), Direction::Backward)?;
    for _ in 0..3 {
        let Some(key) = keys.next()? else { break };
        println!("account {:?} has {:?} cents", key.get(ID)?, key.get(CENTS)?);
    }
    Ok(())
}

/// A copy of the database while it is in use: others may write meanwhile.
fn back_up(db: &Database) -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut backup = db.begin_backup(dir.path())?;
    while backup.step()? {
        let progress = backup.progress();
        println!("backup: {} of {} bytes", progress.bytes_done, progress.bytes_total);
    }
    drop(backup);
    // It is a database like any other.
    let copy = open(dir.path())?;
    println!("all together in the backup: {}", sum(&copy, &accounts(&copy)?)?);
    Ok(())
}

/// All rows of one snapshot, whatever others do meanwhile.
fn sum(db: &Database, accounts: &Table) -> Result<i64> {
    let mut txn = db.begin(Isolation::RepeatableRead)?;
    let mut keys = txn.scan_keys(accounts, "by_cents", Bounds::all(), Direction::Forward)?;
    let mut sum = 0;
    while let Some(key) = keys.next()? {
        sum += key.get(CENTS)?.as_i64().expect("it is a number");
    }
    Ok(sum)
}
