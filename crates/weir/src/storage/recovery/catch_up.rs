//! Catching up: a page that somebody wants is brought up to date before the pass comes to it.
//!
//! Each record tells the LSN that its page had before. So from the page's last record, which
//! analysis has found, the records that it lacks are found backwards, one read of the log for each,
//! and then applied forwards.

use super::super::pool::Behind;
use super::super::{Fault, Storage};
use super::analysis::{Lag, for_each_record};
use super::{Recovery, broken_chain, prev_of};
use std::sync::atomic::Ordering;
use weir_page::{Lsn, PageId};
use weir_redo::Groups;
use weir_store::MapSlot;

/// Bytes of groups that are applied with the page latched once, about, and that are kept in memory
/// when they have been found.
const TOGETHER_BYTES: usize = 1 << 20;

/// A group with changes of a page.
struct Link {
    lsn: Lsn,
    /// Empty if it has to be read again.
    payload: Vec<u8>,
}

impl Storage {
    /// Brings a page that is behind up to date. The caller holds no latch.
    ///
    /// # Errors
    /// The log or the image can't be read or are damaged; those of waiting for frames and credits.
    pub(in crate::storage) fn catch_up(&self, page: PageId, slot: &MapSlot) -> Result<(), Fault> {
        let Some(recovery) = self.recovery() else { return Ok(()) };
        let lag = recovery.lag(slot);
        // Others who want the page wait for us.
        let Some(claim) = self.pool.claim(slot, page) else { return Ok(()) };
        while let Some(place) = self.pool.behind(slot) {
            let Behind::In(frame) = place else {
                self.bring_in(lag, slot, &claim)?;
                continue;
            };
            let Some(mut latched) = self.latch_behind(lag, slot, frame) else { continue };
            let have = latched.page().lsn();
            if have >= lag.last {
                latched.reveal(slot);
                self.recovery_figures.on_demand.fetch_add(1, Ordering::Relaxed);
                break;
            }
            drop(latched);
            match self.apply_links(&recovery, lag, slot, frame, have) {
                // The pass has applied some meanwhile, and the checkpoint may have followed it past
                // what was to be read.
                Err(_) if self.is_past(lag, slot, frame, have) => {}
                Err(fault) if self.gives_up(&fault) => {
                    let credits = self.reserve_credits()?;
                    if let Some(mut latched) = self.latch_behind(lag, slot, frame) {
                        self.give_up(lag, &mut latched, credits);
                    }
                }
                applied => applied?,
            }
        }
        Ok(())
    }

    /// Applies what a page lacks, as far as it stays in its frame.
    fn apply_links(
        &self,
        recovery: &Recovery,
        lag: &Lag,
        slot: &MapSlot,
        frame: u32,
        have: Lsn,
    ) -> Result<(), Fault> {
        let mut groups = self.redo.groups();
        let mut links = find_links(&mut groups, recovery.from, lag, have)?;
        while !links.is_empty() {
            let (mut together, mut bytes) = (Vec::new(), 0);
            while bytes < TOGETHER_BYTES
                && let Some(mut link) = links.pop()
            {
                if link.payload.is_empty() {
                    link.payload = groups.read(link.lsn)?.to_vec();
                }
                bytes += link.payload.len();
                together.push(link);
            }
            let lacking: Vec<_> =
                together.iter().map(|link| (link.lsn, &link.payload[..])).collect();
            let credits = self.reserve_credits()?;
            let Some(mut latched) = self.latch_behind(lag, slot, frame) else { break };
            if !self.apply(lag, &mut latched, credits, &lacking)? {
                // Others have got on with it meanwhile.
                break;
            }
        }
        Ok(())
    }

    /// Whether a page has changed since it was at LSN `have`, or isn't in this frame any more.
    fn is_past(&self, lag: &Lag, slot: &MapSlot, frame: u32, have: Lsn) -> bool {
        self.latch_behind(lag, slot, frame).is_none_or(|mut latched| latched.page().lsn() > have)
    }
}

/// The groups that a page at LSN `have` lacks, the newest first. None of them is before the
/// checkpoint `from`: an image that lacks such a group isn't the one that was written last.
fn find_links(
    groups: &mut Groups<'_>,
    from: Lsn,
    lag: &Lag,
    have: Lsn,
) -> Result<Vec<Link>, Fault> {
    let (mut links, mut kept_bytes) = (Vec::new(), 0);
    let mut lsn = lag.last;
    while lsn > have {
        let payload = groups.read(lsn)?;
        let mut first = None;
        for_each_record(lsn, payload, &mut |logged| {
            if let Some(prev) = prev_of(logged, lag.page) {
                first.get_or_insert((prev, logged.redo.initialises()));
            }
            Ok(())
        })?;
        kept_bytes += payload.len();
        let kept = if kept_bytes > TOGETHER_BYTES { &[] } else { payload };
        links.push(Link { lsn, payload: kept.to_vec() });
        match first {
            Some((_, true)) => break,
            Some((before, _))
                if before == have || (before > have && before >= from && before < lsn) =>
            {
                lsn = before;
            }
            first => {
                let before = first.map_or(lsn, |(before, _)| before);
                return Err(broken_chain(lsn, lag.page, before, have));
            }
        }
    }
    Ok(links)
}
