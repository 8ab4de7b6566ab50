//! Free space of the data file: a bitmap of 4 KiB units, and extents given up but not yet free.
//!
//! *Used* units hold an image, belong to a batch being written, or are *pending*: given up by a
//! relocation or free whose record is not durable yet. All else is free.
//!
//! Allocation is next-fit over large free runs, so that a batch becomes few large writes. It stays
//! below a *ceiling* a quarter above the used space (at most), so that the file's tail empties.
//! When no large run is left there and the file is nearly full, the caller grows the file; else
//! small runs are taken, wherever they are. To find runs without reading the whole bitmap, each
//! *group* of 4096 units keeps an upper bound of its longest run: freeing raises it exactly,
//! allocation leaves it, and a scan that finds nothing corrects it.

use crate::error::{Result, StoreError};
use crate::extent::{Extent, FILE_UNITS_MAX, UNIT, UNITS_MAX};
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use weir_page::Lsn;

const GROUP_WORDS: usize = 64;
const GROUP: u64 = GROUP_WORDS as u64 * 64;
/// Run lengths looked for, in turn, before the file grows.
const LARGE_RUNS: [u64; 4] = [256, 64, 16, 8];
/// Run length looked for next, before each image is placed by itself.
const SMALL_RUN: u64 = 4;
/// Shortest run of free bitmap words (64 units each) that is punched: 1 MiB.
const PUNCH_WORDS: usize = 4;
/// A file that is compacted keeps this part of what is used as slack, for images that fit no hole.
const CEILING_SLACK: u64 = 8;
const GROWTH_MIN: u64 = (1 << 20) / UNIT as u64;
const GROWTH_MAX: u64 = (256 << 20) / UNIT as u64;

/// The bitmap and the pending extents.
pub(crate) struct Space {
    /// A bit per unit, set when used; bits past the end of the file are set.
    words: Vec<u64>,
    /// Per group, an upper bound of its longest free run.
    longest: Vec<u16>,
    /// A bit per unit, set from when it was given back to the file system, or the device had no
    /// space for it, until an image is stored there. What an earlier process has given back isn't
    /// known.
    holes: Vec<u64>,
    /// Places for whole pages: aligned runs of four units that are free and no holes.
    places: u64,
    units: u64,
    free: u64,
    cursor: usize,
    pending: BinaryHeap<Reverse<Pending>>,
    pending_units: u64,
    /// Units of images that the map doesn't name yet.
    placed_units: u64,
    /// While the file is compacted: images go below this unit as long as there is room.
    ceiling: Option<u64>,
    /// While somebody copies the file.
    held: Option<Held>,
}

/// What was given up but stays as it is, for who copies the file.
#[derive(Default)]
struct Held {
    /// A bit per unit whose record is durable.
    words: Vec<u64>,
    units: u64,
}

impl Held {
    fn keep(&mut self, extent: Extent) {
        self.units += u64::from(extent.units);
        for (word, mask) in masks(extent.start_unit, u64::from(extent.units)) {
            if self.words.len() <= word {
                self.words.resize(word + 1, 0);
            }
            self.words[word] |= mask;
        }
    }

    /// Runs of units, each within one word.
    fn runs(&self) -> impl Iterator<Item = (u64, u64)> {
        let words = (0..).step_by(64).zip(&self.words);
        words.flat_map(|(first, &word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                let start = rest.trailing_zeros();
                let units = rest.checked_shr(start)?.trailing_ones();
                rest &= !(u64::MAX.unbounded_shr(64 - units) << start);
                Some((first + u64::from(start), u64::from(units)))
            })
        })
    }
}

#[derive(PartialEq, Eq)]
struct Pending {
    lsn: Lsn,
    extent: Extent,
}

impl Ord for Pending {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.lsn, self.extent).cmp(&(other.lsn, other.extent))
    }
}

