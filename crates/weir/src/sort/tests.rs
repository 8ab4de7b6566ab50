use super::*;
use proptest::prelude::*;
use weir_os::sim::{Fault, OpKind, Times};
use weir_os::{Create, Mode, SimDisk};

type Records = Vec<(Vec<u8>, Vec<u8>)>;

/// Random records; keys share prefixes and repeat.
fn records(seed: u64, count: usize, value_bytes: usize) -> Records {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut record = |_| {
        let mut key: Vec<u8> = vec![b'k'; rng.usize(0..12)];
        key.extend((0..rng.usize(0..6)).map(|_| rng.u8(..4)));
        let value = (0..rng.usize(0..=value_bytes)).map(|_| rng.u8(..)).collect();
        (key, value)
    };
    (0..count).map(&mut record).collect()
}

fn push_all(sorter: &mut Sorter, records: &Records) -> Result<()> {
    records.iter().try_for_each(|(key, value)| sorter.push(key, value))
}

fn drain(sorted: &mut Sorted) -> Result<Records> {
    let mut records = Vec::new();
    while let Some((key, value)) = sorted.next()? {
        records.push((key.to_vec(), value.to_vec()));
    }
    assert_eq!(sorted.next()?, None);
    Ok(records)
}

fn assert_sorted(mut found: Records, mut expected: Records) {
    assert!(found.is_sorted_by_key(|record| record.0.clone()));
    found.sort();
    expected.sort();
    assert!(found == expected, "records were lost or changed");
}

const BOTH: [Workers; 2] = [Workers::One, Workers::Two];

fn sorter(disk: &SimDisk, workers: Workers) -> Sorter {
    Sorter::new(Arc::new(disk.clone()), "test", 0, workers)
}

fn sort(disk: &SimDisk, workers: Workers, records: &Records) -> Result<Records> {
    let mut sorter = sorter(disk, workers);
    push_all(&mut sorter, records)?;
    drain(&mut sorter.finish()?)
}

fn no_files(disk: &SimDisk) {
    assert_eq!(disk.list().unwrap(), Vec::<String>::new());
}

#[test]
fn it_tells_whether_records_came_in_order() {
    let came_ascending = |numbers: &[u32], memory_bytes: usize| {
        let mut sorter = Sorter::new(Arc::new(SimDisk::new(1)), "test", memory_bytes, Workers::Two);
        numbers.iter().for_each(|n| sorter.push(&n.to_be_bytes(), &[0; 100]).unwrap());
        sorter.finish().unwrap().came_ascending
    };
    let mut rng = fastrand::Rng::with_seed(5);
    let ascending: Vec<u32> = (0..20_000).collect();
    let mut late = ascending.clone();
    late.iter_mut().for_each(|n| *n = n.saturating_sub(rng.u32(..5)));
    let mut random = ascending.clone();
    rng.shuffle(&mut random);
    for memory_bytes in [1 << 20, 64 << 20] {
        assert!(came_ascending(&ascending, memory_bytes));
        assert!(came_ascending(&late, memory_bytes));
        assert!(!came_ascending(&random, memory_bytes));
    }
}

#[test]
fn what_fits_in_memory_is_not_written() {
    let disk = SimDisk::new(1);
    for (count, workers) in [0, 1, 2, 1000].into_iter().flat_map(|n| BOTH.map(|w| (n, w))) {
        let records = records(count as u64, count, 30);
        assert_sorted(sort(&disk, workers, &records).unwrap(), records);
    }
    assert_eq!(disk.operations(), 0);
}

#[test]
fn runs_are_merged() {
    for workers in BOTH {
        let disk = SimDisk::new(1);
        let records = records(1, 60_000, 100);
        let mut sorter = sorter(&disk, workers);
        push_all(&mut sorter, &records).unwrap();
        assert!((2..sorter.fan_in()).contains(&sorter.runs.len()));
        assert!(disk.used_bytes() > 0);
        assert_eq!(sorter.helper.is_some(), workers == Workers::Two);
        let mut sorted = sorter.finish().unwrap();
        assert_eq!(matches!(sorted.source, Source::Ahead(_)), workers == Workers::Two);
        assert_sorted(drain(&mut sorted).unwrap(), records);
        assert!(!disk.list().unwrap().is_empty());
        drop(sorted);
        no_files(&disk);
    }
}

#[test]
fn very_many_runs_take_several_passes() {
    for workers in BOTH {
        let disk = SimDisk::new(1);
        // A large record leaves room for few buffers.
        let mut records = records(2, 300_000, 40);
        records.push((b"large".to_vec(), vec![7; 100_000]));
        let mut sorter = sorter(&disk, workers);
        push_all(&mut sorter, &records).unwrap();
        let before = disk.used_bytes();
        assert!(sorter.runs.len() > sorter.fan_in(), "{} runs", sorter.runs.len());
        let mut sorted = sorter.finish().unwrap();
        assert!(disk.used_bytes() < 2 * before, "merged runs are removed");
        assert_sorted(drain(&mut sorted).unwrap(), records);
        drop(sorted);
        no_files(&disk);
    }
}

