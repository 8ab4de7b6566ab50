//! Real threads: eight append and commit, one writes, one moves the checkpoint; then the log is
//! read.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use weir_os::{Backend, SimDisk, open_directory};
use weir_page::Lsn;
use weir_redo::{Admission, Appended, Credit, Reader, Redo, RedoOptions};

const THREADS: u64 = 8;
const GROUPS: u64 = 3000;

fn admit(redo: &Redo, bytes: usize) -> Credit<'_> {
    loop {
        match redo.try_admit(bytes, Admission::User) {
            Ok(credit) => return credit,
            Err(_) => redo.wait_for_space(Duration::from_millis(1)),
        }
    }
}

/// Thread, counter, and bytes that follow from them.
fn payload(thread: u64, counter: u64) -> Vec<u8> {
    let mut bytes = [thread.to_le_bytes(), counter.to_le_bytes()].concat();
    let mut rng = fastrand::Rng::with_seed(thread << 32 | counter);
    bytes.extend((0..rng.usize(..400)).map(|_| rng.u8(..)));
    bytes
}

fn append_all(redo: &Redo, thread: u64, commits: bool) -> Vec<Appended> {
    let mut places = Vec::new();
    for counter in 0..GROUPS {
        let bytes = payload(thread, counter);
        let credit = admit(redo, bytes.len() + 30);
        let place = redo.append(credit, &bytes);
        if commits && counter % 7 == 0 {
            redo.wait_durable(place.end).expect("durable");
            assert!(redo.durable() >= place.end);
        } else if commits && counter % 7 == 3 {
            redo.wait_written(place.end).expect("written");
            assert!(redo.written() >= place.end);
        }
        places.push(place);
    }
    places
}

fn options(capacity_bytes: u64, buffer_bytes: usize) -> RedoOptions {
    RedoOptions { capacity_bytes, segment_bytes: 64 << 10, buffer_bytes, database_id: 3 }
}

#[test]
fn threads_fill_a_log_without_gaps() {
    let disk = SimDisk::new(1);
    let redo = Redo::create(Arc::new(disk.clone()), &options(32 << 20, 32 << 10)).expect("created");
    let start = redo.reserved();
    let places = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (redo, places) = (&redo, &places);
            scope.spawn(move || {
                let mine = append_all(redo, thread, thread % 2 == 0);
                assert!(mine.is_sorted_by_key(|place| place.start));
                places.lock().expect("no panic").push((thread, mine));
            });
        }
    });
    let end = redo.reserved();
    redo.wait_durable(end).expect("durable");

    let places = places.into_inner().expect("no panic");
    let mut counters = [0u64; THREADS as usize];
    let mut reader = Reader::open(Arc::new(disk), 3, start).expect("opens").durable_hint(end);
    let mut at = start;
    while let Some(group) = reader.next().expect("whole") {
        assert_eq!(group.start, at, "contiguous");
        at = group.end;
        let thread = u64::from_le_bytes(group.payload[..8].try_into().expect("eight"));
        let counter = &mut counters[thread as usize];
        assert!(group.payload.starts_with(&payload(thread, *counter)), "in order, whole");
        let (_, mine) = places.iter().find(|p| p.0 == thread).expect("there");
        assert_eq!((mine[*counter as usize].start, mine[*counter as usize].end), (group.start, at));
        *counter += 1;
    }
    assert_eq!((at, counters), (end, [GROUPS; THREADS as usize]));
}

#[test]
fn a_log_in_a_real_directory_goes_on_after_a_restart() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let disk = open_directory(directory.path(), Backend::Threads).expect("opens");
    let o = options(512 << 10, 64 << 10);
    let redo = Redo::create(disk.clone(), &o).expect("created");
    let start = redo.reserved();
    let (mut end, mut counters) = (start, [0u64; 3]);
    drop(redo);
    for _ in 0..3 {
        let redo = Redo::open_at(disk.clone(), &o, start, end).expect("opens");
        thread::scope(|scope| {
            for (thread, &first) in (0..).zip(&counters) {
                let redo = &redo;
                scope.spawn(move || {
                    for counter in first..first + 50 {
                        let bytes = payload(thread, counter);
                        let place = redo.append(admit(redo, bytes.len()), &bytes);
                        redo.wait_durable(place.end).expect("durable");
                    }
                });
            }
        });
        counters = counters.map(|counter| counter + 50);
        drop(redo);
        let mut reader = Reader::open(disk.clone(), 3, start).expect("opens");
        let mut seen = [0u64; 3];
        while let Some(group) = reader.next().expect("whole") {
            let thread = u64::from_le_bytes(group.payload[..8].try_into().expect("eight"));
            let counter = &mut seen[thread as usize];
            assert!(group.payload.starts_with(&payload(thread, *counter)));
            *counter += 1;
        }
        assert_eq!(seen, counters);
        end = reader.end().expect("ended");
    }
}

#[test]
fn threads_wait_for_space_while_the_checkpoint_moves() {
    let disk = SimDisk::new(2);
    let redo = Redo::create(Arc::new(disk), &options(256 << 10, 16 << 10)).expect("created");
    let (done, left) = (AtomicBool::new(false), AtomicU64::new(THREADS));
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (redo, done, left) = (&redo, &done, &left);
            scope.spawn(move || {
                append_all(redo, thread, thread % 2 == 0);
                if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                    done.store(true, Ordering::Release);
                }
            });
        }
        let mut round = 0u64;
        while !done.load(Ordering::Acquire) {
            let durable = redo.write_step(true).expect("durable");
            redo.set_checkpoint(durable).expect("moved");
            round += 1;
            if round.is_multiple_of(5) {
                redo.set_capacity((4 + round % 4) * (64 << 10)).expect("changed");
            }
            thread::yield_now();
        }
    });
    let end: Lsn = redo.reserved();
    redo.wait_durable(end).expect("durable");
    redo.set_checkpoint(end).expect("moved");
    assert_eq!(redo.checkpoint_age(), 0);
}
