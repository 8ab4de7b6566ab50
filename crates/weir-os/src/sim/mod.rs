//! A deterministic disk in memory, with power cuts and faults.
//!
//! What a [`SimDisk`] promises is what a file system promises and no more:
//! - writes are visible to reads at once, and durable after [`File::sync`] of that file;
//! - lengths likewise; creations, removals and renames are durable after [`Disk::sync_dir`];
//! - a power cut ([`SimDisk::crash`]) leaves of everything else any mixture, torn at [`SECTOR`]s;
//! - a failed sync takes its guarantee away for good: a later sync that succeeds covers only what
//!   was written after the failure.
//!
//! Every choice comes from seeds, so a run with one thread repeats exactly. Operations are numbered
//! ([`SimDisk::operations`]); faults and power cuts are placed by number.
//!
//! A crash image shares its blocks with the disk it comes from: its cost is proportional to what
//! is unsynced, not to the size of the files.

mod blocks;
mod crash;
mod fault;
mod file;
mod inode;
mod names;
mod observed;

#[cfg(test)]
mod tests;

pub use crash::{CrashProfile, SECTOR};
pub use fault::{Fault, OpKind, Times};
pub use observed::{ObservedDisk, Operation};

use crate::guard::Guard;
use crate::stats::DiskStats;
use crate::{BLOCK, Create, Disk, DiskError, File, Mode, Result, check_name};
use crash::Chooser;
use fault::Effect;
use file::SimFile;
use inode::Inode;
use names::Directory;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

/// Message of the error of every operation at and after a power cut.
pub const CRASH_MESSAGE: &str = "simulated crash";

/// A simulated disk. Clones are the same disk.
#[derive(Clone)]
pub struct SimDisk {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    guard: Guard,
}

#[derive(Clone)]
struct State {
    directory: Directory,
    inodes: BTreeMap<u64, Inode>,
    inode_next: u64,
    /// Orders the changes; unlike `operations` never reset.
    seq: u64,
    operations: u64,
    crash_at: Option<u64>,
    crashed: bool,
    faults: Vec<Fault>,
    capacity_blocks: Option<u64>,
    thin: Option<String>,
    rng: fastrand::Rng,
    stats: DiskStats,
}

/// Why an operation does not run as usual.
enum Refusal {
    /// The power fails during this operation: half of it may happen.
    CrashNow,
    /// The operation fails, perhaps half done.
    Fault(io::Error),
    /// The power failed before.
    Off,
}

impl Refusal {
    fn into_error(self) -> io::Error {
        match self {
            Refusal::Fault(error) => error,
            Refusal::CrashNow | Refusal::Off => io::Error::other(CRASH_MESSAGE),
        }
    }
}

impl State {
    /// Numbers an operation and says whether and how it runs.
    fn begin(&mut self, kind: OpKind) -> std::result::Result<Effect, Refusal> {
        if self.crashed {
            return Err(Refusal::Off);
        }
        let number = self.operations;
        self.operations += 1;
        self.seq += 1;
        if self.crash_at.is_some_and(|at| number >= at) {
            self.crashed = true;
            return Err(Refusal::CrashNow);
        }
        fault::take(&mut self.faults, kind, number).map_err(Refusal::Fault)
    }

    /// As [`State::begin`], for operations that happen wholly or not at all. At a power cut
    /// `Ok(true)` says that it happens although the caller sees an error.
    fn begin_whole(&mut self, kind: OpKind) -> (bool, io::Result<()>) {
        match self.begin(kind) {
            Ok(_) => (true, Ok(())),
            Err(Refusal::CrashNow) => (self.rng.bool(), Err(Refusal::CrashNow.into_error())),
            Err(refusal) => (false, Err(refusal.into_error())),
        }
    }

    fn check_space(&self, more_blocks: u64) -> io::Result<()> {
        match more_blocks > self.free_blocks() {
            true => Err(fault::no_space(self.operations)),
            false => Ok(()),
        }
    }

    fn free_blocks(&self) -> u64 {
        let free = |capacity: u64| capacity.saturating_sub(self.used_blocks());
        self.capacity_blocks.map_or(u64::MAX, free)
    }

