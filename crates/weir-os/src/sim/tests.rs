//! Rules of durability over many crashes, faults one by one, and a model of the content.

use super::*;
use crate::{AlignedBuf, Io};
use std::collections::HashSet;
use std::io::ErrorKind;

const SEEDS: u64 = 400;

fn block(byte: u8) -> AlignedBuf {
    AlignedBuf::copy_of(&[byte; BLOCK])
}

fn open(disk: &SimDisk, name: &str) -> Arc<dyn File> {
    disk.open(name, Create::IfAbsent, Mode::Cached).unwrap()
}

/// A disk with a durable file of `blocks` blocks of ones.
fn disk_with(name: &str, blocks: u64) -> (SimDisk, Arc<dyn File>) {
    let disk = SimDisk::new(1);
    let file = open(&disk, name);
    (0..blocks).for_each(|i| drop(file.write(i * BLOCK as u64, block(1)).unwrap()));
    file.sync().unwrap();
    disk.sync_dir().unwrap();
    (disk, file)
}

fn content(disk: &SimDisk, name: &str) -> Option<Vec<u8>> {
    let file = disk.open(name, Create::No, Mode::Cached).ok()?;
    let len = file.len().unwrap() as usize;
    Some(file.read(0, AlignedBuf::zeroed(len)).unwrap().to_vec())
}

/// The values of the sectors of a file whose sectors each hold one value.
fn sectors(bytes: &[u8]) -> Vec<u8> {
    let uniform = |sector: &[u8]| {
        assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is torn");
        sector[0]
    };
    bytes.chunks(SECTOR).map(uniform).collect()
}

#[test]
fn synced_data_survives_every_crash() {
    let (disk, file) = disk_with("f", 5);
    file.write(BLOCK as u64, block(2)).unwrap();
    file.set_len(9 * BLOCK as u64).unwrap();
    file.punch(0, BLOCK as u64).unwrap();
    file.sync().unwrap();
    let expected = content(&disk, "f").unwrap();
    for seed in 0..SEEDS {
        assert_eq!(content(&disk.crash(seed), "f").unwrap(), expected, "seed {seed}");
    }
}

#[test]
fn each_unsynced_sector_holds_any_of_its_values() {
    let (disk, file) = disk_with("f", 1);
    file.write(0, block(2)).unwrap();
    file.write(512, AlignedBuf::copy_of(&[3; 1024])).unwrap();
    let (mut first, mut second) = (HashSet::new(), HashSet::new());
    let mut mixed = 0;
    for seed in 0..SEEDS {
        let found = sectors(&content(&disk.crash(seed), "f").unwrap());
        first.insert(found[0]);
        second.insert(found[1]);
        mixed += usize::from(found[3..].iter().any(|value| *value != found[3]));
    }
    assert_eq!(first, HashSet::from([1, 2]));
    assert_eq!(second, HashSet::from([1, 2, 3]));
    assert!(mixed > 0, "blocks are torn");
}

#[test]
fn many_versions_of_a_block_keep_the_last_and_the_durable_one() {
    let (disk, file) = disk_with("f", 1);
    (2..200).for_each(|value| drop(file.write(0, block(value)).unwrap()));
    let all = content(&disk.crash_as(0, CrashProfile::All), "f").unwrap();
    assert_eq!(all, [199; BLOCK]);
    let none = content(&disk.crash_as(0, CrashProfile::Nothing), "f").unwrap();
    assert_eq!(none, [1; BLOCK]);
}

#[test]
fn profiles_keep_what_they_say() {
    let (disk, file) = disk_with("f", 4);
    let numbers: Vec<u64> = (0..4)
        .map(|i| {
            file.write(i * BLOCK as u64, block(2)).unwrap();
            disk.shared.state.lock().seq
        })
        .collect();
    let blocks = |profile| {
        let found = content(&disk.crash_as(7, profile), "f").unwrap();
        found.chunks(BLOCK).map(sectors).collect::<Vec<_>>()
    };
    let (old, new) = (vec![1; 8], vec![2; 8]);
    let lost = blocks(CrashProfile::AllBut { lost: numbers[1] });
    assert_eq!(lost, [new.clone(), old.clone(), new.clone(), new.clone()]);
    let prefix = blocks(CrashProfile::Prefix { last: numbers[2] });
    assert_eq!((&prefix[0], &prefix[1], &prefix[3]), (&new, &new, &old));
    for torn in blocks(CrashProfile::Operations) {
        assert!(torn == old || torn == new);
    }
}

