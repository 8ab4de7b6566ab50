//! Reading ahead of scans: pages that they will come to, read by threads of their own meanwhile.
//!
//! A scan names the pages that it will need next and goes on; it never waits for room in the queue.
//! What has not been read when the scan comes to it, for whatever reason, the scan reads itself.

use super::{Storage, work};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use weir_page::PageId;

/// Threads that read ahead.
pub const THREADS: usize = 2;

/// Most requests that wait; further ones are left out.
const REQUESTS_MAX: usize = 16;

#[derive(Default)]
struct State {
    waiting: VecDeque<Vec<PageId>>,
    ending: bool,
}

/// Pages to be read ahead.
#[derive(Default)]
pub struct Ahead {
    state: Mutex<State>,
    changed: Condvar,
}

impl Ahead {
    /// Asks for pages, unless others have asked for many.
    fn ask(&self, pages: Vec<PageId>) {
        let mut state = self.state.lock();
        if state.waiting.len() < REQUESTS_MAX && !state.ending {
            state.waiting.push_back(pages);
            self.changed.notify_one();
        }
    }

    fn next(&self) -> Option<Vec<PageId>> {
        let mut state = self.state.lock();
        loop {
            if state.ending {
                return None;
            }
            if let Some(pages) = state.waiting.pop_front() {
                return Some(pages);
            }
            self.changed.wait(&mut state);
        }
    }

    /// Ends the threads; requests that wait are left out.
    pub fn end(&self) {
        let mut state = self.state.lock();
        state.ending = true;
        state.waiting.clear();
        self.changed.notify_all();
    }

    /// Reads ahead until the end.
    pub fn run(&self, storage: &Storage) {
        while let Some(pages) = self.next() {
            storage.evict_for_read_ahead(pages.len());
            storage.load_many(&pages);
        }
    }
}

impl Storage {
    /// Has those of the pages read that are not in memory, by others. Without threads it does
    /// nothing.
    pub fn read_ahead(&self, mut pages: Vec<PageId>) {
        if self.inline {
            return;
        }
        pages.retain(|page| !self.is_resident(*page));
        if !pages.is_empty() {
            work::note(|work| work.pages_prefetched += pages.len() as u64);
            self.ahead.ask(pages);
        }
    }
}
