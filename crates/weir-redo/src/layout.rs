//! Where segments lie in the stream: one behind the other, each as long as its header says.

use std::collections::VecDeque;

use weir_os::{BLOCK, Disk};
use weir_page::Lsn;

use crate::RedoError;
use crate::format::{MIN_SEGMENTS, SEGMENT_HEADER_BYTES, segment_name};
use crate::segments;

/// Segments that a log of a middling size gets, or gets anew once it would have more than [`MANY`].
const WANTED: u64 = 16;
/// A log that has more segments than that is better off with longer ones.
const MANY: u64 = 64;
/// Longest payload of a segment, as long as there are no more than [`MOST`] of them.
const LONG: u64 = 64 << 20;
/// Most segments that any log is given: each takes a descriptor.
const MOST: u64 = 512;

/// Payload of the segments of a new log with this capacity.
pub fn segment_bytes_of(capacity: u64) -> u64 {
    let block = BLOCK as u64;
    let wanted = (capacity / WANTED / block * block).clamp(block, LONG);
    wanted.max(capacity.div_ceil(MOST).next_multiple_of(block))
}

/// Payload of the segments that a log makes next, which has this capacity and makes them of `now`
/// bytes so far.
pub(crate) fn next_segment_bytes(now: u64, capacity: u64) -> u64 {
    match (MIN_SEGMENTS..=MANY).contains(&(capacity / now)) {
        true => now,
        false => segment_bytes_of(capacity),
    }
}

/// What a ring of segments has to be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    /// Nothing before is needed.
    pub checkpoint: u64,
    /// Room behind the checkpoint.
    pub room: u64,
    /// Segments that begin at or before this position stay, needed or not.
    pub keep: u64,
    /// Payload of segments that are made.
    pub bytes: u64,
}

/// Bytes that a ring from `start` to `end` lacks for `room`; `longest`: payload of the longest
/// segment in it.
///
/// However far the checkpoint is in the first segment, there must be room behind. And once the
/// checkpoint has passed that segment, its file must do for what is lacking then: on a full device,
/// too, the checkpoint gets on. Both is so if the room begins as far behind the start as the
/// longest segment is long.
fn lack(start: u64, end: u64, longest: u64, room: u64) -> u64 {
    (start + room + longest).saturating_sub(end)
}

/// Segments that a ring lacks: so many with a payload of `bytes`, and one of `rest` unless that is
/// none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Missing {
    whole: u64,
    bytes: u64,
    rest: u64,
}

impl Missing {
    /// Payload of each.
    pub fn payloads(self) -> impl Iterator<Item = u64> {
        let rest = Some(self.rest).filter(|rest| *rest > 0);
        (0..self.whole).map(move |_| self.bytes).chain(rest)
    }

    /// Bytes that their files take.
    pub fn file_bytes(self) -> u64 {
        let rest = if self.rest > 0 { SEGMENT_HEADER_BYTES + self.rest } else { 0 };
        self.whole * (SEGMENT_HEADER_BYTES + self.bytes) + rest
    }
}

/// What such a ring lacks, made of segments of up to `bytes`.
pub(crate) fn missing(start: u64, end: u64, longest: u64, room: u64, bytes: u64) -> Missing {
    let missing = match lack(start, end, longest, room) {
        0 => 0,
        _ => lack(start, end, longest.max(bytes), room),
    };
    Missing { whole: missing / bytes, bytes, rest: missing % bytes }
}

/// Bytes of files with such payloads.
pub(crate) fn file_bytes(payloads: &[u64]) -> u64 {
    payloads.iter().map(|bytes| SEGMENT_HEADER_BYTES + bytes).sum()
}

/// How a ring becomes what it has to be: what is to be done with files.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Files that get another number, by the one that they have. None becomes longer.
    pub recycled: Vec<(u64, Span)>,
    pub created: Vec<Span>,
    /// Numbers of those that go.
    pub removed: Vec<u64>,
}

impl Plan {
    /// Takes what `wanted` has no need of out of the ring, and says what is to be done with it, and
    /// what else is lacking. `next`: number and start of the segment behind the last.
    pub fn of(ring: &mut VecDeque<Span>, next: &mut (u64, u64), wanted: &Wanted) -> Plan {
        let (mut plan, mut free) = (Plan::default(), Vec::new());
        while let Some(front) = ring.pop_front_if(|span| span.end() <= wanted.checkpoint) {
            free.push(front);
        }
        let longest = |spans: &mut dyn Iterator<Item = &Span>| spans.map(|s| s.bytes).max();
        while let Some(&back) = ring.back().filter(|span| span.start > wanted.keep) {
            let of_others = longest(&mut ring.iter().rev().skip(1)).unwrap_or(0);
            if lack(ring[0].start, back.start, of_others, wanted.room) > 0 {
                break;
            }
            ring.pop_back();
            plan.removed.push(back.number);
            *next = (back.number, back.start);
        }
        let start = ring.front().map_or(next.1, |first| first.start);
        let mut longest = longest(&mut ring.iter()).unwrap_or(0);
        let (mut number, mut end) = *next;
        let mut add = |bytes| {
            let span = Span { number, start: end, bytes };
            (number, end) = (number + 1, span.end());
            span
        };
        let mut at = next.1;
        // The longest last: those that were made for a longer log are not needed any more, or cut.
        free.sort_unstable_by_key(|span| (span.bytes, span.number));
        for span in free {
            let lacks = lack(start, at, longest, wanted.room);
            if lacks == 0 {
                plan.removed.push(span.number);
                continue;
            }
            let bytes = span.bytes.min(lacks.max(wanted.bytes));
            longest = longest.max(bytes);
            at += bytes;
            plan.recycled.push((span.number, add(bytes)));
        }
        let missing = missing(start, at, longest, wanted.room, wanted.bytes);
        plan.created.extend(missing.payloads().map(add));
        plan
    }

