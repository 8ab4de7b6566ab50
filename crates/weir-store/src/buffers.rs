//! Buffers kept from one batch of writes for the next: fresh memory costs a page fault every 4 KiB.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use weir_os::{AlignedBuf, BLOCK};

/// Bytes kept at most.
const KEPT: usize = 6 << 20;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Buffers(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    by_capacity: BTreeMap<usize, Vec<AlignedBuf>>,
    bytes: usize,
}

/// Buffers have a power of two as capacity, so that they fit again.
fn capacity(bytes: usize) -> usize {
    bytes.max(BLOCK).next_power_of_two()
}

impl Buffers {
    /// A buffer of `bytes`; what they are is left from its last use.
    pub fn take(&self, bytes: usize) -> AlignedBuf {
        let capacity = capacity(bytes);
        let mut buf = self.kept(capacity).unwrap_or_else(|| AlignedBuf::zeroed(capacity));
        buf.set_len(bytes);
        buf
    }

    fn kept(&self, capacity: usize) -> Option<AlignedBuf> {
        let mut kept = self.0.lock();
        let buf = kept.by_capacity.get_mut(&capacity)?.pop()?;
        kept.bytes -= capacity;
        Some(buf)
    }

    /// Keeps buffers for later, as far as there is room.
    pub fn keep(&self, buffers: impl IntoIterator<Item = AlignedBuf>) {
        let mut kept = self.0.lock();
        for buf in buffers {
            let bytes = buf.capacity();
            if kept.bytes + bytes <= KEPT && bytes == capacity(bytes) {
                kept.bytes += bytes;
                kept.by_capacity.entry(bytes).or_default().push(buf);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_used_again() {
        let buffers = Buffers::default();
        let mut buf = buffers.take(3 * BLOCK);
        assert_eq!((buf.len(), buf.capacity()), (3 * BLOCK, 4 * BLOCK));
        buf.fill(7);
        buffers.keep([buf]);
        assert!(buffers.take(2 * BLOCK).iter().all(|&byte| byte == 0), "too large for that");
        assert_eq!(buffers.take(4 * BLOCK)[..3 * BLOCK], [7; 3 * BLOCK]);
        assert!(buffers.take(4 * BLOCK).iter().all(|&byte| byte == 0), "it was taken");
    }

    #[test]
    fn no_more_is_kept_than_a_few_megabytes() {
        let buffers = Buffers::default();
        buffers.keep((0..100).map(|_| AlignedBuf::zeroed(1 << 20)));
        assert_eq!(buffers.0.lock().bytes, KEPT);
        buffers.keep([AlignedBuf::zeroed(BLOCK)]);
        assert_eq!(buffers.0.lock().bytes, KEPT);
        drop(buffers.take(1 << 20));
        assert_eq!(buffers.0.lock().bytes, KEPT - (1 << 20));
    }
}
