//! The operations of a run, each checked against the model.

use crate::model::{Def, Index, Key, Row};
use crate::world::{Down, Open, Step, Weather, World, values};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use weir::{
    BackgroundStep, Bounds, Direction, Durability, Error, IndexRef, Isolation, RowRef, Shutdown,
    Value,
};

/// Whether a row as read is that of the model.
pub fn same(found: &RowRef<'_>, def: &Def, row: &Row) -> bool {
    values(def, row).iter().enumerate().all(|(i, v)| found.get(i).expect("a whole row") == *v)
}

fn same_row(found: &weir::Row, def: &Def, row: &Row) -> bool {
    values(def, row).iter().enumerate().all(|(i, v)| found.get(i) == *v)
}

/// Value and key of a row, by which a unique index is compared.
fn by_u(row: &weir::Row) -> (Option<u64>, Vec<u8>) {
    (row.get(3).as_u64(), row.get(0).as_bytes().expect("a key").to_vec())
}

fn short(key: &[u8]) -> String {
    let text = key.escape_ascii().to_string();
    match text.len() {
        0..40 => text,
        n => format!("{}..{} ({n})", &text[..12], &text[n - 12..]),
    }
}

impl World {
    pub fn step(&mut self) -> Step {
        self.counts.operations += 1;
        let p = self.profile;
        let weights = [p.insert, p.update, p.delete, p.read, p.scan, p.ddl, p.background, 12, 6, 2];
        let mut n = self.rng.u32(..weights.iter().sum::<u32>());
        let kind = weights.iter().position(|&w| {
            let here = n < w;
            n = n.wrapping_sub(w);
            here
        });
        let kind = kind.expect("a number below the sum");
        if kind == 5 || self.model.catalog().is_empty() {
            return self.definition();
        }
        if kind == 6 {
            return self.background();
        }
        if self.backs_up && self.rng.u8(..if self.backup.is_some() { 12 } else { 250 }) == 0 {
            return self.back_up();
        }
        if self.model.prepared().next().is_some() && self.rng.u8(..16) == 0 {
            return self.decide();
        }
        if self.open.len() < self.profile.open && (self.open.is_empty() || self.rng.u8(..4) == 0) {
            self.begin()?;
        }
        let i = self.rng.usize(..self.open.len());
        if self.open[i].reader && kind < 3 {
            return self.scan(i);
        }
        match kind {
            0..3 => {
                let burst = 1 + self.rng.u32(..self.profile.burst);
                let Some((name, def)) = self.pick_table() else { return Ok(()) };
                match kind {
                    0 if self.rng.u8(..3) == 0 => return self.insert_many(i, &name, &def, burst),
                    2 if self.rng.u8(..3) == 0 => return self.delete_many(i, &name, &def, burst),
                    _ => {}
                }
                for _ in 0..burst {
                    match kind {
                        0 => self.insert(i, &name, &def)?,
                        1 => self.update(i, &name, &def)?,
                        _ => self.delete(i, &name, &def)?,
                    }
                }
                Ok(())
            }
            3 => self.get(i),
            4 => self.scan(i),
            7 => self.end(i),
            8 => self.savepoint(i),
            _ => self.get_for_update(i),
        }
    }

    fn begin(&mut self) -> Step {
        let isolation = match self.rng.u8(..8) {
            0 => Isolation::ReadUncommitted,
            1 | 2 => Isolation::ReadCommitted,
            _ => Isolation::RepeatableRead,
        };
        let reader = self.rng.u8(..6) == 0;
        let isolation = if reader { Isolation::RepeatableRead } else { isolation };
        let durability = match self.rng.u8(..6) {
            0..3 => Durability::Sync,
            3 | 4 => Durability::Write,
            _ => Durability::Relaxed,
        };
        let mut txn = match self.db().begin(isolation) {
            Ok(txn) => txn,
            Err(error) => return Err(self.down("begin", error)),
        };
        txn.set_durability(durability);
        self.stamps += 1;
        let number = self.stamps;
        self.note(|| format!("begin t{number} {isolation:?} {durability:?} reader {reader}"));
        self.open.push(Open {
            txn,
            number,
            isolation,
            durability,
            snapshot: None,
            writes: BTreeMap::new(),
            before: Vec::new(),
            savepoints: Vec::new(),
            locks: BTreeSet::new(),
            used: BTreeSet::new(),
            reader,
        });
        Ok(())
    }