#[test]
fn memory_stays_within_its_limit() {
    let disk = SimDisk::new(1);
    let held = |sorter: &Sorter| {
        let beside = sorter.writing.as_ref().map_or(0, |_| sorter.arena.budget());
        sorter.arena.capacity_bytes() + beside + sorter.write_bytes
    };
    for workers in BOTH {
        for value_bytes in [0, 10, 1000, 50_000] {
            let mut sorter = sorter(&disk, workers);
            for (key, value) in records(3, 20_000.min(40_000_000 / (value_bytes + 1)), value_bytes)
            {
                sorter.push(&key, &value).unwrap();
                assert!(held(&sorter) <= MEMORY_BYTES_MIN, "{} bytes", held(&sorter));
            }
        }
        let mut sorter = sorter(&disk, workers);
        // Small ones first: the index takes most, then gives way.
        for _ in 0..200_000 {
            sorter.push(b"", b"").unwrap();
        }
        for _ in 0..20 {
            sorter.push(b"x", &vec![1; MEMORY_BYTES_MIN / 8 - 1]).unwrap();
            assert!(held(&sorter) <= MEMORY_BYTES_MIN);
        }
        let mut sorted = sorter.finish().unwrap();
        assert_eq!(drain(&mut sorted).unwrap().len(), 200_020);
    }
}

/// Whatever its helper does then is of no use to anybody, and ends.
#[test]
fn a_sort_may_be_given_up_at_any_time() {
    let disk = SimDisk::new(1);
    let records = records(7, 60_000, 100);
    for pushed in [20_000, 40_000, 60_000] {
        let mut sorter = sorter(&disk, Workers::Two);
        push_all(&mut sorter, &records[..pushed].to_vec()).unwrap();
        drop(sorter);
        no_files(&disk);
    }
    for taken in [0, 1, 10_000] {
        let mut sorter = sorter(&disk, Workers::Two);
        push_all(&mut sorter, &records).unwrap();
        let mut sorted = sorter.finish().unwrap();
        (0..taken).for_each(|_| assert!(sorted.next().unwrap().is_some()));
        drop(sorted);
        no_files(&disk);
    }
}

#[test]
fn a_record_has_a_limit() {
    let mut sorter = sorter(&SimDisk::new(1), Workers::One);
    let error = sorter.push(b"k", &vec![0; MEMORY_BYTES_MIN / 8]).unwrap_err();
    assert!(matches!(error, SortError::RecordTooLarge { .. }), "{error}");
    assert!(sorter.len == 0);
}

#[test]
fn a_full_disk_is_an_error_and_leaves_nothing() {
    for workers in BOTH {
        let disk = SimDisk::new(1);
        disk.set_capacity(Some(1 << 20));
        let error = sort(&disk, workers, &records(4, 60_000, 100)).unwrap_err();
        let SortError::Disk(error) = error else { panic!("{error}") };
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
        no_files(&disk);
        assert_eq!(disk.used_bytes(), 0);
    }
}

#[test]
fn every_operation_may_fail() {
    for workers in BOTH {
        every_operation_may_fail_of(workers);
    }
}

fn every_operation_may_fail_of(workers: Workers) {
    let records = records(5, 60_000, 100);
    let disk = SimDisk::new(1);
    sort(&disk, workers, &records).unwrap();
    let operations = disk.operations();
    assert!(operations > 10);
    for at in (0..operations).step_by(operations as usize / 12) {
        for on in [OpKind::Read, OpKind::Write, OpKind::Name] {
            let disk = SimDisk::new(at);
            disk.inject(Fault::Io { on: Some(on), at, times: Times::Once });
            match sort(&disk, workers, &records) {
                Ok(found) => assert_sorted(found, records.clone()),
                Err(error) => assert!(matches!(error, SortError::Disk(_)), "{error}"),
            }
            disk.clear_faults();
            // A failed removal is the only thing that may leave a file.
            if on != OpKind::Name {
                no_files(&disk);
            }
            remove_leftovers(&disk).unwrap();
            no_files(&disk);
        }
        for fault in [Fault::LostWrite { at }, Fault::MisdirectedWrite { at }] {
            let disk = SimDisk::new(at);
            disk.inject(fault);
            if let Ok(found) = sort(&disk, workers, &records) {
                assert_sorted(found, records.clone());
            }
            no_files(&disk);
        }
    }
}

#[test]
fn a_changed_bit_is_found() {
    let disk = SimDisk::new(1);
    for (at, workers) in [0, 5, 9, 13, 16, 20_000].into_iter().flat_map(|at| BOTH.map(|w| (at, w)))
    {
        let mut sorter = sorter(&disk, workers);
        push_all(&mut sorter, &records(6, 60_000, 100)).unwrap();
        assert!(sorter.runs.len() >= 2, "the second run has been written");
        disk.rot("tmp-test-1", BLOCK_BYTES as u64 + at, 1).unwrap();
        let error = sorter.finish().and_then(|mut sorted| drain(&mut sorted)).unwrap_err();
        assert!(matches!(error, SortError::Corrupt { .. }), "{error}");
        no_files(&disk);
    }
}

#[test]
fn leftovers_are_removed() {
    let disk = SimDisk::new(1);
    for name in ["data", "tmp-x-0", "tmp-y-1"] {
        disk.open(name, Create::New, Mode::Direct).unwrap();
    }
    assert_eq!(remove_leftovers(&disk).unwrap(), 2);
    assert_eq!(disk.list().unwrap(), ["data"]);
    assert_eq!(remove_leftovers(&disk).unwrap(), 0);
}

proptest! {
    #[test]
    fn like_the_standard_sort(records: Records) {
        assert_sorted(sort(&SimDisk::new(1), Workers::Two, &records).unwrap(), records);
    }
}
