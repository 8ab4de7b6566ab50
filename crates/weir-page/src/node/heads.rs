//! Key heads: which four of a key's first bytes they are made of.
//!
//! A head is the first four bytes of the key past the page's prefix, less up to two *gaps*: bytes
//! in which all keys of the page agree, so that they tell none from another. An index on two
//! integers has the upper bytes of the second there: without gaps its keys would all tie. Past its
//! end a key counts as zeros.
//!
//! Invariants: gaps lie within the first [`WINDOW`] bytes, each before the last byte of the head,
//! and have at most [`MOST`] bytes together; all keys of the page agree in them. So the order of
//! heads is that of keys, and a key that disagrees with the gaps is on no slot.
//!
//! Gaps are found when a leaf is built, and found anew when a key is inserted that disagrees: from
//! the page's keys alone, so that replay finds the same. Only leaves have them.

use super::find::number;
use super::*;

/// Bytes past the prefix that heads are made from.
const WINDOW: usize = 8;
/// Most bytes in gaps: what the header has room for.
const MOST: usize = 4;
/// Bytes of a head.
const HEAD: usize = 4;
/// A page with fewer keys has no gaps: what they agree in they do by chance, and a search is short.
const FEW: usize = 16;

/// First bytes of a key past the prefix, zero padded, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window(u64);

impl Window {
    #[inline]
    pub fn of(suffix: &[u8]) -> Window {
        Window(number(suffix))
    }

    /// The first four bytes.
    #[inline]
    fn front(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The bytes from `at` on, less than all, as the first.
    #[inline]
    fn from(self, at: u32) -> u64 {
        self.0 << (8 * at)
    }

    #[inline]
    fn byte(self, at: usize) -> u8 {
        self.0.to_be_bytes()[at]
    }
}

/// Bytes from `at` on, `len` of them; both below eight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Gap {
    at: u32,
    len: u32,
}

impl Gap {
    #[inline]
    fn from_byte(byte: u8) -> Gap {
        Gap { at: u32::from(byte & 7), len: u32::from(byte >> 4 & 7) }
    }

    fn to_byte(self) -> u8 {
        (self.at | self.len << 4) as u8
    }

    /// The gap's bytes in front, and zeros.
    #[inline]
    fn inside(self, w: Window) -> u64 {
        w.from(self.at) & !(u64::MAX >> (8 * self.len))
    }

    /// The bytes before and behind the gap, and zeros.
    #[inline]
    fn without(self, w: Window) -> Window {
        let behind = u64::MAX >> (8 * self.at);
        Window((w.0 & !behind) | (w.0 << (8 * self.len) & behind))
    }
}

/// How the heads of a page are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Heads {
    /// The second lies behind the first, and is empty if that is.
    gaps: [Gap; 2],
    /// The bytes in the gaps, the first in front.
    shared: u32,
}

/// What a key is to a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rank {
    /// It agrees with the gaps; its head.
    Head(u32),
    /// It disagrees: keys whose heads are below this are below it, the others above; `None` if all
    /// are below.
    Between(Option<u32>),
}

impl Heads {
    /// As the page's header says.
    #[inline]
    pub fn of(p: &Page) -> Heads {
        Heads::from_word(p.u64(GAPS & !7))
    }

    /// As the aligned word that has the gaps says.
    #[inline]
    pub fn from_word(word: u64) -> Heads {
        let gaps = [word >> 16, word >> 24].map(|byte| Gap::from_byte(byte as u8));
        Heads { gaps, shared: (word >> 32) as u32 }
    }

    /// Whether there are no gaps.
    #[inline]
    pub fn are_plain(self) -> bool {
        self.gaps[0].len == 0
    }

    /// The head of a key that agrees with the gaps.
    #[inline]
    pub fn head(self, w: Window) -> u32 {
        // The one behind first: it is where it is with the other still there.
        self.gaps[0].without(self.gaps[1].without(w)).front()
    }

    #[inline]
    fn left_out(self, w: Window) -> u32 {
        let [a, b] = self.gaps;
        ((a.inside(w) | b.inside(w) >> (8 * a.len)) >> 32) as u32
    }

    #[inline]
    pub fn agrees(self, w: Window) -> bool {
        self.left_out(w) == self.shared
    }

