//! Merging of runs with a tree of losers (Knuth, TAOCP 3, 5.4.1): one comparison per level.

use super::Result;
use super::run::RunReader;

pub(super) struct Merge {
    readers: Vec<RunReader>,
    exhausted: Vec<bool>,
    /// Inner nodes 1.. of a complete binary tree whose leaves are the readers: the loser of the match
    /// played there. Node 0 is the overall winner.
    tree: Vec<usize>,
    started: bool,
}

impl Merge {
    pub(super) fn new(mut readers: Vec<RunReader>) -> Result<Merge> {
        assert!(!readers.is_empty(), "a merge has runs");
        let exhausted: Result<_> =
            readers.iter_mut().map(|r| r.advance().map(|more| !more)).collect();
        let exhausted: Vec<bool> = exhausted?;
        let tree = vec![0; readers.len()];
        let mut merge = Merge { readers, exhausted, tree, started: false };
        merge.play_all();
        Ok(merge)
    }

    fn play_all(&mut self) {
        let leaves = self.readers.len();
        let mut winners = vec![0; 2 * leaves];
        for (at, winner) in winners[leaves..].iter_mut().enumerate() {
            *winner = at;
        }
        for node in (1..leaves).rev() {
            let (a, b) = (winners[2 * node], winners[2 * node + 1]);
            (winners[node], self.tree[node]) = if self.beats(b, a) { (b, a) } else { (a, b) };
        }
        self.tree[0] = winners[1];
    }

    /// Plays the winner's matches again, from its leaf up.
    fn replay(&mut self) {
        let mut winner = self.tree[0];
        let mut node = (winner + self.readers.len()) / 2;
        while node > 0 {
            if self.beats(self.tree[node], winner) {
                std::mem::swap(&mut self.tree[node], &mut winner);
            }
            node /= 2;
        }
        self.tree[0] = winner;
    }

    fn beats(&self, a: usize, b: usize) -> bool {
        !self.exhausted[a]
            && (self.exhausted[b] || self.readers[a].order() < self.readers[b].order())
    }

    pub(super) fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if self.started && !self.exhausted[self.tree[0]] {
            let winner = self.tree[0];
            self.exhausted[winner] = !self.readers[winner].advance()?;
            self.replay();
        }
        self.started = true;
        let winner = self.tree[0];
        Ok((!self.exhausted[winner]).then(|| self.readers[winner].record()))
    }
}
