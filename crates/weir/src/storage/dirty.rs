//! The dirty limit: how many pages may have changes that are not in their image.
//!
//! A page counts from the change that makes it dirty until a write of it is done, the time of that
//! write included. Before its first latch an mtr reserves as many *credits* as it may dirty pages
//! ([`PER_MTR`]); at its commit those of newly dirtied frames become the frames', the rest goes
//! back. The write of a page gives its credit back. So the limit is never exceeded, and who has to
//! wait for credits does so without a latch (`gate`).
//!
//! # How reservation scales
//! One counter, `taken`, has the credits of frames and those reserved *directly*. Most mtrs reserve
//! in one of a few *stripes* instead, each with a quota and a cache line of its own, and only read
//! `taken`, which rarely changes. With M the sum of all quotas and L the limit:
//! - a direct reservation is given if `taken` is then at most L - M;
//! - one in a stripe is given if the stripe is then within its quota, and `taken`, read after that,
//!   is at most L - M.
//!
//! In the moment in which a reservation is given, `taken <= L - M` and the stripes have at most M:
//! together at most L. Between such moments the sum doesn't grow: a credit that goes from a stripe
//! to a frame is added to `taken` before it leaves the stripe. So the sum is at most L always. The
//! orders of the accesses that this needs are those of sequential consistency; shuttle tests them.
//!
//! Small limits have no stripes: M is zero then.
//!
//! # Reserve
//! A share of the limit is for rollback alone ([`super::on_reserve`]): at the limit it waits like
//! all, but on a full device, where no page gets clean, it is what lets a transaction be taken
//! back. So L above is the limit less the reserve for all others.

use super::pool::NO_FRAME;
use super::reserve::is_on_reserve;
use crate::sync::{AtomicU64, Ordering::SeqCst, thread_number};
use crossbeam_utils::CachePadded;

/// Credits that each mtr reserves: the most pages that one may dirty.
pub const PER_MTR: u64 = 4;

/// The smallest limit, in pages.
pub const LIMIT_MIN: u64 = 4 * PER_MTR;

const STRIPES: usize = 8;
/// Credits reserved in one stripe at most: two mtrs' at once.
const QUOTA: u64 = 2 * PER_MTR;
/// Limits from here on have stripes: they take less than a fiftieth of it.
const STRIPED_FROM: u64 = 50 * STRIPES as u64 * QUOTA;
/// Flag in `usable`: there are stripes.
const STRIPED: u64 = 1 << 63;

/// Credits; see the module.
pub struct DirtyCredits {
    limit: AtomicU64,
    /// What `taken` may be for a reservation to be given, and [`STRIPED`].
    usable: AtomicU64,
    taken: CachePadded<AtomicU64>,
    stripes: [CachePadded<AtomicU64>; STRIPES],
}

/// [`PER_MTR`] credits; dropped, they go back.
#[must_use = "credits that are dropped go back"]
pub struct Reserved<'a> {
    credits: &'a DirtyCredits,
    stripe: Option<usize>,
}

fn usable(limit: u64) -> u64 {
    let users = limit - reserve(limit);
    match users >= STRIPED_FROM {
        true => (users - STRIPES as u64 * QUOTA) | STRIPED,
        false => users,
    }
}

/// What is for rollback alone.
pub(super) fn reserve(limit: u64) -> u64 {
    (limit / 16).clamp(PER_MTR, 1024)
}

impl DirtyCredits {
    /// Credits for `limit` pages.
    pub fn new(limit: u64) -> Self {
        let limit = limit.clamp(LIMIT_MIN, u64::from(NO_FRAME));
        DirtyCredits {
            limit: AtomicU64::new(limit),
            usable: AtomicU64::new(usable(limit)),
            taken: AtomicU64::new(0).into(),
            stripes: std::array::from_fn(|_| AtomicU64::new(0).into()),
        }
    }

    /// The limit, in pages.
    pub fn limit(&self) -> u64 {
        self.limit.load(SeqCst)
    }

    /// Pages at which all but rollback have to wait.
    pub fn users_limit(&self) -> u64 {
        self.usable.load(SeqCst) & !STRIPED
    }

    /// The share of [`DirtyCredits::users_limit`] that is taken.
    #[inline]
    pub fn used(&self) -> f64 {
        self.taken.load(SeqCst) as f64 / self.users_limit() as f64
    }

    /// Changes the limit. A smaller one is kept once as many pages have been written.
    pub fn set_limit(&self, limit: u64) {
        let limit = limit.clamp(LIMIT_MIN, u64::from(NO_FRAME));
        self.limit.store(limit, SeqCst);
        self.usable.store(usable(limit), SeqCst);
    }

    /// Credits that frames and running mtrs have, or more: one on its way may be counted twice.
    pub fn outstanding(&self) -> u64 {
        let reserved: u64 = self.stripes.iter().map(|s| s.load(SeqCst)).sum();
        reserved + self.taken.load(SeqCst)
    }