    pub fn tables(&self, name: &str) -> weir::Table {
        self.db().table(name).unwrap_or_else(|| panic!("no table `{name}`"))
    }

    /// Whether a live row of the newest state, as the transaction may see it, has this `u`.
    fn unique_clash(&self, i: usize, def: &Def, row: &Row) -> bool {
        let has = def.indexes.iter().any(|x| x.0 == Index::ByU);
        let (true, Some(u)) = (has, row.u) else { return false };
        let own = &self.open[i].writes;
        let same =
            |r: &Option<Rc<Row>>| r.as_ref().is_some_and(|r| r.u == Some(u) && r.key != row.key);
        let mut keys = self.model.keys(def.id).into_iter().flatten();
        keys.any(|(key, versions)| {
            versions.last().is_some_and(|v| same(&v.1)) && !own.contains_key(&(def.id, key.clone()))
        }) || own.iter().any(|((table, _), r)| *table == def.id && same(r))
    }

    fn open_clash(&self, i: usize, def: &Def, row: &Row) -> bool {
        let has = def.indexes.iter().any(|x| x.0 == Index::ByU);
        let mut written = self.writes_of_others(i).flatten();
        has && row.u.is_some()
            && written.any(|((t, k), r)| {
                *t == def.id && *k != row.key && r.as_ref().is_some_and(|r| r.u == row.u)
            })
    }

    /// Judges how a write of `row` (or a delete of `key`) ended; `true` if it was done.
    fn judge<T>(
        &mut self,
        i: usize,
        def: &Def,
        key: &Key,
        row: Option<&Rc<Row>>,
        result: Result<T, Error>,
    ) -> Result<Option<T>, Down> {
        let held = self.held_by_other(i, def.id, key);
        match result {
            Ok(done) => {
                assert!(!held, "a row that another transaction holds was written");
                if let Some(row) = row {
                    assert!(!self.unique_clash(i, def, row), "a duplicate in a unique index");
                    assert!(
                        !self.open_clash(i, def, row),
                        "a duplicate with a running transaction"
                    );
                }
                Ok(Some(done))
            }
            Err(Error::LockWaitTimeout) => {
                self.counts.lock_timeouts += 1;
                self.open[i].used.insert(def.id);
                // A transaction that was left while there was no space holds its rows for a while.
                let busy = self.busy_by_other(i, def.id) || self.weather == Weather::Full;
                assert!(busy, "nobody else holds anything");
                Ok(None)
            }
            Err(Error::Duplicate { index, .. }) => {
                self.counts.duplicates += 1;
                self.open[i].used.insert(def.id);
                assert!(!held || index != "primary", "a held row counts as a duplicate");
                let row = row.expect("only rows can be duplicates");
                let clash = match index.as_str() {
                    "primary" => self.newest(i, def.id, key).is_some(),
                    "by_u" => self.unique_clash(i, def, row),
                    other => panic!("index {other} isn't unique"),
                };
                assert!(clash, "no row stands for the duplicate in {index}");
                Ok(None)
            }
            Err(error) => Err(self.down("write", error)),
        }
    }

    fn insert(&mut self, i: usize, name: &str, def: &Def) -> Step {
        let table = self.tables(name);
        let key = self.some_key(true);
        let row = self.new_row(key.clone());
        let old = self.newest(i, def.id, &key);
        let result = self.open[i].txn.insert(&table, &values(def, &row));
        let t = self.open[i].number;
        let (len, short) = (row.body.len(), short(&key));
        let u = row.u;
        self.note(|| format!("t{t} insert {name} {short} u {u:?} {len} bytes: {result:?}"));
        if self.judge(i, def, &key, Some(&row), result)?.is_some() {
            assert!(old.is_none(), "a row was inserted twice");
            self.wrote(i, def.id, key, Some(row));
        }
        Ok(())
    }

