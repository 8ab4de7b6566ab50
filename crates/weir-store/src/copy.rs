//! A copy of the store as it is at one moment, taken while it goes on.
//!
//! Images are never written over, so all that is needed for it is that those which are current at
//! that moment stay where they are until they are copied: [`Store::hold_space`]. The map file is
//! copied first ([`Store::copy_map`]); what has changed since a block was written the log tells, as
//! after a crash. Then the data file is copied place by place ([`Store::copy_data`]). Images of
//! later come along where they are found: nothing in the copy names them.
//!
//! What is current is looked at on its way, so that a copy has no damage that a reader would have
//! found: blocks of the map, and images that were there when the copy began ([`Images`]).

use crate::block::{self, Found, SLOT};
use crate::error::{Result, StoreError};
use crate::extent::{Entry, UNIT, UNITS_MAX};
use crate::image;
use crate::store::{DATA, MAP, Store};
use std::sync::Arc;
use weir_os::{AlignedBuf, Create, Disk, File, Io, Mode};
use weir_page::PAGE_SIZE;

/// What is copied of the data file in one step.
const STEP_UNITS: u64 = (4 << 20) / UNIT as u64;
/// Operations in flight.
const STEP_RUNS: usize = 64;
const MAP_STEP_BYTES: u64 = 4 << 20;

/// Where images begin that have not been found to be what the map says: a bit per unit.
pub struct Images(Vec<u64>);

impl Images {
    fn pass(&mut self, unit: u64) {
        self.0[(unit / 64) as usize] &= !(1 << (unit % 64));
    }

    fn begins(&self, unit: u64) -> bool {
        self.0.get((unit / 64) as usize).is_some_and(|word| word >> (unit % 64) & 1 == 1)
    }

    /// Where a step that may come to `most` ends, so that no image is cut: one that lies across it
    /// begins close before it.
    fn whole_until(&self, from: u64, most: u64) -> u64 {
        let close = (most.saturating_sub(u64::from(UNITS_MAX) - 1)).max(from + 1);
        (close..most).rev().find(|&unit| self.begins(unit)).unwrap_or(most)
    }
}

/// A copy of the data file that is being made.
pub struct DataCopy {
    file: Arc<dyn File>,
    /// How long it is, in units.
    units: u64,
    images: Images,
}

impl DataCopy {
    /// How long the file is, in units.
    pub fn units(&self) -> u64 {
        self.units
    }
}

