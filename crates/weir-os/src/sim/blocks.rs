//! Sparse map of shared 4 KiB blocks: cheap to clone, copied only where it is changed.

use crate::BLOCK;
use std::array;
use std::sync::Arc;

/// Content of one block, exactly [`BLOCK`] bytes, never changed once made.
pub(super) type Block = Arc<[u8]>;

/// Blocks per chunk: cloning a map costs one reference count per 256 KiB of file.
const CHUNK: u64 = 64;

type Chunk = [Option<Block>; CHUNK as usize];

/// Blocks of one file by index; an absent block reads as zeros.
#[derive(Clone, Default)]
pub(super) struct Blocks {
    chunks: Vec<Option<Arc<Chunk>>>,
}

impl Blocks {
    pub(super) fn get(&self, index: u64) -> Option<&Block> {
        self.chunks.get((index / CHUNK) as usize)?.as_ref()?[(index % CHUNK) as usize].as_ref()
    }

    /// Stores a block and returns what was there.
    pub(super) fn replace(&mut self, index: u64, block: Option<Block>) -> Option<Block> {
        let at = (index / CHUNK) as usize;
        if at >= self.chunks.len() {
            block.as_ref()?;
            self.chunks.resize(at + 1, None);
        }
        let slot = &mut self.chunks[at];
        if slot.is_none() && block.is_none() {
            return None;
        }
        let chunk = slot.get_or_insert_with(|| Arc::new(array::from_fn(|_| None)));
        std::mem::replace(&mut Arc::make_mut(chunk)[(index % CHUNK) as usize], block)
    }

    /// Indices of present blocks from `from` up to and without `to`.
    pub(super) fn present(&self, from: u64, to: u64) -> Vec<u64> {
        let mut found = Vec::new();
        let end = to.min(self.chunks.len() as u64 * CHUNK);
        let mut index = from;
        while index < end {
            match &self.chunks[(index / CHUNK) as usize] {
                None => index = (index / CHUNK + 1) * CHUNK,
                Some(chunk) => {
                    if chunk[(index % CHUNK) as usize].is_some() {
                        found.push(index);
                    }
                    index += 1;
                }
            }
        }
        found
    }
}

/// The block's bytes, zeros when absent.
pub(super) fn bytes_of(block: Option<&Block>) -> &[u8] {
    static ZEROS: [u8; BLOCK] = [0; BLOCK];
    block.map_or(&ZEROS[..], |b| &b[..])
}