    fn used_blocks(&self) -> u64 {
        let named: BTreeSet<u64> = self.directory.names().values().copied().collect();
        let used = self.inodes.iter().filter(|(id, inode)| inode.open > 0 || named.contains(id));
        used.map(|(_, inode)| inode.allocated_blocks()).sum()
    }

    fn drop_unreachable(&mut self) {
        let directory = &self.directory;
        self.inodes.retain(|id, inode| inode.open > 0 || directory.refers_to(*id));
    }

    fn inode(&mut self, id: u64) -> &mut Inode {
        self.inodes.get_mut(&id).expect("an open handle keeps its file")
    }

    /// The file of that name; `NotFound`, of that operation, if there is none.
    fn named(&mut self, name: &str, operation: &'static str) -> Result<&mut Inode> {
        let id = self.directory.names().get(name).copied();
        let id = id.ok_or_else(|| DiskError::new(operation, name, missing()))?;
        Ok(self.inode(id))
    }

    fn rebooted(self) -> SimDisk {
        let mut state = self;
        state.operations = 0;
        state.crash_at = None;
        state.crashed = false;
        state.faults.clear();
        state.inodes.values_mut().for_each(|inode| inode.open = 0);
        state.drop_unreachable();
        SimDisk::from_state(state)
    }

    /// Operations whose effect is not durable, in order.
    fn unsynced(&self) -> Vec<u64> {
        let mut found = BTreeSet::new();
        self.directory.unsynced(&mut found);
        self.inodes.values().for_each(|inode| inode.unsynced(&mut found));
        found.into_iter().collect()
    }

    /// The state found after a power cut, each part by the profile that `profile_of` gives it.
    fn crashed_by(
        &self,
        rng: &mut fastrand::Rng,
        mut profile_of: impl FnMut(&mut fastrand::Rng, Option<&Inode>) -> CrashProfile,
    ) -> State {
        let profile = profile_of(rng, None);
        let names = self.directory.crashed(&mut Chooser::new(profile, rng));
        let mut inodes = BTreeMap::new();
        for id in names.values() {
            let inode = &self.inodes[id];
            let profile = profile_of(rng, Some(inode));
            inodes.insert(*id, inode.crashed(&mut Chooser::new(profile, rng)));
        }
        State {
            directory: Directory::durable(names),
            inodes,
            inode_next: self.inode_next,
            seq: self.seq,
            operations: 0,
            crash_at: None,
            crashed: false,
            faults: Vec::new(),
            capacity_blocks: self.capacity_blocks,
            thin: self.thin.clone(),
            rng: rng.fork(),
            stats: DiskStats::default(),
        }
    }
}

impl SimDisk {
    /// An empty disk; `seed` drives what is half done at faults and power cuts.
    pub fn new(seed: u64) -> Self {
        SimDisk::from_state(State {
            directory: Directory::default(),
            inodes: BTreeMap::new(),
            inode_next: 0,
            seq: 0,
            operations: 0,
            crash_at: None,
            crashed: false,
            faults: Vec::new(),
            capacity_blocks: None,
            thin: None,
            rng: fastrand::Rng::with_seed(seed),
            stats: DiskStats::default(),
        })
    }

    fn from_state(state: State) -> Self {
        let guard = Guard::default();
        SimDisk { shared: Arc::new(Shared { state: Mutex::new(state), guard }) }
    }

    /// Number of operations begun so far, which is the number that the next one gets. Each read or
    /// write of a batch counts, as do `sync`, `sync_dir`, `set_len`, `punch`, `open`, `remove`,
    /// `rename` and `list`; `len`, `free_bytes` and `lock` do not.
    pub fn operations(&self) -> u64 {
        self.shared.state.lock().operations
    }

    /// Cuts the power at operation `number`: it fails, perhaps half done (some sectors of the
    /// batch's remaining writes), and so does everything after it. Then call [`SimDisk::crash`].
    pub fn crash_at(&self, number: u64) {
        self.shared.state.lock().crash_at = Some(number);
    }

    /// Whether the power has failed.
    pub fn is_crashed(&self) -> bool {
        self.shared.state.lock().crashed
    }

    /// Cuts the power now: every later operation fails.
    pub fn power_off(&self) {
        self.shared.state.lock().crashed = true;
    }

