//! Bad input: each ends in an error that names the place, and what was durable is still there.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use weir::{Database, Durability, Error, Isolation, Options, Shutdown, Table};
use weir_os::{Disk, SimDisk};

fn durable() -> Options {
    options(2 << 20, 1 << 20).durability(Durability::Sync)
}

const ROWS: u64 = 800;

fn item(id: u64) -> Item {
    let body: Vec<u8> = (0..(id % 7) * 200).map(|n| (n * id) as u8).collect();
    let body = if id.is_multiple_of(97) { body.repeat(20) } else { body };
    ((id % 13) as i64, format!("row {id:05}"), body)
}

fn fill(db: &Database) -> Table {
    let table = db.create_table("items", items()).unwrap();
    for from in (0..ROWS).step_by(20) {
        retried(db, Isolation::default(), |txn| {
            (from..from + 20).try_for_each(|id| txn.insert(&table, &values(id, &item(id))))
        });
    }
    table
}

/// A directory in memory, if there is one: hundreds of databases are opened, and each open syncs.
fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// A database of `ROWS` rows, some of them only in the log if it was not closed cleanly.
fn database(dir: &Path, how: Shutdown) {
    let db = Database::open(dir, durable()).unwrap();
    fill(&db);
    db.close(how, &mut |_| {}).unwrap();
}

fn expect_all(db: &Database, what: &str) {
    let expected: Vec<_> = (0..ROWS).map(|id| (id, item(id))).collect();
    let table = db.table("items").unwrap_or_else(|| panic!("{what}: no table"));
    same(&expected, &all_items(&mut db.begin(Isolation::default()).unwrap(), &table), what);
}

/// Opens and reads everything; errors are returned, wrong rows are a failure.
fn read_all(dir: &Path) -> Result<(), Error> {
    let db = Database::open(dir, durable().create(false))?;
    let Some(table) = db.table("items") else { panic!("the table is gone without an error") };
    let mut txn = db.begin(Isolation::default())?;
    let mut found = Vec::new();
    for index in [weir::IndexRef::Primary, "by_a".into(), "by_b".into()] {
        found.push(rows(&mut txn, &table, index, weir::Direction::Forward)?);
    }
    for found in found {
        let mut found: Vec<_> = found.iter().map(item_of).collect();
        found.sort_by_key(|i| i.0);
        let expected: Vec<_> = (0..ROWS).map(|id| (id, item(id))).collect();
        same(&expected, &found, "no error, and yet");
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.file_name().unwrap() != "lock")
        .collect();
    files.sort();
    files
}

fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    files(dir).into_iter().map(|p| (p.clone(), fs::read(p).unwrap())).collect()
}

/// The error's message, which must name each of `parts`.
fn says(result: Result<impl Sized, Error>, parts: &[&str]) -> String {
    let Err(error) = result else { panic!("no error where one names {parts:?}") };
    let message = error.to_string();
    eprintln!("  {message}");
    for part in parts {
        assert!(message.contains(part), "`{part}` is missing in: {message}");
    }
    message
}

#[test]
fn a_second_handle_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), durable()).unwrap();
    fill(&db);
    let message = says(Database::open(dir.path(), durable()), &["lock", "in use"]);
    assert!(message.contains(&std::process::id().to_string()), "{message}");
    expect_all(&db, "the first handle");
}

#[test]
fn another_process_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    if let Some(dir) = std::env::var_os("WEIR_TEST_OPEN") {
        says(Database::open(dir, durable()), &["lock", "in use by process"]);
        return;
    }
    let db = Database::open(dir.path(), durable()).unwrap();
    fill(&db);
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "another_process_is_refused"])
        .env("WEIR_TEST_OPEN", dir.path())
        .output()
        .unwrap();
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stdout));
    expect_all(&db, "the first process");
}

#[test]
fn what_is_no_directory_or_holds_no_database() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "text").unwrap();
    says(Database::open(&file, durable()), &["file", "directory"]);
    says(Database::open(file.join("below"), durable()), &["file"]);
    assert_eq!(fs::read(&file).unwrap(), b"text");
    let empty = dir.path().join("empty");
    says(Database::open(&empty, durable().create(false)), &["no database", "empty"]);
    assert!(!empty.exists(), "nothing is made when nothing is to be created");
    fs::create_dir(&empty).unwrap();
    let message = says(Database::open(&empty, durable().create(false)), &["no database", "empty"]);
    assert!(!message.contains("O_DIRECT"), "{message}");
    assert_eq!(fs::read_dir(&empty).unwrap().count(), 0, "not even the lock's file is left");
}

