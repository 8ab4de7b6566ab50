//! Scans of an index whose entries are spread over a main and a staging tree.
//!
//! The scan proceeds by windows: it copies what its view sees of a leaf of the staging tree, and
//! then reads the part of the main tree that this leaf covers, giving out both in the order of
//! keys. Entries move from the staging tree to the main tree only, so an entry that was there
//! before the window was opened is found in one of them, or in both, under the same key: then it is
//! given once. One that a staged entry hides isn't given; a tombstone isn't, either.
//!
//! An entry that is deleted from the main tree and inserted anew goes the other way. A view of what
//! was committed sees none of that. Any other scan opens its window anew, behind what it has given,
//! if anything has been staged when it comes to read on in the main tree, the window not being new:
//! so it misses nothing that its own transaction puts there meanwhile. It does the same if inserts
//! have been taken back by tombstones when it has read the main tree: those look committed there.

use super::scan::Copies;
use super::staging::Staging;
use super::{Batch, Look, Range, Scan, ScanEntry, ScanStop};
use crate::storage::Fault;
use std::cmp::Ordering;
use std::sync::Arc;

/// A scan of one tree, or of two as of one.
pub struct MergedScan {
    main: Scan,
    staged: Option<Box<Staged>>,
    /// Whether the entry given last was staged.
    last_is_staged: bool,
    /// Entries of both that were given together.
    together: Copies,
    anew: Option<ReadAnew>,
}

/// What is to be read anew.
struct ReadAnew {
    /// All behind this key.
    key: Vec<u8>,
    /// For another view: the staging tree, and whether the view is settled.
    view: Option<(Option<Arc<Staging>>, bool)>,
}

struct Staged {
    staging: Arc<Staging>,
    scan: Scan,
    /// What of the open window has not been given, as of when the main tree was last read.
    window: Range,
    /// What neither tree's scan has been told to read yet.
    rest: Option<Range>,
    /// Whether the view sees nothing that is staged from now on.
    settled: bool,
    /// Inserts into the staging tree before the window was opened.
    inserts: u64,
    /// Inserts that had been taken back by a tombstone then.
    withdrawn: u64,
    /// Whether the main tree has not been read since.
    just_opened: bool,
}

impl MergedScan {
    /// A scan of what `main` is about to scan, with the entries that are staged beside it.
    /// `settled`: it is for a view that was taken before, and that sees only what was committed
    /// then.
    pub fn new(main: Scan, staging: Option<&Arc<Staging>>, settled: bool) -> MergedScan {
        let mut scan = MergedScan {
            main,
            staged: None,
            last_is_staged: false,
            together: Copies::default(),
            anew: None,
        };
        scan.look_beside(staging, settled);
        scan
    }

    /// Looks at the staging tree from now on, if it has anything to give.
    fn look_beside(&mut self, staging: Option<&Arc<Staging>>, settled: bool) {
        if let Some(staged) = &mut self.staged {
            staged.settled = settled;
            return;
        }
        // What an empty staging tree gets from now on, a settled view doesn't see.
        let staging = staging.filter(|staging| !settled || !staging.is_empty());
        let main = &mut self.main;
        self.staged = staging.map(|staging| Box::new(Staged::beside(main, staging, settled)));
    }

    /// Has what lies behind `key`, which has been given, read anew, though it may have been copied
    /// already.
    pub fn read_anew_behind(&mut self, key: &[u8]) {
        self.anew = Some(ReadAnew { key: key.to_vec(), view: None });
    }

    /// Has all read anew that has not been given, though it may have been copied already.
    #[cold]
    pub fn read_rest_anew(&mut self) {
        if self.anew.is_some() {
            return;
        }
        match &mut self.staged {
            None => self.main.read_rest_anew(),
            Some(staged) => staged.read_rest_anew(&mut self.main),
        }
        self.last_is_staged = false;
    }

    /// What is to be read anew is read for another view; both as in [`MergedScan::new`].
    ///
    /// # Panics
    /// If nothing is.
    pub fn for_another_view(&mut self, staging: Option<&Arc<Staging>>, settled: bool) {
        let anew = self.anew.as_mut().expect("something is to be read anew");
        anew.view = Some((staging.cloned(), settled));
    }