    /// The disk as found after a power cut at this moment: a new one, unlocked, with no faults
    /// armed. This disk and its handles are not changed, so that one state can be crashed by many
    /// seeds.
    ///
    /// The seed chooses whether one [`CrashProfile`] rules the whole disk (an ordered prefix, all
    /// but one operation) or every file and the directory get one each.
    pub fn crash(&self, seed: u64) -> SimDisk {
        let state = self.shared.state.lock();
        let mut rng = fastrand::Rng::with_seed(seed);
        let unsynced = state.unsynced();
        let whole = match (unsynced.as_slice(), rng.u8(..4)) {
            ([], _) | (_, 0 | 1) => None,
            (some, 2) => Some(CrashProfile::Prefix { last: some[rng.usize(..some.len())] }),
            (some, _) => Some(CrashProfile::AllBut { lost: some[rng.usize(..some.len())] }),
        };
        let found = state.crashed_by(&mut rng, |rng, inode| {
            whole.unwrap_or_else(|| {
                let mut own = BTreeSet::new();
                match inode {
                    None => state.directory.unsynced(&mut own),
                    Some(inode) => inode.unsynced(&mut own),
                }
                CrashProfile::random(rng, &own.into_iter().collect::<Vec<_>>())
            })
        });
        SimDisk::from_state(found)
    }

    /// As [`SimDisk::crash`], with one profile for every file and the directory.
    pub fn crash_as(&self, seed: u64, profile: CrashProfile) -> SimDisk {
        let state = self.shared.state.lock();
        let mut rng = fastrand::Rng::with_seed(seed);
        SimDisk::from_state(state.crashed_by(&mut rng, |_, _| profile))
    }

    /// The disk as found after the process was killed: everything written is there, and what was
    /// not durable still is not. A new disk, unlocked, with no faults armed.
    pub fn process_kill(&self) -> SimDisk {
        self.shared.state.lock().clone().rebooted()
    }

    /// Arms a fault. Several may be armed; the first that matches an operation shows.
    pub fn inject(&self, fault: Fault) {
        self.shared.state.lock().faults.push(fault);
    }

    /// Disarms all faults.
    pub fn clear_faults(&self) {
        self.shared.state.lock().faults.clear();
    }

    /// Limits the space of all files together, in whole blocks; `None` for no limit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.shared.state.lock().capacity_blocks = bytes.map(|bytes| bytes / BLOCK as u64);
    }

    /// From now on the file of that name takes no space by becoming longer, only where it is
    /// written: as in a file system that sets none aside.
    pub fn set_thin(&self, name: &str) {
        self.shared.state.lock().thin = Some(format!("/{name}"));
    }

    /// Space that all files take, in bytes. Space of punched blocks is given back; a file grown
    /// past its end is allocated wholly.
    pub fn used_bytes(&self) -> u64 {
        self.shared.state.lock().used_blocks() * BLOCK as u64
    }

    /// Numbers of the file's blocks that the system was told not to keep in memory
    /// ([`File::forget`]) once they were durable, and that were not written since.
    ///
    /// # Errors
    /// `NotFound` when there is no such file.
    pub fn forgotten_blocks(&self, name: &str) -> Result<Vec<u64>> {
        let mut state = self.shared.state.lock();
        Ok(state.named(name, "forgotten_blocks")?.forgotten())
    }

    /// Bit rot: flips one bit, whatever survives a later crash.
    ///
    /// # Errors
    /// `NotFound` when there is no such file.
    pub fn rot(&self, name: &str, offset: u64, bit: u8) -> Result<()> {
        let mut state = self.shared.state.lock();
        state.named(name, "rot").map_err(|error| error.at(offset))?.rot(offset, bit);
        Ok(())
    }

    /// Bit rot in a random block that was written; says where, or `None` when there is no such
    /// block.
    pub fn rot_random(&self, seed: u64) -> Option<(String, u64)> {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut state = self.shared.state.lock();
        let named = state.directory.names().iter();
        let written = named
            .map(|(name, id)| (name.clone(), *id, state.inodes[id].written_blocks()))
            .filter(|(_, _, blocks)| !blocks.is_empty())
            .collect::<Vec<_>>();
        let total: usize = written.iter().map(|(_, _, blocks)| blocks.len()).sum();
        let mut chosen = rng.usize(..total.max(1));
        for (name, id, blocks) in written {
            if chosen < blocks.len() {
                let inode = state.inode(id);
                let start = blocks[chosen] * BLOCK as u64;
                let end = (start + BLOCK as u64).min(inode.len());
                let offset = rng.u64(start..end);
                inode.rot(offset, rng.u8(..8));
                return Some((name, offset));
            }
            chosen -= blocks.len();
        }
        None
    }

    pub(super) fn path(name: &str) -> String {
        format!("sim/{name}")
    }
}