#[test]
fn more_memory_than_can_be_had_changes_nothing() {
    // In KiB, of addresses.
    if !is_limited("more_memory_than_can_be_had_changes_nothing", "-v 4000000") {
        return;
    }
    let (empty, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let most = || durable().memory_bytes(8 << 30);
    says(Database::open(empty.path(), most()), &["map", "bytes of memory"]);
    let left: Vec<_> =
        fs::read_dir(empty.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name == "lock"), "{left:?}");
    fill(&Database::open(dir.path(), durable()).unwrap());
    says(Database::open(dir.path(), most()), &["map", "bytes of memory"]);
    expect_all(&Database::open(dir.path(), durable()).unwrap(), "as it was");
}

#[test]
fn a_new_database_leaves_the_files_of_others_in_its_directory_alone() {
    let dir = tempfile::tempdir().unwrap();
    let theirs = dir.path().join("tmp-of-others");
    fs::write(&theirs, "text").unwrap();
    for _ in ["made", "opened"] {
        drop(Database::open(dir.path(), durable()).unwrap());
        assert_eq!(fs::read(&theirs).unwrap(), b"text");
    }
}

#[test]
fn who_asks_for_no_redo_capacity_leaves_it_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let small = Options::default().memory_bytes(8 << 20).redo_capacity_bytes(4 << 20);
    let capacity = Database::open(dir.path(), small).unwrap().status().redo_capacity;
    let plain = Options::default().memory_bytes(8 << 20);
    for options in [plain.clone(), plain.clone().single_threaded(), plain] {
        let db = Database::open(dir.path(), options).unwrap();
        assert_eq!(db.status().redo_capacity, capacity);
    }
}

/// Its threads had ended, and who wanted one of them waited for ever.
#[test]
fn a_close_that_panics_in_the_caller_s_part_is_a_close() {
    let dir = scratch();
    let db = Database::open(dir.path(), durable()).unwrap();
    let table = fill(&db);
    let other = db.clone();
    let mut txn = db.begin(Isolation::default()).unwrap();
    txn.insert(&table, &values(ROWS, &item(ROWS))).unwrap();
    let close = || db.close(Shutdown::Clean, &mut |_| panic!("on purpose"));
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(close)).unwrap_err();
    txn.commit().unwrap_err();
    other.begin(Isolation::default()).err().unwrap();
    drop((other, table));
    expect_all(&Database::open(dir.path(), durable()).unwrap(), "afterwards");
}

#[test]
fn the_check_goes_on_past_pages_that_cant_be_read() {
    let dir = scratch();
    let original = dir.path().join("original");
    database(&original, Shutdown::Clean);
    let units = fs::metadata(original.join("data")).unwrap().len() / 4096;
    let mut found = 0;
    for unit in (0..units).step_by(units as usize / 16 + 1) {
        let at = dir.path().join("damaged");
        copy(&original, &at);
        let data = fs::OpenOptions::new().write(true).open(at.join("data")).unwrap();
        data.write_all_at(&[0xa5; 4096], unit * 4096).unwrap();
        let options = durable().create(false).single_threaded();
        if let Ok(db) = Database::open(&at, options) {
            let mut findings = Vec::new();
            let summary = db.check(&mut |finding| findings.push(finding)).unwrap();
            assert_eq!(summary.findings, findings.len() as u64);
            found += findings.len();
        }
        fs::remove_dir_all(&at).unwrap();
    }
    assert!(found > 0, "some of the {units} units hold pages that are needed");
}