#[test]
fn lengths_are_durable_with_their_file() {
    let (disk, file) = disk_with("f", 1);
    file.set_len(3 * BLOCK as u64).unwrap();
    file.write(5 * BLOCK as u64, block(2)).unwrap();
    let lens = |disk: &SimDisk| -> HashSet<usize> {
        (0..SEEDS).map(|seed| content(&disk.crash(seed), "f").unwrap().len() / BLOCK).collect()
    };
    assert_eq!(lens(&disk), HashSet::from([1, 3, 6]));
    file.sync().unwrap();
    assert_eq!(lens(&disk), HashSet::from([6]));
    file.set_len(100).unwrap();
    assert_eq!(lens(&disk), HashSet::from([0, 6]));
}

#[test]
fn bytes_past_a_lost_end_do_not_come_back() {
    let (disk, file) = disk_with("f", 1);
    file.write(BLOCK as u64, block(2)).unwrap();
    let found = disk.crash_as(0, CrashProfile::Nothing);
    let file = open(&found, "f");
    file.set_len(2 * BLOCK as u64).unwrap();
    assert_eq!(content(&found, "f").unwrap()[BLOCK..], [0; BLOCK]);
}

#[test]
fn names_are_durable_with_the_directory() {
    let names = |disk: &SimDisk| -> HashSet<Vec<String>> {
        (0..SEEDS).map(|seed| disk.crash(seed).list().unwrap()).collect()
    };
    let either = |sets: &[&[&str]]| -> HashSet<Vec<String>> {
        sets.iter().map(|set| set.iter().map(|name| name.to_string()).collect()).collect()
    };
    let disk = SimDisk::new(1);
    let file = open(&disk, "a");
    file.write(0, block(2)).unwrap();
    file.sync().unwrap();
    assert_eq!(names(&disk), either(&[&[], &["a"]]), "a created name");
    disk.sync_dir().unwrap();
    assert_eq!(names(&disk), either(&[&["a"]]));
    disk.rename("a", "b").unwrap();
    assert_eq!(names(&disk), either(&[&["a"], &["b"]]), "a renamed file has one name");
    for seed in 0..SEEDS {
        let found = disk.crash(seed);
        let name = found.list().unwrap().remove(0);
        assert_eq!(content(&found, &name).unwrap(), [2; BLOCK]);
    }
    disk.sync_dir().unwrap();
    disk.remove("b").unwrap();
    drop(file);
    assert_eq!(names(&disk), either(&[&[], &["b"]]), "a removed file");
    let back = (0..SEEDS).find_map(|seed| content(&disk.crash(seed), "b"));
    assert_eq!(back.unwrap(), [2; BLOCK]);
    disk.sync_dir().unwrap();
    assert_eq!(names(&disk), either(&[&[]]));
    assert!(disk.shared.state.lock().inodes.is_empty(), "nothing is kept of it");
}

#[test]
fn replacing_a_file_leaves_the_old_or_the_new() {
    let (disk, _file) = disk_with("f", 1);
    let new = open(&disk, "f.tmp");
    new.write(0, block(2)).unwrap();
    new.sync().unwrap();
    disk.rename("f.tmp", "f").unwrap();
    let mut seen = HashSet::new();
    for seed in 0..SEEDS {
        let found = content(&disk.crash(seed), "f").expect("one of the two is there");
        assert_eq!(found.len(), BLOCK, "seed {seed}");
        seen.insert(found[0]);
    }
    assert_eq!(seen, HashSet::from([1, 2]));
}

