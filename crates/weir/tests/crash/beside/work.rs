//! What workers and their companion do.

use super::model::{Commit, Model, Row, Rows, SHARED, Survives, WORKERS};
use super::verify::Copy;
use super::{Beside, Down, Scene, schema};
use fastrand::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir::{
    BackgroundStep, Backup, Database, Durability, Error, Isolation, Table, Transaction, Value,
};
use weir_os::SimDisk;

/// The row with the number of a worker's last transaction, and those that all write: behind all
/// others.
pub const NUMBER_AT: u64 = 1 << 40;
pub const SHARED_AT: u64 = 1 << 41;

/// A transaction of a worker, and what it has written.
struct Running<'d> {
    db: &'d Database,
    table: &'d Table,
    txn: Transaction,
    w: usize,
    number: u64,
    rows: Rows,
    writes: Vec<(u64, Option<Row>)>,
    shared: Option<usize>,
}

impl Running<'_> {
    fn put(&mut self, key: u64, row: &Row, body: &[u8]) -> Result<bool, Error> {
        let key = Value::U64(key);
        let values = [key, Value::U64(row.stamp), Value::I64(row.a), Value::Bytes(body)];
        self.txn.upsert(self.table, &values)
    }

    /// Puts this transaction's number into a row that all write, beside those of the others.
    fn put_shared(&mut self, nth: usize) -> Result<(), Error> {
        let key = SHARED_AT + nth as u64;
        let found = self.txn.get_for_update(self.table, &[Value::U64(key)])?;
        let mut numbers = match found {
            Some(row) => row.get(3).as_bytes().expect("bytes").to_vec(),
            None => vec![0; 8 * WORKERS],
        };
        numbers[8 * self.w..][..8].copy_from_slice(&self.number.to_le_bytes());
        self.put(key, &Row { stamp: 0, a: 1, len: 0 }, &numbers)?;
        self.shared = Some(nth);
        Ok(())
    }
}

impl Beside {
    /// All rows of all workers.
    pub fn fill(&mut self, db: &Database) {
        let table = db.table("rows").expect("the table is there");
        for w in 0..WORKERS {
            let mut rng = self.rng.fork();
            let mut running = self.begin(db, &table, w).unwrap_or_else(|_| panic!("no power"));
            for n in 0..self.keys {
                let key = n * WORKERS as u64 + w as u64;
                self.write(&mut running, key, &mut rng).unwrap_or_else(|_| panic!("no power"));
            }
            self.commit(running, &mut rng).unwrap_or_else(|_| panic!("no power"));
        }
    }

    pub fn work_as(&self, db: &Database, w: usize, seed: u64) {
        let mut rng = Rng::with_seed(seed);
        let table = db.table("rows").expect("the table is there");
        while self.transaction(db, &table, w, &mut rng).is_ok() {}
    }

    fn begin<'d>(&self, db: &'d Database, table: &'d Table, w: usize) -> Result<Running<'d>, Down> {
        let txn = db.begin(Isolation::RepeatableRead).map_err(|e| self.down("begin", &e))?;
        let mut model = self.model(w);
        let (number, rows) = (model.next_number(), model.now.rows.clone());
        Ok(Running { db, table, txn, w, number, rows, writes: Vec::new(), shared: None })
    }

    fn transaction(
        &self,
        db: &Database,
        table: &Table,
        w: usize,
        rng: &mut Rng,
    ) -> Result<(), Down> {
        let mut running = self.begin(db, table, w)?;
        for _ in 0..rng.u32(1..7) {
            let key = rng.u64(..self.keys) * WORKERS as u64 + w as u64;
            match rng.u8(..10) {
                0..6 => self.write(&mut running, key, rng)?,
                6 => self.change_mind(&mut running, key, rng)?,
                7 => self.delete(&mut running, key)?,
                _ => self.read(&mut running, key)?,
            }
        }
        if rng.u8(..4) == 0 {
            let done = running.put_shared(rng.usize(..SHARED));
            done.map_err(|e| self.down("write of a shared row", &e))?;
        }
        match rng.u8(..8) {
            0 => running.txn.rollback().map_err(|e| self.down("rollback", &e)),
            1 => Ok(()),
            _ => self.commit(running, rng),
        }
    }