impl PartialOrd for Pending {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// How far a walk over the runs to punch has come.
pub(crate) struct PunchWalk {
    word: usize,
    slack_words: usize,
}

impl Space {
    pub fn new(units: u64) -> Self {
        let mut space = Space {
            words: Vec::new(),
            longest: Vec::new(),
            holes: Vec::new(),
            places: 0,
            units: 0,
            free: 0,
            cursor: 0,
            pending: BinaryHeap::new(),
            pending_units: 0,
            placed_units: 0,
            ceiling: None,
            held: None,
        };
        space.extend(units);
        space
    }

    pub fn units(&self) -> u64 {
        self.units
    }

    /// Used units, pending ones included.
    pub fn used(&self) -> u64 {
        self.units - self.free
    }

    pub fn pending_units(&self) -> u64 {
        self.pending_units
    }

    /// Used units of batches that are being written.
    pub fn placed_units(&self) -> u64 {
        self.placed_units
    }

    /// Free places for pages at their full size whose space the file system has set aside.
    pub fn places(&self) -> u64 {
        self.places
    }

    /// Units by which the file should grow, and that trimming leaves as slack.
    pub fn step(&self) -> u64 {
        (self.units / 16).next_multiple_of(GROWTH_MIN).clamp(GROWTH_MIN, GROWTH_MAX)
    }

    /// Whether growing the file beats filling up small runs: less than a fifth is free, and the
    /// file is not to become shorter.
    pub fn wants_growth(&self, needed: u64) -> bool {
        let short = self.ceiling.is_none() && self.free.saturating_sub(needed) < self.units / 5;
        self.free < needed || short
    }

    /// Sets a ceiling by what is used, with some slack, and returns it, if that would cut off at
    /// least a step of the file.
    pub fn lower_ceiling(&mut self) -> Option<u64> {
        let used = self.used() - self.pending_units;
        self.set_ceiling(used + used / CEILING_SLACK + GROWTH_MIN)
    }

    /// Sets the ceiling, if that would cut off at least a step of the file.
    pub fn set_ceiling(&mut self, ceiling: u64) -> Option<u64> {
        let worth = ceiling + 2 * self.step() <= self.units;
        self.ceiling = worth.then_some(ceiling);
        self.ceiling
    }

    /// Lets images go anywhere again.
    pub fn lift_ceiling(&mut self) {
        self.ceiling = None;
    }

    /// Adds free units at the end of the file.
    pub fn extend(&mut self, units: u64) {
        assert!(units >= self.units && units <= FILE_UNITS_MAX, "growth to {units} units");
        let groups = units.div_ceil(GROUP) as usize;
        self.words.resize(groups * GROUP_WORDS, u64::MAX);
        self.holes.resize(groups * GROUP_WORDS, 0);
        self.longest.resize(groups, 0);
        let (from, added) = (self.units, units - self.units);
        self.units = units;
        self.set_free(from, added);
    }

    /// Marks a stored extent as used while the bitmap is rebuilt; whether it was free and inside.
    pub fn claim(&mut self, extent: Extent) -> bool {
        let inside = extent.end_unit() <= self.units;
        let claimed = inside && self.is_free(extent.start_unit, u64::from(extent.units));
        if claimed {
            self.set_used(extent.start_unit, u64::from(extent.units));
        }
        claimed
    }

    /// Appends extents for `counts[out.len()..]` from large runs below the ceiling, as far as they
    /// go. Whether all were placed.
    pub fn allocate_large(&mut self, counts: &[u8], out: &mut Vec<Extent>) -> bool {
        let needed: u64 = counts[out.len()..].iter().map(|&c| u64::from(c)).sum();
        let full = self.used() + needed;
        let limit = match self.ceiling {
            Some(ceiling) => ceiling,
            None => (full + full / 4 + self.step()).next_multiple_of(GROUP),
        };
        LARGE_RUNS.iter().any(|&run| self.fill(run, limit, counts, out))
    }

    /// Places what fits into runs of at least `run` units (or all that is left) below `limit`, from
    /// the cursor's group on. Whether all were placed.
    fn fill(&mut self, run: u64, limit: u64, counts: &[u8], out: &mut Vec<Extent>) -> bool {
        let groups = (limit.div_ceil(GROUP) as usize).min(self.longest.len());
        let left: u64 = counts[out.len()..].iter().map(|&c| u64::from(c)).sum();
        let run = run.min(left);
        for turn in 0..groups {
            if out.len() == counts.len() {
                break;
            }
            let group = (self.cursor + turn) % groups;
            if u64::from(self.longest[group]) >= run {
                self.fill_from(group, run, limit, counts, out);
                if out.len() == counts.len() {
                    self.cursor = group;
                }
            }
        }
        out.len() == counts.len()
    }

