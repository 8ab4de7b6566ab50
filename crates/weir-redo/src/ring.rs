//! The log buffer: reserve by one atomic add, copy in parallel, publish, find the filled prefix.
//!
//! A ring of 64-bit words in memory; the word at stream position `p` is number `(p / 8) % words`.
//!
//! - A group's first word holds length and note (low half, [`crate::head`]) and checksum (high
//!   half). It is stored last, with Release: a reader that sees it with Acquire sees the payload.
//!   All other words are stored and read relaxed, as plain moves; there is no unsafe code.
//! - Every word outside [`Ring::written`]`..reserved` is zero: the writer zeroes what it has copied
//!   before it moves `written` (Release), and admission reads `written` (Acquire) before it lets
//!   anyone reserve those words again. So a first word of zero means: not yet filled.
//! - `claimed = reserved + outstanding credits`. Admission keeps `claimed - written` at or below
//!   the buffer less [`SLACK_BYTES`], so reservation needs no check of its own.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

use crossbeam_utils::CachePadded;

use crate::format::{GROUP_ALIGN, group_bytes, group_crc};
use crate::head;
use crate::sync::AtomicU64;

/// Bytes of the buffer never used: the word after the newest group is always a zero one.
pub(crate) const SLACK_BYTES: u64 = 64;

/// The log buffer and the positions in it.
pub(crate) struct Ring {
    /// Next position to be given out. Updated by appenders.
    reserved: CachePadded<AtomicU64>,
    /// `reserved` plus outstanding credits. Updated by admission.
    claimed: CachePadded<AtomicU64>,
    /// End of the contiguous filled prefix that the writer has seen. Updated by the writer.
    filled: CachePadded<AtomicU64>,
    /// Everything before is in the files; its words are free again. Anywhere in a group, as writes
    /// end where segments do. Updated by the writer.
    written: CachePadded<AtomicU64>,
    words: Box<[AtomicU64]>,
    mask: u64,
    /// Groups from here on note how far the log is durable.
    notes_from: u64,
}

impl Ring {
    /// An empty ring of `bytes` (a power of two) whose first group will start at `start`. Groups
    /// from `notes_from` on note how far the log is durable.
    pub fn new(bytes: usize, start: u64, notes_from: u64) -> Self {
        assert!(bytes.is_power_of_two() && bytes as u64 > SLACK_BYTES, "buffer of {bytes} bytes");
        assert!(start.is_multiple_of(GROUP_ALIGN as u64), "start {start} is not aligned");
        let words: Box<[AtomicU64]> = (0..bytes / 8).map(|_| AtomicU64::new(0)).collect();
        let line = || CachePadded::new(AtomicU64::new(start));
        let mask = words.len() as u64 - 1;
        Ring {
            reserved: line(),
            claimed: line(),
            filled: line(),
            written: line(),
            words,
            mask,
            notes_from,
        }
    }

    pub fn bytes(&self) -> u64 {
        self.words.len() as u64 * 8
    }
    pub fn reserved(&self) -> u64 {
        self.reserved.load(Acquire)
    }
    pub fn claimed(&self) -> u64 {
        self.claimed.load(SeqCst)
    }
    pub fn filled(&self) -> u64 {
        self.filled.load(Acquire)
    }
    pub fn written(&self) -> u64 {
        self.written.load(Acquire)
    }

    /// Claims `need` bytes if the claim then ends at or before `limit()` and fits in the buffer.
    #[inline]
    pub fn claim(&self, need: u64, limit: u64) -> Claim {
        let mut claimed = self.claimed.load(Relaxed);
        loop {
            let end = claimed + need;
            if end > self.written() + (self.bytes() - SLACK_BYTES) {
                return Claim::NoBuffer;
            }
            if end > limit {
                return Claim::NoCapacity;
            }
            match self.claimed.compare_exchange_weak(claimed, end, SeqCst, Relaxed) {
                Ok(_) => return Claim::Taken,
                Err(now) => claimed = now,
            }
        }
    }

    /// Gives back `bytes` of a claim.
    #[inline]
    pub fn unclaim(&self, bytes: u64) {
        self.claimed.fetch_sub(bytes, AcqRel);
    }

    /// Reserves, fills and publishes a group. The caller holds a claim of at least its length.
    /// `durable`: up to where the log is.
    #[inline]
    pub fn append(&self, payload: &[u8], durable: u64) -> (u64, u64) {
        let len = group_bytes(payload.len());
        let start = self.reserved.fetch_add(len as u64, AcqRel);
        let durable = if start >= self.notes_from { durable } else { 0 };
        let word = head::encode(len, start, durable);
        let crc = group_crc(start, word, payload);
        let first = start / 8;
        let mut at = first + 1;
        let (whole, rest) = payload.as_chunks::<8>();
        for bytes in whole {
            self.word(at).store(u64::from_le_bytes(*bytes), Relaxed);
            at += 1;
        }
        if !rest.is_empty() {
            self.word(at).store(last_word(payload), Relaxed);
        }
        self.word(first).store(u64::from(word) | u64::from(crc) << 32, Release);
        (start, start + len as u64)
    }

    /// Moves `filled` over every group published since. One caller at a time (the writer).
    pub fn scan(&self) -> u64 {
        let mut at = self.filled.load(Relaxed);
        let reserved = self.reserved();
        while at < reserved {
            let first = self.word(at / 8).load(Acquire);
            if first == 0 {
                break;
            }
            let len = head::length(first as u32);
            assert!(head::is_length(len), "group of {len} bytes at {at} in the log buffer");
            at += len as u64;
        }
        assert!(at <= reserved, "filled {at} is past reserved {reserved}");
        self.filled.store(at, Release);
        at
    }

    /// Copies the filled bytes from `from` on into `into`. One caller at a time (the writer).
    pub fn copy_out(&self, from: u64, into: &mut [u8]) {
        debug_assert!(from >= self.written() && from + into.len() as u64 <= self.filled());
        let (words, rest) = into.as_chunks_mut::<8>();
        assert!(rest.is_empty(), "groups are whole words");
        for (at, bytes) in (from / 8..).zip(words) {
            *bytes = self.word(at).load(Relaxed).to_le_bytes();
        }
    }

    /// Moves `written` to `to`, after zeroing the words before it. One caller at a time (the
    /// writer).
    pub fn free_to(&self, to: u64) {
        let from = self.written.load(Relaxed);
        assert!(from <= to && to <= self.filled(), "written {from} moved to {to}");
        for at in from / 8..to / 8 {
            self.word(at).store(0, Relaxed);
        }
        self.written.store(to, Release);
    }

    #[inline]
    fn word(&self, at: u64) -> &AtomicU64 {
        &self.words[(at & self.mask) as usize]
    }
}

/// A payload's last bytes, those behind its whole words, and zeros behind them.
#[inline]
fn last_word(payload: &[u8]) -> u64 {
    let rest = payload.len() % 8;
    match payload.last_chunk::<8>() {
        // One load: bytes put together in memory can't be read as a word for a dozen cycles.
        Some(bytes) => u64::from_le_bytes(*bytes) >> (u64::BITS as usize - 8 * rest),
        None => {
            let mut word = [0u8; 8];
            word[..rest].copy_from_slice(payload);
            u64::from_le_bytes(word)
        }
    }
}

/// Outcome of [`Ring::claim`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    Taken,
    NoBuffer,
    NoCapacity,
}
