//! What the model tests share: keys that are unpleasant in several ways, and entries.
#![allow(dead_code)]

use fastrand::Rng;
use weir_page::node::{MAX_INLINE, MAX_KEY};
use weir_page::{Entry, Flags, PageId, TxnId, UndoPtr, Version};

/// A leaf entry's state, owned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    pub flags: Flags,
    pub version: Option<Version>,
    pub value: Vec<u8>,
}

impl State {
    pub fn entry(&self) -> Entry<'_> {
        Entry { flags: self.flags, version: self.version, value: &self.value }
    }

    pub fn of(e: Entry<'_>) -> State {
        State { flags: e.flags, version: e.version, value: e.value.to_vec() }
    }
}

/// How long keys and values of a round are.
#[derive(Debug, Clone, Copy)]
pub enum Sizes {
    Tiny,
    Usual,
    Huge,
    Mixed,
}

impl Sizes {
    pub fn random(rng: &mut Rng) -> Sizes {
        [Sizes::Tiny, Sizes::Usual, Sizes::Huge, Sizes::Mixed][rng.usize(0..4)]
    }

    fn len(self, rng: &mut Rng) -> usize {
        match self {
            Sizes::Tiny => rng.usize(0..6),
            Sizes::Usual => rng.usize(0..60),
            Sizes::Huge => rng.usize(1000..=MAX_KEY),
            Sizes::Mixed => match rng.u8(0..8) {
                0 => MAX_KEY,
                1 => rng.usize(0..=MAX_KEY),
                _ => rng.usize(0..30),
            },
        }
    }
}

/// A key: few distinct bytes, often a long run of one of them, often trailing zeros.
pub fn random_key(rng: &mut Rng, sizes: Sizes) -> Vec<u8> {
    let len = sizes.len(rng);
    let shared = if rng.bool() { rng.usize(0..=len) } else { len.saturating_sub(3) };
    let zeros = if rng.u8(0..4) == 0 { rng.usize(0..6) } else { 0 };
    let mut key = vec![b'p'; shared];
    key.resize_with(len, || if rng.bool() { rng.u8(0..3) } else { rng.u8(..) });
    key.extend_from_slice(&[0; 6][..zeros]);
    key.truncate(MAX_KEY);
    key
}

pub fn random_version(rng: &mut Rng) -> Option<Version> {
    rng.bool().then(|| Version {
        txn: TxnId(rng.u64(1..100)),
        undo: UndoPtr { page: PageId(rng.u32(..)), offset: rng.u16(..) },
    })
}

pub fn random_state(rng: &mut Rng, key_len: usize, sizes: Sizes) -> State {
    let most = MAX_INLINE - key_len;
    let len = match rng.u8(0..8) {
        0 => most,
        1 => 0,
        _ => sizes.len(rng).min(most),
    };
    let flags = Flags { deleted: rng.u8(0..4) == 0, overflow: rng.u8(0..8) == 0 };
    let byte = rng.u8(..);
    State { flags, version: random_version(rng), value: vec![byte; len] }
}