    /// Appends extents for `counts[out.len()..]` from any runs, at last one by one, largest counts
    /// first, low places first. Whether all were placed; if not, nothing more than `out` is taken.
    pub fn allocate_any(&mut self, counts: &[u8], out: &mut Vec<Extent>) -> bool {
        let before = out.len();
        for limit in self.ceiling.into_iter().chain([self.units]) {
            if self.fill(SMALL_RUN, limit, counts, out) || self.place_each(limit, counts, out) {
                return true;
            }
        }
        for extent in out.drain(before..) {
            self.give_back(extent);
        }
        false
    }

    /// As [`Space::allocate_any`], but leaves holes alone as long as there is anything else, and
    /// whole places as long as there are smaller runs: for a file that can't grow.
    pub fn allocate_tight(&mut self, counts: &[u8], out: &mut Vec<Extent>) -> bool {
        let before = out.len();
        let mut open: [Vec<usize>; UNITS_MAX as usize + 1] = Default::default();
        (before..counts.len()).rev().for_each(|i| open[usize::from(counts[i])].push(i));
        let mut placed: Vec<Option<Extent>> = vec![None; counts.len()];
        for (in_holes, small) in [(false, true), (false, false), (true, true), (true, false)] {
            let mut at = 0;
            while open.iter().any(|same| !same.is_empty())
                && let Some((start, len)) = match in_holes {
                    false => self.next_run_but_holes(at, self.units),
                    true => self.next_run(at, self.units),
                }
            {
                at = start + len;
                if small && len >= u64::from(UNITS_MAX) {
                    continue;
                }
                self.fill_run(start, len, &mut open, &mut placed);
            }
        }
        if open.iter().all(Vec::is_empty) {
            out.extend(placed.drain(before..).map(|extent| extent.expect("all are placed")));
            return true;
        }
        placed.into_iter().flatten().for_each(|extent| self.give_back(extent));
        false
    }

    /// Places what fits into a run, the largest first; `open` has what is left to be placed, by
    /// size.
    fn fill_run(
        &mut self,
        mut start: u64,
        mut len: u64,
        open: &mut [Vec<usize>; UNITS_MAX as usize + 1],
        placed: &mut [Option<Extent>],
    ) {
        while let Some(units) = (1..=UNITS_MAX)
            .rev()
            .find(|&units| u64::from(units) <= len && !open[usize::from(units)].is_empty())
        {
            let index = open[usize::from(units)].pop().expect("there is one of that size");
            placed[index] = Some(Extent { start_unit: start, units });
            self.set_used(start, u64::from(units));
            self.placed_units += u64::from(units);
            start += u64::from(units);
            len -= u64::from(units);
        }
    }

    fn place_each(&mut self, limit: u64, counts: &[u8], out: &mut Vec<Extent>) -> bool {
        let first = out.len();
        let mut order: Vec<usize> = (first..counts.len()).collect();
        order.sort_by_key(|&i| Reverse(counts[i]));
        let mut placed: Vec<Option<Extent>> = vec![None; counts.len() - first];
        let (mut group, mut count) = (0, 0);
        for index in order {
            if counts[index] != count {
                (group, count) = (0, counts[index]);
            }
            let Some(extent) = self.take_one(&mut group, limit, count) else {
                for extent in placed.into_iter().flatten() {
                    self.give_back(extent);
                }
                return false;
            };
            placed[index - first] = Some(extent);
        }
        out.extend(placed.into_iter().flatten());
        true
    }

    /// Frees an extent that was allocated and that nothing refers to.
    pub fn give_back(&mut self, extent: Extent) {
        self.placed_units -= u64::from(extent.units);
        self.set_free(extent.start_unit, u64::from(extent.units));
    }

