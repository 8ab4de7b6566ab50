//! Transactions of all isolation levels side by side, and an order of them that explains what each
//! has read.
//!
//! Rows are lists to which transactions append values that nobody else uses, as in "Elle: Inferring
//! Isolation Anomalies from Experimental Observations" (Kingsbury and Alvaro, 2020). In the end each
//! list tells the order of its writers, and what was read of it whom the reader came after and
//! before. A commit happens at one moment between its begin and its end, for what was written and
//! read under locks; a snapshot, of plain reads, between theirs. There is an order of all these
//! moments, whatever the levels that meet. Over SQL `mariadb/histories` does the same.

#![allow(clippy::unwrap_used, reason = "a failure of a test's own step is a failed test")]

mod common;

use common::*;
use fastrand::Rng;
use petgraph::algo::kosaraju_scc;
use petgraph::graph::{DiGraph, NodeIndex};
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound::{Included, Unbounded};
use std::sync::atomic::{AtomicU64, Ordering};
use weir::{
    Bounds, Database, Direction, Error, IndexRef, Isolation, Row, Schema, Table, Transaction, Type,
    Value,
};

const ROWS: u64 = 40;
/// Rows that most transactions use.
const HOT: u64 = 6;
const GROUPS: u64 = 4;
const THREADS: u32 = 4;
/// Rows with at least so many values are looked for, and fewer.
const LEAST_MOST: u64 = 60;

/// A commit, or a snapshot: between two readings of one clock.
#[derive(Debug, Clone)]
struct Moment {
    begin: u64,
    end: u64,
    what: String,
}

/// What was read of a row.
#[derive(Debug)]
enum Read {
    /// Its list.
    List(Vec<u32>),
    /// How long it is.
    Length(usize),
    /// That it is shorter than this.
    Shorter(usize),
    /// What stands in front of the reader's first value: the row is its own, whatever its snapshot.
    Front(Vec<u32>, u32),
}

/// What one thread did and saw; moments are numbers in `moments`.
#[derive(Debug, Default)]
struct History {
    moments: Vec<Moment>,
    committed: Vec<(u64, u32, usize)>,
    seen: Vec<(usize, u64, Read)>,
}

impl History {
    fn add(&mut self, other: History) {
        let first = self.moments.len();
        self.moments.extend(other.moments);
        self.committed.extend(other.committed.into_iter().map(|(row, v, at)| (row, v, at + first)));
        self.seen.extend(other.seen.into_iter().map(|(at, row, read)| (at + first, row, read)));
    }

    /// What is wrong with it, given each row's list in the end.
    fn explain(&self, lists: &BTreeMap<u64, Vec<u32>>) -> Result<(), String> {
        let mut writers = HashMap::new();
        for (row, value, moment) in &self.committed {
            writers.insert((*row, *value), *moment);
            if lists[row].iter().filter(|there| *there == value).count() != 1 {
                return Err(format!("committed, and not once in its list: {value} of row {row}"));
            }
        }
        for (row, list) in lists {
            if let Some(value) = list.iter().find(|value| !writers.contains_key(&(*row, **value))) {
                return Err(format!("never committed: {value} in row {row}"));
            }
        }
        let mut order = Order::new(&self.moments);
        for (row, list) in lists {
            for pair in list.windows(2) {
                order.add(writers[&(*row, pair[0])], writers[&(*row, pair[1])]);
            }
        }
        for (moment, row, read) in &self.seen {
            let list = &lists[row];
            let writer = |n: usize| writers[&(*row, list[n])];
            let length = match read {
                Read::List(found) | Read::Front(found, _) => found.len(),
                Read::Length(length) => *length,
                Read::Shorter(length) => length - 1,
            };
            let is_beginning = match read {
                Read::List(found) => list.starts_with(found),
                Read::Front(found, own) => {
                    // Unless its value was taken back.
                    let at = list.iter().position(|value| value == own);
                    list.starts_with(found) && at.is_none_or(|at| at == length)
                }
                Read::Length(length) => *length <= list.len(),
                Read::Shorter(_) => true,
            };
            if !is_beginning {
                let what = &self.moments[*moment].what;
                return Err(format!("no beginning of row {row}'s list: {read:?}, {what}"));
            }
            if length > 0 && matches!(read, Read::List(_) | Read::Length(_)) {
                order.add(writer(length - 1), *moment);
            }
            if length < list.len() && !matches!(read, Read::Front(..)) {
                order.add(*moment, writer(length));
            }
        }
        order.find()
    }
}

