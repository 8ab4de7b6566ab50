//! Ranges of keys, and the two directions through them.

use crate::tree::Target;
use std::cmp::Ordering;

/// Which way a scan goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// In ascending order of keys.
    Forward,
    /// In descending order.
    Backward,
}

impl Direction {
    /// The other one.
    #[inline]
    pub fn opposite(self) -> Direction {
        match self {
            Direction::Forward => Direction::Backward,
            Direction::Backward => Direction::Forward,
        }
    }

    /// How two keys follow one another.
    #[inline]
    pub fn order(self, one: &[u8], other: &[u8]) -> Ordering {
        match self {
            Direction::Forward => one.cmp(other),
            Direction::Backward => other.cmp(one),
        }
    }
}

/// Keys in `[low, high)`; no `high`: to the end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Range {
    /// First key.
    pub low: Vec<u8>,
    /// First key behind.
    pub high: Option<Vec<u8>>,
}

/// The first key that can follow another.
pub(super) fn following(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// Before and behind, first and last are those of the direction that is named.
impl Range {
    /// No keys.
    pub(super) const EMPTY: Range = Range { low: Vec::new(), high: Some(Vec::new()) };

    /// Whether the key is below its high end.
    pub(super) fn reaches_beyond(&self, key: &[u8]) -> bool {
        self.high.as_deref().is_none_or(|high| key < high)
    }

    /// Whether it has no keys.
    pub(super) fn is_empty(&self) -> bool {
        !self.reaches_beyond(&self.low)
    }

    /// Where its first key is, in a tree.
    pub(super) fn first(&self, direction: Direction) -> Target<'_> {
        match (direction, &self.high) {
            (Direction::Forward, _) => Target::At(&self.low),
            (Direction::Backward, Some(high)) => Target::Below(high),
            (Direction::Backward, None) => Target::Last,
        }
    }

    /// Where its last key is, in a tree.
    pub(super) fn last(&self, direction: Direction) -> Target<'_> {
        match direction {
            Direction::Forward => self.first(Direction::Backward),
            Direction::Backward => self.first(Direction::Forward),
        }
    }

    /// Has it begin with a key, wherever it began.
    pub(super) fn begin_with(&mut self, mut key: Vec<u8>, direction: Direction) {
        match direction {
            Direction::Forward => self.low = key,
            Direction::Backward => {
                key.push(0);
                self.high = Some(key);
            }
        }
    }

    /// Whether it begins with a key.
    pub(super) fn begins_with(&self, key: &[u8], direction: Direction) -> bool {
        match direction {
            Direction::Forward => *self.low == *key,
            Direction::Backward => {
                self.high.as_deref().and_then(|high| high.strip_suffix(&[0])) == Some(key)
            }
        }
    }

    /// Has it begin behind a key, wherever it began.
    pub(super) fn begin_behind(&mut self, key: &[u8], direction: Direction) {
        match direction {
            Direction::Forward => self.low = following(key),
            Direction::Backward => self.high = Some(key.to_vec()),
        }
    }

    /// Whether it begins behind a key.
    pub(super) fn begins_behind(&self, key: &[u8], direction: Direction) -> bool {
        match direction {
            Direction::Forward => *key < *self.low,
            Direction::Backward => !self.reaches_beyond(key),
        }
    }

    /// Has it end where `other` ends.
    pub(super) fn end_with(&mut self, other: Range, direction: Direction) {
        match direction {
            Direction::Forward => self.high = other.high,
            Direction::Backward => self.low = other.low,
        }
    }

    /// Has it end where `rest` begins, a part of it that is not its whole.
    pub(super) fn end_before(&mut self, rest: &Range, direction: Direction) {
        match direction {
            Direction::Forward => self.high = Some(rest.low.clone()),
            Direction::Backward => {
                self.low = rest.high.clone().expect("a key lies behind the rest")
            }
        }
    }

    /// Its two parts below and from `key` on, which lies in it.
    pub(super) fn split(&self, key: &[u8]) -> (Range, Range) {
        let below = Range { low: self.low.clone(), high: Some(key.to_vec()) };
        (below, Range { low: key.to_vec(), high: self.high.clone() })
    }

    /// Its first and its last part, of which one ends and the other begins at `key`.
    pub(super) fn split_on(&self, key: &[u8], direction: Direction) -> (Range, Range) {
        let (below, above) = self.split(key);
        match direction {
            Direction::Forward => (below, above),
            Direction::Backward => (above, below),
        }
    }
}