fn missing() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Disk for SimDisk {
    fn open(&self, name: &str, create: Create, mode: Mode) -> Result<Arc<dyn File>> {
        let path = SimDisk::path(name);
        let fail = |error| DiskError::new("open", &path, error);
        check_name(name).map_err(fail)?;
        let mut state = self.shared.state.lock();
        let (happens, result) = state.begin_whole(OpKind::Name);
        let id = match (state.directory.names().get(name).copied(), create) {
            (Some(_), Create::New) => Err(io::ErrorKind::AlreadyExists.into()),
            (None, Create::No) => Err(missing()),
            (Some(id), _) => Ok(id),
            (None, _) if happens => {
                let id = state.inode_next;
                state.inode_next += 1;
                state.inodes.insert(id, Inode::default());
                let seq = state.seq;
                state.directory.create(seq, name, id);
                Ok(id)
            }
            (None, _) => Err(missing()),
        };
        result.map_err(fail)?;
        let id = id.map_err(fail)?;
        state.inode(id).open += 1;
        drop(state);
        Ok(Arc::new(SimFile::new(self.clone(), id, path, mode)))
    }

    fn remove(&self, name: &str) -> Result<()> {
        let path = SimDisk::path(name);
        let fail = |error| DiskError::new("remove", &path, error);
        check_name(name).map_err(fail)?;
        let mut state = self.shared.state.lock();
        let (happens, result) = state.begin_whole(OpKind::Name);
        let id = state.directory.names().get(name).copied();
        if let (Some(id), true) = (id, happens) {
            let seq = state.seq;
            state.directory.remove(seq, name, id);
        }
        result.map_err(fail)?;
        id.map(drop).ok_or_else(|| fail(missing()))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let path = SimDisk::path(from);
        let fail = |error| DiskError::new("rename", &path, error);
        check_name(from).and_then(|()| check_name(to)).map_err(fail)?;
        let mut state = self.shared.state.lock();
        let (happens, result) = state.begin_whole(OpKind::Name);
        let id = state.directory.names().get(from).copied();
        if let (Some(id), true) = (id, happens && from != to) {
            let seq = state.seq;
            state.directory.rename(seq, from, to, id);
        }
        result.map_err(fail)?;
        id.map(drop).ok_or_else(|| fail(missing()))
    }

    fn list(&self) -> Result<Vec<String>> {
        let mut state = self.shared.state.lock();
        let (_, result) = state.begin_whole(OpKind::Name);
        result.map_err(|error| DiskError::new("list", "sim", error))?;
        Ok(state.directory.names().keys().cloned().collect())
    }

    fn sync_dir(&self) -> Result<()> {
        let mut state = self.shared.state.lock();
        let (happens, result) = state.begin_whole(OpKind::Sync);
        if happens {
            state.directory.sync();
            state.drop_unreachable();
        } else if !state.crashed {
            state.directory.fail_sync();
        }
        state.stats.syncs += 1;
        result.map_err(|error| DiskError::new("sync", "sim", error))
    }

    fn free_bytes(&self) -> Result<u64> {
        Ok(self.shared.state.lock().free_blocks().saturating_mul(BLOCK as u64))
    }

    fn lock(&self) -> Result<Box<dyn Send + Sync>> {
        let fail = |error| DiskError::new("lock", "sim/lock", error);
        if self.is_crashed() {
            return Err(fail(Refusal::Off.into_error()));
        }
        Ok(Box::new(self.shared.guard.take().map_err(fail)?))
    }

    fn describe(&self) -> String {
        "simulated, in memory".to_string()
    }

    fn stats(&self) -> DiskStats {
        self.shared.state.lock().stats
    }
}
