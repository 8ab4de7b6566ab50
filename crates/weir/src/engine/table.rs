//! Tables as users hold them, and who is using them.

use super::catalog::TableDef;
use super::error::{Error, Result};
use super::online::Notes;
use super::patience::Patience;
use crate::schema::Schema;
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weir_os::Blocked;

/// An opening of a database: its tables are no other's, whatever their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Home(u64);

impl Home {
    /// One that there was not before in this process.
    pub fn new() -> Home {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Home(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Fails for a table of another opening.
    pub fn check(self, table: &Table) -> Result<()> {
        match table.0.home == self {
            true => Ok(()),
            false => Err(Error::ForeignTable(table.name())),
        }
    }
}

/// A table of a [`super::Database`]; cheap to clone.
#[derive(Clone)]
pub struct Table(pub(super) Arc<TableInner>);

/// How long a user waits for whoever changes a table's definition.
#[derive(Clone, Copy)]
pub(super) struct WaitLimit<'a> {
    pub timeout: Duration,
    /// Whether the wait is to end before.
    pub is_cancelled: &'a dyn Fn() -> bool,
}

impl WaitLimit<'_> {
    /// The timeout alone: nobody ends the wait.
    pub fn of(timeout: Duration) -> WaitLimit<'static> {
        WaitLimit { timeout, is_cancelled: &|| false }
    }
}

/// How long a user waits before it looks whether its wait has been cancelled.
const LOOK: Duration = Duration::from_millis(20);

/// A transaction's use of a table: its definition stays as it is.
pub(super) struct Use {
    table: Arc<TableInner>,
    pub def: Arc<TableDef>,
    /// Whether it may have written to the table.
    writes: bool,
    /// Where it notes which rows it writes, for an index that is being built.
    pub notes: Option<Arc<Notes>>,
}

impl Use {
    /// Begins to use a table, after waiting for whoever changes it.
    pub fn of(table: &Table, limit: WaitLimit<'_>) -> Result<Use> {
        let def = table.0.enter(limit)?;
        Ok(Use { table: table.0.clone(), def, writes: false, notes: None })
    }

    /// The table's name.
    pub fn name(&self) -> String {
        self.table.name()
    }

    /// Begins to write to it.
    #[inline]
    pub fn begin_writing(&mut self) {
        if !self.writes {
            self.notes = self.table.enter_to_write();
            self.writes = true;
        }
    }

    #[inline]
    pub fn is_of(&self, table: &Table) -> bool {
        Arc::ptr_eq(&self.table, &table.0)
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.table.leave(self.writes, self.notes.as_ref());
    }
}

/// What all handles of a table share.
pub(super) struct TableInner {
    home: Home,
    pub name: RwLock<String>,
    users: Mutex<Users>,
    changed: Condvar,
}

#[derive(Default)]
struct Users {
    /// What they use; `None` once it has been dropped.
    def: Option<Arc<TableDef>>,
    /// Transactions that use the table.
    count: usize,
    /// Those of them that may have written to it.
    writers: usize,
    /// Where those who begin to write note what they do.
    notes: Option<Arc<Notes>>,
    /// Writers who don't: they began before.
    unnoted: usize,
    /// Whether somebody is about to change its definition.
    held: bool,
    /// Whether nobody new may use it: its definition changes.
    exclusive: bool,
}

/// A hold on a table's definition: nobody else changes it.
pub(super) struct Hold {
    table: Arc<TableInner>,
}

impl Hold {
    /// Has all who begin to write from now on note it, and waits until nobody writes who doesn't.
    pub fn note_writes(&mut self, notes: &Arc<Notes>, patience: &Patience) -> Result<()> {
        let _waiting = patience.begin(&self.table);
        let mut users = self.table.users.lock();
        users.notes = Some(notes.clone());
        users.unnoted = users.writers;
        self.table.wait_while(&mut users, patience, |users| users.unnoted > 0)
    }