    /// Inserts up to `count` rows at once, none of which is in the way of another: it would not be
    /// known which is the duplicate.
    fn insert_many(&mut self, i: usize, name: &str, def: &Def, count: u32) -> Step {
        let table = self.tables(name);
        let mut rows: Vec<Rc<Row>> = Vec::new();
        for _ in 0..count {
            let key = self.some_key(true);
            let row = self.new_row(key);
            let clashes = |r: &Rc<Row>| r.key == row.key || (r.u.is_some() && r.u == row.u);
            if !rows.iter().any(clashes) {
                rows.push(row);
            }
        }
        let all: Vec<_> = rows.iter().map(|row| values(def, row)).collect();
        let result = self.open[i].txn.insert_many(&table, &all);
        drop(all);
        let t = self.open[i].number;
        self.note(|| {
            let keys: Vec<String> = rows.iter().map(|row| short(&row.key)).collect();
            format!("t{t} insert into {name} at once {keys:?}: {result:?}")
        });
        let judged = match &result {
            // Which of them it was isn't known; one that others hold isn't.
            Err(Error::Duplicate { index, .. }) => {
                let is_there = |row: &Rc<Row>| match index.as_str() {
                    "primary" => {
                        self.newest(i, def.id, &row.key).is_some()
                            && !self.held_by_other(i, def.id, &row.key)
                    }
                    _ => self.unique_clash(i, def, row),
                };
                let duplicate = rows.iter().find(|row| is_there(row));
                duplicate.expect("a duplicate is one of the rows").clone()
            }
            _ => rows[0].clone(),
        };
        if self.judge(i, def, &judged.key, Some(&judged), result)?.is_some() {
            for row in &rows {
                assert!(self.newest(i, def.id, &row.key).is_none(), "a row was inserted twice");
                self.judge(i, def, &row.key, Some(row), Ok(()))?;
            }
            for row in rows {
                self.wrote(i, def.id, row.key.clone(), Some(row));
            }
        }
        Ok(())
    }

    fn update(&mut self, i: usize, name: &str, def: &Def) -> Step {
        let table = self.tables(name);
        let key = self.some_key(false);
        let row = self.new_row(key.clone());
        let old = self.newest(i, def.id, &key);
        let upsert = self.rng.u8(..3) == 0;
        let result = match upsert {
            true => self.open[i].txn.upsert(&table, &values(def, &row)),
            false => self.open[i].txn.update(&table, &values(def, &row)),
        };
        let t = self.open[i].number;
        let (len, short) = (row.body.len(), short(&key));
        let u = row.u;
        self.note(|| {
            format!("t{t} update {name} {short} u {u:?} {len} bytes, upsert {upsert}: {result:?}")
        });
        let judged = old.is_some() || upsert;
        if let Some(was) = self.judge(i, def, &key, judged.then_some(&row), result)? {
            assert_eq!(was, old.is_some(), "update saw a row that isn't there, or not one that is");
            if was || upsert {
                self.wrote(i, def.id, key, Some(row));
            }
        }
        self.open[i].used.insert(def.id);
        Ok(())
    }

    fn delete(&mut self, i: usize, name: &str, def: &Def) -> Step {
        let table = self.tables(name);
        let key = self.some_key(false);
        let old = self.newest(i, def.id, &key);
        let result = self.open[i].txn.delete(&table, &[Value::Bytes(&key)]);
        let t = self.open[i].number;
        let short = short(&key);
        self.note(|| format!("t{t} delete {name} {short}: {result:?}"));
        if let Some(was) = self.judge(i, def, &key, None, result)? {
            assert_eq!(was, old.is_some(), "delete saw a row that isn't there, or not one that is");
            if was {
                self.wrote(i, def.id, key, None);
            }
        }
        self.open[i].used.insert(def.id);
        Ok(())
    }

    /// Deletes up to `count` rows at once.
    fn delete_many(&mut self, i: usize, name: &str, def: &Def, count: u32) -> Step {
        let table = self.tables(name);
        let mut keys: Vec<_> = (0..count).map(|_| self.some_key(false)).collect();
        keys.sort_unstable();
        keys.dedup();
        let there: Vec<_> =
            keys.iter().filter(|key| self.newest(i, def.id, key).is_some()).cloned().collect();
        let values: Vec<_> = keys.iter().map(|key| [Value::Bytes(key)]).collect();
        let result = self.open[i].txn.delete_many(&table, &values);
        drop(values);
        let t = self.open[i].number;
        self.note(|| {
            let keys: Vec<String> = keys.iter().map(|key| short(key)).collect();
            format!("t{t} delete from {name} at once {keys:?}: {result:?}")
        });
        if let Some(deleted) = self.judge(i, def, &keys[0], None, result)? {
            assert_eq!(
                deleted,
                there.len(),
                "deletes saw rows that aren't there, or not all that are"
            );
            for key in &keys {
                self.judge(i, def, key, None, Ok(()))?;
            }
            for key in there {
                self.wrote(i, def.id, key, None);
            }
        }
        self.open[i].used.insert(def.id);
        Ok(())
    }