/// What comes before what.
struct Order<'a> {
    moments: &'a [Moment],
    graph: DiGraph<(), ()>,
}

impl<'a> Order<'a> {
    /// What has ended before something else begins comes before it, by way of a chain of the ends.
    fn new(moments: &'a [Moment]) -> Self {
        let mut graph = DiGraph::new();
        moments.iter().for_each(|_| _ = graph.add_node(()));
        let mut ends: Vec<usize> = (0..moments.len()).collect();
        ends.sort_by_key(|&n| moments[n].end);
        let chain: Vec<NodeIndex> = ends.iter().map(|_| graph.add_node(())).collect();
        for (at, &n) in ends.iter().enumerate() {
            graph.add_edge(NodeIndex::new(n), chain[at], ());
            if at > 0 {
                graph.add_edge(chain[at - 1], chain[at], ());
            }
        }
        for (n, moment) in moments.iter().enumerate() {
            let ended = ends.partition_point(|&other| moments[other].end < moment.begin);
            if ended > 0 {
                graph.add_edge(chain[ended - 1], NodeIndex::new(n), ());
            }
        }
        Order { moments, graph }
    }

    fn add(&mut self, before: usize, after: usize) {
        if before != after {
            self.graph.add_edge(NodeIndex::new(before), NodeIndex::new(after), ());
        }
    }

    /// Whether there is an order.
    fn find(&self) -> Result<(), String> {
        let knots = kosaraju_scc(&self.graph);
        let Some(knot) = knots.iter().filter(|nodes| nodes.len() > 1).min_by_key(|n| n.len())
        else {
            return Ok(());
        };
        let moments = knot.iter().filter_map(|node| self.moments.get(node.index()));
        let told: Vec<_> = moments.take(6).map(|moment| moment.what.as_str()).collect();
        Err(format!("no order of {} moments: {told:#?}", knot.len()))
    }
}

/// `lists(id, n, g, list)`: `n` is how many values the list has; `g` stays as it is.
fn lists() -> Schema {
    Schema::builder()
        .column("id", Type::U64)
        .column("n", Type::U64)
        .column("g", Type::U64)
        .column("list", Type::Bytes)
        .primary_key(&["id"])
        .index("by_n", &["n"])
        .index("by_g", &["g", "n"])
        .build()
        .unwrap()
}

fn row<'a>(id: u64, list: &'a [u8]) -> [Value<'a>; 4] {
    [Value::U64(id), Value::U64(list.len() as u64 / 4), Value::U64(id % GROUPS), Value::Bytes(list)]
}

/// A row's id, and its list.
fn of_row(row: &Row) -> (u64, Read) {
    let list = row.get(3).as_bytes().unwrap();
    let values: Vec<u32> =
        list.chunks_exact(4).map(|v| u32::from_le_bytes(v.try_into().unwrap())).collect();
    assert_eq!(row.get(1).as_u64().unwrap(), values.len() as u64, "the row is one writer's");
    (row.get(0).as_u64().unwrap(), Read::List(values))
}

/// A read without locks, below Serializable.
#[derive(Debug)]
enum Query {
    Get(u64),
    GetMany([u64; 5]),
    /// Rows from this id on.
    Ids(u64, Direction),
    Group(u64, Direction),
    /// The lengths alone, by an index that has them.
    LengthsOfGroup(u64, Direction),
    /// Rows with so many values or more.
    Longer(u64, Direction),
}

impl Query {
    fn random(rng: &mut Rng, id: u64) -> Query {
        let direction = if rng.bool() { Direction::Forward } else { Direction::Backward };
        match rng.u8(..6) {
            0 => Query::Get(id),
            1 => Query::GetMany(std::array::from_fn(|n| (id + n as u64) % ROWS)),
            2 => Query::Ids(id, direction),
            3 => Query::Group(rng.u64(..GROUPS), direction),
            4 => Query::LengthsOfGroup(rng.u64(..GROUPS), direction),
            _ => Query::Longer(rng.u64(..LEAST_MOST), direction),
        }
    }

    /// The rows that it must find, but for one by lengths: in ascending order.
    fn ids(&self) -> Vec<u64> {
        let mut ids: Vec<u64> = match self {
            Query::Get(id) => vec![*id],
            Query::GetMany(ids) => ids.to_vec(),
            Query::Ids(low, _) => (*low..ROWS).collect(),
            Query::Group(group, _) | Query::LengthsOfGroup(group, _) => {
                (0..ROWS).filter(|id| id % GROUPS == *group).collect()
            }
            Query::Longer(..) => Vec::new(),
        };
        ids.sort_unstable();
        ids
    }

