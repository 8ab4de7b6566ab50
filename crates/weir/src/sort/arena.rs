//! Records in memory, and their order.

use std::mem;

/// Lengths of key and value in front of a record.
pub(super) const HEADER: usize = 8;
const BYTES_MIN: usize = 64 << 10;

/// First bytes of a key as a number that compares like them.
pub(super) fn key_head(key: &[u8]) -> u64 {
    let mut head = [0; 8];
    let len = key.len().min(8);
    head[..len].copy_from_slice(&key[..len]);
    u64::from_be_bytes(head)
}

#[derive(Clone, Copy)]
struct Place {
    head: u64,
    offset: usize,
}

/// Records in memory. Its two allocations together stay within the budget.
pub(super) struct Arena {
    bytes: Vec<u8>,
    index: Vec<Place>,
    budget: usize,
}

impl Arena {
    pub(super) fn new(budget: usize) -> Arena {
        Arena { bytes: Vec::new(), index: Vec::new(), budget }
    }

    /// An empty one with the same budget.
    pub(super) fn another(&self) -> Arena {
        Arena::new(self.budget)
    }

    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Empties the arena. An allocation that stayed half unused is given back to the other.
    pub(super) fn clear(&mut self) {
        let half_used = self.index.len() >= self.index.capacity() / 2
            && self.bytes.len() >= self.bytes.capacity() / 2;
        if half_used {
            self.index.clear();
            self.bytes.clear();
        } else {
            *self = Arena::new(self.budget);
        }
    }

    #[cfg(test)]
    pub(super) fn budget(&self) -> usize {
        self.budget
    }

    pub(super) fn capacity_bytes(&self) -> usize {
        self.bytes.capacity() + self.index.capacity() * mem::size_of::<Place>()
    }

    /// Makes room for one more record of `bytes`, its header among them; `false` if the budget does
    /// not allow it.
    pub(super) fn make_room(&mut self, bytes: usize) -> bool {
        // Small steps, so that neither allocation takes what the other will need.
        let step = |capacity: usize, needed: usize, least: usize| {
            (capacity + capacity / 8).max(needed).max(least)
        };
        if self.index.len() == self.index.capacity() {
            let size = mem::size_of::<Place>();
            let free = self.budget.saturating_sub(self.capacity_bytes()) / size;
            let wanted = step(self.index.capacity(), self.index.len() + 1, BYTES_MIN / size);
            let target = wanted.min(self.index.capacity() + free);
            self.index.reserve_exact(target - self.index.len());
        }
        if self.bytes.capacity() - self.bytes.len() < bytes {
            let free = self.budget.saturating_sub(self.capacity_bytes());
            let wanted = step(self.bytes.capacity(), self.bytes.len() + bytes, BYTES_MIN);
            let target = wanted.min(self.bytes.capacity() + free);
            self.bytes.reserve_exact(target - self.bytes.len());
        }
        if self.is_empty() && self.bytes.capacity() < bytes {
            // The index of small records has left too little for a large one: share anew.
            *self = Arena::new(self.budget);
            return self.make_room(bytes);
        }
        self.index.len() < self.index.capacity()
            && self.bytes.capacity() - self.bytes.len() >= bytes
    }

    /// Adds a record, for which there is room.
    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) {
        let len = |bytes: &[u8]| {
            u32::try_from(bytes.len()).expect("a record is far below 4 GiB").to_le_bytes()
        };
        self.index.push(Place { head: key_head(key), offset: self.bytes.len() });
        self.bytes.extend_from_slice(&len(key));
        self.bytes.extend_from_slice(&len(value));
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
    }

    pub(super) fn sort(&mut self) {
        let bytes = &self.bytes;
        self.index.sort_unstable_by(|a, b| {
            let keys = || record_at(bytes, a.offset).0.cmp(record_at(bytes, b.offset).0);
            a.head.cmp(&b.head).then_with(keys)
        });
    }

    /// Tells the CPU that a record will be asked for, if there is that one.
    pub(super) fn prefetch(&self, at: usize) {
        if let Some(place) = self.index.get(at) {
            weir_page::prefetch(&self.bytes[place.offset]);
        }
    }

    /// Key and value of a record.
    pub(super) fn record(&self, at: usize) -> (&[u8], &[u8]) {
        record_at(&self.bytes, self.index[at].offset)
    }
}

fn record_at(bytes: &[u8], offset: usize) -> (&[u8], &[u8]) {
    let len = |at: usize| {
        let word = bytes[at..at + 4].try_into().expect("four bytes");
        u32::from_le_bytes(word) as usize
    };
    let (key_len, value_len) = (len(offset), len(offset + 4));
    let record = &bytes[offset + HEADER..][..key_len + value_len];
    record.split_at(key_len)
}
