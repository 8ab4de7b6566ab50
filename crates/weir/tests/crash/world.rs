//! One simulated database, its disk, and what the model knows of both.

use crate::backup::UnderWay;
use crate::model::{Change, Def, Key, Model, Row, TableId};
use crate::profile::Profile;
use fastrand::Rng;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use weir::{Database, Durability, Error, Isolation, Options, Schema, Transaction, Type, Value};
use weir_os::SimDisk;

/// What was counted over all runs.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counts {
    pub power_cuts: u64,
    pub kills: u64,
    pub closes: u64,
    pub recoveries: u64,
    pub crashed_recoveries: u64,
    pub commits: u64,
    pub rollbacks: u64,
    pub in_doubt: u64,
    pub commits_lost: u64,
    pub definitions: u64,
    pub lock_timeouts: u64,
    pub duplicates: u64,
    pub rows_verified: u64,
    pub operations: u64,
    pub pages_read: u64,
    pub pages_evicted: u64,
    pub pages_written: u64,
    pub checkpoints: u64,
    pub log_waits: u64,
    pub purged_records: u64,
    pub faults: u64,
    pub no_space: u64,
    pub rot_found: u64,
    pub rot_harmless: u64,
    pub stopped_when_full: u64,
    pub wrong_after_lost_write: u64,
    pub staged: u64,
    pub moved: u64,
    pub prepared: u64,
    pub decided: u64,
    pub prepared_found: u64,
    pub backups: u64,
}

impl Counts {
    pub fn add(&mut self, o: &Counts) {
        self.power_cuts += o.power_cuts;
        self.kills += o.kills;
        self.closes += o.closes;
        self.recoveries += o.recoveries;
        self.crashed_recoveries += o.crashed_recoveries;
        self.commits += o.commits;
        self.rollbacks += o.rollbacks;
        self.in_doubt += o.in_doubt;
        self.commits_lost += o.commits_lost;
        self.definitions += o.definitions;
        self.lock_timeouts += o.lock_timeouts;
        self.duplicates += o.duplicates;
        self.rows_verified += o.rows_verified;
        self.operations += o.operations;
        self.pages_read += o.pages_read;
        self.pages_evicted += o.pages_evicted;
        self.pages_written += o.pages_written;
        self.checkpoints += o.checkpoints;
        self.log_waits += o.log_waits;
        self.purged_records += o.purged_records;
        self.faults += o.faults;
        self.no_space += o.no_space;
        self.rot_found += o.rot_found;
        self.rot_harmless += o.rot_harmless;
        self.stopped_when_full += o.stopped_when_full;
        self.wrong_after_lost_write += o.wrong_after_lost_write;
        self.staged += o.staged;
        self.moved += o.moved;
        self.prepared += o.prepared;
        self.decided += o.decided;
        self.prepared_found += o.prepared_found;
        self.backups += o.backups;
    }

    /// Simulated crashes: power cuts and killed processes.
    pub fn crashes(&self) -> u64 {
        self.power_cuts + self.kills
    }
}

/// What may go wrong in the present part of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weather {
    /// Only a crash.
    Fair,
    /// Operations fail.
    Faults,
    /// The device is full.
    Full,
}

/// The database can't go on: power cut or fault. The run reopens it.
#[derive(Debug)]
pub struct Down;

pub type Step = Result<(), Down>;

/// What a transaction has written.
pub type Writes = BTreeMap<(TableId, Key), Option<Rc<Row>>>;

/// A row written, and what the transaction had written there before.
type Before = ((TableId, Key), Option<Option<Rc<Row>>>);

/// A running transaction.
pub struct Open {
    pub txn: Transaction,
    pub number: u64,
    pub isolation: Isolation,
    pub durability: Durability,
    /// The last commit that it sees, once it has read.
    pub snapshot: Option<u64>,
    pub writes: Writes,
    /// For each write, what `writes` had before.
    pub before: Vec<Before>,
    pub savepoints: Vec<(weir::Savepoint, usize)>,
    /// Rows locked by reads.
    pub locks: BTreeSet<(TableId, Key)>,
    pub used: BTreeSet<TableId>,
    /// It only reads, and lasts.
    pub reader: bool,
}