    /// The device has no space where these were allocated: they are holes. Whether that is news of
    /// any.
    pub fn found_holes(&mut self, extents: &[Extent]) -> bool {
        let mut news = false;
        for extent in extents {
            for (word, mask) in masks(extent.start_unit, u64::from(extent.units)) {
                news |= self.holes[word] & mask != mask;
                self.holes[word] |= mask;
            }
        }
        news
    }

    /// The map names an extent that was allocated.
    pub fn install(&mut self, extent: Extent) {
        assert!(self.is_used(extent), "{extent:?} is named while free");
        self.placed_units -= u64::from(extent.units);
        self.fill_holes(extent.start_unit, u64::from(extent.units));
    }

    /// Frees an extent once the log is durable past `lsn`.
    pub fn give_up(&mut self, extent: Extent, lsn: Lsn) {
        assert!(self.is_used(extent), "{extent:?} was given up while free");
        self.pending_units += u64::from(extent.units);
        self.pending.push(Reverse(Pending { lsn, extent }));
    }

    /// The log is durable up to `durable`: pending extents of before are free, unless they are
    /// held. Returns their units.
    pub fn release(&mut self, durable: Lsn) -> u64 {
        let before = self.pending_units;
        while self.pending.peek().is_some_and(|Reverse(p)| p.lsn < durable) {
            let Reverse(Pending { extent, .. }) = self.pending.pop().expect("peeked");
            match &mut self.held {
                Some(held) => held.keep(extent),
                None => self.free_pending(extent.start_unit, u64::from(extent.units)),
            }
        }
        before - self.pending_units
    }

    fn free_pending(&mut self, start: u64, units: u64) {
        self.pending_units -= units;
        self.set_free(start, units);
    }

    /// From now on extents that are given up stay pending, and those that are. Whatever the record
    /// says that they go by: it is in the log before they are given up here.
    pub fn hold(&mut self) {
        assert!(self.held.is_none(), "space is held already");
        self.held = Some(Held::default());
    }

    /// Pending units that would be free by now.
    pub fn held_units(&self) -> u64 {
        self.held.as_ref().map_or(0, |held| held.units)
    }

    /// Whether nothing that was to be held has become free.
    pub fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Frees what was held; whether anything was to be.
    pub fn let_go(&mut self) -> bool {
        let Some(held) = self.held.take() else { return false };
        held.runs().for_each(|(start, units)| self.free_pending(start, units));
        true
    }

    /// The first run of used units in `from..end`: start and length.
    pub fn next_used(&self, from: u64, end: u64) -> Option<(u64, u64)> {
        let end = end.min(self.units);
        next_clear_run(from, end, |word| !self.words[word])
    }

    pub fn is_used(&self, extent: Extent) -> bool {
        extent.end_unit() <= self.units
            && (extent.start_unit..extent.end_unit()).all(|unit| self.bit(unit))
    }

    /// Cuts the free tail off, but for the slack, and as far as `kept` places are left; the new
    /// length in units if it changed.
    pub fn cut_tail(&mut self, kept: u64) -> Option<u64> {
        let last = self.last_used();
        let step = self.step();
        let wanted = last.map_or(0, |unit| unit + 1) + step;
        // Holes are no places: those at the end go in any case.
        let (mut units, mut left) = (self.units, self.places.saturating_sub(kept));
        while units > wanted {
            let word = ((units - 1) / 64) as usize;
            let Some(rest) = left.checked_sub(self.places_in(word)) else { break };
            (units, left) = (word as u64 * 64, rest);
        }
        let units = units.max(wanted).next_multiple_of(GROWTH_MIN);
        // Worth it only when at least another step goes, or each trim would be undone by a growth.
        if units + step > self.units {
            return None;
        }
        self.set_used(units, self.units - units);
        self.fill_holes(units, self.units - units);
        // What lies past the end is neither used nor free.
        self.units = units;
        let groups = units.div_ceil(GROUP) as usize;
        self.words.truncate(groups * GROUP_WORDS);
        self.holes.truncate(groups * GROUP_WORDS);
        self.longest.truncate(groups);
        self.cursor = 0;
        Some(units)
    }