    /// Waits until nobody uses the table, and keeps others out. New users wait meanwhile.
    pub fn wait_for_all(&mut self, patience: &Patience) -> Result<()> {
        let _waiting = patience.begin(&self.table);
        let mut users = self.table.users.lock();
        users.exclusive = true;
        self.table.wait_while(&mut users, patience, |users| users.count > 0)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut users = self.table.users.lock();
        (users.held, users.exclusive) = (false, false);
        if let Some(notes) = users.notes.take() {
            notes.close();
        }
        drop(users);
        self.table.changed.notify_all();
    }
}

/// Holds on the definitions of several tables. All who take several do so in one order, whatever
/// theirs is: no two wait for each other.
pub(super) fn hold_all(tables: &[&Table], patience: &Patience) -> Result<Vec<Hold>> {
    let order = in_one_order(tables);
    let is_same = |pair: &&[usize]| Arc::ptr_eq(&tables[pair[0]].0, &tables[pair[1]].0);
    if let Some(twice) = order.windows(2).find(is_same) {
        return Err(Error::NamedTwice(tables[twice[0]].name()));
    }
    let hold = |n: usize| Ok((n, tables[n].0.hold(patience)?));
    let mut holds: Vec<(usize, Hold)> = order.into_iter().map(hold).collect::<Result<_>>()?;
    holds.sort_by_key(|(n, _)| *n);
    Ok(holds.into_iter().map(|(_, hold)| hold).collect())
}

/// Where tables stand among those named, in an order that is the same whatever order they are named
/// in.
fn in_one_order(tables: &[&Table]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..tables.len()).collect();
    order.sort_by_key(|&n| Arc::as_ptr(&tables[n].0).addr());
    order
}

impl TableInner {
    pub fn new(home: Home, name: String, def: TableDef) -> Self {
        TableInner {
            home,
            name: RwLock::new(name),
            users: Mutex::new(Users { def: Some(Arc::new(def)), ..Users::default() }),
            changed: Condvar::new(),
        }
    }

    pub fn name(&self) -> String {
        self.name.read().clone()
    }

    /// The definition.
    pub fn def(&self) -> Result<Arc<TableDef>> {
        self.def_of(&self.users.lock())
    }

    fn def_of(&self, users: &Users) -> Result<Arc<TableDef>> {
        users.def.clone().ok_or_else(|| Error::NoSuchTable(self.name()))
    }

    pub fn set_def(&self, def: Option<TableDef>) {
        self.users.lock().def = def.map(Arc::new);
    }

    /// Begins to use the table: its definition stays as it is until [`TableInner::leave`].
    fn enter(&self, limit: WaitLimit<'_>) -> Result<Arc<TableDef>> {
        let mut users = self.users_once(limit)?;
        let def = self.def_of(&users)?;
        users.count += 1;
        Ok(def)
    }

    /// A user begins to write; where it notes what, if that is to be.
    fn enter_to_write(&self) -> Option<Arc<Notes>> {
        let mut users = self.users.lock();
        users.writers += 1;
        users.notes.clone()
    }

    /// The users, once nobody keeps others from joining them. Mostly nobody does, and the clock
    /// isn't asked.
    fn users_once(&self, limit: WaitLimit<'_>) -> Result<MutexGuard<'_, Users>> {
        let mut users = self.users.lock();
        if !users.exclusive {
            return Ok(users);
        }
        let _blocked = Blocked::begin();
        let deadline = Instant::now().checked_add(limit.timeout);
        while users.exclusive {
            if (limit.is_cancelled)() {
                return Err(Error::Cancelled);
            }
            let now = Instant::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Err(Error::TableInUse(self.name()));
            }
            let look = now + LOOK;
            let until = deadline.map_or(look, |deadline| deadline.min(look));
            self.changed.wait_until(&mut users, until);
        }
        Ok(users)
    }

    /// Ends a use.
    fn leave(&self, writes: bool, notes: Option<&Arc<Notes>>) {
        let mut users = self.users.lock();
        users.count -= 1;
        users.writers -= usize::from(writes);
        if let (true, Some(wanted)) = (writes, &users.notes)
            && !notes.is_some_and(|notes| Arc::ptr_eq(notes, wanted))
        {
            users.unnoted -= 1;
        }
        let matters = users.count == 0 || (writes && users.unnoted == 0);
        if matters && users.held {
            self.changed.notify_all();
        }
    }

