//! Cost of the hot path, rate of group commit, speed of reading: `cargo bench -p weir-redo`.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use weir_os::{Backend, SimDisk, open_directory};
use weir_redo::{Admission, Reader, Redo, RedoOptions};

const ROUNDS: usize = 40;
const GROUPS: usize = 100_000;

fn main() {
    hot_path();
    commits();
}

/// Threads that append 250 bytes and wait for them to be durable, in a real directory; then the
/// reader.
fn commits() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let disk = open_directory(directory.path(), Backend::Threads).expect("opens");
    let o = RedoOptions { capacity_bytes: 1 << 30, ..RedoOptions::default() };
    let redo = Redo::create(disk.clone(), &o).expect("created");
    let start = redo.reserved();
    for threads in [1, 4, 16, 64] {
        let each = 400;
        let began = Instant::now();
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    for _ in 0..each {
                        let credit = redo.try_admit(250, Admission::User).expect("there is space");
                        let end = redo.append(credit, &[3; 250]).end;
                        redo.wait_durable(end).expect("durable");
                    }
                });
            }
        });
        let rate = (threads * each) as f64 / began.elapsed().as_secs_f64();
        println!("{threads:>3} threads: {rate:>9.0} commits/s");
    }
    let filler = [5; 900];
    while redo.reserved().0 < start.0 + (700 << 20) {
        match redo.try_admit(filler.len(), Admission::User) {
            Ok(credit) => {
                redo.append(credit, &filler);
            }
            Err(_) => {
                redo.write_step(false).expect("written");
            }
        }
    }
    let end = redo.write_step(true).expect("durable");
    drop(redo);
    let began = Instant::now();
    let mut reader = Reader::open(disk.clone(), o.database_id, start).expect("opens");
    let mut groups = 0u64;
    while reader.next().expect("whole").is_some() {
        groups += 1;
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("reader: {groups} groups, {:.0} MB/s", (end.0 - start.0) as f64 / 1e6 / seconds);
    let began = Instant::now();
    Redo::open_at(disk, &o, start, end).expect("opens");
    println!("open_at: {:.0} ms", began.elapsed().as_secs_f64() * 1e3);
}

fn hot_path() {
    for payload in [20, 60, 250, 4000, 16_000] {
        let bytes = vec![7u8; payload];
        let groups = GROUPS.min((12 << 20) / (payload + 16));
        let o = RedoOptions {
            capacity_bytes: 64 << 20,
            segment_bytes: 16 << 20,
            buffer_bytes: 16 << 20,
            database_id: 1,
        };
        let redo = Redo::create(Arc::new(SimDisk::new(1)), &o).expect("the simulated disk works");
        let (mut best, mut total) = (Duration::MAX, Duration::ZERO);
        for _ in 0..ROUNDS {
            let start = Instant::now();
            for _ in 0..groups {
                let credit = redo.try_admit(payload, Admission::User).expect("there is space");
                redo.append(credit, &bytes);
            }
            let elapsed = start.elapsed();
            best = best.min(elapsed);
            total += elapsed;
            let end = redo.write_step(true).expect("the simulated disk works");
            redo.set_checkpoint(end).expect("the simulated disk works");
        }
        let per = |time: Duration| time.as_nanos() as f64 / groups as f64;
        println!(
            "payload {payload:>6}: mean {:>7.1} ns, best round {:>7.1} ns per admit and append",
            per(total) / ROUNDS as f64,
            per(best)
        );
    }
}
