//! Speed of single operations on cached data: load with three indexes, point reads, scans.
//!
//! `cargo run --release -p weir --example speed -- [ROWS] [THREADS]` prints rows/s and CPU per
//! operation. The rows are those of the Insert Benchmark. It takes 1 KiB of disk for the redo of
//! each, and up to 6 GiB of memory.

use std::time::{Duration, Instant};
use weir::{
    Bounds, Database, Direction, Durability, IndexRef, Isolation, Options, Schema, Table, Type,
    Value,
};

fn schema() -> Schema {
    Schema::builder()
        .column("transactionid", Type::U64)
        .column("dateandtime", Type::I64)
        .column("cashregisterid", Type::U64)
        .column("customerid", Type::U64)
        .column("productid", Type::U64)
        .column("price", Type::U64)
        .column("data", Type::Text)
        .primary_key(&["transactionid"])
        .index("product", &["productid", "customerid", "price"])
        .index("register", &["cashregisterid", "customerid", "price"])
        .index("price", &["price", "dateandtime", "customerid"])
        .build()
        .expect("the schema is valid")
}

fn load(db: &Database, table: &Table, rows: u64, seed: u64) -> weir::Result<()> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut id = 0;
    while id < rows {
        let mut txn = db.begin(Isolation::RepeatableRead)?;
        for _ in 0..100.min(rows - id) {
            id += 1;
            let data = [b'a'; 8];
            txn.insert(
                table,
                &[
                    Value::U64(id),
                    Value::I64((id / 1000) as i64),
                    Value::U64(rng.u64(0..1000)),
                    Value::U64(rng.u64(0..100_000)),
                    Value::U64(rng.u64(0..10_000)),
                    Value::U64(rng.u64(0..500)),
                    Value::Text(std::str::from_utf8(&data).expect("ASCII")),
                ],
            )?;
        }
        txn.commit()?;
    }
    Ok(())
}

fn per(cpu: Duration, n: u64) -> f64 {
    cpu.as_secs_f64() * 1e6 / n as f64
}

fn main() -> weir::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |nth: usize, default| args.get(nth).map_or(Some(default), |arg| arg.parse().ok());
    let (Some(rows), Some(threads @ 1..=1024)) = (number(0, 2_000_000), number(1, 1_u64)) else {
        eprintln!("usage: speed [ROWS] [THREADS]");
        std::process::exit(2);
    };
    let dir = tempfile::tempdir().expect("a directory for the database");
    let options = Options::default()
        .memory_bytes(6 << 30)
        .redo_capacity_bytes((rows << 10).max(64 << 20))
        .durability(Durability::Write);
    let db = Database::open(dir.path(), options)?;
    let tables: Vec<Table> = (0..threads)
        .map(|n| db.create_table(&format!("t{n}"), schema()))
        .collect::<weir::Result<_>>()?;
    let (started, cpu) = (Instant::now(), weir_os::process::cpu_time()?);
    std::thread::scope(|scope| {
        let loads: Vec<_> = tables
            .iter()
            .enumerate()
            .map(|(n, table)| {
                let db = &db;
                scope.spawn(move || load(db, table, rows / threads, n as u64))
            })
            .collect();
        loads.into_iter().try_for_each(|t| t.join().expect("a loader doesn't panic"))
    })?;
    let seconds = started.elapsed().as_secs_f64();
    let now = weir_os::process::cpu_time()?;
    let used = (now.user + now.system) - (cpu.user + cpu.system);
    println!("load: {:.0} rows/s, {:.2} us CPU per row", rows as f64 / seconds, per(used, rows));
    let status = db.status();
    println!("redo: {:.0} bytes per row", status.lsn_current as f64 / rows as f64);

    let mut rng = fastrand::Rng::with_seed(1);
    let mut txn = db.begin(Isolation::RepeatableRead)?;
    let reads = 1_000_000;
    for pass in ["warm-up", "point read"] {
        let cpu = weir_os::process::thread_cpu_time();
        for _ in 0..reads {
            let id = rng.u64(1..=rows / threads);
            assert!(txn.get(&tables[0], &[Value::U64(id)])?.is_some());
        }
        let used = weir_os::process::thread_cpu_time() - cpu;
        println!("{pass}: {:.3} us CPU", per(used, reads));
    }
    for index in [IndexRef::Primary, "product".into(), "register".into(), "price".into()] {
        let cpu = weir_os::process::thread_cpu_time();
        let mut cursor = txn.scan_keys(&tables[0], index, Bounds::all(), Direction::Forward)?;
        let mut n = 0u64;
        while cursor.next()?.is_some() {
            n += 1;
        }
        drop(cursor);
        let used = weir_os::process::thread_cpu_time() - cpu;
        println!("scan of {index:?}: {:.1} M rows/s per core", n as f64 / used.as_secs_f64() / 1e6);
    }
    Ok(())
}
