//! A copy of the store as it is at one moment, taken while it goes on.
//!
//! Images are never written over, so all that is needed for it is that those which are current at that moment stay
//! where they are until they are copied: [`Store::hold_space`]. The map file is copied first ([`Store::copy_map`]); what has
//! changed since a block was written the log tells, as after a crash. Then the data file is copied place by place
//! ([`Store::copy_data`]). Images of later come along where they are found: nothing in the copy names them.

use crate::error::{Result, StoreError};
use crate::extent::UNIT;
use crate::store::{DATA, MAP, Store};
use std::sync::Arc;
use weir_os::{AlignedBuf, Create, Disk, File, Io, Mode};
use weir_page::Lsn;

/// What is copied of the data file in one step.
const STEP_UNITS: u64 = (4 << 20) / UNIT as u64;
/// Operations in flight.
const STEP_RUNS: usize = 64;
const MAP_STEP_BYTES: u64 = 4 << 20;

impl Store {
    /// Extents that are given up by records at `from` or later keep what is stored there, until [`Store::let_go`]. If the
    /// device has no room left, they are taken all the same, and [`Store::check_held`] fails from then on.
    ///
    /// # Panics
    /// If they are held already.
    pub fn hold_space(&self, from: Lsn) {
        self.assert_recovered();
        self.space.lock().hold(from);
    }

    /// Frees what was held.
    pub fn let_go(&self) {
        self.space.lock().let_go();
    }

    /// Whether all that was to be held is as it was.
    ///
    /// # Errors
    /// `Reclaimed`.
    pub fn check_held(&self) -> Result<()> {
        match self.space.lock().is_held() {
            true => Ok(()),
            false => Err(StoreError::Reclaimed { file: self.data.name().to_string() }),
        }
    }

    /// Makes a file for a copy of the map file, and says how long that is now, in bytes.
    ///
    /// # Errors
    /// The other disk's.
    pub fn begin_map_copy(&self, to: &dyn Disk) -> Result<(Arc<dyn File>, u64)> {
        let bytes = self.map_io.lock().map_bytes;
        let copy = to.open(MAP, Create::New, Mode::Direct)?;
        copy.set_len(bytes)?;
        Ok((copy, bytes))
    }

    /// Copies some of the first `end` bytes of the map file, from `from` on; returns up to where that is done. Each block is
    /// copied as it was last persisted: it may be written again meanwhile.
    ///
    /// # Errors
    /// `Disk`, of one side or the other; nothing here has changed.
    pub fn copy_map(&self, copy: &dyn File, from: u64, end: u64) -> Result<u64> {
        let buf = AlignedBuf::zeroed(MAP_STEP_BYTES.min(end - from) as usize);
        let to = from + buf.len() as u64;
        let buf = {
            // No block is half written.
            let _io = self.map_io.lock();
            self.map_file.read(from, buf)?
        };
        copy.write(from, buf)?;
        Ok(to)
    }

    /// Makes an empty file for a copy of the data file, and says how long that is now, in units.
    ///
    /// # Errors
    /// The disk's.
    pub fn begin_data_copy(&self, to: &dyn Disk) -> Result<(Arc<dyn File>, u64)> {
        let copy = to.open(DATA, Create::New, Mode::Direct)?;
        Ok((copy, self.space.lock().units()))
    }

    /// Copies some of what is used of the data file in the units `from..end`; returns up to where that is done. Free space
    /// is left out: it takes none there.
    ///
    /// # Errors
    /// `Disk`, of one side or the other; nothing here has changed.
    pub fn copy_data(&self, copy: &dyn File, from: u64, end: u64) -> Result<u64> {
        let mut reads = Vec::new();
        let mut to = from;
        // Nobody cuts the file off before this is read.
        let growth = self.growth.lock();
        {
            let space = self.space.lock();
            let stop = end.min(from + STEP_UNITS);
            while reads.len() < STEP_RUNS && to < stop {
                let Some((start, units)) = space.next_used(to, stop) else {
                    to = space.next_used(stop, end).map_or(end, |(start, _)| start);
                    break;
                };
                let buf = AlignedBuf::zeroed(units as usize * UNIT);
                reads.push(Io::Read { offset: start * UNIT as u64, buf });
                to = start + units;
            }
        }
        let offsets: Vec<u64> = reads.iter().map(Io::offset).collect();
        let bufs = self.data.run(reads)?;
        drop(growth);
        let writes = offsets.into_iter().zip(bufs).map(|(offset, buf)| Io::Write { offset, buf });
        copy.run(writes.collect())?;
        Ok(to)
    }
}

/// Gives a copy of the data file its length, `units`, and makes it durable.
///
/// # Errors
/// `Disk`.
pub fn end_data_copy(copy: &dyn File, units: u64) -> Result<()> {
    let (written, bytes) = (copy.len()?, units * UNIT as u64);
    copy.set_len(bytes)?;
    copy.punch(written, bytes.saturating_sub(written))?;
    copy.sync()?;
    Ok(())
}