#[test]
fn a_crash_repeats_by_its_seed() {
    let (disk, file) = disk_with("f", 8);
    (0..8).for_each(|i| drop(file.write(i * BLOCK as u64, block(2 + i as u8)).unwrap()));
    for seed in 0..50 {
        assert_eq!(content(&disk.crash(seed), "f"), content(&disk.crash(seed), "f"));
    }
    let distinct: HashSet<_> = (0..50).map(|seed| content(&disk.crash(seed), "f")).collect();
    assert!(distinct.len() > 10, "{}", distinct.len());
}

#[test]
fn a_killed_process_loses_nothing_but_gains_no_durability() {
    let (disk, file) = disk_with("f", 1);
    let guard = disk.lock().unwrap();
    file.write(0, block(2)).unwrap();
    open(&disk, "g");
    let found = disk.process_kill();
    drop(found.lock().unwrap());
    assert_eq!(found.operations(), 0);
    assert_eq!(content(&found, "f").unwrap(), [2; BLOCK]);
    assert_eq!(found.list().unwrap(), ["f", "g"]);
    let lost = found.crash_as(0, CrashProfile::Nothing);
    assert_eq!(content(&lost, "f").unwrap(), [1; BLOCK]);
    assert_eq!(lost.list().unwrap(), ["f"]);
    drop(guard);
}

#[test]
fn a_crash_image_is_another_disk() {
    let (disk, file) = disk_with("f", 1);
    let found = disk.crash(3);
    open(&found, "f").write(0, block(9)).unwrap();
    file.write(0, block(5)).unwrap();
    assert_eq!(content(&found, "f").unwrap(), [9; BLOCK]);
    assert_eq!(content(&disk, "f").unwrap(), [5; BLOCK]);
}

#[test]
fn the_power_fails_at_its_operation() {
    for at in 0..12 {
        let (disk, file) = disk_with("f", 4);
        let start = disk.operations();
        disk.crash_at(start + at);
        let write = |i: u64| Io::Write { offset: i * BLOCK as u64, buf: block(2) };
        let batch = file.run((0..4).map(write).collect());
        let synced = file.sync();
        assert_eq!((batch.is_ok(), synced.is_ok()), (at >= 4, at >= 5), "{at}");
        assert_eq!(disk.is_crashed(), at < 5);
        if let Err(error) = synced {
            assert_eq!(error.kind(), ErrorKind::Other);
            assert!(error.to_string().ends_with(CRASH_MESSAGE), "{error}");
            assert!(disk.list().is_err() && disk.lock().is_err() && file.len().is_err());
            assert!(disk.open("f", Create::No, Mode::Cached).is_err());
        }
        for seed in 0..20 {
            let found = sectors(&content(&disk.crash(seed), "f").unwrap());
            assert!(found.iter().all(|value| matches!(value, 1 | 2)));
            assert!(at < 5 || found.iter().all(|value| *value == 2));
        }
    }
}

#[test]
fn a_batch_in_flight_at_the_power_cut_is_half_done() {
    let mut counts = HashSet::new();
    for seed in 0..50 {
        let disk = SimDisk::new(seed);
        let file = open(&disk, "f");
        file.set_len(8 * BLOCK as u64).unwrap();
        disk.crash_at(disk.operations() + 3);
        let write = |i: u64| Io::Write { offset: i * BLOCK as u64, buf: block(2) };
        file.run((0..8).map(write).collect()).unwrap_err();
        let found = content(&disk.process_kill(), "f").unwrap();
        let found = sectors(&found);
        assert!(found[..3 * 8].iter().all(|value| *value == 2), "begun before the cut");
        counts.insert(found[3 * 8..].iter().filter(|value| **value == 2).count());
    }
    assert!(counts.len() > 5, "{counts:?}");
}

