//! What a file in memory holds: blocks that were written, over runs of the blocks that a file
//! beneath has.
//!
//! Invariants: bytes past `len` are zeros; no block at or past it is written or seen; what was
//! written once is never the file's beneath again. So what was read from there holds where it is
//! still seen, however much later that is asked.

use crate::{AlignedBuf, BLOCK, Result};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const BLOCK_BYTES: u64 = BLOCK as u64;

/// Reads a block of the file beneath.
pub(super) type ReadBeneath<'a> = dyn Fn(u64) -> Result<AlignedBuf> + 'a;

pub(super) struct Content {
    len: u64,
    /// By number; each has [`BLOCK`] bytes, not all of them zero when they were written.
    written: BTreeMap<u64, Box<[u8]>>,
    /// Blocks of the file beneath that are seen where nothing is written: the first of each run,
    /// and the one behind its last. Others are zeros.
    seen: BTreeMap<u64, u64>,
    /// Memory of the disk's files.
    memory_bytes: Arc<AtomicU64>,
}

/// Blocks of a file that a stretch of bytes touches.
pub(super) fn blocks_of(offset: u64, bytes: usize) -> Range<u64> {
    offset / BLOCK_BYTES..(offset + bytes as u64).div_ceil(BLOCK_BYTES)
}

impl Content {
    /// That of a file beneath which has so many whole blocks.
    pub fn new(blocks: u64, memory_bytes: Arc<AtomicU64>) -> Content {
        let seen = (blocks > 0).then_some((0, blocks)).into_iter().collect();
        Content { len: blocks * BLOCK_BYTES, written: BTreeMap::new(), seen, memory_bytes }
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    fn is_seen(&self, block: u64) -> bool {
        self.seen.range(..=block).next_back().is_some_and(|(_, &end)| block < end)
    }

    /// Whether there is a block among these that only the file beneath has.
    pub fn needs_beneath(&self, blocks: &Range<u64>) -> bool {
        let before = self.seen.range(..blocks.start).next_back();
        let mut runs = before.into_iter().chain(self.seen.range(blocks.clone()));
        runs.any(|(&start, &end)| {
            let run = start.max(blocks.start)..end.min(blocks.end);
            run.start < run.end
                && (self.written.range(run.clone()).count() as u64) < run.end - run.start
        })
    }

    /// Makes of what the file beneath has at `offset` what is there; `false` if that is past the
    /// end.
    #[must_use]
    pub fn read_over(&self, offset: u64, buf: &mut [u8]) -> bool {
        if offset + buf.len() as u64 > self.len {
            return false;
        }
        for block in blocks_of(offset, buf.len()) {
            let (of_buf, of_block) = overlap(block, offset, buf.len());
            match self.written.get(&block) {
                Some(bytes) => buf[of_buf].copy_from_slice(&bytes[of_block]),
                None if self.is_seen(block) => {}
                None => buf[of_buf].fill(0),
            }
        }
        true
    }

    /// Writes, and makes the file longer if need be.
    ///
    /// # Errors
    /// A block beneath can't be read of which a part is written; what lies before it is written.
    pub fn write(&mut self, offset: u64, bytes: &[u8], beneath: &ReadBeneath<'_>) -> Result<()> {
        for block in blocks_of(offset, bytes.len()) {
            let (of_bytes, of_block) = overlap(block, offset, bytes.len());
            let part = &bytes[of_bytes];
            let is_whole = part.len() == BLOCK;
            if is_whole && part.iter().all(|byte| *byte == 0) {
                self.punch(block..block + 1);
            } else if is_whole && !self.written.contains_key(&block) {
                self.keep(block, part.into());
            } else {
                self.written_block(block, beneath)?[of_block].copy_from_slice(part);
            }
        }
        if !bytes.is_empty() {
            self.len = self.len.max(offset + bytes.len() as u64);
        }
        Ok(())
    }

    fn keep(&mut self, block: u64, bytes: Box<[u8]>) {
        assert_eq!(bytes.len(), BLOCK);
        let before = self.written.insert(block, bytes);
        assert!(before.is_none(), "block {block} is kept twice");
        self.memory_bytes.fetch_add(BLOCK_BYTES, Ordering::Relaxed);
    }

    /// A block to be changed.
    fn written_block(&mut self, block: u64, beneath: &ReadBeneath<'_>) -> Result<&mut [u8]> {
        if !self.written.contains_key(&block) {
            let bytes: Box<[u8]> = match self.is_seen(block) {
                true => beneath(block)?[..].into(),
                false => [0; BLOCK].into(),
            };
            self.keep(block, bytes);
        }
        Ok(self.written.get_mut(&block).expect("it was just put there"))
    }

    /// Sets the length.
    ///
    /// # Errors
    /// The block beneath that it ends in can't be read; nothing changed.
    pub fn set_len(&mut self, bytes: u64, beneath: &ReadBeneath<'_>) -> Result<()> {
        if bytes < self.len {
            let (last, kept) = (bytes / BLOCK_BYTES, (bytes % BLOCK_BYTES) as usize);
            if kept > 0 && (self.is_seen(last) || self.written.contains_key(&last)) {
                self.written_block(last, beneath)?[kept..].fill(0);
            }
            self.punch(bytes.div_ceil(BLOCK_BYTES)..u64::MAX);
        }
        self.len = bytes;
        Ok(())
    }

    /// Makes zeros of these blocks, which take no memory.
    pub fn punch(&mut self, blocks: Range<u64>) {
        while let Some((&block, _)) = self.written.range(blocks.clone()).next() {
            self.written.remove(&block);
            self.memory_bytes.fetch_sub(BLOCK_BYTES, Ordering::Relaxed);
        }
        let Range { start: from, end: to } = blocks;
        let before = self.seen.range(..from).next_back().map(|(&start, &end)| (start, end));
        if let Some((start, end)) = before.filter(|(_, end)| *end > from) {
            self.seen.insert(start, from);
            self.see(to, end);
        }
        while let Some((&start, &end)) = self.seen.range(from..to).next() {
            self.seen.remove(&start);
            self.see(to, end);
        }
    }

    /// Puts back what is left of a run, from `start` on.
    fn see(&mut self, start: u64, end: u64) {
        if start < end {
            self.seen.insert(start, end);
        }
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        let bytes = self.written.len() as u64 * BLOCK_BYTES;
        self.memory_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Where a block and a stretch of bytes meet: in the stretch, and in the block.
fn overlap(block: u64, offset: u64, bytes: usize) -> (Range<usize>, Range<usize>) {
    let start = offset.max(block * BLOCK_BYTES);
    let end = (offset + bytes as u64).min((block + 1) * BLOCK_BYTES);
    let within = |base: u64| (start - base) as usize..(end - base) as usize;
    (within(offset), within(block * BLOCK_BYTES))
}
