//! One simulated file: what reads see now, and what may be found after a power cut.
//!
//! `blocks` and `len` are the present state. Every block changed since it was last durable has an
//! entry in `pending`: its durable content and the contents it had since, each with a mask of the
//! sectors that changed. Contents are whole blocks shared with the present state, so a write of a
//! block costs one allocation and one copy, whatever is pending.
//!
//! Invariants: bytes past `len` are zero; a block without an entry in `pending` is durable as it
//! is; an entry has at most [`VERSIONS_MAX`] versions, the last equal to the present content.

use super::blocks::{Block, Blocks, bytes_of};
use super::crash::{Chooser, SECTOR};
use crate::BLOCK;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Sectors of one block, the bits of a version's mask.
pub(super) const SECTORS: usize = BLOCK / SECTOR;

/// Versions kept of one block; beyond it a version is merged into its successor.
const VERSIONS_MAX: usize = 8;

/// Unsynced lengths kept of one file.
const LENS_MAX: usize = 16;

/// Content of a block after one operation.
#[derive(Clone)]
pub(super) struct Version {
    /// Number of the operation.
    pub(super) seq: u64,
    /// Sectors written since the previous version.
    pub(super) mask: u8,
    /// A sync failed since: no later sync makes it durable.
    doubtful: bool,
    block: Option<Block>,
}

#[derive(Clone)]
struct Pending {
    durable: Option<Block>,
    versions: Vec<Version>,
}

/// A length that is not durable yet.
#[derive(Clone)]
pub(super) struct Length {
    pub(super) seq: u64,
    pub(super) len: u64,
    doubtful: bool,
}

/// One simulated file.
#[derive(Clone, Default)]
pub(super) struct Inode {
    /// Handles that are open.
    pub(super) open: usize,
    len: u64,
    blocks: Blocks,
    pending: BTreeMap<u64, Pending>,
    durable_len: u64,
    lens: Vec<Length>,
    /// Blocks given back by `punch`, for the space account only.
    holes: BTreeSet<u64>,
    /// Blocks that are not in memory.
    forgotten: BTreeSet<u64>,
}

/// A piece of a write that lies within one block.
struct Piece<'a> {
    index: u64,
    start: usize,
    bytes: &'a [u8],
}

fn pieces(offset: u64, bytes: &[u8]) -> impl Iterator<Item = Piece<'_>> {
    let mut offset = offset;
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let start = (offset % BLOCK as u64) as usize;
        let (bytes, tail) = rest.split_at(rest.len().min(BLOCK - start));
        let piece = Piece { index: offset / BLOCK as u64, start, bytes };
        offset += bytes.len() as u64;
        rest = tail;
        Some(piece)
    })
}

fn sector_range(sector: usize) -> std::ops::Range<usize> {
    sector * SECTOR..(sector + 1) * SECTOR
}

impl Piece<'_> {
    fn mask(&self) -> u8 {
        let first = self.start / SECTOR;
        let last = (self.start + self.bytes.len() - 1) / SECTOR;
        (first..=last).fold(0, |mask, sector| mask | 1 << sector)
    }

    fn applied_to(&self, old: Option<&Block>) -> Block {
        if self.bytes.len() == BLOCK {
            return Block::from(self.bytes);
        }
        let mut image = [0; BLOCK];
        image.copy_from_slice(bytes_of(old));
        image[self.start..self.start + self.bytes.len()].copy_from_slice(self.bytes);
        Block::from(&image[..])
    }
}

/// Sectors of `mask` from `new`, the others from `old`.
fn compose(old: Option<&Block>, new: Option<&Block>, mask: u8) -> Option<Block> {
    match mask {
        0 => return old.cloned(),
        u8::MAX => return new.cloned(),
        _ => {}
    }
    let mut image = [0; BLOCK];
    for sector in 0..SECTORS {
        let from = if mask & (1 << sector) == 0 { old } else { new };
        image[sector_range(sector)].copy_from_slice(&bytes_of(from)[sector_range(sector)]);
    }
    Some(Block::from(&image[..]))
}

impl Inode {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Blocks that count as allocated.
    pub(super) fn allocated_blocks(&self) -> u64 {
        self.len.div_ceil(BLOCK as u64) - self.holes.len() as u64
    }