#[test]
fn names_of_all_kinds() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["with space", "ünï¢ødé 水", "a'\"`\\$x", &"x".repeat(255), "deep/er/and deeper"]
    {
        let path = dir.path().join(name);
        database(&path, Shutdown::Fast);
        expect_all(&Database::open(&path, durable().create(false)).unwrap(), name);
    }
    let long = dir.path().join("x".repeat(256));
    says(Database::open(&long, durable()), &["xxx", "create directory"]);
    let db = Database::open(dir.path().join("names"), durable()).unwrap();
    says(db.create_table("", items()), &["a table needs a name"]);
    for name in [" ", "水", "a\0b", "data", "../x", &"n".repeat(3400)] {
        let table = db.create_table(name, items()).unwrap();
        retried(&db, Isolation::default(), |txn| txn.insert(&table, &values(1, &item(1))));
    }
    says(db.create_table("data", items()), &["table `data` exists"]);
    for len in [3501, 20_000, 1 << 20] {
        let message = says(db.create_table(&"n".repeat(len), items()), &["name", "3500"]);
        assert!(message.len() < 1000);
        let table = db.table("data").unwrap();
        says(db.rename_table(&table, &"n".repeat(len)), &["name", "3500"]);
    }
    let names = db.table_names();
    drop(db);
    let db = Database::open(dir.path().join("names"), durable()).unwrap();
    assert_eq!(db.table_names(), names);
}

#[test]
fn a_relative_path() {
    // Relative to the directory of the crate, where tests run.
    let dir = tempfile::tempdir_in(".").unwrap();
    let relative = Path::new(dir.path().file_name().unwrap()).join("db");
    assert!(relative.is_relative());
    database(&relative, Shutdown::Fast);
    expect_all(&Database::open(&relative, durable()).unwrap(), "relative");
}

#[test]
fn nonsense_options() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let open = |options: Options| Database::open(&path, options);
    says(open(durable().memory_bytes(0)), &["memory_bytes", "2 MiB"]);
    says(open(durable().memory_bytes(u64::MAX)), &["memory_bytes", "above"]);
    says(open(durable().redo_capacity_bytes(0)), &["redo_capacity_bytes", "1 MiB"]);
    says(open(durable().redo_capacity_bytes(u64::MAX)), &["redo_capacity_bytes", "16 TiB"]);
    assert!(!path.exists(), "nothing is made with options that make no sense");
    // More than there is: refused by the system, or given and never touched.
    if let Err(error) = open(durable().memory_bytes(1 << 45)) {
        assert!(error.to_string().contains("memory"), "{error}");
    }
    let db = open(durable()).unwrap();
    fill(&db);
    says(db.set_redo_capacity(0), &["redo_capacity_bytes", "1 MiB"]);
    says(db.set_redo_capacity(u64::MAX), &["redo_capacity_bytes", "16 TiB"]);
    expect_all(&db, "after nonsense");
    drop(db);
    says(open(durable().memory_bytes(0)), &["memory_bytes"]);
    expect_all(&open(durable().memory_bytes(64 << 20)).unwrap(), "opened with more");
}

#[test]
fn a_missing_file_is_named_and_nothing_is_destroyed() {
    let dir = scratch();
    let original = dir.path().join("original");
    database(&original, Shutdown::Fast);
    for (n, file) in files(&original).iter().enumerate() {
        let name = file.file_name().unwrap().to_str().unwrap();
        let at = dir.path().join(format!("without {n}"));
        copy(&original, &at);
        fs::remove_file(at.join(name)).unwrap();
        let before = contents(&at);
        // Segments before the checkpoint and after the end of the log may go.
        let needed = !name.starts_with("redo-");
        match read_all(&at) {
            Err(error) => {
                assert!(error.to_string().contains(name), "{name}: {error}");
                if name == "control" {
                    says(Database::open(&at, durable()), &["control"]);
                }
                assert!(before == contents(&at), "{name}: files changed by a failed open");
                fs::copy(file, at.join(name)).unwrap();
                expect_all(&Database::open(&at, durable()).unwrap(), "file put back");
            }
            Ok(()) => assert!(!needed, "opens without `{name}`"),
        }
    }
}

#[test]
fn a_lost_control_file_is_no_reason_to_begin_anew() {
    let dir = tempfile::tempdir().unwrap();
    // Nothing but the log holds these rows.
    let db = Database::open(dir.path(), options(8 << 20, 64 << 20)).unwrap();
    fill(&db);
    drop(db);
    let control = fs::read(dir.path().join("control")).unwrap();
    fs::remove_file(dir.path().join("control")).unwrap();
    let before = contents(dir.path());
    says(Database::open(dir.path(), durable()), &["control", "nothing was changed"]);
    assert!(before == contents(dir.path()));
    fs::write(dir.path().join("control"), control).unwrap();
    expect_all(&Database::open(dir.path(), durable()).unwrap(), "control put back");
}