    fn run(&self, txn: &mut Transaction, table: &Table) -> Result<Vec<(u64, Read)>, Error> {
        match self {
            Query::Get(id) => Ok(vec![of_row(&txn.get(table, &[Value::U64(*id)])?.unwrap())]),
            Query::GetMany(ids) => {
                let rows = txn.get_many(table, &ids.map(|id| [Value::U64(id)]))?;
                Ok(rows.iter().map(|row| of_row(row.as_ref().unwrap())).collect())
            }
            Query::Ids(low, direction) => {
                let low = [Value::U64(*low)];
                let bounds = Bounds::new(Included(&low), Unbounded);
                scan(txn, table, IndexRef::Primary, bounds, *direction)
            }
            Query::Group(group, direction) => {
                scan(txn, table, "by_g".into(), Bounds::prefix(&[Value::U64(*group)]), *direction)
            }
            Query::LengthsOfGroup(group, direction) => {
                let group = [Value::U64(*group)];
                let mut rows = txn.scan_keys(table, "by_g", Bounds::prefix(&group), *direction)?;
                let mut found = Vec::new();
                while let Some(row) = rows.next()? {
                    let number = |column| row.get(column).map(|value| value.as_u64().unwrap());
                    found.push((number(0)?, Read::Length(number(1)? as usize)));
                }
                Ok(found)
            }
            Query::Longer(least, direction) => {
                let least = [Value::U64(*least)];
                let bounds = Bounds::new(Included(&least), Unbounded);
                scan(txn, table, "by_n".into(), bounds, *direction)
            }
        }
    }
}

fn scan(
    txn: &mut Transaction,
    table: &Table,
    index: IndexRef<'_>,
    bounds: Bounds<'_>,
    direction: Direction,
) -> Result<Vec<(u64, Read)>, Error> {
    let mut rows = txn.scan(table, index, bounds, direction)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(of_row(&row.to_row()?));
        if found.len() % 8 == 0 {
            // Others go on.
            std::thread::yield_now();
        }
    }
    Ok(found)
}

/// A thread's transactions.
struct Client<'a> {
    db: &'a Database,
    table: &'a Table,
    clock: &'a AtomicU64,
    number: u32,
    values: u32,
    rng: Rng,
    history: History,
}

/// One that is on.
struct Running {
    txn: Transaction,
    commit: usize,
    snapshot: usize,
    appended: Vec<(u64, u32)>,
    /// Reads under locks count once it has committed.
    locked: Vec<(usize, u64, Read)>,
    script: Vec<String>,
}

impl Running {
    /// The values that it has appended to a row.
    fn own(&self, row: u64) -> Vec<u32> {
        self.appended.iter().filter(|(id, _)| *id == row).map(|(_, value)| *value).collect()
    }
}