    /// Blocks that a write would have to allocate.
    pub(super) fn blocks_needed(&self, offset: u64, bytes: u64) -> u64 {
        let end = offset + bytes;
        let grown = end.div_ceil(BLOCK as u64).saturating_sub(self.len.div_ceil(BLOCK as u64));
        let range = offset / BLOCK as u64..end.div_ceil(BLOCK as u64);
        grown + self.holes.range(range).count() as u64
    }

    /// Copies bytes out; `false` when the range ends past the file.
    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> bool {
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.len) {
            return false;
        }
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let start = (at % BLOCK as u64) as usize;
            let count = (BLOCK - start).min(buf.len() - done);
            let block = bytes_of(self.blocks.get(at / BLOCK as u64));
            buf[done..done + count].copy_from_slice(&block[start..start + count]);
            done += count;
        }
        true
    }

    pub(super) fn write(&mut self, seq: u64, offset: u64, bytes: &[u8]) {
        for piece in pieces(offset, bytes) {
            let block = piece.applied_to(self.blocks.get(piece.index));
            self.holes.remove(&piece.index);
            self.store(seq, piece.index, Some(block), piece.mask());
        }
        self.grow(seq, offset + bytes.len() as u64);
    }

    /// A write of which each sector arrives or not.
    pub(super) fn write_torn(
        &mut self,
        seq: u64,
        offset: u64,
        bytes: &[u8],
        rng: &mut fastrand::Rng,
    ) {
        let mut end = self.len;
        for piece in pieces(offset, bytes) {
            let mask = piece.mask() & rng.u8(..);
            if mask == 0 {
                continue;
            }
            let old = self.blocks.get(piece.index);
            let block = compose(old, Some(&piece.applied_to(old)), mask);
            self.holes.remove(&piece.index);
            self.store(seq, piece.index, block, mask);
            end = end.max(piece.index * BLOCK as u64 + (piece.start + piece.bytes.len()) as u64);
        }
        self.grow(seq, end);
    }

    pub(super) fn set_len(&mut self, seq: u64, len: u64) {
        if len < self.len {
            self.zero_tail(seq, len);
            self.holes.split_off(&len.div_ceil(BLOCK as u64));
        }
        if len != self.len {
            self.note_len(seq, len);
        }
    }

    /// Zeroes whole blocks and gives back their space.
    pub(super) fn punch(&mut self, seq: u64, offset: u64, bytes: u64) {
        let first = offset / BLOCK as u64;
        let end = (offset + bytes).min(self.len).div_ceil(BLOCK as u64);
        for index in self.blocks.present(first, end) {
            self.store(seq, index, None, u8::MAX);
        }
        self.holes.extend(first..end);
    }

    /// Makes the present state durable, except for what a failed sync left in doubt.
    pub(super) fn sync(&mut self) {
        let blocks = &self.blocks;
        self.pending.retain(|index, pending| {
            let clean = pending.versions.iter().filter(|v| !v.doubtful);
            let clean = clean.fold(0, |mask, version| mask | version.mask);
            pending.durable = compose(pending.durable.as_ref(), blocks.get(*index), clean);
            pending.versions.retain_mut(|version| {
                version.mask &= !clean;
                version.doubtful && version.mask != 0
            });
            !pending.versions.is_empty()
        });
        if self.lens.last().is_some_and(|last| !last.doubtful) {
            self.lens.clear();
            self.durable_len = self.len;
        }
    }

    /// A sync that failed: what is not durable now may survive or not, whatever follows.
    pub(super) fn fail_sync(&mut self) {
        let pending = self.pending.values_mut();
        pending.flat_map(|p| &mut p.versions).for_each(|version| version.doubtful = true);
        self.lens.iter_mut().for_each(|length| length.doubtful = true);
    }

    /// Notes that of these blocks those that are durable are not in memory any more.
    pub(super) fn forget(&mut self, blocks: Range<u64>) {
        let durable = blocks.filter(|block| !self.pending.contains_key(block));
        self.forgotten.extend(durable);
    }

    /// Blocks that are not in memory, since [`Inode::forget`], and were not written again.
    pub(super) fn forgotten(&self) -> Vec<u64> {
        self.forgotten.iter().copied().collect()
    }

    /// Numbers of the operations whose effect is not durable.
    pub(super) fn unsynced(&self, into: &mut BTreeSet<u64>) {
        into.extend(self.pending.values().flat_map(|p| &p.versions).map(|v| v.seq));
        into.extend(self.lens.iter().map(|l| l.seq));
    }

    /// The file as found after a power cut.
    pub(super) fn crashed(&self, chooser: &mut Chooser<'_>) -> Inode {
        let len = chooser.length(self.durable_len, self.len, &self.lens);
        let mut blocks = self.blocks.clone();
        for (index, pending) in &self.pending {
            if *index * (BLOCK as u64) < len {
                blocks.replace(*index, pending.crashed(chooser));
            }
        }
        let holes = self.holes.range(..len.div_ceil(BLOCK as u64)).copied().collect();
        let mut found =
            Inode { len: self.len.max(len), durable_len: len, blocks, holes, ..Inode::default() };
        found.zero_tail(0, len);
        found.len = len;
        found.pending.clear();
        found
    }

    /// Flips one bit in every state of a block, present and durable.
    pub(super) fn rot(&mut self, offset: u64, bit: u8) {
        let index = offset / BLOCK as u64;
        let flipped = |block: &mut Option<Block>| {
            let mut image = bytes_of(block.as_ref()).to_vec();
            image[(offset % BLOCK as u64) as usize] ^= 1 << (bit % 8);
            *block = Some(Block::from(image));
        };
        let mut block = self.blocks.get(index).cloned();
        flipped(&mut block);
        self.blocks.replace(index, block);
        if let Some(pending) = self.pending.get_mut(&index) {
            flipped(&mut pending.durable);
            pending.versions.iter_mut().for_each(|version| flipped(&mut version.block));
        }
    }

    /// Indices of the blocks that hold written bytes.
    pub(super) fn written_blocks(&self) -> Vec<u64> {
        self.blocks.present(0, self.len.div_ceil(BLOCK as u64))
    }

    fn zero_tail(&mut self, seq: u64, from: u64) {
        let index = from / BLOCK as u64;
        let start = (from % BLOCK as u64) as usize;
        if start != 0 && self.blocks.get(index).is_some() {
            let zeros = [0; BLOCK];
            let piece = Piece { index, start, bytes: &zeros[start..] };
            let block = piece.applied_to(self.blocks.get(index));
            self.store(seq, index, Some(block), piece.mask());
        }
        for index in self.blocks.present(from.div_ceil(BLOCK as u64), u64::MAX) {
            self.store(seq, index, None, u8::MAX);
        }
    }

    fn store(&mut self, seq: u64, index: u64, block: Option<Block>, mask: u8) {
        let old = self.blocks.replace(index, block.clone());
        self.forgotten.remove(&index);
        let pending = self
            .pending
            .entry(index)
            .or_insert_with(|| Pending { durable: old, versions: Vec::with_capacity(1) });
        pending.versions.push(Version { seq, mask, doubtful: false, block });
        pending.limit(seq);
    }

    fn grow(&mut self, seq: u64, len: u64) {
        if len > self.len {
            self.note_len(seq, len);
        }
    }

    fn note_len(&mut self, seq: u64, len: u64) {
        self.len = len;
        self.lens.push(Length { seq, len, doubtful: false });
        if self.lens.len() > LENS_MAX {
            self.lens.remove(seq as usize % (LENS_MAX - 1));
        }
    }
}

