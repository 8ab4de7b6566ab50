//! Interleavings under shuttle: `cargo test -p weir-redo --features shuttle interleavings`.
//!
//! The whole log runs on shuttle's atomics, locks and threads, over a simulated disk; orders of
//! threads are chosen at random and by the PCT algorithm (few preemptions, at the worst places).
//! Shuttle knows sequentially consistent memory only.

use std::sync::Arc;

use shuttle::{check_pct, check_random, thread};
use weir_os::SimDisk;
use weir_os::sim::{CrashProfile, Fault, OpKind, Times};
use weir_page::Lsn;

use crate::ring::{Claim, Ring};
use crate::sync::Mutex;
use crate::{Admission, Reader, Redo, RedoError, RedoOptions, Refused, group_bytes};

fn check(model: fn()) {
    check_random(model, 2000);
    check_pct(model, 2000, 3);
}

/// Reserve, publish, scan, copy, free: a ring of 256 bytes, so that it goes round.
#[test]
fn model_ring() {
    check(|| {
        const START: u64 = 4096 + 8 * 29;
        fn total_end() -> u64 {
            let payloads = (1..=3usize).flat_map(|id| (0..3usize).map(move |c| 20 * id + c));
            START + payloads.map(group_bytes).sum::<usize>() as u64
        }
        let ring = Arc::new(Ring::new(256, START, 0));
        let appenders: Vec<_> = (1..=3u8)
            .map(|id| {
                let ring = ring.clone();
                thread::spawn(move || {
                    for counter in 0..3u8 {
                        let payload = vec![id; 20 * id as usize + counter as usize];
                        let need = group_bytes(payload.len()) as u64;
                        while ring.claim(need, u64::MAX) != Claim::Taken {
                            thread::yield_now();
                        }
                        let (start, end) = ring.append(&payload, 0);
                        assert_eq!(end - start, need);
                    }
                })
            })
            .collect();
        let writer = {
            let ring = ring.clone();
            thread::spawn(move || {
                let mut log = Vec::new();
                while ring.written() < total_end() {
                    let from = ring.written();
                    let filled = ring.scan();
                    let mut bytes = vec![0; (filled - from) as usize];
                    ring.copy_out(from, &mut bytes);
                    ring.free_to(filled);
                    log.extend(bytes);
                    thread::yield_now();
                }
                log
            })
        };
        for appender in appenders {
            appender.join().expect("no panic");
        }
        let log = writer.join().expect("no panic");
        let mut seen = [0u8; 4];
        let mut at = 0;
        while at < log.len() {
            let len = crate::format::u32_at(&log, at) as usize;
            let id = log[at + 8];
            let bytes = 20 * id as usize + seen[id as usize] as usize;
            assert_eq!(len, group_bytes(bytes));
            assert!(log[at + 8..][..bytes].iter().all(|&b| b == id));
            let crc =
                crate::format::group_crc(START + at as u64, len as u32, &log[at + 8..at + len]);
            assert_eq!(crc, crate::format::u32_at(&log, at + 4));
            seen[id as usize] += 1;
            at += len;
        }
        assert_eq!(seen, [0, 3, 3, 3]);
    });
}

fn log() -> (SimDisk, Arc<Redo>) {
    let disk = SimDisk::new(1);
    let o =
        RedoOptions { capacity_bytes: 0, segment_bytes: 4096, buffer_bytes: 4096, database_id: 1 };
    let redo = Redo::create(Arc::new(disk.clone()), &o).expect("created");
    (disk, Arc::new(redo))
}

fn admit(redo: &Redo, bytes: usize) -> crate::Credit<'_> {
    loop {
        match redo.try_admit(bytes, Admission::System) {
            Ok(credit) => return credit,
            Err(refused) => assert_ne!(refused, Refused::Poisoned),
        }
        thread::yield_now();
    }
}