    fn some_row(&self, number: u64, rng: &mut Rng) -> Row {
        let len = match rng.u8(..40) {
            0 => rng.usize(..70_000),
            n if n < 20 => rng.usize(..=self.body / 8),
            _ => rng.usize(..=self.body),
        };
        Row { stamp: number << 20 | rng.u64(..1 << 20), a: rng.i64(-20..20), len }
    }

    fn write(&self, running: &mut Running<'_>, key: u64, rng: &mut Rng) -> Result<(), Down> {
        let row = self.some_row(running.number, rng);
        let was = running.put(key, &row, &row.body()).map_err(|e| self.down("write", &e))?;
        assert_eq!(was, running.rows.contains_key(&key), "was row {key} there?");
        running.rows.insert(key, row.clone());
        running.writes.push((key, Some(row)));
        Ok(())
    }

    fn change_mind(&self, running: &mut Running<'_>, key: u64, rng: &mut Rng) -> Result<(), Down> {
        let savepoint = running.txn.savepoint().expect("it runs");
        let row = self.some_row(running.number, rng);
        let put = running.put(key, &row, &row.body());
        let done = put.and_then(|_| running.txn.rollback_to(savepoint));
        done.map_err(|e| self.down("change of mind", &e))
    }

    fn delete(&self, running: &mut Running<'_>, key: u64) -> Result<(), Down> {
        let deleted = running.txn.delete(running.table, &[Value::U64(key)]);
        let was = deleted.map_err(|e| self.down("delete", &e))?;
        assert_eq!(was, running.rows.remove(&key).is_some(), "was row {key} there?");
        running.writes.push((key, None));
        Ok(())
    }

    fn read(&self, running: &mut Running<'_>, key: u64) -> Result<(), Down> {
        let found = running.txn.get(running.table, &[Value::U64(key)]);
        let found = found.map_err(|e| self.down("read", &e))?;
        let expected = running.rows.get(&key);
        let is_it = match (&found, expected) {
            (None, None) => true,
            (Some(found), Some(row)) => {
                found.get(1).as_u64() == Some(row.stamp)
                    && found.get(2).as_i64() == Some(row.a)
                    && found.get(3).as_bytes() == Some(&row.body()[..])
            }
            _ => false,
        };
        assert!(is_it, "row {key} is not {expected:?}");
        Ok(())
    }

    fn commit(&self, mut running: Running<'_>, rng: &mut Rng) -> Result<(), Down> {
        let row = Row { stamp: running.number, a: 0, len: 0 };
        let key = NUMBER_AT + running.w as u64;
        running.put(key, &row, b"").map_err(|e| self.down("write", &e))?;
        let Running { db, mut txn, w, number, writes, shared, .. } = running;
        let durability = [Durability::Sync, Durability::Write, Durability::Relaxed][rng.usize(..3)];
        txn.set_durability(durability);
        let prepares = rng.u8(..10) == 0;
        self.model(w).commits.push(Commit {
            number,
            writes,
            shared,
            survives: Survives::Nothing,
            prepared: prepares.then_some(Survives::Nothing),
            begun: self.tick(),
            ended: u64::MAX,
        });
        let xid = format!("{w}-{number}").into_bytes();
        if prepares {
            txn.prepare(&xid).map_err(|e| self.down("prepare", &e))?;
            self.model(w).last().prepared = Some(durability.into());
        }
        let committed = if prepares && rng.bool() {
            txn.detach().expect("it is prepared");
            db.commit_prepared(&xid, durability)
        } else {
            txn.commit()
        };
        committed.map_err(|e| self.down("commit", &e))?;
        let now = self.tick();
        Model::committed(&mut self.model(w), durability.into(), now);
        self.counts().commits += 1;
        Ok(())
    }