pub struct World {
    pub seed: u64,
    /// The test that repeats this run.
    pub repeat: &'static str,
    pub profile: &'static Profile,
    pub rng: Rng,
    pub disk: SimDisk,
    pub db: Option<Database>,
    pub model: Model,
    pub open: Vec<Open>,
    /// Prepared transactions whose handle is kept, by name.
    pub attached: BTreeMap<Vec<u8>, Transaction>,
    pub backup: Option<UnderWay>,
    /// Whether backups are made: not of a disk that lies.
    pub backs_up: bool,
    pub weather: Weather,
    /// A transaction was dropped when the power had failed or while it did; it may not have been
    /// rolled back.
    pub dropped_in_cut: bool,
    pub counts: Counts,
    pub trace: VecDeque<String>,
    pub stamps: u64,
    pub tables_made: u32,
    pub right_edge: u32,
    pub redo: u64,
    pub bodies: Vec<Rc<Row>>,
    /// Whether a start gives damaged pages up.
    pub gives_up: bool,
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the last operations:");
            for line in &self.trace {
                eprintln!("  {line}");
            }
            eprintln!(
                "to repeat: WEIR_CRASH_SEED={} WEIR_CRASH_PROFILE={} cargo test -p weir --test crash \
                 {} -- --exact --nocapture",
                self.seed, self.profile.name, self.repeat
            );
        }
        self.disk.power_off();
        self.backup = None;
        self.open.clear();
        self.attached.clear();
        self.db = None;
    }
}

/// Whether an error says that there is no space.
pub fn says_full(error: &Error) -> bool {
    let text = error.to_string();
    // Of the device, of the quota, of the file.
    let reasons = ["no space", "no room", "os error 28", "os error 122", "os error 27"];
    reasons.iter().any(|reason| text.contains(reason))
}

pub fn schema() -> Schema {
    Schema::builder()
        .column("k", Type::Bytes)
        .column("s", Type::U64)
        .column("a", Type::I64)
        .nullable_column("u", Type::U64)
        .column("t", Type::Bytes)
        .column("body", Type::Bytes)
        .primary_key(&["k"])
        .build()
        .expect("the schema is one")
}

/// What a row has in the columns of a table.
pub fn values<'a>(def: &Def, row: &'a Row) -> Vec<Value<'a>> {
    let mut values = vec![
        Value::Bytes(&row.key),
        Value::U64(row.stamp),
        Value::I64(row.a),
        row.u.into(),
        Value::Bytes(&row.t),
        Value::Bytes(&row.body),
    ];
    values.extend(def.added.iter().map(|column| match row.stamp > column.after {
        true => Value::U64(row.stamp),
        false => column.default.into(),
    }));
    values
}

impl World {
    pub fn new(seed: u64, profile: &'static Profile) -> World {
        fastrand::seed(seed);
        let mut rng = Rng::with_seed(seed);
        let disk = SimDisk::new(rng.u64(..));
        World {
            seed,
            repeat: "repeat",
            profile,
            rng,
            disk,
            db: None,
            model: Model::new(),
            open: Vec::new(),
            attached: BTreeMap::new(),
            backup: None,
            backs_up: true,
            weather: Weather::Fair,
            dropped_in_cut: false,
            counts: Counts::default(),
            trace: VecDeque::new(),
            stamps: 0,
            tables_made: 0,
            right_edge: 0,
            redo: profile.redo,
            bodies: Vec::new(),
            gives_up: false,
        }
    }

    pub fn note(&mut self, what: impl FnOnce() -> String) {
        if self.trace.len() >= 120 {
            self.trace.pop_front();
        }
        let line = format!("[op {}] {}", self.disk.operations(), what());
        if std::env::var_os("WEIR_CRASH_VERBOSE").is_some() {
            eprintln!("{line}");
        }
        self.trace.push_back(line);
    }