    /// Reserves credits for an mtr, unless too many are out. Never waits.
    #[inline]
    pub fn try_reserve(&self) -> Option<Reserved<'_>> {
        self.reserve_in(thread_number() % STRIPES).or_else(|| self.reserve_directly())
    }

    #[inline]
    fn reserve_in(&self, stripe: usize) -> Option<Reserved<'_>> {
        let reserved = &self.stripes[stripe];
        // Reserved first, then looked: see the module. The limit is read after it, too: who lowers
        // it sees our credits, or we see the lower one.
        if reserved.fetch_add(PER_MTR, SeqCst) + PER_MTR <= QUOTA {
            let usable = self.usable.load(SeqCst);
            if usable & STRIPED != 0 && self.taken.load(SeqCst) <= usable & !STRIPED {
                return Some(Reserved { credits: self, stripe: Some(stripe) });
            }
        }
        reserved.fetch_sub(PER_MTR, SeqCst);
        None
    }

    fn reserve_directly(&self) -> Option<Reserved<'_>> {
        loop {
            let usable = self.usable.load(SeqCst);
            let most = match is_on_reserve() {
                false => usable & !STRIPED,
                true => (usable & !STRIPED) + reserve(self.limit.load(SeqCst)),
            };
            let given = self.taken.fetch_update(SeqCst, SeqCst, |taken| {
                (taken + PER_MTR <= most).then_some(taken + PER_MTR)
            });
            given.ok()?;
            if self.usable.load(SeqCst) == usable {
                return Some(Reserved { credits: self, stripe: None });
            }
            self.taken.fetch_sub(PER_MTR, SeqCst);
        }
    }

    /// A page is no longer dirty: its credit goes back.
    pub fn give_back(&self, pages: u64) {
        let before = self.taken.fetch_sub(pages, SeqCst);
        assert!(before >= pages, "{pages} credits given back, {before} were taken");
    }
}

impl Reserved<'_> {
    /// Leaves `pages` credits to frames that are dirty from now on; the rest goes back.
    ///
    /// # Panics
    /// If there are more pages than credits.
    #[inline]
    pub fn spend(self, pages: u64) {
        assert!(pages <= PER_MTR, "an mtr dirties {pages} pages, {PER_MTR} are the most");
        match self.stripe {
            // Added before they leave the stripe, which the drop does.
            Some(_) if pages > 0 => drop(self.credits.taken.fetch_add(pages, SeqCst)),
            Some(_) => {}
            None => {
                self.credits.give_back(PER_MTR - pages);
                std::mem::forget(self);
            }
        }
    }
}

impl Drop for Reserved<'_> {
    #[inline]
    fn drop(&mut self) {
        match self.stripe {
            Some(stripe) => {
                let before = self.credits.stripes[stripe].fetch_sub(PER_MTR, SeqCst);
                assert!(before >= PER_MTR, "credits come back to the stripe they are from");
            }
            None => self.credits.give_back(PER_MTR),
        }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::super::on_reserve;
    use super::*;

    #[test]
    fn unused_credits_go_back() {
        for limit in [LIMIT_MIN, 2 * STRIPED_FROM] {
            let credits = DirtyCredits::new(limit);
            drop(credits.try_reserve().unwrap());
            assert_eq!(credits.outstanding(), 0);
            credits.try_reserve().unwrap().spend(1);
            assert_eq!(credits.outstanding(), 1);
            credits.give_back(1);
            assert_eq!(credits.outstanding(), 0);
        }
    }

    #[test]
    fn the_limit_is_reached_and_not_passed() {
        for limit in [LIMIT_MIN, 33, 100, STRIPED_FROM, 2 * STRIPED_FROM] {
            let credits = DirtyCredits::new(limit);
            while let Some(reserved) = credits.try_reserve() {
                reserved.spend(1);
                assert!(credits.outstanding() <= limit);
            }
            let unused = limit - reserve(limit) - credits.outstanding();
            assert!(unused < PER_MTR + STRIPES as u64 * QUOTA, "{unused} of {limit} are unused");
        }
    }

    #[test]
    fn a_full_stripe_is_no_reason_to_refuse() {
        let credits = DirtyCredits::new(2 * STRIPED_FROM);
        let held: Vec<_> = (0..100).map(|_| credits.try_reserve().unwrap()).collect();
        assert_eq!(credits.outstanding(), 100 * PER_MTR);
        drop(held);
        assert_eq!(credits.outstanding(), 0);
    }

    #[test]
    fn rollback_has_a_reserve_within_the_limit() {
        let credits = DirtyCredits::new(100);
        while let Some(reserved) = credits.try_reserve() {
            reserved.spend(PER_MTR);
        }
        let reserve = on_reserve();
        credits.try_reserve().unwrap().spend(PER_MTR);
        while let Some(reserved) = credits.try_reserve() {
            reserved.spend(PER_MTR);
        }
        assert!(credits.outstanding() <= 100);
        drop(reserve);
        credits.give_back(2 * PER_MTR);
        assert!(credits.try_reserve().is_none());
    }

    #[test]
    fn after_a_lower_limit_nothing_is_given_until_enough_has_come_back() {
        let credits = DirtyCredits::new(2 * STRIPED_FROM);
        let mut taken = 0;
        while taken < STRIPED_FROM {
            credits.try_reserve().unwrap().spend(PER_MTR);
            taken += PER_MTR;
        }
        credits.set_limit(100);
        assert!(credits.try_reserve().is_none());
        let users = 100 - reserve(100);
        credits.give_back(taken - (users - PER_MTR + 1));
        assert!(credits.try_reserve().is_none());
        credits.give_back(1);
        assert!(credits.try_reserve().is_some());
    }
}

#[cfg(all(test, feature = "shuttle"))]
mod interleavings;
