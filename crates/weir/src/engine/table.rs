//! Tables as users hold them, and who is using them.

use super::catalog::TableDef;
use super::error::{Error, Result};
use crate::schema::{Layout, Schema};
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A table of a [`super::Database`]; cheap to clone.
#[derive(Clone)]
pub struct Table(pub(super) Arc<Shared>);

/// A transaction's use of a table: its definition stays as it is.
pub(super) struct Use {
    shared: Arc<Shared>,
    pub def: Arc<TableDef>,
    /// Whether it may have written to the table.
    writes: bool,
}

impl Use {
    /// Begins to use a table, after waiting for whoever changes it.
    pub fn of(table: &Table, timeout: Duration) -> Result<Use> {
        let def = table.0.enter(timeout)?;
        Ok(Use { shared: table.0.clone(), def, writes: false })
    }

    /// Begins to write to it, after waiting for whoever is about to change its definition.
    #[inline]
    pub fn begin_writing(&mut self, timeout: Duration) -> Result<()> {
        if !self.writes {
            self.shared.enter_to_write(timeout)?;
            self.writes = true;
        }
        Ok(())
    }

    #[inline]
    pub fn is_of(&self, table: &Table) -> bool {
        Arc::ptr_eq(&self.shared, &table.0)
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.shared.leave(self.writes);
    }
}

/// What all handles of a table share.
pub(super) struct Shared {
    pub name: RwLock<String>,
    /// `None` once it has been dropped.
    def: RwLock<Option<Arc<TableDef>>>,
    users: Mutex<Users>,
    changed: Condvar,
}

#[derive(Default)]
struct Users {
    /// Transactions that use the table.
    shared: usize,
    /// Those of them that may have written to it.
    writers: usize,
    /// Whether nobody new may write to it: its definition is about to change.
    changing: bool,
    /// Whether nobody new may use it: its definition changes.
    exclusive: bool,
}

/// A hold on a table's definition: nobody else changes it, and nobody new writes to the table.
pub(super) struct Hold<'a>(&'a Shared);

impl Hold<'_> {
    /// Waits until nobody has written to the table who still may take it back.
    pub fn wait_for_writers(&mut self, timeout: Duration) -> Result<()> {
        let deadline = Instant::now().checked_add(timeout);
        let mut users = self.0.users.lock();
        while users.writers > 0 {
            self.0.wait(&mut users, deadline)?;
        }
        Ok(())
    }

    /// Waits until nobody uses the table, and keeps others out. New users wait meanwhile.
    pub fn wait_for_all(&mut self, timeout: Duration) -> Result<()> {
        let deadline = Instant::now().checked_add(timeout);
        let mut users = self.0.users.lock();
        users.exclusive = true;
        while users.shared > 0 {
            self.0.wait(&mut users, deadline)?;
        }
        Ok(())
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        let mut users = self.0.users.lock();
        (users.changing, users.exclusive) = (false, false);
        drop(users);
        self.0.changed.notify_all();
    }
}

impl Shared {
    pub fn new(name: String, def: TableDef) -> Self {
        Shared {
            name: RwLock::new(name),
            def: RwLock::new(Some(Arc::new(def))),
            users: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    pub fn name(&self) -> String {
        self.name.read().clone()
    }

    /// The definition.
    pub fn def(&self) -> Result<Arc<TableDef>> {
        self.def.read().clone().ok_or_else(|| Error::NoSuchTable(self.name()))
    }

    pub fn set_def(&self, def: Option<TableDef>) {
        *self.def.write() = def.map(Arc::new);
    }

    /// Begins to use the table: its definition stays as it is until [`Shared::leave`].
    fn enter(&self, timeout: Duration) -> Result<Arc<TableDef>> {
        let deadline = Instant::now().checked_add(timeout);
        let mut users = self.users.lock();
        while users.exclusive {
            self.wait(&mut users, deadline)?;
        }
        let def = self.def()?;
        users.shared += 1;
        Ok(def)
    }

    /// A user begins to write.
    fn enter_to_write(&self, timeout: Duration) -> Result<()> {
        let deadline = Instant::now().checked_add(timeout);
        let mut users = self.users.lock();
        while users.changing {
            self.wait(&mut users, deadline)?;
        }
        users.writers += 1;
        Ok(())
    }

    /// Ends a use.
    fn leave(&self, writes: bool) {
        let mut users = self.users.lock();
        users.shared -= 1;
        users.writers -= usize::from(writes);
        let matters = users.shared == 0 || (writes && users.writers == 0);
        if matters && users.changing {
            self.changed.notify_all();
        }
    }

    /// Keeps others from changing the definition and new writers out; waits for nobody else.
    pub fn change(&self, timeout: Duration) -> Result<Hold<'_>> {
        let deadline = Instant::now().checked_add(timeout);
        let mut users = self.users.lock();
        while users.changing {
            self.wait(&mut users, deadline)?;
        }
        users.changing = true;
        Ok(Hold(self))
    }

    /// Waits until nobody uses the table, and keeps others out. New users wait meanwhile.
    pub fn exclusive(&self, timeout: Duration) -> Result<Hold<'_>> {
        let mut hold = self.change(timeout)?;
        hold.wait_for_all(timeout)?;
        Ok(hold)
    }

    /// Waits for a change; without a deadline as long as it takes.
    fn wait(&self, users: &mut MutexGuard<'_, Users>, deadline: Option<Instant>) -> Result<()> {
        match deadline {
            None => self.changed.wait(users),
            Some(deadline) => {
                if self.changed.wait_until(users, deadline).timed_out() {
                    return Err(Error::TableInUse(self.name()));
                }
            }
        }
        Ok(())
    }
}

impl Table {
    /// Its name.
    pub fn name(&self) -> String {
        self.0.name()
    }

    /// Its columns and keys.
    ///
    /// # Errors
    /// [`Error::NotTyped`]; [`Error::NoSuchTable`] once it has been dropped.
    pub fn schema(&self) -> Result<Schema> {
        match &self.0.def()?.layout {
            Layout::Typed(schema) => Ok(schema.clone()),
            Layout::Raw(_) => Err(Error::NotTyped(self.name())),
        }
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Table({})", self.name())
    }
}