    pub fn options(&self) -> Options {
        let options = Options::default();
        let options = match self.seed / 9 % 4 {
            0 => options,
            1 => options.staging_leaves(0),
            2 => options.staging_leaves(4),
            _ => options.staging_leaves(1000),
        };
        options
            .memory_bytes(self.profile.memory)
            .redo_capacity_bytes(self.redo)
            .lock_wait_timeout(Duration::ZERO)
            .give_up_damaged(self.gives_up)
            .single_threaded()
    }

    /// Closes the database as it is, after adding its figures to ours.
    pub fn drop_database(&mut self) {
        if let Some(db) = &self.db {
            let status = db.status();
            self.counts.pages_read += status.pages_read;
            self.counts.pages_evicted += status.pages_evicted;
            self.counts.pages_written +=
                status.pages_written_deadline + status.pages_written_free_frames;
            self.counts.checkpoints += status.checkpoints;
            self.counts.log_waits += status.log_waits;
            self.counts.purged_records += status.purged_records;
        }
        self.disk.power_off();
        self.backup = None;
        self.open.clear();
        self.attached.clear();
        self.db = None;
        self.dropped_in_cut = false;
    }

    pub fn db(&self) -> &Database {
        self.db.as_ref().expect("the database is open")
    }

    pub fn try_open(&mut self) -> Result<(), Error> {
        let db = Database::open_on(Arc::new(self.disk.clone()), self.options())?;
        self.db = Some(db);
        Ok(())
    }

    /// An error that the weather explains; anything else is a failure of the test.
    pub fn down(&mut self, what: &str, error: Error) -> Down {
        self.note(|| format!("{what}: {error}"));
        let environment = matches!(error, Error::Storage(_) | Error::Sort(_));
        let explained = match self.weather {
            Weather::Fair => self.disk.is_crashed(),
            Weather::Faults => true,
            Weather::Full => says_full(&error),
        };
        assert!(environment && explained, "{what} failed: {error} ({error:?})");
        Down
    }

    /// A table, if there is any.
    pub fn pick_table(&mut self) -> Option<(String, Def)> {
        let catalog = self.model.catalog();
        if catalog.is_empty() {
            return None;
        }
        let at = self.rng.usize(..catalog.len());
        catalog.iter().nth(at).map(|(name, def)| (name.clone(), def.clone()))
    }

    pub fn some_key(&mut self, fresh: bool) -> Key {
        let count = match self.profile.keys {
            crate::profile::Keys::Right if fresh => {
                self.right_edge += 1;
                return self.profile.key(self.right_edge).into();
            }
            crate::profile::Keys::Right => self.right_edge.max(1) + 2,
            _ => self.profile.key_count,
        };
        self.profile.key(self.rng.u32(..count)).into()
    }

    pub fn new_row(&mut self, key: Key) -> Rc<Row> {
        self.stamps += 1;
        let t = match self.rng.u8(..10) {
            0 => vec![b't'; self.rng.usize(..200)],
            n => vec![b'a' + n; self.rng.usize(..4)],
        };
        // Now and then a body that is nearly that of another row.
        let body = match self.bodies.last() {
            Some(other) if self.rng.u8(..4) == 0 && !other.body.is_empty() => {
                let mut body = other.body.clone();
                let at = self.rng.usize(..body.len());
                body[at] ^= 1;
                body
            }
            _ => self.profile.body(&mut self.rng),
        };
        let u = self.rng.bool().then(|| self.rng.u64(..u64::from(self.profile.key_count) * 3));
        let row = Rc::new(Row { key, stamp: self.stamps, a: self.rng.i64(-20..20), u, t, body });
        self.bodies = vec![row.clone()];
        row
    }

    /// What all transactions but the `i`-th have written, the prepared ones included.
    pub fn writes_of_others(&self, i: usize) -> impl Iterator<Item = &Writes> {
        let running = self.open.iter().enumerate().filter(move |(j, _)| *j != i);
        running.map(|(_, o)| &o.writes).chain(self.model.prepared().map(|p| &p.writes))
    }

