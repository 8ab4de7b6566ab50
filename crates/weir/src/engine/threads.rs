//! The threads that run the steps of transactions: purge, moving staged entries on, and rolling
//! back what was running when the database ended.

use super::orphans::Orphans;
use crate::storage::{Background, Fault, Rests, Signal, Step, StopsWhenPanicking};
use crate::txn::{Transactions, TxnError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Running threads; dropped, they end, and those of the storage after them.
pub(super) struct Threads {
    of_transactions: Vec<JoinHandle<()>>,
    /// One of each thread.
    signals: Vec<Arc<Signal>>,
    ending: Arc<AtomicBool>,
    /// Ends after the others.
    _storage: Background,
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Release);
        self.signals.iter().for_each(|signal| signal.raise());
        for thread in self.of_transactions.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Threads {
    /// Starts the one that rolls back what was running, if anything was.
    ///
    /// # Errors
    /// When the system gives no threads.
    pub fn start(
        transactions: &Arc<Transactions>,
        background: Background,
    ) -> std::io::Result<Threads> {
        let mut threads = Threads {
            of_transactions: Vec::new(),
            signals: Vec::new(),
            ending: Arc::default(),
            _storage: background,
        };
        if transactions.losers() > 0 {
            threads.spawn("weir-rollback", transactions, roll_back_losers)?;
        }
        Ok(threads)
    }

    /// Starts those that remove what nobody needs any more, and move staged entries on.
    ///
    /// # Errors
    /// As [`Threads::start`].
    pub fn put_in_order(
        &mut self,
        transactions: &Arc<Transactions>,
        orphans: &Arc<Orphans>,
    ) -> std::io::Result<()> {
        let orphans = orphans.clone();
        self.spawn("weir-purge", transactions, move |transactions| {
            orphans.retry();
            match transactions.purge_step()? {
                // There may be space for them soon, though nobody writes.
                Step::Idle if orphans.any() => Ok(Step::Done),
                step => Ok(step),
            }
        })?;
        self.spawn("weir-staging", transactions, |transactions| transactions.staging_step())
    }

    /// Starts a thread that repeats `step`.
    fn spawn(
        &mut self,
        name: &str,
        transactions: &Arc<Transactions>,
        step: impl Fn(&Arc<Transactions>) -> std::result::Result<Step, Fault> + Send + 'static,
    ) -> std::io::Result<()> {
        const REST: Duration = Duration::from_millis(5);
        /// Writers are told that there is no space; here it goes on once there is.
        const NO_SPACE_REST: Duration = Duration::from_millis(50);
        let (transactions, ending) = (transactions.clone(), self.ending.clone());
        let signal = transactions.storage.sleepers.signal();
        self.signals.push(signal.clone());
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
            let _stops = StopsWhenPanicking(&transactions.storage);
            let mut rests = Rests::new(REST);
            while !ending.load(Ordering::Acquire) && transactions.storage.check().is_ok() {
                match step(&transactions) {
                    Ok(Step::GoesOn) => {}
                    Ok(Step::Over) => break,
                    Ok(step) => {
                        transactions.storage.rest(&signal, &mut rests, step == Step::Done);
                    }
                    Err(fault) if fault.is_no_space() => {
                        signal.wait(NO_SPACE_REST);
                    }
                    Err(fault) => transactions.storage.stop(fault),
                }
            }
            // Who has what others wait for may not come by to give it up.
            if transactions.storage.has_stopped() {
                transactions.locks.cancel_all();
            }
        })?;
        self.of_transactions.push(thread);
        Ok(())
    }
}

fn roll_back_losers(transactions: &Arc<Transactions>) -> std::result::Result<Step, Fault> {
    match transactions.rollback_step() {
        Ok(step) => Ok(step),
        Err(TxnError::Fault(fault)) => Err(fault),
        Err(error) => panic!("a rollback waits for nobody: {error}"),
    }
}