#[test]
fn everything_fails_after_power_off() {
    let (disk, file) = disk_with("f", 1);
    disk.power_off();
    let batch =
        vec![Io::Write { offset: 0, buf: block(2) }, Io::Write { offset: 0, buf: block(3) }];
    assert!(file.run(batch).is_err() && file.sync().is_err() && disk.sync_dir().is_err());
    assert!(file.set_len(0).is_err() && file.punch(0, BLOCK as u64).is_err());
    assert!(disk.remove("f").is_err() && disk.rename("f", "g").is_err());
    assert_eq!(content(&disk.crash_as(0, CrashProfile::All), "f").unwrap(), [1; BLOCK]);
}

#[test]
fn eio_once_and_for_ever_by_kind() {
    for (times, kind) in [
        (Times::Once, Some(OpKind::Read)),
        (Times::Forever, Some(OpKind::Read)),
        (Times::Once, Some(OpKind::Write)),
        (Times::Forever, Some(OpKind::Write)),
        (Times::Once, None),
        (Times::Forever, None),
    ] {
        let (disk, file) = disk_with("f", 1);
        let at = disk.operations() + 2;
        disk.inject(Fault::Io { on: kind, at, times });
        let mut failed = Vec::new();
        for round in 0..4 {
            let read = file.read(0, AlignedBuf::zeroed(BLOCK));
            let write = file.write(0, block(3));
            for (kind, result) in [(OpKind::Read, read), (OpKind::Write, write)] {
                if let Err(error) = result {
                    assert_eq!(error.source.raw_os_error(), Some(5));
                    failed.push((round, kind));
                }
            }
        }
        let expected: Vec<_> = (1..4)
            .flat_map(|round| [(round, OpKind::Read), (round, OpKind::Write)])
            .filter(|(_, k)| kind.is_none_or(|kind| kind == *k))
            .take(if times == Times::Once { 1 } else { 9 })
            .collect();
        assert_eq!(failed, expected);
        disk.clear_faults();
        file.write(0, block(3)).unwrap();
    }
}

#[test]
fn a_failing_resize_or_name_changes_nothing() {
    let (disk, file) = disk_with("f", 1);
    disk.inject(Fault::Io { on: None, at: 0, times: Times::Forever });
    assert!(file.set_len(0).is_err() && file.punch(0, BLOCK as u64).is_err());
    assert!(disk.remove("f").is_err() && disk.rename("f", "g").is_err());
    assert!(disk.open("h", Create::New, Mode::Cached).is_err() && disk.list().is_err());
    disk.clear_faults();
    assert_eq!(disk.list().unwrap(), ["f"]);
    assert_eq!(content(&disk, "f").unwrap(), [1; BLOCK]);
}

#[test]
fn a_failed_sync_is_not_made_good_by_the_next() {
    let (disk, file) = disk_with("f", 2);
    file.write(0, block(2)).unwrap();
    file.set_len(3 * BLOCK as u64).unwrap();
    disk.inject(Fault::Io { on: Some(OpKind::Sync), at: 0, times: Times::Once });
    file.sync().unwrap_err();
    file.write(BLOCK as u64, block(3)).unwrap();
    file.write(0, AlignedBuf::copy_of(&[4; SECTOR])).unwrap();
    file.sync().unwrap();
    let (mut doubtful, mut lens) = (HashSet::new(), HashSet::new());
    for seed in 0..SEEDS {
        let found = sectors(&content(&disk.crash(seed), "f").unwrap());
        assert_eq!((found[0], found[8]), (4, 3), "written after the failure, then synced");
        doubtful.insert(found[1]);
        lens.insert(found.len() / 8);
    }
    assert_eq!(doubtful, HashSet::from([1, 2]));
    assert_eq!(lens, HashSet::from([2, 3]));
}

#[test]
fn a_sync_of_one_file_fails() {
    let disk = SimDisk::new(1);
    let (one, other) = (open(&disk, "one"), open(&disk, "other"));
    disk.inject(Fault::SyncOf { file: "other", at: 0 });
    one.sync().unwrap();
    other.sync().unwrap_err();
    other.sync().unwrap();
}