#[test]
fn a_creation_cut_short_is_begun_anew() {
    for seed in 0..3 {
        for cut in 1.. {
            let disk = Arc::new(SimDisk::new(seed));
            disk.crash_at(cut);
            let options = durable().single_threaded();
            if let Ok(db) = Database::open_on(disk.clone(), options.clone()) {
                drop(db);
                assert!(!disk.is_crashed());
                break;
            }
            let disk = Arc::new(disk.crash(seed * 1000 + cut));
            let what = format!("seed {seed}, cut at operation {cut}: {:?}", disk.list());
            let db = Database::open_on(disk.clone(), options.clone())
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            fill(&db);
            drop(db);
            expect_all(&Database::open_on(disk, options).unwrap(), &what);
        }
    }
}

/// Whether the message names the file, or the one that disagrees with it: a map that tells of other
/// images, a control file (its older half) that tells of log that is gone.
fn names_place(message: &str, name: &str) -> bool {
    message.contains(name)
        || name == "control" && message.contains("redo-")
        || name == "data" && message.contains("map")
        || name == "map" && message.contains("data")
}

/// Calls `change` with a copy of a database for each of its files, and the file's path; it must
/// leave an error that names the file, or all rows (for the log: those of the first transactions).
fn damage(how: Shutdown, change: impl Fn(&Path)) {
    let dir = scratch();
    let original = dir.path().join("original");
    database(&original, how);
    for file in files(&original) {
        let name = file.file_name().unwrap().to_str().unwrap().to_string();
        let at = dir.path().join(&name);
        copy(&original, &at);
        change(&at.join(&name));
        match read_prefix(&at, name.starts_with("redo-")) {
            Ok(n) => eprintln!("  {name}: {n} rows"),
            Err(error) => {
                let message = error.to_string();
                eprintln!("  {message}");
                assert!(names_place(&message, &name), "`{name}` is not named: {message}");
                assert!(message.contains("offset") || message.contains("LSN"), "{message}");
                fs::copy(&file, at.join(&name)).unwrap();
            }
        }
        fs::remove_dir_all(&at).unwrap();
    }
}

/// As [`read_all`]; returns the number of rows, which must be all unless the log's tail was lost.
fn read_prefix(dir: &Path, tail_may_be_lost: bool) -> Result<u64, Error> {
    let db = Database::open(dir, durable().create(false))?;
    let Some(table) = db.table("items") else {
        assert!(tail_may_be_lost, "the table is gone without an error");
        return Ok(0);
    };
    let mut txn = db.begin(Isolation::default())?;
    let mut found = Vec::new();
    for index in [weir::IndexRef::Primary, "by_a".into(), "by_b".into()] {
        found.push(rows(&mut txn, &table, index, weir::Direction::Forward)?);
    }
    let n = found[0].len() as u64;
    assert!(n == ROWS || tail_may_be_lost && n.is_multiple_of(20), "{n} rows without an error");
    let expected: Vec<_> = (0..n).map(|id| (id, item(id))).collect();
    for found in found {
        let mut found: Vec<_> = found.iter().map(item_of).collect();
        found.sort_by_key(|i| i.0);
        same(&expected, &found, "no error, and yet");
    }
    Ok(n)
}

#[test]
fn files_cut_short() {
    for how in [Shutdown::Fast, Shutdown::Clean] {
        for part in [0, 1, 2] {
            damage(how, |path| {
                let file = fs::OpenOptions::new().write(true).open(path).unwrap();
                let len = file.metadata().unwrap().len();
                file.set_len(len * part / 3 / 512 * 512).unwrap();
            });
        }
    }
}

#[test]
fn files_overwritten_by_garbage() {
    let seed = seed();
    for how in [Shutdown::Fast, Shutdown::Clean] {
        damage(how, |path| {
            let mut rng = fastrand::Rng::with_seed(seed);
            let len = fs::metadata(path).unwrap().len();
            fs::write(path, (0..len).map(|_| rng.u8(..)).collect::<Vec<u8>>()).unwrap();
        });
        damage(how, |path| {
            let len = fs::metadata(path).unwrap().len();
            fs::write(path, vec![0; len as usize]).unwrap();
        });
    }
}

