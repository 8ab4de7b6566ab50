//! Single slots of `map` and `control`, and the dirty page table: bits of them flip after crashes
//! at any operation, and syncs of them fail.

use crate::faults::names_a_place;
use crate::profile::Profile;
use crate::world::{Counts, Weather, World};
use weir::Error;
use weir_os::sim::Fault;
use weir_os::{AlignedBuf, Create, Disk, Mode, SimDisk};

const SLOT: u64 = 4096;
const TABLE: &str = "dirty";
/// Bytes with which slots begin that are read before their checksum, about.
const HEAD: u64 = 120;

/// Each slot that was written, and the blocks of the table.
fn slots(disk: &SimDisk) -> Vec<(&'static str, u64)> {
    let mut slots = Vec::new();
    let names = disk.list().expect("a list");
    for name in ["map", "control", TABLE].into_iter().filter(|name| names.iter().any(|n| n == name))
    {
        let file = disk.open(name, Create::No, Mode::Cached).expect("it is there");
        for at in (0..file.len().expect("a length")).step_by(SLOT as usize) {
            let slot = file.read(at, AlignedBuf::zeroed(SLOT as usize)).expect("a slot");
            if slot.iter().any(|byte| *byte != 0) {
                slots.push((name, at));
            }
        }
    }
    slots
}

/// After a crash, a bit of each slot in turn: what is read is an error or right. With one of those
/// that did no harm the run goes on.
pub fn rot(seed: u64, profile: &'static Profile) -> Counts {
    let mut world = World::new(seed, profile);
    (world.repeat, world.backs_up) = ("repeat_rot", false);
    world.create();
    for _ in 0..world.rng.u32(2..7) {
        let most = 2 + (600 >> world.rng.u32(..7));
        world.work_until_cut(most);
        world.crash();
        let clean = world.disk.process_kill();
        let mut goes_on_with = clean.process_kill();
        for (file, at) in slots(&clean) {
            let within = if world.rng.bool() { HEAD } else { SLOT };
            let (offset, bit) = (at + world.rng.u64(..within), world.rng.u8(..8));
            let damaged = clean.process_kill();
            damaged.rot(file, offset, bit).expect("it is there");
            world.note(|| format!("rot of {file} at {offset}, bit {bit}"));
            world.disk = damaged.process_kill();
            world.weather = Weather::Faults;
            match world.try_open().and_then(|()| world.read_and_check()) {
                Ok(()) => {
                    world.counts.rot_harmless += 1;
                    if world.rng.u8(..4) == 0 {
                        goes_on_with = damaged;
                    }
                }
                Err(error) => {
                    world.note(|| format!("found: {error}"));
                    assert!(names_a_place(&error), "`{error}` names no place");
                    assert!(file != TABLE, "a start does without the table");
                    world.counts.rot_found += 1;
                }
            }
            world.drop_database();
        }
        world.weather = Weather::Fair;
        world.disk = goes_on_with;
        world.reopen();
        world.verify();
    }
    world.counts
}

/// A sync of one file fails, perhaps again after a restart, then the process is killed, as a rule,
/// and later the power fails: what the system took for synced is gone then.
pub fn failed_syncs(seed: u64, profile: &'static Profile) -> Counts {
    let mut world = World::new(seed, profile);
    (world.repeat, world.backs_up) = ("repeat_failed_syncs", false);
    world.create();
    world.disk.crash_at(u64::MAX);
    for _ in 0..world.rng.u32(2..6) {
        for _ in 0..world.rng.u32(..world.profile.steps) {
            world.step().expect("fair weather");
        }
        for _ in 0..world.rng.u32(1..4) {
            world.work_until_a_sync_fails();
            world.reopen();
            world.verify();
        }
        let most = 2 + (400 >> world.rng.u32(..8));
        world.work_until_cut(most);
        world.crash();
        world.reopen();
        world.verify();
    }
    world.counts
}

impl World {
    /// Works until the power fails at some operation, or ends before.
    pub fn work_until_cut(&mut self, most: u64) {
        self.disk.crash_at(self.disk.operations() + self.rng.u64(1..most));
        for _ in 0..self.profile.steps {
            if self.step().is_err() {
                return;
            }
        }
    }

    fn work_until_a_sync_fails(&mut self) {
        self.weather = Weather::Faults;
        self.fail_sync();
        for _ in 0..150 >> self.rng.u32(..8) {
            let doubts = self.counts.in_doubt;
            if self.step().is_ok() {
                continue;
            }
            self.counts.faults += 1;
            if self.counts.in_doubt > doubts || self.rng.bool() {
                break;
            }
            self.open.clear();
        }
        self.crash_or_kill();
        if self.rng.bool() {
            self.fail_sync();
            if let Err(error) = self.try_open() {
                self.down("open", error);
            }
            self.crash_or_kill();
        }
        self.weather = Weather::Fair;
    }

    fn fail_sync(&mut self) {
        let file = ["map", "control", "data", "dirty.new"][self.rng.usize(..4)];
        let at = self.disk.operations() + (self.rng.u64(..200) >> self.rng.u32(..8));
        self.note(|| format!("a sync of {file} fails, from {at} on"));
        self.disk.inject(Fault::SyncOf { file, at });
    }

    fn crash_or_kill(&mut self) {
        if self.rng.u8(..4) == 0 {
            return self.crash();
        }
        self.drop_database();
        self.counts.kills += 1;
        self.disk = self.disk.process_kill();
    }

    fn read_and_check(&mut self) -> Result<(), Error> {
        self.read_all()?;
        let mut findings = Vec::new();
        let summary = self.db().check(&mut |finding| findings.push(finding.to_string()))?;
        assert!(findings.is_empty(), "{findings:#?} ({summary})");
        Ok(())
    }
}