#[test]
fn a_failed_directory_sync_is_not_made_good_by_the_next() {
    let disk = SimDisk::new(1);
    open(&disk, "a");
    disk.inject(Fault::Io { on: Some(OpKind::Sync), at: 0, times: Times::Once });
    disk.sync_dir().unwrap_err();
    open(&disk, "b");
    disk.sync_dir().unwrap();
    let found: HashSet<_> = (0..SEEDS).map(|seed| disk.crash(seed).list().unwrap()).collect();
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|names| names.contains(&"b".to_string())));
}

#[test]
fn a_later_synced_change_of_a_name_settles_an_earlier_one() {
    let disk = SimDisk::new(1);
    open(&disk, "a");
    disk.inject(Fault::Io { on: Some(OpKind::Sync), at: 0, times: Times::Once });
    disk.sync_dir().unwrap_err();
    disk.remove("a").unwrap();
    open(&disk, "a");
    disk.sync_dir().unwrap();
    for seed in 0..SEEDS {
        assert_eq!(disk.crash(seed).list().unwrap(), ["a"], "seed {seed}");
    }
}

#[test]
fn a_full_disk_leaves_lengths_unchanged() {
    let (disk, file) = disk_with("f", 2);
    disk.set_capacity(Some(4 * BLOCK as u64));
    assert_eq!(disk.used_bytes(), 2 * BLOCK as u64);
    let full = |result: Result<()>| assert_eq!(result.unwrap_err().kind(), ErrorKind::StorageFull);
    full(file.set_len(5 * BLOCK as u64));
    full(file.write(4 * BLOCK as u64, block(2)).map(drop));
    assert_eq!(file.len().unwrap(), 2 * BLOCK as u64);
    file.set_len(4 * BLOCK as u64).unwrap();
    file.write(3 * BLOCK as u64, block(2)).unwrap();
    // A hole gives space to others, and takes it back when it is written.
    file.punch(0, BLOCK as u64).unwrap();
    file.punch(0, BLOCK as u64).unwrap();
    assert_eq!(disk.used_bytes(), 3 * BLOCK as u64);
    let other = open(&disk, "g");
    other.set_len(BLOCK as u64).unwrap();
    full(file.write(0, block(3)).map(drop));
    assert_eq!(content(&disk, "f").unwrap()[..BLOCK], [0; BLOCK]);
    drop(other);
    disk.remove("g").unwrap();
    file.write(0, block(3)).unwrap();
    file.set_len(0).unwrap();
    assert_eq!(disk.used_bytes(), 0);
}