#[test]
fn bits_flipped_anywhere() {
    let seed = seed();
    let dir = scratch();
    for how in [Shutdown::Fast, Shutdown::Clean] {
        let original = dir.path().join(format!("{how:?}"));
        database(&original, how);
        let at = dir.path().join("flipped");
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut errors, mut harmless) = (0, 0);
        for file in files(&original) {
            let name = file.file_name().unwrap().to_str().unwrap().to_string();
            let bytes = fs::read(&file).unwrap();
            // Most bytes of most files are zeros that mean nothing: aim at the others.
            let written: Vec<usize> = (0..bytes.len()).filter(|&n| bytes[n] != 0).collect();
            if written.is_empty() {
                continue;
            }
            for round in 0..(if name.starts_with("redo-") { 3 } else { 20 }) * factor() {
                let _ = fs::remove_dir_all(&at);
                copy(&original, &at);
                let offset = match round % 4 {
                    0 => rng.usize(..bytes.len()),
                    1 => written[rng.usize(..written.len().min(40))],
                    _ => written[rng.usize(..written.len())],
                };
                let bit = rng.u8(..8);
                let target = fs::OpenOptions::new().write(true).open(at.join(&name)).unwrap();
                target.write_all_at(&[bytes[offset] ^ 1 << bit], offset as u64).unwrap();
                drop(target);
                let what = format!("bit {bit} of byte {offset} of {name}");
                match read_prefix(&at, name.starts_with("redo-")) {
                    Ok(_) => harmless += 1,
                    Err(error) => {
                        errors += 1;
                        let message = error.to_string();
                        // A group that goes on in the next segment is named by where it begins.
                        let place = if name.starts_with("redo-") { "redo-" } else { &name };
                        assert!(names_place(&message, place), "{what}: {message}");
                    }
                }
            }
        }
        eprintln!("{how:?}: {errors} errors, {harmless} harmless");
        assert!(errors > 0);
    }
}

/// Sets a field and makes the checksum right again.
fn patch(path: &Path, range: std::ops::Range<u64>, at: usize, value: &[u8], crc_at: usize) {
    let mut file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut block = vec![0; (range.end - range.start) as usize];
    file.seek(SeekFrom::Start(range.start)).unwrap();
    file.read_exact(&mut block).unwrap();
    block[at..at + value.len()].copy_from_slice(value);
    block[crc_at..crc_at + 4].fill(0);
    let crc = crc32c::crc32c(&block);
    block[crc_at..crc_at + 4].copy_from_slice(&crc.to_le_bytes());
    file.seek(SeekFrom::Start(range.start)).unwrap();
    file.write_all(&block).unwrap();
}

#[test]
fn a_newer_format_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let original = dir.path().join("original");
    database(&original, Shutdown::Fast);
    let at = dir.path().join("control is newer");
    copy(&original, &at);
    for slot in [0, 4096] {
        patch(&at.join("control"), slot..slot + 4096, 8, &999u32.to_le_bytes(), 12);
    }
    // Whatever such files may mean by then.
    for name in ["creating", "tmp-1-1"] {
        fs::write(at.join(name), name).unwrap();
    }
    fs::remove_file(at.join("lock")).unwrap();
    let before = contents(&at);
    says(Database::open(&at, durable()), &["control", "format 999", "upgrade"]);
    assert!(before == contents(&at));
    assert!(!at.join("lock").exists());

    let at = dir.path().join("redo is newer");
    copy(&original, &at);
    for segment in files(&at).iter().filter(|f| f.to_str().unwrap().contains("redo-")) {
        patch(segment, 0..4096, 8, &999u32.to_le_bytes(), 12);
    }
    let before = contents(&at);
    says(Database::open(&at, durable()), &["redo-", "format version 999", "upgrade"]);
    assert!(before == contents(&at));
}