impl Client<'_> {
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// A moment that begins now.
    fn moment(&mut self) -> usize {
        let moment = Moment { begin: self.now(), end: 0, what: String::new() };
        self.history.moments.push(moment);
        self.history.moments.len() - 1
    }

    /// What was to be found out ends now.
    fn ends(&mut self, moment: usize) {
        if self.history.moments[moment].end == 0 {
            self.history.moments[moment].end = self.now();
        }
    }

    fn id(&mut self) -> u64 {
        let most = if self.rng.u8(..10) < 7 { HOT } else { ROWS };
        self.rng.u64(..most)
    }

    fn transaction(&mut self) {
        let levels = [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable];
        let isolation = self.rng.choice(levels).unwrap();
        let (commit, snapshot) = (self.moment(), self.moment());
        let mut on = Running {
            txn: self.db.begin(isolation).unwrap(),
            commit,
            snapshot,
            appended: Vec::new(),
            locked: Vec::new(),
            script: vec![format!("{}: {isolation:?}", self.number)],
        };
        let is_committed = match self.statements(&mut on) {
            Ok(()) if self.rng.u8(..8) > 0 => {
                self.history.moments[commit].begin = self.now();
                on.txn.commit().unwrap();
                true
            }
            Ok(()) => {
                on.txn.rollback().unwrap();
                false
            }
            Err(Error::Deadlock) => false,
            Err(error) => panic!("{error}, {:?}", on.script),
        };
        for moment in commit..self.history.moments.len() {
            self.ends(moment);
            self.history.moments[moment].what = format!("{moment}, {}", on.script.join("; "));
        }
        if is_committed {
            let committed = on.appended.iter().map(|&(row, value)| (row, value, commit));
            self.history.committed.extend(committed);
            self.history.seen.append(&mut on.locked);
        }
    }

    fn statements(&mut self, on: &mut Running) -> Result<(), Error> {
        let mut savepoint = None;
        for _ in 0..self.rng.usize(1..8) {
            match self.rng.u8(..20) {
                0..8 => self.append(on)?,
                8..17 => self.read(on)?,
                17 => savepoint = Some((on.txn.savepoint()?, on.appended.len())),
                18 => std::thread::yield_now(),
                _ => {
                    if let Some((to, appended)) = savepoint.take() {
                        on.txn.rollback_to(to)?;
                        on.appended.truncate(appended);
                        on.script.push("to the savepoint".into());
                    }
                }
            }
        }
        Ok(())
    }

    fn append(&mut self, on: &mut Running) -> Result<(), Error> {
        self.values += 1;
        let (id, value) = (self.id(), self.values * THREADS + self.number);
        on.script.push(format!("append {value} to {id}"));
        let found = on.txn.get_for_update(self.table, &[Value::U64(id)])?.unwrap();
        let (_, read) = of_row(&found);
        self.note(on, on.commit, id, read);
        let mut list = found.get(3).as_bytes().unwrap().to_vec();
        list.extend(value.to_le_bytes());
        let (txn, new) = (&mut on.txn, row(id, &list));
        match self.rng.u8(..4) {
            0 => assert!(txn.update(self.table, &new)?),
            1 => assert!(txn.upsert(self.table, &new)?),
            2 => {
                let columns = [("list", Value::Bytes(&list)), ("n", new[1])];
                assert!(txn.update_columns(self.table, &[Value::U64(id)], &columns)?);
            }
            _ => {
                assert!(txn.delete(self.table, &[Value::U64(id)])?);
                txn.insert(self.table, &new)?;
            }
        }
        on.appended.push((id, value));
        Ok(())
    }

    fn read(&mut self, on: &mut Running) -> Result<(), Error> {
        if self.rng.u8(..4) == 0 {
            return self.lock(on);
        }
        let moment = match on.txn.isolation() {
            Isolation::Serializable => on.commit,
            Isolation::RepeatableRead => on.snapshot,
            _ => self.moment(),
        };
        let id = self.id();
        let query = Query::random(&mut self.rng, id);
        on.script.push(format!("{query:?}"));
        let found = query.run(&mut on.txn, self.table)?;
        if moment != on.commit {
            self.ends(moment);
        }
        let mut ids: Vec<u64> = found.iter().map(|(id, _)| *id).collect();
        ids.sort_unstable();
        match query {
            Query::Longer(least, _) => {
                assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}: {:?}", on.script);
                assert!(least > 0 || ids.len() as u64 == ROWS, "{ids:?}: {:?}", on.script);
                for id in (0..ROWS).filter(|id| ids.binary_search(id).is_err()) {
                    self.note(on, moment, id, Read::Shorter(least as usize));
                }
            }
            _ => assert_eq!(ids, query.ids(), "{:?}", on.script),
        }
        found.into_iter().for_each(|(id, read)| self.note(on, moment, id, read));
        Ok(())
    }

    /// Reads a row under a lock.
    fn lock(&mut self, on: &mut Running) -> Result<(), Error> {
        let id = self.id();
        on.script.push(format!("lock {id}"));
        let found = match self.rng.bool() {
            true => on.txn.get_for_share(self.table, &[Value::U64(id)])?,
            false => on.txn.get_for_update(self.table, &[Value::U64(id)])?,
        };
        let (id, read) = of_row(&found.unwrap());
        self.note(on, on.commit, id, read);
        Ok(())
    }

    /// A row was read, or not found. Of one that is the reader's own, whatever its snapshot, only
    /// what stands in front of its own values tells something.
    fn note(&mut self, on: &mut Running, moment: usize, id: u64, read: Read) {
        let own = on.own(id);
        let read = match (own.first(), read) {
            (None, read) => read,
            (Some(first), Read::List(mut list)) => {
                assert!(list.ends_with(&own), "own {own:?} of {id}: {list:?}, {:?}", on.script);
                list.truncate(list.len() - own.len());
                Read::Front(list, *first)
            }
            _ => return,
        };
        let seen = (moment, id, read);
        match moment == on.commit {
            true => on.locked.push(seen),
            false => self.history.seen.push(seen),
        }
    }
}