impl Pending {
    fn limit(&mut self, seq: u64) {
        if self.versions.len() <= VERSIONS_MAX {
            return;
        }
        let first = seq as usize % VERSIONS_MAX;
        let merged = (0..VERSIONS_MAX)
            .map(|i| (first + i) % VERSIONS_MAX)
            .find(|&i| self.versions[i].doubtful == self.versions[i + 1].doubtful)
            .expect("more versions than changes of doubt");
        let mask = self.versions.remove(merged).mask;
        self.versions[merged].mask |= mask;
    }

    fn crashed(&self, chooser: &mut Chooser<'_>) -> Option<Block> {
        let mut chosen = [None; SECTORS];
        for (sector, choice) in chosen.iter_mut().enumerate() {
            *choice = chooser.version(sector, &self.versions);
        }
        let content = |choice: Option<usize>| match choice {
            None => self.durable.as_ref(),
            Some(version) => self.versions[version].block.as_ref(),
        };
        if chosen.iter().all(|choice| *choice == chosen[0]) {
            return content(chosen[0]).cloned();
        }
        let mut image = [0; BLOCK];
        for (sector, choice) in chosen.iter().enumerate() {
            let range = sector_range(sector);
            image[range.clone()].copy_from_slice(&bytes_of(content(*choice))[range]);
        }
        Some(Block::from(&image[..]))
    }
}