#[test]
fn files_of_another_database() {
    let dir = scratch();
    let (one, other) = (dir.path().join("one"), dir.path().join("other"));
    database(&one, Shutdown::Clean);
    // The same rows under other names, so that what is taken for a right row can be told.
    let db = Database::open(&other, durable()).unwrap();
    let table = db.create_table("items", items()).unwrap();
    for from in (0..ROWS).step_by(20) {
        retried(&db, Isolation::default(), |txn| {
            (from..from + 20).try_for_each(|id| {
                let (a, b, body) = item(id);
                txn.insert(&table, &values(id, &(a, b.replace("row", "own"), body)))
            })
        });
    }
    db.close(Shutdown::Clean, &mut |_| {}).unwrap();
    for kind in ["control", "data", "map", "redo-"] {
        let at = dir.path().join(format!("with the other {kind}"));
        copy(&one, &at);
        let of_kind = |p: &PathBuf| p.file_name().unwrap().to_str().unwrap().starts_with(kind);
        for file in files(&at).iter().filter(|p| of_kind(p)) {
            fs::remove_file(file).unwrap();
        }
        for file in files(&other).iter().filter(|p| of_kind(p)) {
            fs::copy(file, at.join(file.file_name().unwrap())).unwrap();
        }
        let error = read_prefix(&at, false).expect_err(kind);
        eprintln!("  {kind}: {error}");
        assert!(["data", "map", "redo-"].iter().any(|f| error.to_string().contains(f)), "{error}");
        assert!(error.to_string().contains("another database"), "{error}");
    }
}

/// Runs a command that needs rights; whether it worked.
fn privileged(command: &str, args: &[&str]) -> bool {
    let ran = Command::new(command).args(args).output();
    let worked = ran.as_ref().is_ok_and(|o| o.status.success());
    if !worked {
        eprintln!("skipped: {command} {args:?} is not permitted here: {ran:?}");
    }
    worked
}

/// An undone change of the system.
struct Undo(&'static str, Vec<String>);

impl Drop for Undo {
    fn drop(&mut self) {
        let _ = Command::new(self.0).args(&self.1).output();
    }
}

#[test]
fn what_may_not_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("db");
    database(&at, Shutdown::Fast);
    for file in files(&at).into_iter().chain([at.clone(), at.join("lock")]) {
        let path = file.to_str().unwrap();
        if !privileged("chattr", &["+i", path]) {
            return;
        }
        let undo = Undo("chattr", vec!["-i".into(), path.into()]);
        let opened = Database::open(&at, durable());
        let name = file.file_name().unwrap().to_str().unwrap();
        match opened {
            // A directory that takes no new names is needed only when one is to be made.
            Ok(db) if file == at => drop(db),
            other => {
                says(other, &[name]);
            }
        }
        drop(undo);
        expect_all(&Database::open(&at, durable()).unwrap(), name);
    }
    let fresh = dir.path().join("fresh");
    fs::create_dir(&fresh).unwrap();
    let path = fresh.to_str().unwrap();
    if privileged("chattr", &["+i", path]) {
        let _undo = Undo("chattr", vec!["-i".into(), path.into()]);
        says(Database::open(&fresh, durable()), &["fresh"]);
    }
}

/// Inserts rows until the device is full, then looks whether all is as it was.
fn fill_device(db: &Database, table: &Table, from: u64) -> (u64, Error) {
    for id in from.. {
        let mut txn = db.begin(Isolation::default()).unwrap();
        let mut rng = fastrand::Rng::with_seed(id);
        let body: Vec<u8> = (0..20_000).map(|_| rng.u8(..)).collect();
        let item = (id as i64, format!("big {id}"), body);
        if let Err(error) = txn.insert(table, &values(id, &item)) {
            drop(txn);
            return (id, error);
        }
        if let Err(error) = txn.commit() {
            return (id, error);
        }
        assert!(id < from + 100_000, "the device is never full");
    }
    unreachable!()
}

#[test]
fn a_full_device_stops_writers_and_nothing_else() {
    let _watchdog = Watchdog::new("full device");
    let disk = Arc::new(SimDisk::new(1));
    let db = Database::open_on(disk.clone(), durable()).unwrap();
    let table = fill(&db);
    db.checkpoint().unwrap();
    disk.set_capacity(Some(disk.used_bytes() + (6 << 20)));
    let mut next = 10_000;
    for round in 0..3 {
        let (id, error) = fill_device(&db, &table, next);
        let message = error.to_string();
        eprintln!("  {message}");
        assert!(message.contains("no space") && message.contains("data"), "{message}");
        // Reads of what is in memory go on.
        let mut txn = db.begin(Isolation::default()).unwrap();
        assert!(txn.get(&table, &[weir::Value::U64(id - 1)]).unwrap().is_some());
        drop(txn);
        // Space was added: all goes on.
        disk.set_capacity(Some(disk.used_bytes() + (8 << 20)));
        std::thread::sleep(std::time::Duration::from_millis(200));
        let found = all_items(&mut db.begin(Isolation::default()).unwrap(), &table);
        assert_eq!(found.len() as u64, ROWS + id - 10_000, "round {round}");
        next = id;
    }
    disk.set_capacity(None);
    let expected = all_items(&mut db.begin(Isolation::default()).unwrap(), &table);
    drop((table, db));
    let db = Database::open_on(disk, durable()).unwrap();
    let table = db.table("items").unwrap();
    same(&expected, &all_items(&mut db.begin(Isolation::default()).unwrap(), &table), "reopened");
    check_quiet(&db);
}

