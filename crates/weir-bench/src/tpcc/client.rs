//! What one client does: one transaction after the other, without a pause.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use super::store::{Outcome, Terminal};
use super::transactions::{Deck, Kind, Transaction};
use crate::accounting::thread_cpu;
use crate::error::{Error, Result};
use crate::phase::{Done, Live};
use crate::series::Recorder;

/// Transactions made at a time, so that the clock that tells clients from engine is read seldom.
const BLOCK: usize = 64;
/// A transaction that has been rolled back so often is going nowhere.
const TRIES_MAX: u32 = 1000;

/// What a client needs to know.
#[derive(Clone, Copy)]
pub struct Client<'a> {
    /// Numbers of history rows.
    pub history: &'a AtomicI64,
    /// For the progress line.
    pub live: &'a Live,
    /// Set when the run is to end early.
    pub stop: &'a AtomicBool,
    /// How long it works.
    pub time: Duration,
}

/// What a client did.
pub struct Worked {
    /// All transactions, per second.
    pub all: Recorder,
    /// The same by kind, as in [`Kind::ALL`].
    pub of_kind: [Recorder; 5],
    /// New orders that committed.
    pub ordered: u64,
    /// New orders that were rolled back as they were meant to be.
    pub rolled_back: u64,
    /// How often a transaction was run again.
    pub retries: u64,
}

impl Client<'_> {
    /// Runs transactions until it is time.
    ///
    /// # Errors
    /// The engine's.
    pub fn work(
        &self,
        terminal: &mut dyn Terminal,
        deck: &mut Deck,
        start: Instant,
    ) -> Result<Done<Worked>> {
        let mut worked = Worked {
            all: Recorder::new(start),
            of_kind: [(); 5].map(|()| Recorder::new(start)),
            ordered: 0,
            rolled_back: 0,
            retries: 0,
        };
        let mut client_cpu = Duration::ZERO;
        let is_over = || start.elapsed() >= self.time || self.stop.load(Ordering::Relaxed);
        while !is_over() {
            let cpu = thread_cpu();
            let block: Vec<_> = (0..BLOCK).map(|_| deck.draw()).collect();
            client_cpu += thread_cpu().saturating_sub(cpu);
            for transaction in &block {
                if is_over() {
                    break;
                }
                self.one(terminal, transaction, &mut worked)?;
            }
        }
        Ok(Done { value: worked, client_cpu })
    }

    fn one(
        &self,
        terminal: &mut dyn Terminal,
        transaction: &Transaction,
        worked: &mut Worked,
    ) -> Result<()> {
        let kind = transaction.kind();
        let history = match kind {
            Kind::Payment => self.history.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
        let began = Instant::now();
        let mut tries = 1;
        let outcome = loop {
            match terminal.run(transaction, history) {
                Err(Error::Conflict { .. }) if tries < TRIES_MAX => tries += 1,
                done => break done?,
            }
        };
        let ended = Instant::now();
        worked.all.record(began, ended, 1);
        worked.of_kind[kind as usize].record(began, ended, 1);
        worked.retries += u64::from(tries - 1);
        match outcome {
            Outcome::RolledBack => worked.rolled_back += 1,
            Outcome::Committed => worked.ordered += u64::from(kind == Kind::NewOrder),
        }
        self.live.transactions.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
