//! Backups that are made while the run goes on: each is the database as it was after the commit at
//! which it began.

use crate::world::{Step, Weather, World, says_full};
use std::mem::take;
use std::sync::Arc;
use weir::{Backup, Database};
use weir_os::{Disk, SimDisk};

/// A backup that is being made.
pub struct UnderWay {
    backup: Backup,
    to: SimDisk,
    commit: u64,
}

impl World {
    /// Begins a backup now and then, and goes on with one that is being made.
    pub fn back_up(&mut self) -> Step {
        if self.backup.is_some() {
            return self.backup_step();
        }
        let (to, commit) = (SimDisk::new(self.rng.u64(..)), self.model.last);
        if self.rng.u8(..8) == 0 {
            to.set_capacity(Some(self.rng.u64(..4 << 20)));
        }
        self.note(|| format!("begin backup at commit {commit}"));
        let backup = match self.db().begin_backup_on(Arc::new(to.clone())) {
            Ok(backup) => backup,
            Err(error) => return self.backup_failed(&to, error),
        };
        self.backup = Some(UnderWay { backup, to, commit });
        Ok(())
    }

    fn backup_step(&mut self) -> Step {
        let mut under_way = self.backup.take().expect("a backup is being made");
        match under_way.backup.step() {
            Ok(true) if self.rng.u8(..200) == 0 => {
                let UnderWay { backup, to, .. } = under_way;
                drop(backup);
                assert!(
                    to.list().expect("a list").is_empty(),
                    "a backup that is given up leaves nothing"
                );
            }
            Ok(true) => self.backup = Some(under_way),
            Ok(false) => {
                let UnderWay { backup, to, commit } = under_way;
                drop(backup);
                self.verify_backup(&to, commit);
            }
            Err(error) => {
                let to = under_way.to.clone();
                drop(under_way);
                return self.backup_failed(&to, error);
            }
        }
        Ok(())
    }

    /// The disk of the backup may be full, or this one's, and the weather may be bad: the database
    /// goes on, if it does.
    fn backup_failed(&mut self, to: &SimDisk, error: weir::Error) -> Step {
        let text = error.to_string();
        self.note(|| format!("the backup failed: {text}"));
        let full = says_full(&error);
        assert!(
            to.list().expect("a list").is_empty(),
            "a backup that failed leaves nothing: {text}"
        );
        match self.weather {
            Weather::Fair if !full => Err(self.down("backup", error)),
            _ => Ok(()),
        }
    }

    fn verify_backup(&mut self, to: &SimDisk, commit: u64) {
        self.counts.backups += 1;
        self.note(|| format!("the backup at commit {commit} is made"));
        let found = to.crash(self.rng.u64(..));
        found.set_capacity(None);
        let copy = Database::open_on(Arc::new(found), self.options());
        let copy = copy.unwrap_or_else(|error| panic!("the backup doesn't open: {error}"));
        let own = (self.db.replace(copy), take(&mut self.attached));
        let state =
            self.found().unwrap_or_else(|error| panic!("a scan of the backup failed: {error}"));
        if let Some(difference) = self.differs(&state, commit) {
            panic!("the backup is not as the database was after commit {commit}: {difference}");
        }
        self.compare(commit).unwrap_or_else(|error| panic!("a scan of the backup failed: {error}"));
        self.check();
        (self.db, self.attached) = own;
    }
}
