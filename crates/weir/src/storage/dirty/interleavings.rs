//! Every schedule that shuttle finds: `cargo test -p weir --features shuttle --lib interleavings`.

use super::*;
use shuttle::sync::Arc;
use shuttle::thread;

fn check(run: fn()) {
    shuttle::check_random(run, 3_000);
    shuttle::check_pct(run, 3_000, 3);
}

/// What frames have, as the flush list counts it.
#[derive(Default)]
struct Frames {
    dirty: AtomicU64,
}

impl Frames {
    fn change(&self, credits: &DirtyCredits, reserved: Reserved<'_>, pages: u64, limit: u64) {
        let dirty = self.dirty.fetch_add(pages, SeqCst) + pages;
        assert!(dirty <= limit, "{dirty} pages are dirty, {limit} may be");
        reserved.spend(pages);
        assert!(credits.outstanding() >= pages);
    }
}

/// With stripes.
const LIMIT: u64 = 2 * STRIPED_FROM;

/// `LIMIT` less what keeps the limit near: a few credits are left.
fn nearly_full(limit: u64, frames: &Frames) -> DirtyCredits {
    let credits = DirtyCredits::new(limit);
    let dirty = limit - reserve(limit) - STRIPES as u64 * QUOTA - 3;
    credits.taken.store(dirty, SeqCst);
    frames.dirty.store(dirty, SeqCst);
    credits
}

#[test]
fn stripes_and_direct_reservations_keep_the_limit() {
    check(|| {
        let frames = Arc::new(Frames::default());
        let credits = Arc::new(nearly_full(LIMIT, &frames));
        let threads: Vec<_> = (0..3)
            .map(|stripe| {
                let (frames, credits) = (frames.clone(), credits.clone());
                thread::spawn(move || {
                    for _ in 0..3 {
                        let given = credits.reserve_in(stripe % 2);
                        let given = given.or_else(|| credits.reserve_directly());
                        if let Some(reserved) = given {
                            frames.change(&credits, reserved, PER_MTR, LIMIT - reserve(LIMIT));
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().expect("no thread fails"));
        assert_eq!(credits.outstanding(), frames.dirty.load(SeqCst));
    });
}

#[test]
fn a_lower_limit_is_kept_once_the_sum_says_so() {
    check(|| {
        let frames = Arc::new(Frames::default());
        let credits = Arc::new(DirtyCredits::new(32));
        let settled = Arc::new(AtomicU64::new(32));
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let (frames, credits, settled) = (frames.clone(), credits.clone(), settled.clone());
                thread::spawn(move || {
                    for _ in 0..2 {
                        let most = settled.load(SeqCst);
                        if let Some(reserved) = credits.try_reserve() {
                            frames.change(&credits, reserved, 3, most);
                        }
                    }
                })
            })
            .collect();
        credits.set_limit(16);
        if credits.outstanding() <= 16 {
            settled.store(16, SeqCst);
        }
        writers.into_iter().for_each(|t| t.join().expect("no thread fails"));
    });
}
