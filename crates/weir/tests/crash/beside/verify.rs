//! What is found after a crash, or in a backup.

use super::Beside;
use super::model::{Row, Rows, SHARED, Survives, WORKERS};
use super::work::{NUMBER_AT, SHARED_AT};
use std::collections::BTreeMap;
use std::sync::Arc;
use weir::{Bounds, Database, Direction, Durability, Error, IndexRef, Isolation, Value};
use weir_os::{Disk, SimDisk};

/// What a power cut has left of the disk of a backup.
pub struct Copy {
    pub disk: SimDisk,
    /// Whether it was said to be made.
    pub is_made: bool,
    /// Per worker, the number of its last commit when it was asked for.
    pub least: [u64; WORKERS],
    /// The moment after which nothing was begun that is in it.
    pub most: u64,
}

/// All that there is.
#[derive(Default)]
struct Found {
    numbers: [u64; WORKERS],
    rows: Rows,
    /// For each shared row, the number of each worker.
    shared: BTreeMap<usize, Vec<u64>>,
}

type Prepared = Vec<(usize, u64)>;

impl Beside {
    /// Finds each worker's last commit, and perhaps compares everything, while recovery goes on.
    pub fn verify(&mut self, db: &Database, crash: Survives) {
        let prepared = prepared(db);
        let mut numbers =
            numbers(db).unwrap_or_else(|error| panic!("a read after a start: {error}"));
        for (w, number) in numbers.iter().enumerate() {
            self.expect_acknowledged(w, *number, &prepared, crash);
        }
        let all = self.rng.bool();
        if all {
            self.compare(db, &prepared);
        }
        for (w, number) in prepared {
            assert!(number > numbers[w], "{w}-{number} is prepared and has committed");
            let (xid, commits) = (format!("{w}-{number}").into_bytes(), self.rng.bool());
            let decided = match commits {
                true => db.commit_prepared(&xid, Durability::Sync),
                false => db.rollback_prepared(&xid, Durability::Sync),
            };
            decided.unwrap_or_else(|error| panic!("{w}-{number} can't be decided: {error}"));
            self.counts().decided += 1;
            if commits {
                numbers[w] = number;
            }
        }
        numbers.iter().enumerate().for_each(|(w, number)| self.model(w).settle(*number));
        self.counts().recoveries += 1;
        if all {
            self.check(db);
        }
    }

    /// What a worker has committed behind what is found was not to survive this crash.
    fn expect_acknowledged(&self, w: usize, number: u64, prepared: &Prepared, crash: Survives) {
        let model = self.model(w);
        let Some((_, found)) = model.after(number) else {
            panic!("worker {w} is at {number}, which never was");
        };
        for (nth, commit) in model.commits.iter().enumerate().skip(found) {
            let is_prepared = prepared.contains(&(w, commit.number));
            assert!(!is_prepared || nth == found, "{w}-{} is prepared", commit.number);
            let was_prepared = commit.prepared.unwrap_or(Survives::Nothing);
            assert!(
                commit.survives < crash && (is_prepared || was_prepared < crash),
                "worker {w} is at {number}: {} is lost, which survives: {:?}, {:?}",
                commit.number,
                commit.survives,
                commit.prepared
            );
            self.counts().commits_lost += 1;
        }
    }

    /// Compares all rows with those of the workers, each as of the number that is found of it.
    pub fn compare(&self, db: &Database, prepared: &[(usize, u64)]) {
        let found = read(db).unwrap_or_else(|error| panic!("a scan: {error}"));
        let mut expected = Found { numbers: found.numbers, ..Found::default() };
        let mut shared = vec![vec![0; WORKERS]; SHARED];
        // Commits survive in the order in which they were asked for and acknowledged.
        let (mut last_begun, mut lost_ended) = (0, u64::MAX);
        for (w, number) in found.numbers.into_iter().enumerate() {
            let model = self.model(w);
            let Some((state, survived)) = model.after(number) else {
                panic!("worker {w} is at {number}, which never was");
            };
            expected.rows.extend(state.rows);
            shared.iter_mut().zip(state.shared).for_each(|(numbers, of_w)| numbers[w] = of_w);
            let (there, lost) = model.commits.split_at(survived);
            last_begun = there.last().map_or(0, |commit| commit.begun).max(last_begun);
            let lost = lost.first().filter(|lost| !prepared.contains(&(w, lost.number)));
            lost_ended = lost.map_or(u64::MAX, |lost| lost.ended).min(lost_ended);
        }
        assert!(last_begun < lost_ended, "a commit is there that was begun after one that isn't");
        let written = shared.into_iter().enumerate().filter(|(_, n)| n.iter().any(|n| *n > 0));
        expected.shared = written.collect();
        assert_eq!(found.shared, expected.shared, "numbers in the rows that all write");
        let differs = |rows: &Rows, others: &Rows| {
            let mut rows = rows.iter();
            rows.find(|(key, row)| others.get(key) != Some(row)).map(|(k, row)| (*k, row.clone()))
        };
        let missing = differs(&expected.rows, &found.rows);
        let more = differs(&found.rows, &expected.rows);
        assert!(
            missing.is_none() && more.is_none(),
            "at {:?}: {missing:?} is missing, {more:?} there",
            found.numbers
        );
        self.counts().rows_verified += found.rows.len() as u64;
    }