    /// A walk over the runs to punch, which leaves a step of free space alone, and `kept` places.
    pub fn punch_walk(&self, kept: u64) -> PunchWalk {
        let slack = self.step().max(kept * UNITS_MAX as u64);
        PunchWalk { word: 0, slack_words: slack.div_ceil(64) as usize }
    }

    /// Takes the next long free run whose space should go back to the file system. It counts as
    /// used until [`Space::punched`] or [`Space::not_punched`].
    pub fn take_to_punch(&mut self, walk: &mut PunchWalk) -> Option<(u64, u64)> {
        let whole_words = (self.units / 64) as usize;
        while walk.word < whole_words {
            let first = walk.word;
            let free = (first..whole_words).take_while(|&w| self.can_punch(w)).count();
            walk.word += free + 1;
            let spared = walk.slack_words.min(free);
            walk.slack_words -= spared;
            if free - spared >= PUNCH_WORDS {
                let start = (first + spared) as u64 * 64;
                let units = (free - spared) as u64 * 64;
                self.set_used(start, units);
                return Some((start, units));
            }
        }
        None
    }

    /// The run from [`Space::take_to_punch`] is punched: it is free again.
    pub fn punched(&mut self, start: u64, units: u64) {
        masks(start, units).for_each(|(word, mask)| self.holes[word] |= mask);
        self.set_free(start, units);
    }

    /// The run from [`Space::take_to_punch`] could not be punched: it is free again.
    pub fn not_punched(&mut self, start: u64, units: u64) {
        self.set_free(start, units);
    }

    fn can_punch(&self, word: usize) -> bool {
        self.words[word] == 0 && self.holes[word] != u64::MAX
    }

    fn last_used(&self) -> Option<u64> {
        for word in (0..self.units.div_ceil(64) as usize).rev() {
            let start = word as u64 * 64;
            let inside = self.units - start;
            let mask = if inside < 64 { (1u64 << inside) - 1 } else { u64::MAX };
            let bits = self.words[word] & mask;
            if bits != 0 {
                return Some(start + 63 - u64::from(bits.leading_zeros()));
            }
        }
        None
    }

    /// Takes `count` units from the first run below `limit` that holds them, from `group` on.
    fn take_one(&mut self, group: &mut usize, limit: u64, count: u8) -> Option<Extent> {
        while *group < self.longest.len() && *group as u64 * GROUP < limit {
            if self.longest[*group] >= u16::from(count) {
                let mut out = Vec::with_capacity(1);
                self.fill_from(*group, u64::from(count), limit, &[count], &mut out);
                if let Some(extent) = out.pop() {
                    return Some(extent);
                }
            }
            *group += 1;
        }
        None
    }

    /// Places what fits into the runs of a group, below `limit`, that have `min_run` units or more.
    fn fill_from(
        &mut self,
        group: usize,
        min_run: u64,
        limit: u64,
        counts: &[u8],
        out: &mut Vec<Extent>,
    ) {
        let whole = (group as u64 + 1) * GROUP;
        let (mut at, end) = (group as u64 * GROUP, whole.min(limit));
        let mut longest = 0;
        while let Some((mut start, mut len)) = self.next_run(at, end) {
            at = start + len;
            if len >= min_run {
                while let Some(&units) = counts.get(out.len()).filter(|&&c| u64::from(c) <= len) {
                    self.set_used(start, u64::from(units));
                    self.placed_units += u64::from(units);
                    out.push(Extent { start_unit: start, units });
                    start += u64::from(units);
                    len -= u64::from(units);
                }
                if out.len() == counts.len() {
                    return;
                }
            }
            longest = longest.max(len);
        }
        if end == whole {
            self.longest[group] = longest as u16;
        }
    }

    /// The first free run in `from..end`: start and length.
    fn next_run(&self, from: u64, end: u64) -> Option<(u64, u64)> {
        next_clear_run(from, end, |word| self.words[word])
    }

    /// As [`Space::next_run`], of units that aren't holes.
    fn next_run_but_holes(&self, from: u64, end: u64) -> Option<(u64, u64)> {
        next_clear_run(from, end, |word| self.words[word] | self.holes[word])
    }

