//! How even the machine is by itself.
//!
//! On a machine shared with others, the same work takes longer in one second than in the next:
//! neighbours use memory's bandwidth and the shared cache. An engine can't be more even than that.
//! So this measures it: threads that change random words of a block, with no engine, no lock and no
//! device.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// Changes between two looks at the clock of the run.
const STRIDE: u64 = 1000;

/// Threads that change random words, each of a block of its own.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Threads.
    pub threads: u32,
    /// Bytes of each thread's block: at least a word.
    pub block_bytes: u64,
    /// Whole seconds to measure, after one that isn't counted.
    pub seconds: u32,
}

impl Load {
    /// Changes per second in each second, of all threads together. Ends early when `stop` is set.
    pub fn run(&self, stop: &AtomicBool) -> Vec<f64> {
        let changes = AtomicU64::new(0);
        let done = AtomicBool::new(false);
        let mut rates = Vec::new();
        thread::scope(|scope| {
            for number in 0..self.threads {
                let (changes, done) = (&changes, &done);
                scope.spawn(move || self.work(u64::from(number), changes, done));
            }
            let mut before = (changes.load(Relaxed), Instant::now());
            for second in 0..=self.seconds {
                thread::sleep(Duration::from_secs(1));
                let now = (changes.load(Relaxed), Instant::now());
                if stop.load(Relaxed) {
                    break;
                }
                if second > 0 {
                    rates.push((now.0 - before.0) as f64 / (now.1 - before.1).as_secs_f64());
                }
                before = now;
            }
            done.store(true, Relaxed);
        });
        rates
    }

    fn work(&self, seed: u64, changes: &AtomicU64, done: &AtomicBool) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut block = vec![1u64; (self.block_bytes / 8) as usize];
        let mut last = 0;
        while !done.load(Relaxed) {
            for _ in 0..STRIDE {
                // Each place follows from what the one before held: no two accesses overlap.
                let at = (random.usize(..block.len()) ^ (last & 1) as usize) % block.len();
                last = block[at];
                block[at] = last.wrapping_add(2);
            }
            changes.fetch_add(STRIDE, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_but_the_first_is_counted() {
        let load = Load { threads: 2, block_bytes: 1 << 12, seconds: 2 };
        let rates = load.run(&AtomicBool::new(false));
        assert_eq!(rates.len(), 2);
        assert!(rates.iter().all(|&rate| rate > 0.0), "{rates:?}");
    }

    #[test]
    fn it_ends_when_told_to() {
        let load = Load { threads: 1, block_bytes: 8, seconds: 1000 };
        assert!(load.run(&AtomicBool::new(true)).is_empty());
    }
}
