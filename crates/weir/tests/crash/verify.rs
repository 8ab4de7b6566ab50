//! After recovery: is the database the state after one of the commits that may have been the last?

use crate::model::{Catalog, Def, Index, Row};
use crate::work::same;
use crate::world::{self, Weather, World};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use weir::{BackgroundStep, Bounds, Database, Direction, Error, IndexRef, Isolation, Transaction};
use weir_os::{Disk, SimDisk};

/// A database as found: names of prepared transactions, and tables.
pub struct State {
    prepared: Vec<Vec<u8>>,
    tables: BTreeMap<String, Found>,
}

/// A table as found: its indexes, the columns behind those that all tables have, and key and stamp
/// of its rows.
pub struct Found {
    indexes: Vec<&'static str>,
    added: Vec<String>,
    stamps: Vec<(Vec<u8>, u64)>,
}

impl World {
    /// Finds the last commit that survived, compares everything with it, and goes on from there.
    pub fn verify(&mut self) {
        self.weather = Weather::Fair;
        self.counts.recoveries += 1;
        let steps = self.rng.u32(..64) >> self.rng.u32(..7);
        for _ in 0..steps {
            let takes_back = self.rng.u8(..4) == 0;
            let step = if takes_back { BackgroundStep::TakeBack } else { BackgroundStep::ApplyLog };
            self.recovery_step(step);
        }
        let floor = self.model.floor_kill;
        let commit = self.surviving_commit(floor).unwrap_or_else(|e| panic!("a scan failed: {e}"));
        self.counts.commits_lost += self.model.last - commit;
        self.note(|| format!("commit {commit} was the last"));
        self.compare(commit).unwrap_or_else(|e| panic!("a scan failed: {e}"));
        self.model.settle(commit);
        self.counts.prepared_found += self.model.prepared().count() as u64;
        // What was found must be there after the next power cut.
        self.model.all_durable();
        // The model knows nothing of rows that are locked until they are taken back.
        while self.db().status().recovery_transactions_left > 0 {
            self.recovery_step(BackgroundStep::TakeBack);
        }
        // The check needs all of the log applied: without it recovery goes on beside the work.
        if self.rng.bool() {
            self.check();
        }
    }

    /// Opens what was found to be read only: it is the state after a commit, before all of the log
    /// is applied and afterwards, and nothing is written.
    pub fn read_only(&mut self) {
        let written = |disk: &SimDisk| (disk.stats().writes, disk.stats().syncs, disk.used_bytes());
        let before = written(&self.disk);
        let options = self.options().read_only(true);
        self.db = match Database::open_on(Arc::new(self.disk.clone()), options) {
            // Its creation was cut short.
            Err(Error::NoDatabase { .. }) => return,
            db => Some(db.unwrap_or_else(|e| panic!("the database doesn't open read-only: {e}"))),
        };
        let floor = self.model.floor_kill;
        let commits = [(); 2].map(|()| {
            let commit = self.surviving_commit(floor).unwrap_or_else(|e| panic!("a scan: {e}"));
            self.db().finish_recovery().unwrap_or_else(|e| panic!("recovery failed: {e}"));
            commit
        });
        self.note(|| format!("read-only, commit {} was the last", commits[0]));
        assert_eq!(commits[0], commits[1]);
        self.db = None;
        assert_eq!(written(&self.disk), before, "a reader has written");
    }

    fn recovery_step(&self, step: BackgroundStep) {
        self.db().background_step(step).unwrap_or_else(|e| panic!("recovery failed: {e}"));
    }

    /// The structural check.
    pub fn check(&mut self) {
        let mut findings = Vec::new();
        let thorough = self.rng.u8(..8) == 0;
        let report = &mut |finding: weir::check::Finding| findings.push(finding.to_string());
        let result = match thorough {
            true => self.db().check(report),
            false => self.db().check_quickly(report),
        };
        let summary = result.unwrap_or_else(|error| panic!("the check failed: {error}"));
        assert!(findings.is_empty(), "findings: {findings:#?} ({summary:?})");
    }

    pub fn found(&self) -> Result<State, Error> {
        let mut txn = self.db().begin(Isolation::RepeatableRead)?;
        let mut all = BTreeMap::new();
        for name in self.db().table_names() {
            let table = self.db().table(&name).expect("a table that was listed");
            let mut stamps = Vec::new();
            let mut cursor =
                txn.scan(&table, IndexRef::Primary, Bounds::all(), Direction::Forward)?;
            while let Some(row) = cursor.next()? {
                let key = row.get(0)?.as_bytes().expect("bytes").to_vec();
                let stamp = row.get(1)?.as_u64().expect("a number");
                stamps.push((key, stamp));
            }
            let schema = table.schema().expect("the table is there");
            let names = schema.indexes().iter().map(|i| i.name());
            let known = |n: &str| Index::ALL.iter().map(|i| i.name()).find(|k| *k == n);
            let indexes = names.map(|n| known(n).expect("a known index")).collect();
            let columns = schema.columns().iter().map(|column| column.name().to_string());
            let added = columns.skip(world::schema().columns().len()).collect();
            all.insert(name, Found { indexes, added, stamps });
        }
        Ok(State { prepared: self.found_prepared(), tables: all })
    }

