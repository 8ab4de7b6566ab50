//! Damaged pages that are given up at a start, which crashes meanwhile: it comes to the same as
//! without.

use crate::profile::Profile;
use crate::world::{Counts, Weather, World};
use std::collections::BTreeMap;
use weir::{Error, Isolation, Value};
use weir_os::SimDisk;

/// Crashes in a row, at most.
const CRASHES: u32 = 4;
/// Keys of a table that are looked for.
const KEYS: u32 = 800;

/// Per table and key: the row's stamp, if there is one; or that it is damaged.
type Seen = BTreeMap<(String, Vec<u8>), Result<Option<u64>, ()>>;

/// Runs a seed; panics where a crash makes a difference.
pub fn run(seed: u64, profile: &'static Profile) -> Counts {
    let mut world = World::new(seed, profile);
    (world.repeat, world.backs_up) = ("repeat_given_up", false);
    world.create();
    world.disk.crash_at(u64::MAX);
    for _ in 0..world.rng.u32(1..4) {
        for _ in 0..world.rng.u32(..world.profile.steps) {
            world.step().expect("fair weather");
        }
        let most = 2 + (600 >> world.rng.u32(..7));
        world.work_until_cut(most);
        // What is found must be durable, or the next crash takes more away.
        world.disk.power_off();
        world.crash();
        let clean = world.disk.process_kill();
        (world.weather, world.gives_up) = (Weather::Faults, true);
        for _ in 0..4 {
            let damaged = world.damaged(&clean);
            world.give_up(&damaged);
        }
        (world.weather, world.gives_up) = (Weather::Fair, false);
        world.disk = clean;
        world.reopen();
        world.verify();
    }
    world.counts
}

impl World {
    /// With a few bits of the data file flipped.
    fn damaged(&mut self, clean: &SimDisk) -> SimDisk {
        let damaged = clean.process_kill();
        for _ in 0..20 + self.rng.u32(..20) {
            let elsewhere = clean.process_kill();
            if let Some((file, offset)) = elsewhere.rot_random(self.rng.u64(..))
                && file == "data"
                && self.rng.u8(..10) == 0
            {
                damaged.rot(&file, offset, 3).expect("it is there");
                self.note(|| format!("rot of data at {offset}"));
            }
        }
        damaged
    }

    fn give_up(&mut self, damaged: &SimDisk) {
        self.disk = damaged.process_kill();
        let seen = self.try_open().and_then(|()| self.seen());
        let operations = self.disk.operations();
        let given_up = self.db.as_ref().map_or(0, |db| db.status().recovery_pages_given_up);
        self.note(|| format!("{given_up} pages are given up, {operations} operations"));
        self.drop_database();
        // What all else hangs from.
        let Ok(seen) = seen else { return };
        self.counts.rot_found += given_up;
        self.disk = damaged.process_kill();
        for _ in 0..self.rng.u32(1..=CRASHES) {
            let at = self.rng.u64(..=operations) >> self.rng.u32(..4);
            self.disk.crash_at(at);
            self.note(|| format!("the power fails at {at}"));
            if let Err(error) = self.try_open() {
                assert!(self.disk.is_crashed(), "it opened before, and doesn't now: {error}");
            }
            self.drop_database();
            self.counts.crashed_recoveries += 1;
            let (seed, killed) = (self.rng.u64(..), self.rng.u8(..3) == 0);
            self.disk = if killed { self.disk.process_kill() } else { self.disk.crash(seed) };
        }
        let again = self.try_open().and_then(|()| self.seen());
        let again = again.unwrap_or_else(|error| panic!("it opened before, not now: {error}"));
        for ((at, first), then) in seen.iter().zip(again.values()) {
            assert_eq!(first, then, "{} {}", at.0, at.1.escape_ascii());
        }
        self.drop_database();
    }

    fn seen(&self) -> Result<Seen, Error> {
        let mut seen = Seen::new();
        for name in self.db().table_names() {
            let table = self.tables(&name);
            for n in 0..self.profile.key_count.min(KEYS) {
                let key = self.profile.key(n);
                let mut txn = self.db().begin(Isolation::RepeatableRead)?;
                let found = match txn.get(&table, &[Value::Bytes(&key)]) {
                    Ok(row) => Ok(row.map(|row| row.get(1).as_u64().expect("a stamp"))),
                    Err(error) if error.is_corrupt() => Err(()),
                    Err(error) => return Err(error),
                };
                seen.insert((name.clone(), key), found);
            }
        }
        Ok(seen)
    }
}
