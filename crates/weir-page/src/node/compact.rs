//! A page's heap made anew: without garbage, and that of a leaf without what nobody needs any more.

use super::*;

/// What becomes of an entry.
enum Fate {
    Stays,
    /// It stays without its version.
    Freezes,
    Goes,
}

impl Fate {
    /// What [`freeze`] does to a leaf's entry.
    #[inline]
    fn of(p: &Page, s: Slot, below: TxnId) -> Fate {
        if !s.versioned() || writer(p, s) >= below {
            return Fate::Stays;
        }
        match s.flags() {
            flags if !flags.deleted || flags.hides => Fate::Freezes,
            flags if flags.overflow => Fate::Stays,
            _ => Fate::Goes,
        }
    }
}

/// Moves the heap's live bytes together.
pub fn compact(p: &mut Page) {
    if p.u16(GARBAGE) > 0 {
        rebuild(p, |_, _| Fate::Stays);
    }
}

/// What [`freeze`] would give back, in bytes.
pub fn freezable(p: &Page, below: TxnId) -> usize {
    let gain = |s| match Fate::of(p, s, below) {
        Fate::Stays => 0,
        Fate::Freezes => Version::SIZE,
        Fate::Goes => in_heap(p, s).len() + SLOT,
    };
    (0..count(p)).map(|slot| gain(Slot::get(p, slot))).sum()
}

/// Drops the versions of a leaf's entries that everybody sees (written before `below`), and dead
/// entries that nobody sees; dead ones with an overflow chain are left to purge, which frees it,
/// and tombstones to who settles them.
pub fn freeze(p: &mut Page, below: TxnId) {
    rebuild(p, |p, s| Fate::of(p, s, below));
}

fn rebuild(p: &mut Page, fate: impl Fn(&Page, Slot) -> Fate) {
    let mut heap = [0u8; PAGE_SIZE];
    let mut top = PAGE_SIZE;
    let mut keep = |bytes: &[u8]| {
        top -= bytes.len();
        heap[top..top + bytes.len()].copy_from_slice(bytes);
        top as u16
    };
    let at = keep(lower(p));
    p.set_u16(LOWER, at);
    if let Some(upper) = upper(p) {
        let at = keep(upper);
        p.set_u16(UPPER, at);
    }
    let n = count(p);
    let mut kept = 0;
    for slot in 0..n {
        let s = Slot::get(p, slot);
        let bytes = &p.0[in_heap(p, s)];
        let moved = match fate(p, s) {
            Fate::Goes => continue,
            Fate::Stays => Slot { offset: keep(bytes), ..s },
            Fate::Freezes => {
                keep(&bytes[leaf_key_at(0, true)..]);
                let offset = keep(&bytes[..VALUE_LEN]);
                Slot { offset, len_flags: s.len_flags & !VERSIONED, ..s }
            }
        };
        moved.set(p, kept);
        kept += 1;
    }
    if kept < n {
        p.set_u16(COUNT, kept as u16);
        p.set_u16(RUN, 0);
    }
    p.0[BODY + SLOT * kept..top].fill(0);
    p.0[top..].copy_from_slice(&heap[top..]);
    p.set_u16(HEAP_TOP, top as u16);
    p.set_u16(GARBAGE, 0);
}
