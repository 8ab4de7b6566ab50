//! What the model tests share: keys that are unpleasant in several ways, and entries.
#![allow(dead_code)]

use fastrand::Rng;
use weir_page::node::{self, MAX_INLINE, MAX_KEY};
use weir_page::{Entry, Flags, Page, PageId, TxnId, UndoPtr, Version};

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
    /// Keys made of columns whose upper bytes are mostly the same.
    Columns,
}

impl Sizes {
    pub fn random(rng: &mut Rng) -> Sizes {
        use Sizes::*;
        [Tiny, Usual, Huge, Mixed, Columns, Columns][rng.usize(0..6)]
    }

    fn len(self, rng: &mut Rng) -> usize {
        match self {
            Sizes::Tiny => rng.usize(0..6),
            Sizes::Usual => rng.usize(0..60),
            Sizes::Columns => rng.usize(0..20),
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
    if matches!(sizes, Sizes::Columns) {
        return random_columns(rng);
    }
    let len = sizes.len(rng);
    let shared = if rng.bool() { rng.usize(0..=len) } else { len.saturating_sub(3) };
    let zeros = if rng.u8(0..4) == 0 { rng.usize(0..6) } else { 0 };
    let mut key = vec![b'p'; shared];
    key.resize_with(len, || if rng.bool() { rng.u8(0..3) } else { rng.u8(..) });
    key.extend_from_slice(&[0; 6][..zeros]);
    key.truncate(MAX_KEY);
    key
}

/// A byte of few values, two columns that begin with bytes of their own; rarely one of these is
/// another, or the key ends somewhere.
fn random_columns(rng: &mut Rng) -> Vec<u8> {
    let mut key =
        vec![b'p', rng.u8(3..6), 0x59, 0x68, 0x2f, rng.u8(0..3), 0, rng.u8(0..2), rng.u8(..)];
    key.extend_from_slice(&[0; 3]);
    key.push(rng.u8(..));
    if rng.u8(0..40) == 0 {
        let at = rng.usize(0..key.len());
        key[at] = [0, 0xff, key[at].wrapping_add(1), key[at].wrapping_sub(1)][rng.usize(0..4)];
    }
    if rng.u8(0..40) == 0 {
        key.truncate(rng.usize(0..key.len()));
    }
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
    let flags =
        Flags { deleted: rng.u8(0..4) == 0, overflow: rng.u8(0..8) == 0, hides: rng.u8(0..8) == 0 };
    let byte = rng.u8(..);
    State { flags, version: random_version(rng), value: vec![byte; len] }
}

/// How many slots of the last of neighbours fit one page with all of the others, and where that
/// page ends.
pub fn what_fits(pages: &[&Page], room: usize) -> Option<(usize, Option<Vec<u8>>)> {
    let last = pages[pages.len() - 1];
    match node::fit_together(pages, room) {
        true => Some((node::count(last), node::upper(last).map(<[u8]>::to_vec))),
        false => node::plan_fill(pages, room).map(|split| (split.at, Some(split.separator))),
    }
}
