//! Scans of an index whose entries are spread over a main and a staging tree.
//!
//! The scan proceeds by windows: it copies what its view sees of a leaf of the staging tree, and then
//! reads the part of the main tree that this leaf covers, giving out both in the order of keys.
//! Entries move from the staging tree to the main tree only, so an entry that was there before the
//! window was opened is found in one of them, or in both, under the same key: then it is given once.

use super::staging::Staging;
use super::{Batch, Direction, Look, Range, Row, Scan, ScanStop, Transactions};
use crate::tree::Tree;
use std::cmp::Ordering;
use std::sync::Arc;

/// A scan of one tree, or of two as of one.
pub struct MergedScan {
    main: Scan,
    staged: Option<Box<Staged>>,
    /// Whether the entry given last was staged.
    last_is_staged: bool,
}

struct Staged {
    scan: Scan,
    /// What neither tree's scan has been told to read yet.
    rest: Range,
    direction: Direction,
}

impl MergedScan {
    /// A scan of `range`; `most` rows are fetched at first, more later. `newest`: it looks at the newest
    /// versions; else the view that it is for was taken before.
    pub fn new(
        shared: &Arc<Transactions>,
        tree: Tree,
        staging: Option<&Staging>,
        range: Range,
        direction: Direction,
        most: usize,
        newest: bool,
    ) -> MergedScan {
        // What an empty staging tree gets from now on, the view doesn't see.
        let Some(staging) = staging.filter(|staging| newest || !staging.is_empty()) else {
            let main = Scan::new(shared.clone(), tree, range, direction, most);
            return MergedScan { main, staged: None, last_is_staged: false };
        };
        let nothing = Range { low: range.low.clone(), high: Some(range.low.clone()) };
        let main = Scan::new(shared.clone(), tree, nothing, direction, most);
        // Between the looks at the two trees an entry may move: what is read of the first is locked of both.
        let scan = Scan::new(shared.clone(), staging.tree, range.clone(), direction, most)
            .locking_too(tree);
        let staged = Some(Box::new(Staged { scan, rest: range, direction }));
        MergedScan { main, staged, last_is_staged: false }
    }

    /// The next entry that a look gives.
    ///
    /// # Errors
    /// [`ScanStop`].
    #[inline]
    pub fn look(&mut self, look: Look) -> Result<Option<Row<'_>>, ScanStop> {
        match &mut self.staged {
            None => self.main.look(look),
            Some(_) => self.next_of_two(look),
        }
    }

    /// As [`Scan::take_copied`]; none while entries of two trees are to be merged.
    #[inline]
    pub fn take_copied(&mut self) -> Batch<'_> {
        if self.staged.as_ref().is_some_and(|staged| staged.scan.peek().is_some()) {
            return Batch::default();
        }
        // What the main tree's scan has copied lies in the window, of which nothing staged is left.
        let batch = self.main.take_copied();
        self.last_is_staged &= batch.entries.is_empty();
        batch
    }

    /// The entry that was given last.
    ///
    /// # Panics
    /// If it gave none.
    #[inline]
    pub fn last(&self) -> Row<'_> {
        if !self.last_is_staged {
            return self.main.last();
        }
        self.staged.as_ref().expect("the entry was staged").scan.last()
    }

    #[cold]
    #[inline(never)]
    fn next_of_two(&mut self, look: Look) -> Result<Option<Row<'_>>, ScanStop> {
        let staged = self.staged.as_mut().expect("the scan has a staging tree");
        loop {
            // The staging tree's part of a window is always read before the main tree's.
            let of_main = self.main.fill(look)?;
            let take_staged = match (of_main, staged.scan.peek()) {
                (None, None) => {
                    if !staged.open_window(&mut self.main, look)? {
                        return Ok(None);
                    }
                    continue;
                }
                (Some(_), None) => false,
                (None, Some(_)) => true,
                (Some(main), Some(of_staging)) => {
                    let order = match staged.direction {
                        Direction::Forward => main.key.cmp(of_staging.key),
                        Direction::Backward => of_staging.key.cmp(main.key),
                    };
                    match order {
                        Ordering::Less => false,
                        Ordering::Greater => true,
                        // The transaction's own version counts, not what was there before it.
                        Ordering::Equal if main.outdated => {
                            self.main.skip();
                            true
                        }
                        Ordering::Equal => {
                            staged.scan.skip();
                            false
                        }
                    }
                }
            };
            self.last_is_staged = take_staged;
            let from = if take_staged { &mut staged.scan } else { &mut self.main };
            from.skip();
            return Ok(Some(from.last()));
        }
    }
}

impl Staged {
    /// Reads the staging tree's next leaf and lets `main` read the same range; `false` at the end.
    fn open_window(&mut self, main: &mut Scan, look: Look) -> Result<bool, ScanStop> {
        if self.rest.high.as_ref().is_some_and(|high| *high <= self.rest.low) {
            return Ok(false);
        }
        self.scan.refill(look)?;
        let unread = self.scan.unread();
        let rest = match (self.direction, unread) {
            (Direction::Forward, Some(range)) => {
                Range { low: range.low.clone(), ..self.rest.clone() }
            }
            (Direction::Backward, Some(range)) => {
                Range { high: range.high.clone(), ..self.rest.clone() }
            }
            (_, None) => Range { low: self.rest.low.clone(), high: Some(self.rest.low.clone()) },
        };
        let window = match (self.direction, unread) {
            (_, None) => self.rest.clone(),
            (Direction::Forward, Some(_)) => {
                Range { low: self.rest.low.clone(), high: Some(rest.low.clone()) }
            }
            (Direction::Backward, Some(_)) => Range {
                low: rest.high.clone().expect("a scan from the end has come past its last leaf"),
                high: self.rest.high.clone(),
            },
        };
        self.rest = rest;
        main.restart(window);
        Ok(true)
    }
}