#[test]
fn an_order_of_commits_and_snapshots_explains_all_that_was_read() {
    let _watchdog = Watchdog::new("histories");
    let seed = seed();
    for (round, staging_leaves) in [None, Some(2)].into_iter().cycle().take(4).enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let options = with_staging(options(4 << 20, 4 << 20), staging_leaves);
        let db = Database::open(dir.path(), options).unwrap();
        let table = db.create_table("lists", lists()).unwrap();
        retried(&db, Isolation::default(), |txn| {
            (0..ROWS).try_for_each(|id| txn.insert(&table, &row(id, &[])))
        });
        let (db, table, clock) = (&db, &table, &AtomicU64::new(1));
        let mut history = History::default();
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..THREADS)
                .map(|number| {
                    scope.spawn(move || {
                        let rng = Rng::with_seed(seed + 100 * round as u64 + u64::from(number));
                        let history = History::default();
                        let mut client =
                            Client { db, table, clock, number, values: 0, rng, history };
                        (0..1500 * factor()).for_each(|_| client.transaction());
                        client.history
                    })
                })
                .collect();
            clients.into_iter().for_each(|client| history.add(client.join().unwrap()));
        });
        let mut txn = db.begin(Isolation::default()).unwrap();
        let found = rows(&mut txn, table, IndexRef::Primary, Direction::Forward).unwrap();
        drop(txn);
        let list = |row: &Row| match of_row(row) {
            (id, Read::List(list)) => (id, list),
            (id, read) => panic!("row {id}: {read:?}"),
        };
        let lists: BTreeMap<_, _> = found.iter().map(list).collect();
        println!("{} values committed, {} reads", history.committed.len(), history.seen.len());
        history.explain(&lists).unwrap();
        check_quiet(db);
    }
}

/// A history of moments (begin, end); what was committed (row, value, moment), and what was read.
fn history(
    moments: &[(u64, u64)],
    committed: &[(u64, u32, usize)],
    seen: &[(usize, u64, &[u32])],
) -> History {
    let moment = |&(begin, end)| Moment { begin, end, what: format!("at {begin}") };
    let read = |&(at, row, list): &(usize, u64, &[u32])| (at, row, Read::List(list.to_vec()));
    History {
        moments: moments.iter().map(moment).collect(),
        committed: committed.to_vec(),
        seen: seen.iter().map(read).collect(),
    }
}

#[test]
fn what_no_order_explains_is_found() {
    let both = BTreeMap::from([(7, vec![1, 2]), (8, vec![1, 2])]);
    let moments = [(0, 10), (5, 15), (20, 30)];
    let committed = [(7, 1, 0), (7, 2, 1), (8, 1, 0), (8, 2, 1)];
    let told = |committed: &[_], seen: &[_], lists: &BTreeMap<u64, Vec<u32>>| {
        history(&moments, committed, seen).explain(lists).err()
    };
    assert_eq!(told(&committed, &[(1, 7, &[1]), (2, 7, &[1, 2])], &both), None);
    let starts = |told: Option<String>, with: &str| {
        assert!(told.as_ref().is_some_and(|told| told.starts_with(with)), "{with}: {told:?}");
    };
    // Lost, invented, never to be seen.
    let lost = BTreeMap::from([(7, vec![2]), (8, vec![1, 2])]);
    starts(told(&committed, &[], &lost), "committed, and not once");
    starts(told(&committed[..3], &[], &both), "never committed");
    starts(told(&[], &[], &BTreeMap::from([(7, vec![9])])), "never committed");
    starts(told(&committed, &[(2, 7, &[1, 3])], &both), "no beginning");
    // Two orders of two writers.
    let crossed = BTreeMap::from([(7, vec![1, 2]), (8, vec![2, 1])]);
    starts(told(&committed, &[], &crossed), "no order of 2");
    // Half of a commit; each read what the other then changed; what ended long ago.
    starts(told(&committed, &[(2, 7, &[1, 2]), (2, 8, &[1])], &both), "no order");
    let skew = BTreeMap::from([(7, vec![1]), (8, vec![2])]);
    let writes = [(7, 1, 0), (8, 2, 1)];
    starts(told(&writes, &[(0, 8, &[]), (1, 7, &[])], &skew), "no order of 2");
    starts(told(&writes, &[(2, 7, &[])], &skew), "no order");
    // A row that was long enough was not found; a value in front of the reader's own is missing.
    let with = |read: Read| {
        let mut history = history(&moments, &committed, &[]);
        history.seen.push((2, 7, read));
        history.explain(&both).err()
    };
    starts(with(Read::Shorter(2)), "no order");
    assert_eq!(with(Read::Shorter(3)), None);
    starts(with(Read::Front(vec![], 2)), "no beginning");
    assert_eq!(with(Read::Front(vec![1], 2)), None);
}