    /// Does what the scene says until the power fails.
    pub fn accompany(&self, db: &Database, seed: u64, is_over: &AtomicBool) {
        let mut rng = Rng::with_seed(seed);
        while !is_over.load(Ordering::Relaxed) {
            let scene = match self.scene {
                Scene::All => super::SCENES[rng.usize(..4)],
                scene => scene,
            };
            let done = match scene {
                Scene::DirtyTables => db.background_step(BackgroundStep::NoteDirtyPages),
                Scene::Backups => match self.back_up(db, &mut rng) {
                    Ok(()) => Ok(()),
                    Err(Down) => return,
                },
                Scene::Capacity => self.resize(db, &mut rng),
                Scene::Recovery | Scene::All => Ok(()),
            };
            let done = done.and_then(|()| self.something_else(db, &mut rng));
            if let Err(error) = done {
                self.down("companion", &error);
                return;
            }
            std::thread::sleep(Duration::from_micros(rng.u64(..2000) >> rng.u32(..8)));
        }
    }

    fn something_else(&self, db: &Database, rng: &mut Rng) -> Result<(), Error> {
        match rng.u8(..60) {
            0 => db.checkpoint(),
            // Gives space back, writes pages.
            1 => db.background_step(BackgroundStep::TrimFile),
            2 => db.background_step(BackgroundStep::WritePages),
            3 => db.purge_all(),
            4 => self.make_and_drop(db),
            5 => db.compact(&mut |_| {}).map(drop),
            _ => Ok(()),
        }
    }

    /// Many pages are made and freed.
    fn make_and_drop(&self, db: &Database) -> Result<(), Error> {
        let table = db.create_table(&format!("scratch {}", self.tick()), schema())?;
        let mut txn = db.begin(Isolation::RepeatableRead)?;
        for key in 0..60 {
            let (key, body) = (Value::U64(key), vec![7; 3000]);
            txn.insert(&table, &[key, Value::U64(1), Value::I64(1), Value::Bytes(&body)])?;
        }
        txn.commit()?;
        db.drop_table(&table)
    }

    fn resize(&self, db: &Database, rng: &mut Rng) -> Result<(), Error> {
        let (bytes, other) = (rng.u64(1 << 20..13 << 20), rng.u64(1 << 20..13 << 20));
        db.set_redo_capacity(bytes)?;
        self.redo.store([0, bytes, other][rng.usize(..3)], Ordering::Relaxed);
        Ok(())
    }

    /// Makes a backup, or half of one; what its disk is found to have is kept for later.
    fn back_up(&self, db: &Database, rng: &mut Rng) -> Result<(), Down> {
        let to = SimDisk::new(rng.u64(..));
        if rng.u8(..3) == 0 {
            to.crash_at(rng.u64(..300) >> rng.u32(..6));
        }
        let least = std::array::from_fn(|w| self.model(w).now.number);
        let begun = db.begin_backup_on(Arc::new(to.clone()));
        let most = self.tick();
        let mut half_made = None;
        let made = begun.and_then(|backup| {
            self.make(db, backup, rng, |rng| half_made = Some(to.crash(rng.u64(..))))
        });
        let (disk, is_made) = match half_made.filter(|_| made.is_err() || rng.u8(..4) == 0) {
            // As a process leaves it that is killed.
            Some(found) => (found, false),
            None => (to.crash(rng.u64(..)), made.is_ok()),
        };
        let mut copies = self.copies.lock().expect("nobody has panicked");
        if copies.len() < 4 {
            copies.push(Copy { disk, is_made, least, most });
        }
        drop(copies);
        match made {
            Err(error) if !to.is_crashed() => Err(self.down("backup", &error)),
            _ => Ok(()),
        }
    }

    /// Makes a backup, with checkpoints between its steps; `look` is called now and then.
    fn make(
        &self,
        db: &Database,
        mut backup: Backup,
        rng: &mut Rng,
        mut look: impl FnMut(&mut Rng),
    ) -> Result<(), Error> {
        while backup.step()? {
            match rng.u8(..8) {
                0 | 1 => db.checkpoint()?,
                2 => look(rng),
                _ => std::thread::sleep(Duration::from_micros(rng.u64(..500) >> rng.u32(..8))),
            }
        }
        self.counts().backups += 1;
        Ok(())
    }
}