    /// Has the entry that was given last given again.
    ///
    /// # Panics
    /// If it gave none.
    #[cold]
    pub fn give_again(&mut self) {
        match &mut self.staged {
            Some(staged) if self.last_is_staged => staged.scan.give_again(),
            _ => self.main.give_again(),
        }
    }

    #[cold]
    fn read_anew(&mut self, ReadAnew { key, view }: ReadAnew) {
        match &mut self.staged {
            None => self.main.read_anew_behind(&key),
            Some(staged) => staged.read_anew_behind(&mut self.main, &key),
        }
        self.last_is_staged = false;
        if let Some((staging, settled)) = view {
            self.look_beside(staging.as_ref(), settled);
        }
    }

    /// The next entry that a look gives.
    ///
    /// # Errors
    /// [`ScanStop`].
    #[inline]
    pub fn look(&mut self, look: Look) -> Result<Option<ScanEntry<'_>>, ScanStop> {
        if let Some(anew) = self.anew.take() {
            self.read_anew(anew);
        }
        match &mut self.staged {
            None => self.main.look(look),
            Some(_) => self.next_of_two(look),
        }
    }

    /// Whether the next entry of a scan of one tree has yet to be copied.
    #[inline]
    pub fn is_to_read(&self) -> bool {
        self.anew.is_some() || self.main.is_to_read()
    }

    /// Gives the next entry if it is one of the main tree that has been copied, with its value,
    /// beside which nothing is staged, and its key has no more than `key_bytes_max`; whether it is
    /// given.
    #[inline(always)]
    pub fn take_one(&mut self, key_bytes_max: usize) -> bool {
        let is_alone = self.staged.as_ref().is_none_or(|staged| staged.scan.peek().is_none());
        let taken = is_alone && self.anew.is_none() && self.main.take_one(key_bytes_max);
        self.last_is_staged &= !taken;
        taken
    }

    /// As [`Scan::take_copied`], of both trees.
    #[inline]
    pub fn take_copied(&mut self, key_bytes_max: usize) -> Batch<'_> {
        if self.anew.is_some() {
            return Batch::default();
        }
        // What the main tree's scan has copied lies in the window.
        match &mut self.staged {
            Some(staged) if staged.scan.peek().is_some() => {
                let (main, together) = (&mut self.main, &mut self.together);
                let (batch, is_staged) =
                    main.take_merged(&mut staged.scan, key_bytes_max, together);
                if !batch.entries.is_empty() {
                    self.last_is_staged = is_staged;
                }
                batch
            }
            _ => {
                let batch = self.main.take_copied(key_bytes_max);
                self.last_is_staged &= batch.entries.is_empty();
                batch
            }
        }
    }

    /// Entries that have been copied and are given next: how many, those that are hidden counted,
    /// too.
    #[inline]
    pub fn copied(&self) -> usize {
        if self.anew.is_some() {
            return 0;
        }
        // Before staged entries behind those come others that have yet to be copied, unless the
        // main tree has no more.
        let staged = self.staged.as_ref().filter(|_| self.main.unread().is_none());
        self.main.copied().len() + staged.map_or(0, |staged| staged.scan.copied().len())
    }

    /// The first of them, `number` at most, in the order in which they are given.
    pub fn first_copied(&self, number: usize) -> Vec<ScanEntry<'_>> {
        let direction = self.main.direction();
        let mut main = self.main.copied().peekable();
        let mut staged = self.staged.iter().flat_map(|staged| staged.scan.copied()).peekable();
        let next = || match (main.peek(), staged.peek()) {
            (Some(ours), Some(others)) if direction.order(ours.key, others.key).is_gt() => {
                staged.next()
            }
            (Some(_), _) => main.next(),
            (None, _) => staged.next(),
        };
        std::iter::from_fn(next).filter(|entry| !entry.deleted).take(number).collect()
    }

    /// The entry that was given last.
    ///
    /// # Panics
    /// If it gave none.
    #[inline(always)]
    pub fn last(&self) -> ScanEntry<'_> {
        if !self.last_is_staged {
            return self.main.last();
        }
        self.staged.as_ref().expect("the entry was staged").scan.last()
    }

    /// Key of the entry that was given last, unless what lies behind it is to be read anew already.
    pub fn given(&self) -> Option<&[u8]> {
        match &self.staged {
            Some(staged) if self.last_is_staged => staged.scan.given(),
            _ => self.main.given(),
        }
    }

    #[cold]
    #[inline(never)]
    fn next_of_two(&mut self, look: Look) -> Result<Option<ScanEntry<'_>>, ScanStop> {
        let staged = self.staged.as_mut().expect("the scan has a staging tree");
        loop {
            // The staging tree's part of a window is always read before the main tree's.
            staged.before_main(&mut self.main);
            let reads = self.main.is_to_read();
            self.main.fill(look)?;
            if reads && staged.was_overtaken() {
                staged.give_up_window(&mut self.main);
                continue;
            }
            let take_staged = match (self.main.peek(), staged.scan.peek()) {
                (None, None) => {
                    if !staged.open_window(&mut self.main, look)? {
                        return Ok(None);
                    }
                    continue;
                }
                (Some(_), None) => false,
                (None, Some(_)) => true,
                (Some(main), Some(of_staging)) => {
                    match staged.scan.direction().order(main.key, of_staging.key) {
                        Ordering::Less => false,
                        Ordering::Greater => true,
                        Ordering::Equal if of_staging.deleted && of_staging.outdated => {
                            staged.scan.skip();
                            self.main.outdate();
                            false
                        }
                        // Of two that aren't hidden the transaction's own version counts, not what
                        // was there before it.
                        Ordering::Equal if main.outdated || of_staging.hides => {
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
            let from = if take_staged { &mut staged.scan } else { &mut self.main };
            from.skip();
            if !from.last().deleted {
                self.last_is_staged = take_staged;
                return Ok(Some(self.last()));
            }
        }
    }
}

impl Staged {
    /// Takes the range over from `main`, which gets it back window by window.
    fn beside(main: &mut Scan, staging: &Arc<Staging>, settled: bool) -> Staged {
        let tree = main.tree();
        // Between the looks at the two trees an entry may move: what is read of the first is locked
        // of both.
        let scan = main.hand_over(staging.tree).locking_too(tree);
        let (rest, window) = (scan.unread().cloned(), Range::default());
        let (staging, inserts, withdrawn, just_opened) = (staging.clone(), 0, 0, false);
        Staged { staging, scan, window, rest, settled, inserts, withdrawn, just_opened }
    }

    /// Has what lies behind `key`, an entry of the window, read anew.
    fn read_anew_behind(&mut self, main: &mut Scan, key: &[u8]) {
        self.window.begin_behind(key, self.scan.direction());
        self.give_up_window(main);
    }

    /// Gives the window up if the main tree is to be read and something was staged since it was
    /// opened.
    fn before_main(&mut self, main: &mut Scan) {
        if self.settled || !main.is_to_read() {
            return;
        }
        self.note_given(main);
        let just_opened = std::mem::take(&mut self.just_opened);
        if just_opened || self.staging.inserts() == self.inserts {
            return;
        }
        self.give_up_window(main);
    }

    /// Makes the window begin behind what has been given.
    fn note_given(&mut self, main: &Scan) {
        let direction = self.scan.direction();
        for key in [main.given(), self.scan.given()].into_iter().flatten() {
            if !self.window.begins_behind(key, direction) {
                self.window.begin_behind(key, direction);
            }
        }
    }

    /// What has not been given of the window is read anew, if there was one.
    fn read_rest_anew(&mut self, main: &mut Scan) {
        let has_read = |scan: &Scan| scan.peek().is_some() || scan.given().is_some();
        if main.is_to_read() || has_read(main) || has_read(&self.scan) {
            self.note_given(main);
            self.give_up_window(main);
        }
    }

    /// Whether tombstones may be lacking for what was read of the main tree just now: what they
    /// take back would seem to be committed, its transaction having ended. A settled view tells
    /// that from when it ended.
    fn was_overtaken(&self) -> bool {
        !self.settled && self.staging.withdrawn() != self.withdrawn
    }

    /// What is left of the window is read anew, together with what comes behind it.
    fn give_up_window(&mut self, main: &mut Scan) {
        let mut left = self.window.clone();
        if let Some(rest) = self.rest.take() {
            left.end_with(rest, self.scan.direction());
        }
        main.abandon();
        self.scan.abandon();
        self.scan.restart(left);
        self.rest = self.scan.unread().cloned();
    }

    /// Makes a window no wider than what `main` would read at once: all that it covers is locked,
    /// though the caller may want no more. What lies behind it, if anything does.
    fn narrow(&mut self, main: &mut Scan, window: &mut Range) -> Result<Option<Range>, Fault> {
        main.restart(window.clone());
        let cut = main.cut();
        main.abandon();
        let behind = cut?.map(|cut| {
            let (first, behind) = window.split_on(&cut, self.scan.direction());
            *window = first;
            behind
        });
        // It may have been told to read no more than the window before.
        self.scan.abandon();
        self.scan.restart(window.clone());
        Ok(behind)
    }

    /// Reads the staging tree's next leaf and lets `main` read the same range; `false` at the end.
    fn open_window(&mut self, main: &mut Scan, look: Look) -> Result<bool, ScanStop> {
        let Some(mut window) = self.rest.clone() else { return Ok(false) };
        let behind = match look {
            Look::Newest { ranges: Some(_), .. } => self.narrow(main, &mut window)?,
            _ => None,
        };
        self.inserts = self.staging.inserts();
        self.withdrawn = self.staging.withdrawn();
        if let Err(stop) = self.scan.refill(look) {
            // What it has come past belongs to the window that will be opened, and may change
            // meanwhile.
            self.scan.abandon();
            self.scan.restart(self.rest.clone().expect("there is a window to be opened"));
            return Err(stop);
        }
        self.rest = match (self.scan.unread().cloned(), behind) {
            (Some(mut unread), Some(behind)) => {
                unread.end_with(behind, self.scan.direction());
                Some(unread)
            }
            (unread, behind) => unread.or(behind),
        };
        if let Some(rest) = &self.rest {
            window.end_before(rest, self.scan.direction());
        }
        self.window = window.clone();
        self.just_opened = true;
        main.restart(window);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{commit, transactions, tree};
    use super::super::{Direction, Durability, Op};
    use super::*;
    use crate::lock::{Mode, RangeMode};
    use weir_page::TxnId;

    /// What it hadn't given was locked, too: of an empty staging tree the whole range.
    #[test]
    fn what_a_scan_locks_of_both_trees_ends_soon_behind_what_it_has_given() {
        let ranges = Some(RangeMode { mode: Mode::Shared, for_rows: false });
        let keys = [b"b", b"c", b"d", b"e", b"f", b"g", b"h", b"i"];
        let of_all = |direction| [1, 2, 3, 8].map(|step| (direction, step));
        for (direction, step) in
            [Direction::Forward, Direction::Backward].into_iter().flat_map(of_all)
        {
            let txns = transactions(64);
            let (main, of_staging) = (tree(&txns), tree(&txns));
            let staging = Arc::new(Staging::new(main, of_staging));
            for (n, key) in keys.iter().enumerate() {
                let of = if n % step == 0 { main } else { of_staging };
                commit(&txns, of, *key, Op::Insert(b""));
            }
            let mut reader = txns.begin();
            reader.write(tree(&txns), b"row", Op::Insert(b"written")).unwrap();
            let look = Look::Newest { own: reader.id(), skip: false, ranges };
            let scan = Scan::new(txns.clone(), main, Range::default(), direction, 1);
            let mut scan = MergedScan::new(scan, Some(&staging), false);
            let is_locked = |key: &[u8]| {
                let other = TxnId(u64::MAX >> 16);
                [main, of_staging]
                    .map(|tree| txns.locks.ranges.holder(other, tree.id, key).is_some())
            };
            let mut expected: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            let (mut first, mut last): (&[u8], &[u8]) = (b"a", b"j");
            if direction == Direction::Backward {
                expected.reverse();
                (first, last) = (last, first);
            }
            let mut found = Vec::new();
            while let Some(entry) = scan.look(look).unwrap() {
                found.push(entry.key.to_vec());
                assert_eq!(is_locked(entry.key), [true; 2]);
                assert_eq!(is_locked(first), [true; 2]);
                if found.len() == 1 {
                    assert_eq!(is_locked(last), [false; 2], "{direction:?} {step}");
                }
            }
            assert_eq!(found, expected, "{direction:?} {step}");
            assert_eq!(is_locked(last), [true; 2]);
        }
    }

    /// It had come past where the entry was put while it waited.
    #[test]
    fn what_is_staged_before_the_entry_that_a_scan_waits_for_is_found() {
        for (direction, staged) in [(Direction::Forward, b"a"), (Direction::Backward, b"z")] {
            let txns = transactions(64);
            let (main, of_staging) = (tree(&txns), tree(&txns));
            let staging = Arc::new(Staging::new(main, of_staging));
            commit(&txns, of_staging, b"k", Op::Insert(b"there"));
            let mut holder = txns.begin();
            holder.write(of_staging, b"k", Op::Update(b"held")).unwrap();
            let mut reader = txns.begin();
            reader.write(tree(&txns), b"row", Op::Insert(b"written")).unwrap();
            let look = Look::Newest { own: reader.id(), skip: false, ranges: None };
            let scan = Scan::new(txns.clone(), main, Range::default(), direction, 10);
            let mut scan = MergedScan::new(scan, Some(&staging), false);
            assert!(matches!(scan.look(look), Err(ScanStop::Held(txn)) if txn == holder.id()));
            let mut other = txns.begin();
            other.insert_staged(&staging, staged, b"new").unwrap();
            other.commit(Durability::Relaxed).unwrap();
            holder.commit(Durability::Relaxed).unwrap();
            let mut found = Vec::new();
            while let Some(entry) = scan.look(look).unwrap() {
                found.push(entry.key.to_vec());
            }
            assert_eq!(found, [staged.to_vec(), b"k".to_vec()], "{direction:?}");
        }
    }

    /// It seemed to be committed: the reader had looked at the staging tree, and not at the main
    /// tree yet.
    #[test]
    fn what_is_withdrawn_between_the_looks_at_the_two_trees_is_not_given() {
        // Whether an insert is taken back so is left to chance where its leaf is in memory.
        for tries in 0.. {
            assert!(tries < 100, "nothing was withdrawn");
            let txns = transactions(200);
            let (rows, main, of_staging) = (tree(&txns), tree(&txns), tree(&txns));
            let staging = Arc::new(Staging::new(main, of_staging));
            txns.staging.configure(0, true);
            txns.staging.be_eager();
            txns.staging.add(staging.clone());
            let mut writer = txns.begin();
            writer.write(rows, b"row", Op::Insert(b"")).unwrap();
            writer.insert_staged(&staging, b"k", b"v").unwrap();
            for _ in 0..4 {
                txns.staging_step().unwrap();
            }
            assert_eq!(txns.staging.figures().moved, 1);
            let mut reader = txns.begin();
            reader.write(rows, b"other", Op::Insert(b"written")).unwrap();
            let ranges = Some(RangeMode { mode: Mode::Shared, for_rows: false });
            let look = Look::Newest { own: reader.id(), skip: false, ranges };
            let scan = Scan::new(txns.clone(), main, Range::default(), Direction::Forward, 1);
            let mut scan = MergedScan::new(scan, Some(&staging), false);
            {
                let MergedScan { main, staged, .. } = &mut scan;
                assert!(staged.as_mut().unwrap().open_window(main, look).unwrap());
            }
            let staged = txns.staging.figures().staged;
            writer.rollback().unwrap();
            if txns.staging.figures().staged == staged {
                continue;
            }
            let found = scan.look(look).unwrap().map(|entry| entry.key.to_vec());
            assert_eq!(found, None, "it was rolled back");
            return;
        }
    }
}