    /// The commit after which the database is as it is found, from `floor` on.
    ///
    /// # Errors
    /// Those of the scans.
    pub fn surviving_commit(&mut self, floor: u64) -> Result<u64, Error> {
        let found = self.found()?;
        let last = self.model.last;
        let mut why = String::new();
        for commit in (floor..=last).rev() {
            match self.differs(&found, commit) {
                None => return Ok(commit),
                Some(difference) => {
                    if last - commit < 6 {
                        why += &format!("\n  from commit {commit}: {difference}");
                    }
                }
            }
        }
        let earlier = (0..floor).rev().find(|&c| self.differs(&found, c).is_none());
        panic!(
            "the database is in none of the states from commit {floor} to {last}; an earlier one \
             that it is in: {earlier:?}{why}"
        );
    }

    pub fn differs(&self, found: &State, commit: u64) -> Option<String> {
        let State { prepared, tables: found } = found;
        if *prepared != self.model.prepared_at(commit) {
            let names = prepared.iter().map(|xid| String::from_utf8_lossy(xid));
            return Some(format!("prepared transactions {:?}", names.collect::<Vec<_>>()));
        }
        let catalog: &Catalog = self.model.catalog_at(commit);
        if !found.keys().eq(catalog.keys()) {
            return Some(format!("tables {:?}", found.keys().collect::<Vec<_>>()));
        }
        for (name, def) in catalog {
            let table = &found[name];
            if !def.indexes.iter().map(|i| i.0.name()).eq(table.indexes.iter().copied()) {
                return Some(format!("indexes of {name}: {:?}", table.indexes));
            }
            if !def.added.iter().map(|column| &column.name).eq(&table.added) {
                return Some(format!("columns added to {name}: {:?}", table.added));
            }
            let rows = self.model.rows(def.id, commit);
            let expected = rows.iter().map(|r| (&r.key[..], r.stamp));
            let is = table.stamps.iter().map(|(k, s)| (&k[..], *s));
            if !is.clone().eq(expected.clone()) {
                let missing = expected.clone().find(|e| !is.clone().any(|f| f == *e));
                let more = is.clone().find(|f| !expected.clone().any(|e| e == *f));
                let show = |x: Option<(&[u8], u64)>| {
                    x.map(|(k, s)| format!("{} stamp {s}", k.escape_ascii()))
                };
                return Some(format!(
                    "{name}: {} rows, {} expected; missing {:?}, found instead {:?}",
                    table.stamps.len(),
                    rows.len(),
                    show(missing),
                    show(more)
                ));
            }
        }
        None
    }

    /// Compares every row by every index, in both directions.
    ///
    /// # Errors
    /// Those of the scans.
    pub fn compare(&mut self, commit: u64) -> Result<(), Error> {
        let mut txn = self.db().begin(Isolation::RepeatableRead)?;
        let catalog = self.model.catalog_at(commit).clone();
        for (name, def) in &catalog {
            let rows = self.model.rows(def.id, commit);
            self.counts.rows_verified += rows.len() as u64;
            self.compare_table(&mut txn, name, def, rows)?;
        }
        Ok(())
    }

    fn compare_table(
        &self,
        txn: &mut Transaction,
        name: &str,
        def: &Def,
        rows: Vec<Rc<Row>>,
    ) -> Result<(), Error> {
        let table = self.db().table(name).expect("the table is there");
        let orders = def.indexes.iter().map(|i| Some(i.0));
        for by in [None].into_iter().chain(orders) {
            let mut expected = rows.clone();
            if let Some(index) = by {
                index.sort(&mut expected);
            }
            for direction in [Direction::Forward, Direction::Backward] {
                let index = by.map_or(IndexRef::Primary, |b| IndexRef::Named(b.name()));
                let whole = by.is_none() || direction == Direction::Forward;
                let bounds = Bounds::all();
                let mut cursor = match whole {
                    true => txn.scan(&table, index, bounds, direction)?,
                    false => txn.scan_keys(&table, index, bounds, direction)?,
                };
                let what = format!("scan of {name} by {by:?} {direction:?}");
                let mut at = 0;
                while let Some(found) = cursor.next()? {
                    let row = expected.get(at).unwrap_or_else(|| panic!("{what}: too many rows"));
                    let is_it = match whole {
                        true => same(&found, def, row),
                        false => found.get(0)?.as_bytes() == Some(&row.key[..]),
                    };
                    assert!(is_it, "{what}: row {at} is not as the model says");
                    at += 1;
                }
                assert_eq!(at, expected.len(), "{what}: rows are missing");
                if direction == Direction::Forward {
                    expected.reverse();
                }
            }
        }
        Ok(())
    }
}
