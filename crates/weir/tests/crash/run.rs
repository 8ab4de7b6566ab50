//! A run: a database worked on, crashed, recovered and compared with the model, several times over.

use crate::profile::Profile;
use crate::world::{Counts, Weather, World};

/// Power cuts of a recovery in a row.
const CRASHES_IN_RECOVERY: u32 = 4;

/// Runs a seed; panics where the database is not as the model says.
pub fn run(seed: u64, profile: &'static Profile) -> Counts {
    let mut world = World::new(seed, profile);
    world.create();
    let generations = world.rng.u32(3..9);
    for _ in 0..generations {
        world.work();
        world.recover();
    }
    world.counts
}

impl World {
    /// Creates the database; the power may fail meanwhile.
    pub fn create(&mut self) {
        if self.rng.u8(..4) == 0 {
            self.disk.crash_at(self.rng.u64(..60));
        }
        match self.try_open() {
            Ok(()) => {}
            Err(error) => {
                self.down("create", error);
                self.crash();
                self.reopen();
            }
        }
    }

    /// Works until the power fails, the process is killed, or the database is closed.
    fn work(&mut self) {
        let steps = self.rng.u32(1..=self.profile.steps) >> self.rng.u32(..3);
        let cut = self.rng.u8(..10) < 7;
        if cut {
            let most = 2 + ((u64::from(steps) * 2) >> self.rng.u32(..6));
            self.disk.crash_at(self.disk.operations() + self.rng.u64(..most));
        }
        // With a crash to come at an operation of the disk, there are steps enough for it.
        let steps = if cut { steps * 2 } else { steps };
        for _ in 0..steps {
            if self.step().is_err() {
                return self.crash();
            }
        }
        if self.rng.u8(..8) == 0 {
            if self.close().is_err() {
                return self.crash();
            }
            self.disk.crash_at(u64::MAX);
            if self.rng.bool() {
                return;
            }
        }
        self.crash();
    }

    /// Cuts the power or kills the process; `disk` is what is found then.
    pub fn crash(&mut self) {
        let killed = !self.disk.is_crashed() && self.rng.u8(..3) == 0;
        self.drop_database();
        let seed = self.rng.u64(..);
        let floor = if killed { self.model.floor_kill } else { self.model.floor_power };
        let last = self.model.last;
        self.note(|| format!("killed {killed}, commits {floor}..={last} may be the last"));
        if killed {
            self.counts.kills += 1;
            self.disk = self.disk.process_kill();
        } else {
            self.counts.power_cuts += 1;
            self.model.floor_kill = self.model.floor_power;
            self.disk = self.disk.crash(seed);
        }
    }

    /// Opens the database, perhaps after crashes of the recovery, and compares it with the model.
    fn recover(&mut self) {
        let crashes = match self.rng.u8(..3) {
            0 => self.rng.u32(..=CRASHES_IN_RECOVERY),
            _ => 0,
        };
        for _ in 0..crashes {
            let at = self.rng.u64(..400) >> self.rng.u32(..5);
            self.disk.crash_at(at);
            match self.try_open() {
                // A file that is made for later may have been what the crash came to: nobody has
                // noticed it.
                Ok(()) if self.rng.bool() && !self.disk.is_crashed() => {
                    // It crashes later, or is killed when it has just opened.
                    self.disk.crash_at(u64::MAX);
                    return self.verify();
                }
                Ok(()) => {}
                Err(error) => {
                    self.counts.crashed_recoveries += 1;
                    self.down("recovery", error);
                }
            }
            self.crash();
        }
        if self.counts.recoveries.is_multiple_of(8) {
            self.read_only();
        }
        self.reopen();
        self.verify();
    }

    pub fn reopen(&mut self) {
        assert_eq!(self.weather, Weather::Fair);
        if self.rng.u8(..4) == 0 {
            self.redo = (1 << 20) + (self.rng.u64(..2) << 20);
        }
        if let Err(error) = self.try_open() {
            panic!("the database doesn't open: {error} ({error:?})");
        }
        let (commit, redo) = (self.model.last, self.redo);
        self.note(|| format!("opened, last commit {commit}, redo {redo}"));
    }
}
