//! Runs in which the disk misbehaves: errors, no space, rot, lost and misdirected writes.

use crate::profile::Profile;
use crate::world::{Counts, Weather, World};
use weir::{Error, Isolation};
use weir_os::sim::{Fault, OpKind, Times};

/// Runs a seed; panics where the database is not as the model says.
pub fn run(seed: u64, profile: &'static Profile) -> Counts {
    let mut world = World::new(seed, profile);
    world.repeat = "repeat_faults";
    world.create();
    world.disk.crash_at(u64::MAX);
    let generations = world.rng.u32(2..6);
    for _ in 0..generations {
        world.some_work();
        match world.rng.u8(..8) {
            0..3 => world.errors(),
            3..6 => world.full_device(),
            _ => world.rot(),
        }
    }
    if world.rng.bool() {
        world.lying_device();
    }
    world.counts
}

impl World {
    fn some_work(&mut self) {
        for _ in 0..self.rng.u32(..self.profile.steps) {
            self.step().expect("fair weather");
        }
    }

    /// Operations fail, once or for ever; then the database is opened without the fault.
    fn errors(&mut self) {
        self.weather = Weather::Faults;
        self.inject_errors(300);
        for _ in 0..400 {
            let doubts = self.counts.in_doubt;
            if self.step().is_ok() {
                continue;
            }
            if self.counts.in_doubt > doubts || self.rng.u8(..3) == 0 {
                break;
            }
            // Whatever is acknowledged after a failure must be true all the same.
            self.open.clear();
        }
        self.counts.faults += 1;
        self.crash();
        if self.rng.bool() {
            self.inject_errors(60);
            if let Err(error) = self.try_open() {
                self.down("open", error);
            }
            self.counts.faults += 1;
            self.crash();
        }
        self.weather = Weather::Fair;
        self.reopen();
        self.verify();
    }

    fn inject_errors(&mut self, within: u64) {
        let kinds = [OpKind::Read, OpKind::Write, OpKind::Sync, OpKind::Resize, OpKind::Name];
        let on = self.rng.bool().then(|| kinds[self.rng.usize(..kinds.len())]);
        let times = if self.rng.bool() { Times::Once } else { Times::Forever };
        let at = self.disk.operations() + (self.rng.u64(..within) >> self.rng.u32(..4));
        self.note(|| format!("EIO on {on:?} at {at}, {times:?}"));
        self.disk.inject(Fault::Io { on, at, times });
    }

    /// The device fills up; what can't be done fails, and once there is space everything goes on.
    fn full_device(&mut self) {
        self.weather = Weather::Full;
        let more = self.rng.u64(..2 << 20) >> self.rng.u32(..8);
        self.disk.set_capacity(Some(self.disk.used_bytes() + more));
        self.note(|| format!("{more} bytes of space are left"));
        let mut full = false;
        for _ in 0..400 {
            let before = self.model.last;
            if self.step().is_ok() {
                continue;
            }
            full = true;
            self.counts.no_space += 1;
            if self.space_again(before) {
                break;
            }
            return;
        }
        self.disk.set_capacity(None);
        self.weather = Weather::Fair;
        if full {
            self.some_work();
        }
        self.crash();
        self.reopen();
        self.verify();
    }

    /// There is space again: running transactions can be rolled back, nothing is lost. `before`:
    /// the last commit before the operation that failed.
    fn space_again(&mut self, before: u64) -> bool {
        self.disk.set_capacity(None);
        self.weather = Weather::Fair;
        self.note(|| "there is space again".to_string());
        if let Err(error) = self.db().begin(Isolation::RepeatableRead) {
            self.note(|| format!("stopped: {error}"));
            self.counts.stopped_when_full += 1;
            self.crash();
            self.reopen();
            self.verify();
            return false;
        }
        // Some go on: the statement that failed did nothing.
        let all = self.rng.bool();
        for open in std::mem::take(&mut self.open) {
            if all || self.rng.bool() {
                open.txn.rollback().unwrap_or_else(|e| panic!("rollback with space again: {e}"));
            } else {
                self.open.push(open);
            }
        }
        let commit = self.surviving_commit(before).unwrap_or_else(|e| panic!("scan: {e}"));
        self.compare(commit).unwrap_or_else(|e| panic!("scan: {e}"));
        if commit < self.model.last {
            let floors = (self.model.floor_kill, self.model.floor_power);
            self.model.forget_last();
            (self.model.floor_kill, self.model.floor_power) = floors;
        }
        if self.open.is_empty() {
            self.check();
        }
        true
    }

    /// Bits flip: what is read is an error or right.
    fn rot(&mut self) {
        if self.rng.bool() {
            self.close().expect("fair weather");
        } else {
            self.crash();
            self.reopen();
            self.verify();
            self.some_work();
        }
        self.backup = None;
        self.open.clear();
        self.attached.clear();
        self.db = None;
        let clean = self.disk.process_kill();
        for _ in 0..4 {
            self.disk = clean.process_kill();
            let mut in_log = false;
            let mut elsewhere = false;
            for _ in 0..1 + self.rng.u8(..3) {
                let seed = self.rng.u64(..);
                let Some((file, offset)) = self.disk.rot_random(seed) else { continue };
                in_log |= file.starts_with("redo");
                elsewhere |= !file.starts_with("redo");
                self.note(|| format!("rot of {file} at {offset}"));
            }
            self.weather = Weather::Faults;
            let result = self.try_open().and_then(|()| match in_log {
                // The end of the log can't be told from damage; but what is there is whole, or told
                // as damaged.
                true => self.db().check(&mut |_| {}).map(|summary| {
                    assert!(elsewhere || summary.findings == 0, "{summary}");
                }),
                false => self.read_all(),
            });
            match result {
                Ok(()) => self.counts.rot_harmless += 1,
                Err(error) => {
                    self.note(|| format!("found: {error}"));
                    assert!(names_a_place(&error), "`{error}` names no place");
                    self.counts.rot_found += 1;
                }
            }
            self.drop_database();
        }
        self.disk = clean;
        self.weather = Weather::Fair;
        self.reopen();
        self.verify();
    }

    pub fn read_all(&mut self) -> Result<(), Error> {
        let commit = self.surviving_commit(self.model.floor_kill)?;
        self.compare(commit)
    }

    /// Writes are acknowledged and not done, or done elsewhere. Not all of that can be found; but
    /// whatever is, is said in an error.
    fn lying_device(&mut self) {
        (self.backup, self.backs_up) = (None, false);
        self.weather = Weather::Faults;
        let at = self.disk.operations() + self.rng.u64(..200);
        let fault = match self.rng.bool() {
            true => Fault::LostWrite { at },
            false => Fault::MisdirectedWrite { at },
        };
        self.note(|| format!("{fault:?}"));
        self.disk.inject(fault);
        for _ in 0..300 {
            if self.step().is_err() {
                break;
            }
        }
        self.drop_database();
        self.disk = self.disk.process_kill();
        self.counts.faults += 1;
        let Ok(()) = self.try_open() else { return };
        let _ = self.db().check(&mut |_| {});
        let _ = self.try_read_all();
    }

    /// Whether everything can be read.
    fn try_read_all(&mut self) -> Result<(), Error> {
        let found = self.found()?;
        let last = self.model.last;
        if !(0..=last).any(|c| self.differs(&found, c).is_none()) {
            self.counts.wrong_after_lost_write += 1;
        }
        Ok(())
    }
}

/// Whether an error says where the damage is.
pub fn names_a_place(error: &Error) -> bool {
    let text = error.to_string();
    ["sim/", "page ", "redo-", "LSN", "table "].iter().any(|place| text.contains(place))
}
