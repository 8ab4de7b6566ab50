//! Merging of runs with a tree of losers (Knuth, TAOCP 3, 5.4.1): one comparison per level.

use super::Result;
use super::helper::{Helper, wait};
use super::run::{Run, RunReader, RunWriter};
use std::sync::mpsc::{self, Receiver, SyncSender};

/// Batches that are merged ahead; one is being filled beside them, and one is being read.
const AHEAD: usize = 4;

/// Bytes of a batch where all together have so many.
pub(super) fn batch_bytes(all: usize) -> usize {
    all / (AHEAD + 2)
}

pub(super) struct Merge {
    readers: Vec<RunReader>,
    exhausted: Vec<bool>,
    /// Inner nodes 1.. of a complete binary tree whose leaves are the readers: the loser of the
    /// match played there. Node 0 is the overall winner.
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

    /// Writes all records to one run.
    pub(super) fn write(mut self, mut writer: RunWriter) -> Result<Run> {
        while let Some((key, value)) = self.next()? {
            writer.put(key, value)?;
        }
        writer.finish()
    }

    /// Has a helper merge, ahead of who takes the records by so many bytes at most.
    pub(super) fn ahead(self, helper: &Helper, bytes: usize) -> Ahead {
        let (sender, batches) = mpsc::sync_channel(AHEAD);
        let batch_bytes = batch_bytes(bytes);
        helper.give(move || self.send(batch_bytes, &sender));
        Ahead { batches: Some(batches), batch: Batch::default(), next: 0 }
    }

    /// Sends all records, and an empty batch behind them.
    fn send(mut self, batch_bytes: usize, to: &SyncSender<Result<Batch>>) {
        loop {
            let batch = self.next_batch(batch_bytes);
            let is_last = batch.as_ref().map_or(true, |batch| batch.records.is_empty());
            // Nobody takes it where the sort has been given up.
            if to.send(batch).is_err() || is_last {
                return;
            }
        }
    }

    fn next_batch(&mut self, bytes: usize) -> Result<Batch> {
        let mut batch = Batch { bytes: Vec::with_capacity(bytes), records: Vec::new() };
        while batch.bytes.len() + batch.records.len() * size_of::<(u32, u32)>() < bytes {
            let Some((key, value)) = self.next()? else { break };
            batch.bytes.extend_from_slice(key);
            let key_end = batch.bytes.len() as u32;
            batch.bytes.extend_from_slice(value);
            batch.records.push((key_end, batch.bytes.len() as u32));
        }
        Ok(batch)
    }
}

/// Merged records.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    /// Where in `bytes` the key and the value of each end.
    records: Vec<(u32, u32)>,
}

/// What a helper merges.
pub(super) struct Ahead {
    /// Until the end.
    batches: Option<Receiver<Result<Batch>>>,
    batch: Batch,
    next: usize,
}

impl Ahead {
    /// As [`super::Sorted::next`].
    pub(super) fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if self.next == self.batch.records.len() {
            let Some(batches) = &self.batches else { return Ok(None) };
            let batch = wait(batches);
            self.next = 0;
            self.batch = Batch::default();
            match batch {
                Ok(batch) if !batch.records.is_empty() => self.batch = batch,
                last => {
                    self.batches = None;
                    return last.map(|_| None);
                }
            }
        }
        let start = self.next.checked_sub(1).map_or(0, |before| self.batch.records[before].1);
        let (key_end, end) = self.batch.records[self.next];
        self.next += 1;
        let record = &self.batch.bytes[start as usize..end as usize];
        Ok(Some(record.split_at((key_end - start) as usize)))
    }
}