    fn get(&mut self, i: usize) -> Step {
        let Some((name, def)) = self.pick_table() else { return Ok(()) };
        let table = self.tables(&name);
        for _ in 0..1 + self.rng.u8(..10) {
            let key = self.some_key(false);
            let found = match self.open[i].txn.get(&table, &[Value::Bytes(&key)]) {
                Ok(found) => found,
                Err(Error::TableTooNew(_)) => return self.table_was_too_new(i, &def),
                Err(error) => return Err(self.down("get", error)),
            };
            self.has_read(i, def.id);
            assert!(self.may_see(i, &def), "a table newer than the snapshot was read");
            if !self.knows_what_is_seen(i) {
                continue;
            }
            let expected = self.visible(i, def.id, &key);
            let t = self.open[i].number;
            let stamps = (found.as_ref().map(|r| r.get(1).to_owned()), expected.as_ref());
            assert!(
                match (&found, &expected) {
                    (None, None) => true,
                    (Some(found), Some(row)) => same_row(found, &def, row),
                    _ => false,
                },
                "t{t} get of {} in {name}: found, expected {stamps:?}",
                short(&key)
            );
        }
        Ok(())
    }

    /// Whether the `i`-th transaction may read a table. Dirty reads may read any.
    fn may_see(&self, i: usize, def: &Def) -> bool {
        self.open[i].isolation != Isolation::RepeatableRead || self.commit_seen(i) >= def.since
    }

    fn table_was_too_new(&mut self, i: usize, def: &Def) -> Step {
        self.has_read(i, def.id);
        assert!(!self.may_see(i, def), "the table is old enough");
        Ok(())
    }

    fn get_for_update(&mut self, i: usize) -> Step {
        let Some((name, def)) = self.pick_table() else { return Ok(()) };
        let table = self.tables(&name);
        let key = self.some_key(false);
        let found = self.open[i].txn.get_for_update(&table, &[Value::Bytes(&key)]);
        let (t, short) = (self.open[i].number, short(&key));
        self.note(|| format!("t{t} get_for_update {name} {short}: {}", found.is_ok()));
        self.open[i].used.insert(def.id);
        let held = self.held_by_other(i, def.id, &key);
        match found {
            Ok(found) => {
                assert!(!held, "a row that another transaction holds was locked");
                let expected = self.newest(i, def.id, &key);
                let same = match (&found, &expected) {
                    (None, None) => true,
                    (Some(found), Some(row)) => same_row(found, &def, row),
                    _ => false,
                };
                assert!(same, "t{t} get_for_update of {short}");
                self.open[i].locks.insert((def.id, key));
                Ok(())
            }
            Err(Error::LockWaitTimeout) => {
                let busy = self.busy_by_other(i, def.id) || self.weather == Weather::Full;
                assert!(busy, "nobody else holds anything");
                Ok(())
            }
            Err(error) => Err(self.down("get_for_update", error)),
        }
    }