    /// The structural check, now and then.
    pub fn check(&mut self, db: &Database) {
        if self.rng.u8(..3) > 0 {
            return;
        }
        let mut findings = Vec::new();
        let summary = db.check(&mut |finding| findings.push(finding.to_string()));
        let summary = summary.unwrap_or_else(|error| panic!("the check failed: {error}"));
        assert!(findings.is_empty(), "{findings:#?} ({summary:?})");
    }

    /// A backup is as of its moment; what is no whole one is no database.
    pub fn verify_copy(&mut self, copy: &Copy) {
        let options = self.options().create(false);
        let db = match Database::open_on(Arc::new(copy.disk.clone()), options) {
            Ok(db) => db,
            Err(error) => {
                assert!(!copy.is_made, "a backup doesn't open: {error}");
                let names = copy.disk.list().expect("a list");
                let is_there = names.iter().any(|name| name == "control");
                assert!(!is_there, "half a backup looks like a whole one: {error}");
                return;
            }
        };
        self.compare(&db, &prepared(&db));
        let numbers = numbers(&db).unwrap_or_else(|error| panic!("a read of a copy: {error}"));
        for (w, number) in numbers.into_iter().enumerate() {
            let least = copy.least[w];
            assert!(number >= least, "worker {w} is at {number} in a copy of {least} or later");
            let model = self.model(w);
            let commit = model.commits.iter().find(|commit| commit.number == number);
            assert!(commit.is_none_or(|c| c.begun < copy.most), "{number} is of after the copy");
        }
        self.check(&db);
    }
}

/// Worker and number of each prepared transaction.
fn prepared(db: &Database) -> Prepared {
    let numbers = |xid: Vec<u8>| {
        let xid = String::from_utf8(xid).expect("one of ours");
        let (w, number) = xid.split_once('-').expect("one of ours");
        (w.parse().expect("a worker"), number.parse().expect("a number"))
    };
    db.prepared().into_iter().map(numbers).collect()
}

/// The number of each worker's last transaction.
fn numbers(db: &Database) -> Result<[u64; WORKERS], Error> {
    let table = db.table("rows").expect("the table is there");
    let mut txn = db.begin(Isolation::RepeatableRead)?;
    let mut numbers = [0; WORKERS];
    for (key, number) in (NUMBER_AT..).zip(&mut numbers) {
        let row = txn.get(&table, &[Value::U64(key)])?;
        *number = row.map_or(0, |row| row.get(1).as_u64().expect("a number"));
    }
    Ok(numbers)
}

/// All rows, which the index has, too.
fn read(db: &Database) -> Result<Found, Error> {
    let table = db.table("rows").expect("the table is there");
    let mut txn = db.begin(Isolation::RepeatableRead)?;
    let (mut found, mut expected, mut by_a) = (Found::default(), Vec::new(), Vec::new());
    let mut cursor = txn.scan(&table, IndexRef::Primary, Bounds::all(), Direction::Forward)?;
    while let Some(row) = cursor.next()? {
        let number = |n| row.get(n).map(|value| value.as_u64().expect("a number"));
        let (key, stamp) = (number(0)?, number(1)?);
        let (a, body) = (row.get(2)?.as_i64().expect("a number"), row.get(3)?);
        let body = body.as_bytes().expect("bytes");
        expected.push((a, key));
        if key >= SHARED_AT {
            let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight"));
            let numbers = body.chunks(8).map(number).collect();
            found.shared.insert((key - SHARED_AT) as usize, numbers);
        } else if key >= NUMBER_AT {
            found.numbers[(key - NUMBER_AT) as usize] = stamp;
        } else {
            let row = Row { stamp, a, len: body.len() };
            assert!(row.body() == body, "the body of row {key} is another one");
            found.rows.insert(key, row);
        }
    }
    drop(cursor);
    let mut cursor = txn.scan_keys(&table, "by_a", Bounds::all(), Direction::Forward)?;
    while let Some(row) = cursor.next()? {
        let a = row.get(2)?.as_i64().expect("a number");
        by_a.push((a, row.get(0)?.as_u64().expect("a number")));
    }
    expected.sort_unstable();
    assert!(by_a == expected, "the index has other rows than the table");
    Ok(found)
}