impl Store {
    /// Extents that are given up from now on keep what is stored there, until [`Store::let_go`]. If
    /// the device has no room left, they are taken all the same, and [`Store::check_held`] fails
    /// from then on.
    ///
    /// # Panics
    /// If they are held already.
    pub fn hold_space(&self) {
        self.assert_recovered();
        self.space.lock().hold();
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

    /// Up to which version blocks of the map file are persisted.
    pub fn map_version(&self) -> u64 {
        self.map_io.lock().synced_version
    }

    /// Copies some of the first `end` bytes of the map file, from `from` on; returns up to where
    /// that is done. Each block is copied as it was last persisted: it may be written again
    /// meanwhile.
    ///
    /// # Errors
    /// `Corrupt` if one is damaged; `Disk`, of one side or the other; nothing here has changed.
    pub fn copy_map(&self, copy: &dyn File, from: u64, end: u64) -> Result<u64> {
        let buf = AlignedBuf::zeroed(MAP_STEP_BYTES.min(end - from) as usize);
        let to = from + buf.len() as u64;
        let buf = {
            // No block is half written.
            let _io = self.map_io.lock();
            let buf = self.map_file.read(from, buf)?;
            self.look_at_blocks(from, &buf)?;
            buf
        };
        copy.write(from, buf)?;
        Ok(to)
    }

    /// The images that are current now, for [`Store::begin_data_copy`]. Space is held.
    pub fn images(&self) -> Images {
        let mut begins = Vec::new();
        for (_, entry) in self.map.stored() {
            let unit = entry.extent().expect("a stored page has an extent").start_unit;
            let word = (unit / 64) as usize;
            if begins.len() <= word {
                begins.resize(word + 1, 0);
            }
            begins[word] |= 1 << (unit % 64);
        }
        Images(begins)
    }

    /// Makes an empty file for a copy of the data file as it is from now on; `images` were current
    /// before.
    ///
    /// # Errors
    /// The disk's.
    pub fn begin_data_copy(&self, to: &dyn Disk, images: Images) -> Result<DataCopy> {
        let file = to.open(DATA, Create::New, Mode::Direct)?;
        Ok(DataCopy { file, units: self.space.lock().units(), images })
    }

    /// Copies some of what is used of the data file, from unit `from` on; returns up to where that
    /// is done. Free space is left out: it takes none there.
    ///
    /// # Errors
    /// `Corrupt` if an image is damaged; `Disk`, of one side or the other; nothing here has
    /// changed.
    pub fn copy_data(&self, copy: &mut DataCopy, from: u64) -> Result<u64> {
        let mut reads = Vec::new();
        let (mut to, end) = (from, copy.units);
        // Nobody cuts the file off before this is read.
        let growth = self.growth.lock();
        {
            let space = self.space.lock();
            let stop = match from + STEP_UNITS {
                most if most < end => copy.images.whole_until(from, most),
                _ => end,
            };
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
        for (&offset, buf) in offsets.iter().zip(&bufs) {
            self.look_at(&mut copy.images, offset / UNIT as u64, buf)?;
        }
        let writes = offsets.into_iter().zip(bufs).map(|(offset, buf)| Io::Write { offset, buf });
        copy.file.run(writes.collect())?;
        Ok(to)
    }

    /// Gives a copy of the data file its length, and makes it durable.
    ///
    /// # Errors
    /// As [`Store::copy_data`].
    pub fn finish_data_copy(&self, copy: &DataCopy) -> Result<()> {
        let mut out = AlignedBuf::zeroed(PAGE_SIZE);
        // What was read there is whole, but no image of this page, or it has come there since.
        let is_left =
            |entry: Entry| entry.extent().is_some_and(|at| copy.images.begins(at.start_unit));
        let left = self.map.stored().filter(|&(_, entry)| is_left(entry));
        left.map(|(page, _)| page).try_for_each(|page| match self.read_page(page, &mut out) {
            Err(StoreError::NotStored { .. }) => Ok(()),
            read => read,
        })?;
        let (written, bytes) = (copy.file.len()?, copy.units * UNIT as u64);
        copy.file.set_len(bytes)?;
        copy.file.punch(written, bytes.saturating_sub(written))?;
        copy.file.sync()?;
        Ok(())
    }

    /// Looks at the blocks of the map in what was read from `offset` on, as they were last
    /// persisted.
    fn look_at_blocks(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let first = (offset / (2 * SLOT as u64)) as u32;
        let table = self.blocks.lock();
        for (block, slots) in (first..).zip(bytes.chunks(2 * SLOT)) {
            let version = table.version(block);
            if version == 0 {
                continue;
            }
            let parity = (version % 2) as usize;
            let found = match slots.chunks_exact(SLOT).nth(parity) {
                Some(slot) => block::inspect(slot, block, parity as u64, self.database_id),
                None => Found::Empty,
            };
            let (what, expected, found) = match found {
                Found::Valid { version: found, .. } if found == version => continue,
                Found::Valid { version: found, .. } => {
                    ("map block version", version.to_string(), found.to_string())
                }
                Found::Broken(what, expected, found) => (what, expected, found),
                Found::Empty => ("map block", format!("version {version}"), "nothing".into()),
                Found::Foreign(id) => {
                    let wanted = format!("an id ending in {:08x}", self.database_id as u32);
                    ("map block of another database", wanted, format!("{id:08x}"))
                }
            };
            return Err(self.corrupt_block(block, parity, what, expected, found));
        }
        Ok(())
    }

    /// Looks at the images in what was read from unit `first` on.
    fn look_at(&self, images: &mut Images, first: u64, bytes: &[u8]) -> Result<()> {
        for (at, unit) in (0..bytes.len()).step_by(UNIT).zip(first..) {
            if images.begins(unit) && self.look_at_image(unit, &bytes[at..])? {
                images.pass(unit);
            }
        }
        Ok(())
    }

    /// Looks at the image at `unit`, with which `bytes` begin: whether that is what the map says,
    /// or nothing that anybody needs.
    fn look_at_image(&self, unit: u64, bytes: &[u8]) -> Result<bool> {
        let is_here = |entry: Entry| entry.extent().is_some_and(|at| at.start_unit == unit);
        let said = image::page_of(bytes);
        let entry = Some(self.map.entry(said)).filter(|&entry| is_here(entry));
        let offset = unit * UNIT as u64;
        let stored = &bytes[..bytes.len().min(image::bytes_of(bytes))];
        let Err(error) = image::verify(stored, &self.expected(offset, said, entry)) else {
            return Ok(entry.is_some());
        };
        // What is not held any more may have been written over.
        self.check_held()?;
        // The image can't tell whose it is.
        Err(match self.map.stored().find(|&(_, entry)| is_here(entry)) {
            Some((page, _)) => error.of(page),
            None => error,
        })
    }
}