#[test]
fn a_full_file_system() {
    let _watchdog = Watchdog::new("full file system");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    if !privileged("mount", &["-t", "tmpfs", "-o", "size=12m", "tmpfs", path]) {
        return;
    }
    let _undo = Undo("umount", vec![path.into()]);
    let db = Database::open(dir.path(), durable()).unwrap();
    let table = fill(&db);
    let (_, error) = fill_device(&db, &table, 10_000);
    let message = error.to_string();
    eprintln!("  {message}");
    assert!(message.contains("no space") && message.contains("data"), "{message}");
    assert!(message.contains(path), "{message}");
    let expected = all_items(&mut db.begin(Isolation::default()).unwrap(), &table);
    drop((table, db));
    // The device is as full as it was; more space is had by remounting.
    if let Err(error) = Database::open(dir.path(), durable()) {
        eprintln!("  {error}");
        assert!(error.to_string().contains(path), "{error}");
    }
    assert!(privileged("mount", &["-o", "remount,size=64m", path]));
    {
        let db = Database::open(dir.path(), durable()).unwrap();
        let table = db.table("items").unwrap();
        let found = all_items(&mut db.begin(Isolation::default()).unwrap(), &table);
        same(&expected, &found, "reopened");
        check_quiet(&db);
    }
    // Too small to hold even an empty database.
    let tiny = tempfile::tempdir().unwrap();
    let path = tiny.path().to_str().unwrap();
    assert!(privileged("mount", &["-t", "tmpfs", "-o", "size=512k", "tmpfs", path]));
    let _undo = Undo("umount", vec![path.into()]);
    says(Database::open(tiny.path(), durable()), &[path]);
    assert!(privileged("mount", &["-o", "remount,size=64m", path]));
    fill(&Database::open(tiny.path(), durable()).unwrap());
}

/// `control` notes how far the log is durable now and then only; what is damaged behind the note is
/// told by the log itself, unless next to nothing came after it.
#[test]
fn damage_behind_the_last_note_is_told_from_the_log_s_end() {
    let disk = weir_os::SimDisk::new(1);
    let open = |disk: &weir_os::SimDisk| {
        Database::open_on(std::sync::Arc::new(disk.clone()), durable().single_threaded())
    };
    let db = open(&disk).unwrap();
    let segment_bytes = db.status().lsn_last_checkpoint;
    let table = db.create_table("items", items()).unwrap();
    let mut commits = Vec::new();
    for id in 0..30 {
        commits.push(db.status().lsn_flushed);
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        txn.insert(&table, &values(id, &(1, format!("{id}"), vec![7; 40]))).unwrap();
        txn.commit().unwrap();
    }
    let disk = disk.process_kill();
    let (mut told, mut lost) = (0, 0);
    for (id, lsn) in commits.iter().enumerate() {
        let disk = disk.process_kill();
        let file = format!("redo-{:010}", lsn / segment_bytes);
        disk.rot(&file, 4096 + lsn % segment_bytes + 20, 3).unwrap();
        match open(&disk) {
            Err(error) => {
                says(Err::<Database, _>(error), &["redo-", "offset", "restore the file"]);
                told += 1;
            }
            Ok(db) => {
                let table = db.table("items").unwrap();
                let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
                let found = all_items(&mut txn, &table).len();
                assert!(found == id && found + 1 == commits.len(), "{found} of {id} rows are left");
                lost += 1;
            }
        }
    }
    assert!(told >= commits.len() - 1 && lost <= 1, "{told} told, {lost} lost");
}
