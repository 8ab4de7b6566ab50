//! What each worker has committed, in order.

use std::collections::BTreeMap;
use weir::Durability;

/// Threads that write.
pub const WORKERS: usize = 3;
/// Rows that all of them write.
pub const SHARED: usize = 3;

/// A row but for its body, which its stamp and length give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Different in every row that is ever written.
    pub stamp: u64,
    pub a: i64,
    pub len: usize,
}

impl Row {
    pub fn body(&self) -> Vec<u8> {
        let mut body = vec![0; self.len];
        let random = if self.stamp.is_multiple_of(3) { self.len.min(64) } else { self.len };
        fastrand::Rng::with_seed(self.stamp).fill(&mut body[..random]);
        body
    }
}

pub type Rows = BTreeMap<u64, Row>;

/// What something that was acknowledged survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Survives {
    Nothing,
    Kill,
    PowerCut,
}

impl From<Durability> for Survives {
    fn from(durability: Durability) -> Survives {
        match durability {
            Durability::Sync => Survives::PowerCut,
            Durability::Write => Survives::Kill,
            Durability::Relaxed => Survives::Nothing,
        }
    }
}

/// A transaction that was committed, or may have been.
#[derive(Debug)]
pub struct Commit {
    pub number: u64,
    pub writes: Vec<(u64, Option<Row>)>,
    /// The shared row that it wrote.
    pub shared: Option<usize>,
    /// What its commit survives, as far as it was acknowledged.
    pub survives: Survives,
    /// The same of its being prepared, if it was.
    pub prepared: Option<Survives>,
    /// When its commit was asked for, and acknowledged.
    pub begun: u64,
    pub ended: u64,
}

/// A worker's rows, and the last of its transactions that wrote each of the shared ones.
#[derive(Debug, Default, Clone)]
pub struct State {
    pub number: u64,
    pub rows: Rows,
    pub shared: [u64; SHARED],
}

impl State {
    fn apply(&mut self, commit: &Commit) {
        self.number = commit.number;
        for (key, row) in &commit.writes {
            match row {
                Some(row) => drop(self.rows.insert(*key, row.clone())),
                None => drop(self.rows.remove(key)),
            }
        }
        commit.shared.into_iter().for_each(|nth| self.shared[nth] = commit.number);
    }
}

/// Of one worker.
#[derive(Debug, Default)]
pub struct Model {
    /// What was found after the last start.
    base: State,
    /// What has been committed since.
    pub commits: Vec<Commit>,
    pub now: State,
    pub last_number: u64,
}

impl Model {
    pub fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    pub fn last(&mut self) -> &mut Commit {
        self.commits.last_mut().expect("a commit was asked for")
    }

    /// The commit that was asked for last was acknowledged.
    pub fn committed(&mut self, survives: Survives, now: u64) {
        let last = self.commits.last_mut().expect("a commit was asked for");
        (last.survives, last.ended) = (survives, now);
        self.now.apply(last);
    }

    /// The state after the transaction of this number, and how many of `commits` that are; `None`
    /// if there is none.
    pub fn after(&self, number: u64) -> Option<(State, usize)> {
        let mut state = self.base.clone();
        let mut commits = self.commits.iter();
        while state.number != number {
            state.apply(commits.next()?);
        }
        Some((state, self.commits.len() - commits.len()))
    }

    /// The transaction of this number was the last.
    pub fn settle(&mut self, number: u64) {
        let (state, _) = self.after(number).expect("one that is known");
        (self.base, self.now) = (state.clone(), state);
        self.commits.clear();
    }
}