    /// Where a key belongs among the heads.
    #[inline]
    pub fn rank(self, suffix: &[u8]) -> Rank {
        if self.are_plain() {
            return Rank::Head(head(suffix));
        }
        let w = Window::of(suffix);
        if self.agrees(w) { Rank::Head(self.head(w)) } else { self.between(w) }
    }

    /// The rank of a key that disagrees: the first byte that does decides among the keys that share
    /// its head up to there.
    #[cold]
    fn between(self, w: Window) -> Rank {
        let nth = (self.left_out(w) ^ self.shared).leading_zeros() as usize / 8;
        let [a, b] = self.gaps;
        let at = if nth < a.len as usize {
            a.at as usize + nth
        } else {
            b.at as usize + nth - a.len as usize
        };
        let behind = u32::MAX.checked_shr(8 * (at - nth) as u32).unwrap_or(0);
        let first = self.head(w) & !behind;
        if w.byte(at) < self.shared.to_be_bytes()[nth] {
            return Rank::Between(Some(first));
        }
        Rank::Between((first | behind).checked_add(1))
    }

    /// The gaps of keys that differ from `one` in the bits of `differ`.
    fn fitting(one: Window, differ: u64) -> Heads {
        let mut gaps = [Gap::default(); 2];
        let (mut found, mut left_out, mut taken) = (0, 0, 0);
        for at in 0..WINDOW {
            let goes_on = found > 0 && gaps[found - 1].at + gaps[found - 1].len == at as u32;
            let same = differ.to_be_bytes()[at] == 0;
            if same && left_out < MOST && (goes_on || found < gaps.len()) {
                if !goes_on {
                    gaps[found] = Gap { at: at as u32, len: 0 };
                    found += 1;
                }
                gaps[found - 1].len += 1;
                left_out += 1;
                continue;
            }
            taken += 1;
            if taken == HEAD {
                break;
            }
        }
        let heads = Heads { gaps, shared: 0 };
        Heads { shared: heads.left_out(one), ..heads }
    }

    fn store(self, p: &mut Page) {
        p.0[GAPS] = self.gaps[0].to_byte();
        p.0[GAPS + 1] = self.gaps[1].to_byte();
        p.set_u32(GAPS + 2, self.shared);
    }
}

/// Finds gaps for the keys of a page, and for one more, and makes the heads anew.
#[cold]
pub(super) fn fit(p: &mut Page, also: Option<Window>) {
    let n = count(p);
    let heads = if n < FEW {
        Heads::default()
    } else {
        let one = also.unwrap_or_else(|| Window::of(suffix(p, 0)));
        let differ = (0..n).fold(0, |bits, slot| bits | (Window::of(suffix(p, slot)).0 ^ one.0));
        Heads::fitting(one, differ)
    };
    if heads == Heads::of(p) {
        return;
    }
    heads.store(p);
    for slot in 0..n {
        let head = heads.head(Window::of(suffix(p, slot)));
        Slot { head, ..Slot::get(p, slot) }.set(p, slot);
    }
}

/// The head of a key that is about to be inserted.
#[inline]
pub(super) fn admit(p: &mut Page, suffix: &[u8]) -> u32 {
    let heads = Heads::of(p);
    if heads.are_plain() {
        return head(suffix);
    }
    let w = Window::of(suffix);
    if heads.agrees(w) {
        return heads.head(w);
    }
    fit(p, Some(w));
    Heads::of(p).head(w)
}

/// Checks that the gaps are well formed.
///
/// # Errors
/// What is wrong, in words.
pub(super) fn validate(p: &Page) -> Result<(), String> {
    let heads = Heads::of(p);
    let [a, b] = heads.gaps;
    let apart = b == Gap::default() || (a.len > 0 && b.len > 0 && a.at + a.len < b.at);
    let inside = a.len + b.len <= MOST as u32 && a.at < 4 && b.at < 4 + a.len;
    let unused = heads.shared & u32::MAX.checked_shr(8 * (a.len + b.len)).unwrap_or(0);
    let same = [a.to_byte(), b.to_byte()] == p.0[GAPS..GAPS + 2];
    let plain = a == Gap::default() && heads.shared == 0;
    let ok = if p.level() > 0 { plain } else { plain || a.len > 0 };
    if ok && apart && inside && unused == 0 && same {
        return Ok(());
    }
    Err(format!("gaps {:02x?} are none", &p.0[GAPS..BODY]))
}