#[test]
fn no_space_at_an_operation() {
    let (disk, file) = disk_with("f", 1);
    disk.inject(Fault::NoSpace { at: disk.operations() + 1, times: Times::Once });
    file.write(0, block(2)).unwrap();
    let error = file.set_len(2 * BLOCK as u64).unwrap_err();
    assert_eq!((error.kind(), file.len().unwrap()), (ErrorKind::StorageFull, BLOCK as u64));
    file.set_len(2 * BLOCK as u64).unwrap();
    disk.inject(Fault::NoSpace { at: 0, times: Times::Forever });
    let mut reasons = HashSet::new();
    for _ in 0..3 {
        let error = file.write(0, block(3)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
        reasons.insert(error.source.kind());
    }
    let quota_and_length = [ErrorKind::QuotaExceeded, ErrorKind::FileTooLarge];
    assert!(quota_and_length.iter().all(|kind| reasons.contains(kind)), "{reasons:?}");
    assert_eq!(content(&disk, "f").unwrap()[..BLOCK], [2; BLOCK], "not torn either");
}

#[test]
fn a_lost_write_is_acknowledged_and_never_stored() {
    let (disk, file) = disk_with("f", 1);
    disk.inject(Fault::LostWrite { at: 0 });
    file.write(0, block(2)).unwrap();
    assert_eq!(content(&disk, "f").unwrap(), [1; BLOCK]);
    file.write(0, block(3)).unwrap();
    assert_eq!(content(&disk, "f").unwrap(), [3; BLOCK]);
}

#[test]
fn a_misdirected_write_lands_at_another_block() {
    let mut places = HashSet::new();
    for seed in 0..100 {
        let disk = SimDisk::new(seed);
        let file = open(&disk, "f");
        file.write(0, AlignedBuf::copy_of(&[1; 4 * BLOCK])).unwrap();
        disk.inject(Fault::MisdirectedWrite { at: 0 });
        file.write(BLOCK as u64, block(2)).unwrap();
        let found = content(&disk, "f").unwrap();
        places.insert(found.chunks(BLOCK).position(|chunk| *chunk == [2; BLOCK]).unwrap());
    }
    assert_eq!(places, HashSet::from([0, 2, 3]));
}

#[test]
fn rot_flips_one_bit_for_good() {
    let (disk, file) = disk_with("f", 3);
    disk.rot("f", 5000, 3).unwrap();
    let mut expected = vec![1; 3 * BLOCK];
    expected[5000] ^= 8;
    assert_eq!(content(&disk, "f").unwrap(), expected);
    assert_eq!(content(&disk.crash(1), "f").unwrap(), expected);
    file.write(2 * BLOCK as u64, block(1)).unwrap();
    let (name, offset) = disk.rot_random(9).unwrap();
    assert_eq!(name, "f");
    let found = content(&disk, "f").unwrap();
    let changed: Vec<_> = (0..found.len()).filter(|i| found[*i] != expected[*i]).collect();
    assert_eq!(changed, [offset as usize]);
    assert_eq!((found[changed[0]] ^ expected[changed[0]]).count_ones(), 1);
    assert_eq!(disk.rot("g", 0, 0).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(SimDisk::new(1).rot_random(1), None);
}

#[test]
fn the_lock_is_shared_by_clones() {
    let disk = SimDisk::new(1);
    let guard = disk.clone().lock().unwrap();
    assert_eq!(disk.lock().err().unwrap().kind(), ErrorKind::WouldBlock);
    drop(disk.crash(1).lock().unwrap());
    assert!(disk.lock().is_err(), "another disk's lock is another");
    drop(guard);
    drop(disk.lock().unwrap());
}

/// One file against a vector: content after every kind of change, and after crashes that keep all
/// or nothing.
#[test]
fn a_file_is_a_vector_of_bytes() {
    for seed in 0..300 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut disk = SimDisk::new(seed);
        let mut file = open(&disk, "f");
        disk.sync_dir().unwrap();
        let (mut model, mut durable) = (Vec::new(), Vec::new());
        for _ in 0..60 {
            match rng.u8(..12) {
                0..6 => {
                    let start = rng.usize(..60_000);
                    let mut bytes = vec![0; rng.usize(1..10_000)];
                    rng.fill(&mut bytes);
                    model.resize(model.len().max(start + bytes.len()), 0);
                    model[start..start + bytes.len()].copy_from_slice(&bytes);
                    file.write(start as u64, AlignedBuf::copy_of(&bytes)).unwrap();
                }
                6 => {
                    model.resize(rng.usize(..80_000), 0);
                    file.set_len(model.len() as u64).unwrap();
                }
                7 => {
                    let (start, count) = (rng.usize(..15) * BLOCK, rng.usize(..5) * BLOCK);
                    let end = (start + count).min(model.len());
                    if start < end {
                        model[start..end].fill(0);
                    }
                    file.punch(start as u64, count as u64).unwrap();
                }
                8 | 9 => {
                    file.sync().unwrap();
                    durable = model.clone();
                }
                10 => disk = disk.process_kill(),
                _ => {
                    let keep = rng.bool();
                    let profile = if keep { CrashProfile::All } else { CrashProfile::Nothing };
                    disk = disk.crash_as(rng.u64(..), profile);
                    durable = if keep { model } else { durable };
                    model = durable.clone();
                }
            }
            file = open(&disk, "f");
            assert!(content(&disk, "f").unwrap() == model, "content, seed {seed}");
            let lost = disk.crash_as(0, CrashProfile::Nothing);
            assert!(content(&lost, "f").unwrap() == durable, "durable, seed {seed}");
        }
    }
}
