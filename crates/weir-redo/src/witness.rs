//! Does the log end here, or is it damaged?
//!
//! A crash leaves of what was not synced any part, so where the log ends, groups may follow that
//! were written behind and not lost. But some groups prove by being there that the place of the end
//! had been synced before:
//! - one that notes that the log was durable past it ([`crate::head`]);
//! - one so far behind that it was only written once the place was durable: in the segment after
//!   the next, or farther than what may be unsynced.
//!
//! A checksum of 32 bits is right by chance once in four billion times, and there are a million
//! places to look at. So only two such groups, one right behind the other, count as found.

use weir_os::{AlignedBuf, Create, Disk, Mode};

use crate::format::{
    GROUP_ALIGN, GROUP_HEADER_BYTES, MAX_GROUP_BYTES, group_len, group_payload, segment_name,
    u32_at,
};
use crate::layout::Layout;
use crate::writer::UNSYNCED_BYTES_MAX;
use crate::{RedoError, head};

/// Longest group that is looked for: what looks like a length is tried out, and most are short.
const LENGTH_MAX: usize = 32 << 10;
/// How much is looked through behind the place from which on any group is proof.
const BEHIND_BYTES: u64 = 2 << 20;

/// A group found behind the end.
#[derive(Clone, Copy)]
struct Found {
    start: u64,
    end: u64,
    durable: u64,
}

/// A position behind `at`, where the log seems to end, up to which it must have been durable; 0 if
/// nothing proves that. `word` is what stands in the place of the next group's first.
pub(crate) fn durable_behind(
    disk: &dyn Disk,
    database_id: u64,
    at: u64,
    word: u32,
) -> Result<u64, RedoError> {
    let layout = match Layout::of(disk, database_id) {
        Ok(layout) => layout,
        Err(failed @ RedoError::Disk(_)) => return Err(failed),
        Err(_) => return Ok(0),
    };
    // Where the group at `at` ends, if its length is right; if not, its first block was not synced.
    let len = match head::length(word) {
        len if head::is_length(len) => len as u64,
        _ => GROUP_ALIGN as u64,
    };
    let end = at.saturating_add(len).saturating_add(UNSYNCED_BYTES_MAX);
    let holds_end = layout.at(at.saturating_add(len - 1));
    let after_next = holds_end.and_then(|span| layout.of_number(span.number + 2));
    let far = after_next.map_or(end, |span| end.min(span.start));
    let from = at.saturating_add(GROUP_ALIGN as u64);
    let to = far.saturating_add(BEHIND_BYTES).min(layout.newest().end());
    let bytes = read(disk, &layout, from, to)?;
    let proves = |g: &Found| if g.start >= far { g.start } else { g.durable };
    let (mut place, mut before) = (0, None::<Found>);
    while place + GROUP_HEADER_BYTES <= bytes.len() {
        let Some(group) = group_at(&bytes, place, from) else {
            (place, before) = (place + GROUP_ALIGN, None);
            continue;
        };
        let proven = before.map_or(0, |before| proves(&before).max(proves(&group)));
        if proven > at {
            return Ok(proven);
        }
        place += (group.end - group.start) as usize;
        before = Some(group);
    }
    Ok(0)
}

/// The group at a place in `bytes`, which begin at `from`.
fn group_at(bytes: &[u8], place: usize, from: u64) -> Option<Found> {
    let len = group_len(&bytes[place..]).ok().filter(|&len| len <= LENGTH_MAX)?;
    let group = bytes.get(place..place + len)?;
    let start = from + place as u64;
    group_payload(start, group).ok()?;
    let durable = head::durable(u32_at(group, 0), start);
    Some(Found { start, end: start + len as u64, durable })
}

/// The stream's bytes from `from` to `to`, as far as there are files; zeros elsewhere. Their
/// headers may be what is damaged.
fn read(disk: &dyn Disk, layout: &Layout, from: u64, to: u64) -> Result<Vec<u8>, RedoError> {
    let len = to.saturating_sub(from);
    assert!(
        len <= UNSYNCED_BYTES_MAX + MAX_GROUP_BYTES as u64 + BEHIND_BYTES,
        "what is looked through has a limit"
    );
    let mut bytes = vec![0; len as usize];
    for span in layout.spans() {
        let (first, last) = (from.max(span.start), to.min(span.end()));
        if first >= last {
            continue;
        }
        let offset = span.file_offset(first);
        let file = disk.open(&segment_name(span.number), Create::No, Mode::Cached)?;
        let stored = file.len()?.saturating_sub(offset).min(last - first) as usize;
        if stored > 0 {
            let at = (first - from) as usize;
            bytes[at..at + stored].copy_from_slice(&file.read(offset, AlignedBuf::zeroed(stored))?);
        }
    }
    Ok(bytes)
}
