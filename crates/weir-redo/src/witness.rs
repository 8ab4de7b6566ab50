//! Does the log end here, or is it damaged?
//!
//! A crash leaves of what was not synced any part, so where the log ends, groups may follow that were
//! written behind and not lost. But some groups prove by being there that the place of the end had
//! been synced before:
//! - one that notes that the log was durable past it ([`crate::head`]);
//! - one so far behind that it was only written once the place was durable: in the segment after the
//!   next, or farther than what may be unsynced.
//!
//! A checksum of 32 bits is right by chance once in four billion times, and there are a million places to
//! look at. So only two such groups, one right behind the other, count as found.

use weir_os::{AlignedBuf, Create, Disk, Mode};

use crate::format::{
    GROUP_ALIGN, GROUP_HEADER_BYTES, Geometry, MAX_GROUP_BYTES, group_crc, segment_name, u32_at,
};
use crate::writer::UNSYNCED_BYTES_MAX;
use crate::{RedoError, head, segments};

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
    geometry: Geometry,
    at: u64,
    word: u32,
) -> Result<u64, RedoError> {
    // Where the group at `at` ends, if its length is right; if not, its first block was not synced.
    let len = match head::length(word) {
        len if head::is_length(len) => len as u64,
        _ => GROUP_ALIGN as u64,
    };
    let end = at.saturating_add(len).saturating_add(UNSYNCED_BYTES_MAX);
    let after_next = geometry.segment(at.saturating_add(len - 1)).saturating_add(2);
    let far = end.min(after_next.saturating_mul(geometry.segment_bytes));
    let from = at.saturating_add(GROUP_ALIGN as u64);
    let Some(&last) = segments::list(disk)?.last() else { return Ok(0) };
    let to =
        far.saturating_add(BEHIND_BYTES).min((last + 1).saturating_mul(geometry.segment_bytes));
    let bytes = read(disk, geometry, from, to)?;
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
    let (word, crc) = (u32_at(bytes, place), u32_at(bytes, place + 4));
    let len = head::length(word);
    if word == 0 || !head::is_length(len) || len > LENGTH_MAX || place + len > bytes.len() {
        return None;
    }
    let start = from + place as u64;
    let payload = &bytes[place + GROUP_HEADER_BYTES..place + len];
    let durable = head::durable(word, start);
    (group_crc(start, word, payload) == crc).then_some(Found {
        start,
        end: start + len as u64,
        durable,
    })
}

/// The stream's bytes from `from` to `to`, as far as there are files. Their headers may be what is damaged.
fn read(disk: &dyn Disk, geometry: Geometry, from: u64, to: u64) -> Result<Vec<u8>, RedoError> {
    assert!(
        to.saturating_sub(from) <= UNSYNCED_BYTES_MAX + MAX_GROUP_BYTES as u64 + BEHIND_BYTES,
        "what is looked through has a limit"
    );
    let mut bytes = Vec::new();
    let mut at = from;
    while at < to {
        let segment = geometry.segment(at);
        let segment_end = segment.saturating_add(1).saturating_mul(geometry.segment_bytes);
        let wanted = (to.min(segment_end) - at) as usize;
        let offset = geometry.file_offset(at);
        let stored = match disk.open(&segment_name(segment), Create::No, Mode::Cached) {
            Ok(file) => {
                let stored = file.len()?.saturating_sub(offset).min(wanted as u64) as usize;
                if stored > 0 {
                    bytes.extend_from_slice(&file.read(offset, AlignedBuf::zeroed(stored))?);
                }
                stored
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => 0,
            Err(e) => return Err(e.into()),
        };
        bytes.resize(bytes.len() + wanted - stored, 0);
        at += wanted as u64;
    }
    Ok(bytes)
}
