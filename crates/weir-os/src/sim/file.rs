//! An open file of a simulated disk.

use super::fault::{self, Effect};
use super::{OpKind, Refusal, SimDisk, State};
use crate::{
    AlignedBuf, BLOCK, DiskError, File, Io, Mode, Result, check_aligned, check_punch, kind_of,
};
use std::io;
use std::sync::Arc;

/// A handle; the file lives at least as long as it.
pub(super) struct SimFile {
    disk: SimDisk,
    id: u64,
    path: String,
    mode: Mode,
}

impl SimFile {
    pub(super) fn new(disk: SimDisk, id: u64, path: String, mode: Mode) -> Self {
        SimFile { disk, id, path, mode }
    }

    fn fail(&self, operation: &'static str, error: io::Error) -> DiskError {
        DiskError::new(operation, &self.path, error)
    }
}

impl State {
    fn read(&mut self, id: u64, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.begin(OpKind::Read).map_err(Refusal::into_error)?;
        self.stats.reads += 1;
        self.stats.read_bytes += buf.len() as u64;
        if self.inode(id).read(offset, buf) {
            Ok(())
        } else {
            Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the range ends past the file"))
        }
    }

    fn write(&mut self, id: u64, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let effect = match self.begin(OpKind::Write) {
            Ok(effect) => effect,
            Err(Refusal::Off) => return Err(Refusal::Off.into_error()),
            Err(refusal) => {
                let error = refusal.into_error();
                if kind_of(&error) != io::ErrorKind::StorageFull {
                    self.write_torn(id, offset, bytes);
                }
                return Err(error);
            }
        };
        self.stats.writes += 1;
        self.stats.write_bytes += bytes.len() as u64;
        if bytes.is_empty() || effect == Effect::Lost {
            return Ok(());
        }
        let offset = match effect {
            Effect::Misdirected => self.elsewhere(id, offset),
            _ => offset,
        };
        self.check_space(self.inodes[&id].blocks_needed(offset, bytes.len() as u64))?;
        let seq = self.seq;
        self.inode(id).write(seq, offset, bytes);
        Ok(())
    }

    /// The part of a failing write that is stored all the same.
    fn write_torn(&mut self, id: u64, offset: u64, bytes: &[u8]) {
        let needed = self.inodes[&id].blocks_needed(offset, bytes.len() as u64);
        if bytes.is_empty() || self.check_space(needed).is_err() {
            return;
        }
        let mut rng = self.rng.fork();
        let seq = self.seq;
        match rng.u8(..4) {
            0 => {}
            1 => self.inode(id).write(seq, offset, bytes),
            _ => self.inode(id).write_torn(seq, offset, bytes, &mut rng),
        }
    }

    /// Another block-aligned offset of the file.
    fn elsewhere(&mut self, id: u64, offset: u64) -> u64 {
        let blocks = self.inodes[&id].len().div_ceil(BLOCK as u64).max(2);
        let wanted = offset / BLOCK as u64;
        let other = self.rng.u64(..blocks);
        let other = if other == wanted { (other + 1) % blocks } else { other };
        other * BLOCK as u64
    }
}

impl File for SimFile {
    fn run(&self, batch: Vec<Io>) -> Result<Vec<AlignedBuf>> {
        for op in &batch {
            check_aligned(op, self.mode).map_err(|e| self.fail(op.name(), e).at(op.offset()))?;
        }
        let mut state = self.disk.shared.state.lock();
        let was_off = state.crashed;
        let mut first_error = None;
        let mut bufs = Vec::with_capacity(batch.len());
        for mut op in batch {
            let result = match &mut op {
                Io::Read { offset, buf } => state.read(self.id, *offset, buf),
                // The power failed earlier in this batch: all of it was in flight.
                Io::Write { offset, buf } if state.crashed && !was_off => {
                    state.write_torn(self.id, *offset, buf);
                    Err(Refusal::Off.into_error())
                }
                Io::Write { offset, buf } => state.write(self.id, *offset, buf),
            };
            if let Err(error) = result {
                first_error.get_or_insert_with(|| self.fail(op.name(), error).at(op.offset()));
            }
            bufs.push(op.into_buf());
        }
        first_error.map_or(Ok(bufs), Err)
    }

    fn len(&self) -> Result<u64> {
        let mut state = self.disk.shared.state.lock();
        if state.crashed {
            return Err(self.fail("len", Refusal::Off.into_error()));
        }
        Ok(state.inode(self.id).len())
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        let fail = |error| self.fail("set_len", error).at(bytes);
        let mut state = self.disk.shared.state.lock();
        let (happens, result) = state.begin_whole(OpKind::Resize);
        let old = state.inode(self.id).len().div_ceil(BLOCK as u64);
        let new = bytes.div_ceil(BLOCK as u64);
        let thin = state.thin.as_ref().is_some_and(|name| self.path.ends_with(name));
        let space = state.check_space(if thin { 0 } else { new.saturating_sub(old) });
        if happens && space.is_ok() {
            let seq = state.seq;
            state.inode(self.id).set_len(seq, bytes);
            if thin && new > old {
                state.inode(self.id).punch(seq, old * BLOCK as u64, (new - old) * BLOCK as u64);
            }
        }
        result.and(space).map_err(fail)
    }

    fn punch(&self, offset: u64, bytes: u64) -> Result<()> {
        let fail = |error| self.fail("punch", error).at(offset);
        check_punch(offset, bytes).map_err(fail)?;
        let mut state = self.disk.shared.state.lock();
        let (happens, result) = state.begin_whole(OpKind::Resize);
        if happens {
            let seq = state.seq;
            state.inode(self.id).punch(seq, offset, bytes);
        }
        result.map_err(fail)
    }

    fn sync(&self) -> Result<()> {
        let mut state = self.disk.shared.state.lock();
        let number = state.operations;
        fault::aim(&mut state.faults, &self.path, number);
        let (happens, result) = state.begin_whole(OpKind::Sync);
        if happens {
            state.inode(self.id).sync();
        } else if !state.crashed {
            state.inode(self.id).fail_sync();
        }
        state.stats.syncs += 1;
        result.map_err(|error| self.fail("sync", error))
    }

    fn forget(&self, offset: u64, bytes: u64) {
        let block = BLOCK as u64;
        let mut state = self.disk.shared.state.lock();
        state.inode(self.id).forget(offset / block..(offset + bytes) / block);
    }

    fn name(&self) -> &str {
        &self.path
    }

    fn renamed(&self, name: &str) -> Arc<dyn File> {
        self.disk.shared.state.lock().inode(self.id).open += 1;
        Arc::new(SimFile::new(self.disk.clone(), self.id, SimDisk::path(name), self.mode))
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut state = self.disk.shared.state.lock();
        let inode = state.inode(self.id);
        inode.open -= 1;
        if inode.open == 0 && !state.directory.refers_to(self.id) {
            state.inodes.remove(&self.id);
        }
    }
}