    pub fn is_empty(&self) -> bool {
        self.recycled.is_empty() && self.created.is_empty() && self.removed.is_empty()
    }
}

/// Where a segment lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub number: u64,
    /// LSN of its first byte.
    pub start: u64,
    /// Its payload.
    pub bytes: u64,
}

impl Span {
    pub fn end(self) -> u64 {
        self.start + self.bytes
    }

    pub fn holds(self, lsn: u64) -> bool {
        (self.start..self.end()).contains(&lsn)
    }

    /// Where in the file a position is that it holds.
    pub fn file_offset(self, lsn: u64) -> u64 {
        assert!((self.start..=self.end()).contains(&lsn), "{lsn} is not in {self:?}");
        SEGMENT_HEADER_BYTES + (lsn - self.start)
    }

    pub fn file_bytes(self) -> u64 {
        SEGMENT_HEADER_BYTES + self.bytes
    }

    /// Segment `number`, if all between the two are as long as this one, and it, too.
    fn of_number(self, number: u64) -> Option<Span> {
        let between = number.abs_diff(self.number).checked_mul(self.bytes)?;
        let start = match number >= self.number {
            true => self.start.checked_add(between)?,
            false => self.start.checked_sub(between)?,
        };
        start.checked_add(self.bytes)?;
        Some(Span { number, start, ..self })
    }

    /// The segment that holds this position, as far as all between the two are as long as this one.
    fn at(self, lsn: u64) -> Option<Span> {
        match lsn.checked_sub(self.start) {
            Some(behind) => self.of_number(self.number + behind / self.bytes),
            None => {
                let before = (self.start - lsn).div_ceil(self.bytes);
                self.of_number(self.number.checked_sub(before)?)
            }
        }
    }
}

/// Where the segments lie that are on a disk.
pub(crate) struct Layout {
    /// By number; never empty.
    spans: Vec<Span>,
}

impl Layout {
    /// Reads the headers of all segment files. One that isn't whole is of a segment that was being
    /// made, or damaged: its place follows from its neighbours'.
    ///
    /// # Errors
    /// If no header is whole, what is wrong with the newest; the disk's.
    pub fn of(disk: &dyn Disk, database_id: u64) -> Result<Layout, RedoError> {
        let mut error = RedoError::NoLog { directory: disk.place() };
        let mut whole = Vec::new();
        let numbers = segments::list(disk)?;
        for &number in &numbers {
            match segments::open_any(disk, database_id, number) {
                Ok(opened) => whole.push(opened.span),
                Err(failed @ RedoError::Disk(_)) => return Err(failed),
                Err(other) => error = other,
            }
        }
        let whole = Layout { spans: whole };
        if whole.spans.is_empty() {
            return Err(error);
        }
        let spans = numbers.iter().filter_map(|&number| whole.of_number(number)).collect();
        Ok(Layout { spans })
    }

    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Whether all segments, those that are missing included, are of so many bytes.
    pub fn is_even(&self, bytes: u64) -> bool {
        let first = self.spans[0];
        let in_place = |span: &Span| first.of_number(span.number) == Some(*span);
        first.bytes == bytes && self.spans.iter().all(in_place)
    }

    /// Payload of the longest segment.
    pub fn longest(&self) -> u64 {
        self.spans.iter().map(|span| span.bytes).max().expect("a layout has a segment")
    }

    /// What all files take.
    pub fn file_bytes(&self) -> u64 {
        self.spans.iter().map(|span| span.file_bytes()).sum()
    }

    pub fn newest(&self) -> Span {
        *self.spans.last().expect("a layout has a segment")
    }

    /// The segments on the disk from `first` on that begin at or before `end`.
    pub fn between(&self, first: Span, end: u64) -> Vec<Span> {
        let between = |span: &&Span| span.number >= first.number && span.start <= end;
        self.spans.iter().filter(between).copied().collect()
    }

    /// The segment on the disk that holds this position. A segment before it, whose place was
    /// inferred, may seem to do so, too.
    pub fn find(&self, lsn: u64) -> Option<Span> {
        self.spans.iter().copied().rfind(|span| span.holds(lsn))
    }