    /// Keeps others from changing the definition; waits for nobody else.
    pub fn hold(self: &Arc<Self>, patience: &Patience) -> Result<Hold> {
        let _waiting = patience.begin(self);
        let mut users = self.users.lock();
        self.wait_while(&mut users, patience, |users| users.held)?;
        users.held = true;
        Ok(Hold { table: self.clone() })
    }

    /// Waits until nobody uses the table, and keeps others out. New users wait meanwhile.
    pub fn exclusive(self: &Arc<Self>, patience: &Patience) -> Result<Hold> {
        let mut hold = self.hold(patience)?;
        hold.wait_for_all(patience)?;
        Ok(hold)
    }

    /// Has those who wait for the table look whether their patience has ended.
    pub fn wake(&self) {
        // Who has looked already waits by the time the mutex is free.
        drop(self.users.lock());
        self.changed.notify_all();
    }

    /// Waits for as long as there is patience.
    fn wait_while(
        &self,
        users: &mut MutexGuard<'_, Users>,
        patience: &Patience,
        goes_on: impl Fn(&Users) -> bool,
    ) -> Result<()> {
        let deadline = Instant::now().checked_add(patience.timeout());
        while goes_on(users) {
            if patience.has_ended() {
                return Err(Error::Cancelled);
            }
            // What it waits for may have come just as time was up.
            if self.wait(users, deadline) && goes_on(users) {
                return Err(Error::TableInUse(self.name()));
            }
        }
        Ok(())
    }

    /// Waits for a change, without a deadline as long as it takes; whether time is up.
    fn wait(&self, users: &mut MutexGuard<'_, Users>, deadline: Option<Instant>) -> bool {
        let _blocked = Blocked::begin();
        let Some(deadline) = deadline else {
            self.changed.wait(users);
            return false;
        };
        self.changed.wait_until(users, deadline).timed_out()
    }
}

impl Table {
    /// Its name.
    pub fn name(&self) -> String {
        self.0.name()
    }

    /// Its columns and keys, as they are now; [`Transaction::schema`](super::Transaction::schema)
    /// has them stay so.
    ///
    /// # Errors
    /// [`Error::NotTyped`]; [`Error::NoSuchTable`] once it has been dropped.
    pub fn schema(&self) -> Result<Schema> {
        self.0.def()?.typed(self).cloned()
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Table({})", self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;
    use weir_page::TreeId;

    fn table(name: &str) -> Table {
        let layout = Schema::raw(Vec::new(), Vec::new()).unwrap().into();
        let def =
            TableDef { layout, primary: Tree::new(TreeId(9)), indexes: Vec::new(), since: Some(0) };
        Table(Arc::new(TableInner::new(Home::new(), name.into(), def)))
    }

    #[test]
    fn several_tables_are_taken_in_one_order_however_they_are_named() {
        let [a, b, c] = ["a", "b", "c"].map(table);
        let taken = |named: [&Table; 3]| -> Vec<String> {
            in_one_order(&named).into_iter().map(|n| named[n].name()).collect()
        };
        let order = taken([&a, &b, &c]);
        for named in [[&a, &c, &b], [&b, &a, &c], [&b, &c, &a], [&c, &a, &b], [&c, &b, &a]] {
            assert_eq!(taken(named), order);
        }
        let patience = Patience::new(Duration::ZERO);
        let holds = hold_all(&[&c, &a, &b], &patience).unwrap();
        assert!([&a, &b, &c].into_iter().all(|held| held.0.hold(&patience).is_err()));
        drop(holds);
        assert!(hold_all(&[&a, &b], &patience).is_ok());
        let twice = hold_all(&[&a, &b, &a], &Patience::new(Duration::from_secs(3600)));
        assert!(matches!(twice, Err(Error::NamedTwice(name)) if name == "a"));
    }
}