    /// Whether another transaction than the `i`-th has written or locked the row.
    pub fn held_by_other(&self, i: usize, table: TableId, key: &Key) -> bool {
        let at = (table, key.clone());
        let mut running = self.open.iter().enumerate().filter(|(j, _)| *j != i);
        running.any(|(_, o)| o.locks.contains(&at))
            || self.model.prepared().any(|p| p.locks.contains(&at))
            || self.writes_of_others(i).any(|writes| writes.contains_key(&at))
    }

    /// Whether any other transaction may hold locks in the table.
    pub fn busy_by_other(&self, i: usize, table: TableId) -> bool {
        let mut running = self.open.iter().enumerate().filter(|(j, _)| *j != i);
        running.any(|(_, o)| o.used.contains(&table))
            || self.model.prepared().any(|p| p.used.contains(&table))
    }

    /// Whether any transaction keeps the table's definition as it is.
    pub fn in_use(&self, table: TableId) -> bool {
        self.busy_by_other(usize::MAX, table)
    }

    /// The newest version that the `i`-th transaction may overwrite: its own or a committed one.
    pub fn newest(&self, i: usize, table: TableId, key: &Key) -> Option<Rc<Row>> {
        match self.open[i].writes.get(&(table, key.clone())) {
            Some(own) => own.clone(),
            None => self.model.get(table, key, u64::MAX),
        }
    }

    /// What a read of the `i`-th transaction sees of the row.
    pub fn visible(&self, i: usize, table: TableId, key: &Key) -> Option<Rc<Row>> {
        let open = &self.open[i];
        let at = (table, key.clone());
        if let Some(own) = open.writes.get(&at) {
            return own.clone();
        }
        let dirty = open.isolation == Isolation::ReadUncommitted;
        let mut others = self.writes_of_others(i).filter(|_| dirty);
        if let Some(row) = others.find_map(|writes| writes.get(&at)) {
            return row.clone();
        }
        self.model.get(table, key, self.commit_seen(i))
    }

    pub fn commit_seen(&self, i: usize) -> u64 {
        match self.open[i].isolation {
            Isolation::RepeatableRead => self.open[i].snapshot.unwrap_or(self.model.last),
            _ => self.model.last,
        }
    }

    /// Whether it is known what a read of the `i`-th transaction sees. While the disk misbehaves,
    /// or when the power has failed, a rollback may have failed without a word, and dirty reads of
    /// what is in memory see what it has left.
    pub fn knows_what_is_seen(&self, i: usize) -> bool {
        let is_rolled_back = self.weather == Weather::Fair && !self.dropped_in_cut;
        is_rolled_back || self.open[i].isolation != Isolation::ReadUncommitted
    }

    /// All rows that a read of the `i`-th transaction sees, by key.
    pub fn visible_rows(&self, i: usize, table: TableId) -> Vec<Rc<Row>> {
        let open = &self.open[i];
        let mut rows: BTreeMap<Key, Option<Rc<Row>>> = BTreeMap::new();
        for row in self.model.rows(table, self.commit_seen(i)) {
            rows.insert(row.key.clone(), Some(row));
        }
        let dirty = open.isolation == Isolation::ReadUncommitted;
        let others = self.writes_of_others(i).filter(|_| dirty);
        for writes in others.chain([&open.writes]) {
            for ((of, key), row) in writes {
                if *of == table {
                    rows.insert(key.clone(), row.clone());
                }
            }
        }
        rows.into_values().flatten().collect()
    }

    /// The transaction has read: from now on it sees what was committed by now.
    pub fn has_read(&mut self, i: usize, table: TableId) {
        let last = self.model.last;
        let open = &mut self.open[i];
        open.used.insert(table);
        if open.isolation == Isolation::RepeatableRead {
            open.snapshot.get_or_insert(last);
        }
    }

    pub fn wrote(&mut self, i: usize, table: TableId, key: Key, row: Option<Rc<Row>>) {
        let open = &mut self.open[i];
        open.used.insert(table);
        let at = (table, key);
        let before = open.writes.insert(at.clone(), row);
        open.before.push((at, before));
    }

    /// The changes of a transaction, for the model.
    pub fn changes(open: &Open) -> Vec<Change> {
        open.writes.iter().map(|((t, k), row)| (*t, k.clone(), row.clone())).collect()
    }
}