    fn scan(&mut self, i: usize) -> Step {
        let Some((name, def)) = self.pick_table() else { return Ok(()) };
        let table = self.tables(&name);
        let by = match self.rng.usize(..=def.indexes.len()) {
            0 => None,
            n => Some(def.indexes[n - 1]),
        };
        let direction = if self.rng.bool() { Direction::Forward } else { Direction::Backward };
        let (low, high, a) = (self.some_key(false), self.some_key(false), self.rng.i64(-20..20));
        let (low, high) = (low.clone().min(high.clone()), low.max(high));
        let ends = ([Value::Bytes(&low)], [Value::Bytes(&high)]);
        let only_a = [Value::I64(a)];
        let part = self.rng.bool();
        let bounds = match by {
            None if part => Bounds::new(
                std::ops::Bound::Included(&ends.0[..]),
                std::ops::Bound::Excluded(&ends.1[..]),
            ),
            Some((Index::ByA, _)) if part => Bounds::prefix(&only_a),
            _ => Bounds::all(),
        };
        let index = by.map_or(IndexRef::Primary, |b| IndexRef::Named(b.0.name()));
        let result = self.open[i].txn.scan(&table, index, bounds, direction);
        let mut cursor = match result {
            Ok(cursor) => cursor,
            Err(Error::TableTooNew(_)) => {
                drop(result);
                return self.table_was_too_new(i, &def);
            }
            Err(Error::IndexTooNew { .. }) => {
                drop(result);
                self.has_read(i, def.id);
                let since = by.expect("only an index is too new").1;
                assert!(self.commit_seen(i) < since, "the index is old enough");
                return Ok(());
            }
            Err(error) => return Err(self.down("scan", error)),
        };
        let mut found = Vec::new();
        let end = loop {
            match cursor.next() {
                Ok(Some(row)) => found.push(row.to_row().expect("a whole row")),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        drop(cursor);
        if let Err(error) = end {
            return Err(self.down("scan", error));
        }
        self.has_read(i, def.id);
        assert!(self.may_see(i, &def), "a table newer than the snapshot was read");
        if let Some((_, since)) = by {
            assert!(self.commit_seen(i) >= since, "an index newer than the snapshot was used");
        }
        if !self.knows_what_is_seen(i) {
            return Ok(());
        }
        let mut expected = self.visible_rows(i, def.id);
        match by {
            None if part => expected.retain(|r| low <= r.key && r.key < high),
            Some((Index::ByA, _)) if part => expected.retain(|r| r.a == a),
            _ => {}
        }
        if let Some((index, _)) = by {
            index.sort(&mut expected);
            // Under one value of a unique index, the transaction's own row and its snapshot's come
            // in any order.
            if index.unique() {
                found.sort_by_key(by_u);
                expected.sort_by(|x, y| (x.u, &x.key[..]).cmp(&(y.u, &y.key[..])));
            }
        }
        if direction == Direction::Backward && !by.is_some_and(|(index, _)| index.unique()) {
            expected.reverse();
        }
        let (t, snapshot) = (self.open[i].number, self.open[i].snapshot);
        let describe = |n: usize| format!("row {n} of {}", expected.len());
        for (n, (found, row)) in found.iter().zip(&expected).enumerate() {
            assert!(
                same_row(found, &def, row),
                "t{t} (snapshot {snapshot:?}) scan of {name} by {by:?} {direction:?}: {}: found {:?}, \
                 expected stamp {} key {} u {:?}",
                describe(n),
                (found.get(1), short(found.get(0).as_bytes().expect("a key"))),
                row.stamp,
                short(&row.key),
                row.u
            );
        }
        assert_eq!(found.len(), expected.len(), "t{t} scan of {name} by {by:?} {direction:?}");
        self.note(|| format!("t{t} scan {name} by {by:?} {direction:?}: {}", found.len()));
        Ok(())
    }

    fn savepoint(&mut self, i: usize) -> Step {
        let open = &mut self.open[i];
        let back = !open.savepoints.is_empty() && self.rng.bool();
        if !back {
            let savepoint = open.txn.savepoint().expect("the transaction runs");
            open.savepoints.push((savepoint, open.before.len()));
            return Ok(());
        }
        let at = self.rng.usize(..open.savepoints.len());
        let (savepoint, len) = open.savepoints[at];
        let result = open.txn.rollback_to(savepoint);
        open.savepoints.truncate(at + 1);
        for (at, before) in open.before.drain(len..).rev() {
            match before {
                Some(row) => drop(open.writes.insert(at, row)),
                None => drop(open.writes.remove(&at)),
            }
        }
        let t = open.number;
        self.note(|| format!("t{t} rollback to {len} writes: {result:?}"));
        result.map_err(|error| self.down("rollback_to", error))
    }

    /// Ends a transaction, one way or another.
    fn end(&mut self, i: usize) -> Step {
        if self.open[i].reader && self.rng.u8(..4) > 0 {
            return self.scan(i);
        }
        let Open { number, durability, writes, .. } = &self.open[i];
        let (t, durability, n) = (*number, *durability, writes.len());
        if self.rng.u8(..) < self.profile.prepare && self.model.prepared().count() < 5 {
            return self.prepare(i);
        }
        let how = self.rng.u8(..8);
        let open = self.open.remove(i);
        let changes = World::changes(&open);
        match how {
            0 => {
                drop(open.txn);
                // If the power fails meanwhile, only part of it may have been taken back, and
                // nobody is told.
                let cut = self.disk.is_crashed();
                self.dropped_in_cut |= cut;
                self.note(|| format!("t{t} drop, {n} writes, power cut: {cut}"));
                self.counts.rollbacks += 1;
                Ok(())
            }
            1 => {
                let result = open.txn.rollback();
                self.note(|| format!("t{t} rollback, {n} writes: {result:?}"));
                self.counts.rollbacks += 1;
                result.map_err(|error| self.down("rollback", error))
            }
            _ => {
                let result = open.txn.commit();
                if n > 0 {
                    self.model.commit(changes);
                    self.counts.commits += 1;
                }
                let commit = self.model.last;
                self.note(|| {
                    format!("t{t} commit {commit} {durability:?}, {n} writes: {result:?}")
                });
                if let Err(error) = result {
                    self.counts.in_doubt += u64::from(n > 0);
                    return Err(self.down("commit", error));
                }
                // Without writes there was nothing to wait for.
                if n > 0 {
                    self.survives(durability);
                }
                Ok(())
            }
        }
    }

    /// What happened last was acknowledged with this durability.
    pub fn survives(&mut self, durability: Durability) {
        match durability {
            Durability::Sync => self.model.all_durable(),
            Durability::Write => self.model.all_written(),
            Durability::Relaxed => {}
        }
    }

    fn background(&mut self) -> Step {
        let kind = self.rng.u32(..60);
        if self.rng.u8(..) < self.profile.resize {
            let most = self.profile.resize_to >> 20;
            let bytes = (1 << 20) + (self.rng.u64(..most) << 20);
            let result = self.db().set_redo_capacity(bytes);
            self.note(|| format!("redo capacity {bytes}: {result:?}"));
            self.redo = bytes;
            return result.map(drop).map_err(|error| self.down("set_redo_capacity", error));
        }
        if kind == 58 {
            let result = self.db().checkpoint();
            self.note(|| format!("checkpoint: {result:?}"));
            result.map_err(|error| self.down("checkpoint", error))?;
            self.model.all_durable();
            return Ok(());
        }
        if kind == 56 {
            let result = self.db().compact(&mut |_| {});
            self.note(|| format!("compact: {result:?}"));
            if matches!(result, Err(Error::BackupRunning)) && self.backup.is_some() {
                return Ok(());
            }
            result.map_err(|error| self.down("compact", error))?;
            self.model.all_durable();
            return Ok(());
        }
        if kind == 59 {
            let names = self.db().table_names();
            let Some(name) = self.rng.choice(&names) else { return Ok(()) };
            let result = self.db().reorganize_table(&self.tables(name));
            self.note(|| format!("reorganize {name}: {result:?}"));
            return result.map(drop).map_err(|error| self.down("reorganize_table", error));
        }
        if kind == 57 {
            let result = self.db().purge_all();
            self.note(|| format!("purge_all: {result:?}"));
            return result.map_err(|error| self.down("purge_all", error));
        }
        let before = self.db().status();
        let step = BackgroundStep::ALL[kind as usize % 10];
        let result = self.db().background_step(step);
        let after = self.db().status();
        self.counts.moved += after.staged_entries_moved - before.staged_entries_moved;
        // The most that one life of the database staged.
        self.counts.staged = self.counts.staged.max(after.staged_entries);
        self.note(|| format!("{step:?}: {result:?}"));
        result.map_err(|error| self.down("background_step", error))?;
        if matches!(step, BackgroundStep::MoveCheckpoint | BackgroundStep::SyncLog) {
            self.model.all_durable();
        }
        Ok(())
    }

    /// Closes the database; transactions that still run are rolled back, before or after.
    pub fn close(&mut self) -> Step {
        let how = if self.rng.bool() { Shutdown::Clean } else { Shutdown::Fast };
        if self.rng.bool() {
            self.open.clear();
            self.attached.clear();
        }
        let db = self.db.take().expect("the database is open");
        let result = db.close(how, &mut |_| {});
        self.backup = None;
        self.open.clear();
        self.attached.clear();
        self.note(|| format!("close {how:?}: {result:?}"));
        result.map_err(|error| self.down("close", error))?;
        self.model.all_durable();
        self.counts.closes += 1;
        Ok(())
    }
}