    /// The segment that holds this position; where there is none on the disk, as far as its
    /// neighbours tell.
    pub fn at(&self, lsn: u64) -> Option<Span> {
        self.find(lsn).or_else(|| {
            let behind = self.spans.iter().rfind(|span| span.start <= lsn);
            behind.unwrap_or(&self.spans[0]).at(lsn)
        })
    }

    /// Segment `number`, as [`Layout::at`].
    pub fn of_number(&self, number: u64) -> Option<Span> {
        let behind = self.spans.partition_point(|span| span.number <= number);
        self.spans[behind.saturating_sub(1)].of_number(number)
    }

    /// The segment that holds this position isn't there.
    pub fn missing(&self, lsn: Lsn) -> RedoError {
        let number = self.at(lsn.0).map_or(self.newest().number, |span| span.number);
        RedoError::SegmentMissing { file: segment_name(number), lsn }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn segments_are_a_sixteenth_and_never_very_many() {
        for (capacity, bytes) in [
            (MIB, 64 << 10),
            (512 * MIB, 32 * MIB),
            (1024 * MIB, 64 * MIB),
            (32 * 1024 * MIB, 64 * MIB),
            (64 * 1024 * MIB, 128 * MIB),
            (16 << 40, 32 << 30),
        ] {
            assert_eq!(segment_bytes_of(capacity), bytes, "{capacity}");
            assert!(capacity / bytes <= MOST);
        }
    }

    #[test]
    fn a_log_keeps_its_segments_size_while_they_are_neither_few_nor_many() {
        for (capacity, bytes) in [(4, 1), (16, 1), (64, 1), (65, 4), (512, 32), (3, 0)] {
            let expected = if bytes == 0 { 3 * MIB / 16 / 4096 * 4096 } else { bytes * MIB };
            let next = next_segment_bytes(MIB, capacity * MIB);
            if capacity == 65 {
                assert!((4 * MIB..=65 * MIB / 16).contains(&next), "{next}");
            } else {
                assert_eq!(next, expected, "{capacity}");
            }
            assert_eq!(next_segment_bytes(next, capacity * MIB), next, "it stays so");
        }
    }

    /// On a full device nothing can be made, and no file can become longer.
    #[test]
    fn a_checkpoint_that_moves_on_needs_no_space_whatever_the_capacity_was() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..300 {
            let (mut ring, mut next) = (VecDeque::new(), (1, 40));
            let mut wanted = Wanted { checkpoint: 40, room: 40, keep: 0, bytes: 10 };
            for _ in 0..200 {
                let before = ring.clone();
                let grows = ring.is_empty() || rng.u8(..8) == 0;
                if grows {
                    wanted.bytes = 10 * rng.u64(1..8);
                    wanted.room = 10 * rng.u64(4..60);
                } else {
                    wanted.checkpoint += 10 * rng.u64(..1 + wanted.room / 10);
                }
                wanted.keep = wanted.checkpoint;
                let plan = Plan::of(&mut ring, &mut next, &wanted);
                assert!(grows || plan.created.is_empty(), "{plan:?} for {wanted:?} of {before:?}");
                for (old, span) in &plan.recycled {
                    let old = before.iter().find(|span| span.number == *old).expect("it was there");
                    assert!(span.bytes <= old.bytes, "{old:?} becomes longer: {span:?}");
                }
                let made = plan.recycled.iter().map(|(_, span)| *span).chain(plan.created);
                for span in made {
                    assert_eq!((span.number, span.start), next);
                    next = (span.number + 1, span.end());
                    ring.push_back(span);
                }
                assert!(ring[0].holds(wanted.checkpoint));
                assert!(next.1 > wanted.checkpoint + wanted.room, "{ring:?} for {wanted:?}");
            }
        }
    }

    #[test]
    fn places_of_what_is_not_there_follow_from_the_neighbours() {
        let spans = vec![
            Span { number: 3, start: 30, bytes: 10 },
            Span { number: 4, start: 40, bytes: 10 },
            Span { number: 7, start: 70, bytes: 100 },
        ];
        let layout = Layout { spans };
        let number_at = |lsn| layout.at(lsn).map(|span| span.number);
        assert_eq!([0, 9, 10, 35, 49].map(number_at), [0, 0, 1, 3, 4].map(Some));
        assert_eq!([50, 69, 70, 169, 170, 270].map(number_at), [5, 6, 7, 7, 8, 9].map(Some));
        assert!(!layout.is_even(10), "one is longer");
        assert_eq!(layout.find(55), None);
        assert_eq!(layout.of_number(6), Some(Span { number: 6, start: 60, bytes: 10 }));
        assert_eq!(layout.of_number(9), Some(Span { number: 9, start: 270, bytes: 100 }));
        assert_eq!(layout.of_number(u64::MAX), None);
        assert_eq!(layout.at(u64::MAX), None);
        let at = |number, start| Span { number, start, bytes: 10 };
        assert!(Layout { spans: vec![at(3, 30), at(4, 40), at(7, 70)] }.is_even(10));
        let longer_missing = Layout { spans: vec![at(3, 30), at(5, 60), at(6, 70)] };
        assert!(!longer_missing.is_even(10));
    }
}
