//! Every schedule that shuttle finds: `cargo test -p weir --features shuttle --lib interleavings`.

use super::Latch;
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::thread;

const SCHEDULES: usize = 5_000;

/// Two words that a writer keeps equal while it holds the latch.
#[derive(Default)]
struct Pair {
    latch: Latch,
    words: [AtomicU64; 2],
}

impl Pair {
    fn get(&self) -> [u64; 2] {
        [0, 1].map(|n| self.words[n].load(Ordering::Relaxed))
    }

    /// The latch is held exclusively.
    fn add_one(&self) {
        let [first, second] = self.get();
        assert_eq!(first, second, "a writer is alone");
        self.words[0].store(first + 1, Ordering::Relaxed);
        self.words[1].store(second + 1, Ordering::Relaxed);
    }
}

fn check(run: impl Fn(Arc<Pair>) + Send + Sync + 'static) {
    shuttle::check_random(move || run(Arc::new(Pair::default())), SCHEDULES);
}

fn spawn(pair: &Arc<Pair>, run: impl FnOnce(&Pair) + Send + 'static) -> thread::JoinHandle<()> {
    let pair = pair.clone();
    thread::spawn(move || run(&pair))
}

fn write(pair: &Pair) {
    pair.latch.exclusive();
    pair.add_one();
    pair.latch.unlock_exclusive();
}

#[test]
fn writers_and_readers_exclude_each_other() {
    check(|pair| {
        let mut threads: Vec<_> = (0..2).map(|_| spawn(&pair, write)).collect();
        threads.extend((0..2).map(|_| {
            spawn(&pair, |pair| {
                pair.latch.shared();
                let [first, second] = pair.get();
                assert_eq!(first, second, "nobody writes beside a reader");
                pair.latch.unlock_shared();
            })
        }));
        threads.into_iter().for_each(|t| t.join().expect("no thread fails"));
        assert_eq!(pair.get(), [2, 2], "no write is lost");
    });
}

#[test]
fn an_optimistic_reader_accepts_nothing_torn() {
    check(|pair| {
        let writers: Vec<_> = (0..2).map(|_| spawn(&pair, write)).collect();
        let reader = spawn(&pair, |pair| {
            for _ in 0..3 {
                let Some(seen) = pair.latch.optimistic() else { continue };
                let [first, second] = pair.get();
                if pair.latch.validate(seen) {
                    assert_eq!(first, second);
                }
            }
        });
        writers.into_iter().for_each(|t| t.join().expect("no thread fails"));
        reader.join().expect("no thread fails");
    });
}

#[test]
fn a_latch_taken_as_it_was_seen_finds_it_so() {
    check(|pair| {
        let upgrade = |pair: &Pair| {
            let Some(seen) = pair.latch.optimistic() else { return };
            let before = pair.get();
            if pair.latch.exclusive_if(seen) {
                assert_eq!(pair.get(), before, "nothing has changed since it was seen");
                pair.add_one();
                pair.latch.unlock_exclusive();
            }
        };
        let reader = |pair: &Pair| {
            if pair.latch.try_shared() {
                pair.latch.unlock_shared();
            }
        };
        let unchanged = |pair: &Pair| {
            if pair.latch.try_exclusive() {
                pair.latch.unlock_unchanged();
            }
        };
        let threads = [
            spawn(&pair, upgrade),
            spawn(&pair, upgrade),
            spawn(&pair, write),
            spawn(&pair, reader),
            spawn(&pair, unchanged),
        ];
        threads.into_iter().for_each(|t| t.join().expect("no thread fails"));
        let [first, second] = pair.get();
        assert!(first == second && (1..=3).contains(&first));
        assert!(pair.latch.try_exclusive(), "everybody has given it up");
    });
}

#[test]
fn giving_up_an_unchanged_page_does_not_disturb_readers() {
    check(|pair| {
        let seen = pair.latch.optimistic().expect("nobody holds it");
        let holder = spawn(&pair, |pair| {
            pair.latch.exclusive();
            pair.latch.unlock_unchanged();
        });
        holder.join().expect("no thread fails");
        assert!(pair.latch.validate(seen));
    });
}