    fn bit(&self, unit: u64) -> bool {
        self.words[(unit / 64) as usize] >> (unit % 64) & 1 == 1
    }

    fn is_free(&self, start: u64, units: u64) -> bool {
        (start..start + units).all(|unit| !self.bit(unit))
    }

    fn set_used(&mut self, start: u64, units: u64) {
        for (word, mask) in masks(start, units) {
            assert_eq!(self.words[word] & mask, 0, "units at {start} are allocated twice");
            self.places -= self.places_in(word);
            self.words[word] |= mask;
            self.places += self.places_in(word);
        }
        self.free -= units;
    }

    fn places_in(&self, word: usize) -> u64 {
        const FIRST: u64 = u64::MAX / 0xF;
        let pairs = self.words[word] | self.holes[word];
        let pairs = pairs | pairs >> 1;
        u64::from((!(pairs | pairs >> 2) & FIRST).count_ones())
    }

    /// An image is stored there, or the file ends before.
    fn fill_holes(&mut self, start: u64, units: u64) {
        masks(start, units).for_each(|(word, mask)| self.holes[word] &= !mask);
    }

    fn set_free(&mut self, start: u64, units: u64) {
        assert!(start + units <= self.units, "units at {start} are past the end of the file");
        for (word, mask) in masks(start, units) {
            assert_eq!(self.words[word] & mask, mask, "units at {start} are freed twice");
            self.places -= self.places_in(word);
            self.words[word] &= !mask;
            self.places += self.places_in(word);
        }
        self.free += units;
        self.raise_bounds(start, units);
    }

    /// Raises the bound of each group touched to the run that now surrounds the freed units.
    fn raise_bounds(&mut self, start: u64, units: u64) {
        if units == 0 {
            return;
        }
        for group in start / GROUP..=(start + units - 1) / GROUP {
            let (low, high) = (group * GROUP, (group + 1) * GROUP);
            let inside = start.max(low);
            let mut first = inside;
            while first > low && !self.bit(first - 1) {
                first = if first % 64 == 0 && self.words[(first / 64 - 1) as usize] == 0 {
                    first - 64
                } else {
                    first - 1
                };
            }
            let stop = next_clear(inside, high, |word| !self.words[word]).unwrap_or(high);
            let bound = &mut self.longest[group as usize];
            *bound = (*bound).max((stop - first) as u16);
        }
    }
}

/// The first bit in `from..end` that is clear in `words`.
#[inline]
fn next_clear(from: u64, end: u64, words: impl Fn(usize) -> u64) -> Option<u64> {
    let mut at = from;
    while at < end {
        let word = words((at / 64) as usize) >> (at % 64);
        let ones = u64::from(word.trailing_ones());
        if ones < 64 - at % 64 {
            return Some(at + ones).filter(|&bit| bit < end);
        }
        at = (at / 64 + 1) * 64;
    }
    None
}

/// The first run of bits in `from..end` that are clear in `words`: start and length.
#[inline]
fn next_clear_run(from: u64, end: u64, words: impl Fn(usize) -> u64) -> Option<(u64, u64)> {
    let start = next_clear(from, end, &words)?;
    let stop = next_clear(start, end, |word| !words(word)).unwrap_or(end);
    Some((start, stop - start))
}

/// Word indexes and bit masks that cover a range of units.
fn masks(start: u64, units: u64) -> impl Iterator<Item = (usize, u64)> {
    let end = start + units;
    (start / 64..end.div_ceil(64)).map(move |word| {
        let low = start.saturating_sub(word * 64);
        let high = (end - word * 64).min(64);
        let mask = if high - low == 64 { u64::MAX } else { ((1 << (high - low)) - 1) << low };
        (word as usize, mask)
    })
}

/// `NoSpace` for a file that would have to grow by `units`.
pub(crate) fn no_space<T>(file: &str, units: u64) -> Result<T> {
    Err(StoreError::NoSpace { needed: units * UNIT as u64, file: file.to_string() })
}

#[cfg(test)]
mod tests;