/// Group commit: nobody sleeps for ever, and whoever is told "durable" finds it after a crash.
#[test]
fn model_commit() {
    check(|| {
        let (disk, redo) = log();
        let acknowledged = Arc::new(Mutex::new(redo.reserved()));
        let threads: Vec<_> = (0..3u8)
            .map(|id| {
                let (redo, disk) = (redo.clone(), disk.clone());
                let acknowledged = acknowledged.clone();
                thread::spawn(move || {
                    for _ in 0..2 {
                        let end = redo.append(admit(&redo, 1500), &[id; 1400]).end;
                        match id {
                            0 => redo.wait_written(end).expect("written"),
                            _ => redo.wait_durable(end).expect("durable"),
                        }
                        if id > 0 {
                            let mut least = acknowledged.lock();
                            *least = (*least).max(end);
                            let found = disk.crash_as(1, CrashProfile::Nothing);
                            read_at_least(&found, *least);
                        }
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("no panic");
        }
    });
}

/// The checkpoint and the capacity move while others append.
#[test]
fn model_space() {
    check(|| {
        let (_, redo) = log();
        let appenders: Vec<_> = (0..2u8)
            .map(|id| {
                let redo = redo.clone();
                thread::spawn(move || {
                    for _ in 0..6 {
                        drop(admit(&redo, 8));
                        redo.append(admit(&redo, 2500), &[id; 2400]);
                    }
                })
            })
            .collect();
        let last = Lsn(4096 + 12 * 2408);
        let mut segments = 6;
        while redo.checkpoint() < last {
            redo.set_capacity(segments * 4096).expect("changed");
            segments = 10 - segments;
            let durable = redo.write_step(true).expect("durable");
            redo.set_checkpoint(durable).expect("moved");
            thread::yield_now();
        }
        for appender in appenders {
            appender.join().expect("no panic");
        }
        assert_eq!((redo.reserved(), redo.ring.claimed()), (last, last.0));
    });
}

/// The capacity shrinks while a claim is under way: the segment that the claim needs stays.
#[test]
fn model_shrink() {
    check(|| {
        let o = RedoOptions {
            capacity_bytes: 6 * 4096,
            segment_bytes: 4096,
            buffer_bytes: 32 << 10,
            database_id: 1,
        };
        let disk = SimDisk::new(1);
        let redo = Arc::new(Redo::create(Arc::new(disk.clone()), &o).expect("created"));
        let append = |redo: &Redo| {
            if let Ok(credit) = redo.try_admit(4800, Admission::System) {
                redo.append(credit, &[1; 4800]);
            }
        };
        (0..4).for_each(|_| append(&redo)); // the next one ends in the last segment but one
        let appender = {
            let redo = redo.clone();
            thread::spawn(move || append(&redo))
        };
        redo.set_capacity(0).expect("shrunk");
        appender.join().expect("no panic");
        redo.wait_durable(redo.reserved()).expect("its place is there");
        read_at_least(&disk, redo.reserved());
    });
}

/// The log becomes short enough for its reduced capacity while others still claim in the room as it
/// was: what they claim is within the room that there is then.
#[test]
fn model_settle() {
    check(|| {
        let o = RedoOptions {
            capacity_bytes: 12 * 4096,
            segment_bytes: 4096,
            buffer_bytes: 64 << 10,
            database_id: 1,
        };
        let redo = Redo::create(Arc::new(SimDisk::new(1)), &o).expect("created");
        let redo = Arc::new(redo);
        for _ in 0..3 {
            redo.append(admit(&redo, 4800), &[1; 4800]);
        }
        let durable = redo.write_step(true).expect("durable");
        redo.set_capacity(0).expect("shrunk");
        let (claimed, checked) = (Arc::new(Mutex::new(false)), Arc::new(Mutex::new(false)));
        let claimer = {
            let (redo, claimed, checked) = (redo.clone(), claimed.clone(), checked.clone());
            thread::spawn(move || {
                let credits: Vec<_> =
                    (0..4).map(|_| redo.try_admit(4800, Admission::System)).collect();
                *claimed.lock() = true;
                while !*checked.lock() {
                    thread::yield_now();
                }
                drop(credits);
            })
        };
        redo.set_checkpoint(durable).expect("moved");
        while !*claimed.lock() {
            thread::yield_now();
        }
        assert!(redo.ring.claimed() - redo.checkpoint().0 <= redo.room());
        *checked.lock() = true;
        claimer.join().expect("no panic");
    });
}

/// A sync fails: everybody who waits is told, and nobody is told "durable" wrongly.
#[test]
fn model_poison() {
    check(|| {
        let (disk, redo) = log();
        let at = disk.operations() + 2;
        disk.inject(Fault::Io { on: Some(OpKind::Sync), at, times: Times::Once });
        let threads: Vec<_> = (0..3u8)
            .map(|id| {
                let redo = redo.clone();
                thread::spawn(move || {
                    for _ in 0..2 {
                        let Ok(credit) = redo.try_admit(100, Admission::User) else { return None };
                        let end = redo.append(credit, &[id; 100]).end;
                        match redo.wait_durable(end) {
                            Ok(()) => assert!(redo.durable() >= end),
                            Err(error) => return Some(error),
                        }
                    }
                    None
                })
            })
            .collect();
        let errors: Vec<_> =
            threads.into_iter().filter_map(|t| t.join().expect("no panic")).collect();
        let first = errors.iter().filter(|e| matches!(e, RedoError::Disk(_))).count();
        assert_eq!(first, usize::from(!errors.is_empty()), "one is told the cause itself");
        read_at_least(&disk.crash_as(1, CrashProfile::Nothing), redo.durable());
    });
}

fn read_at_least(disk: &SimDisk, least: Lsn) {
    let reader = Reader::open(Arc::new(disk.clone()), 1, Lsn(4096)).expect("opens");
    let mut reader = reader.durable_hint(least);
    while reader.next().expect("not cut").is_some() {}
}
