//! Group commit: one leader syncs for all who wait, and hands over when it is done.
//!
//! A thread that needs durability and finds no leader becomes it: it writes and syncs all that is
//! filled, wakes everybody whose LSN is then durable, and passes the lead to one of those who came
//! meanwhile. The next batch is what arrived during the previous sync; there is no delay to set.
//! Threads that are not yet served sleep on: each waiter is woken once, when done or to lead.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};

use crate::sync::{AtomicU8, Mutex, Thread, thread};

const WAITING: u8 = 0;
const SERVED: u8 = 1;
const LEADING: u8 = 2;

struct Waiter {
    end: u64,
    state: AtomicU8,
    thread: Thread,
}

impl Waiter {
    fn wake(&self, state: u8) {
        self.state.store(state, Release);
        self.thread.unpark();
    }
}

#[derive(Default)]
struct Queue {
    led: bool,
    waiting: Vec<Arc<Waiter>>,
}

/// Those who wait for durability.
pub(crate) struct Commits {
    queue: Mutex<Queue>,
}

/// What a thread that entered the queue has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Look again whether it is served.
    Served,
    /// Write and sync, then [`Commits::hand_over`].
    Leader,
}

impl Commits {
    pub fn new() -> Self {
        Commits { queue: Mutex::new(Queue::default()) }
    }

    /// Waits until served or made leader. A thread sleeps only while there is a leader, and no
    /// leader leaves before the queue is empty or one of it leads: no wake is lost. `served` is
    /// asked under the queue's lock, so that nobody sleeps who was served since the last look.
    pub fn enter(&self, end: u64, served: impl Fn() -> bool) -> Role {
        let waiter = {
            let mut queue = self.queue.lock();
            if served() {
                return Role::Served;
            }
            if !queue.led {
                queue.led = true;
                return Role::Leader;
            }
            let state = AtomicU8::new(WAITING);
            let waiter = Arc::new(Waiter { end, state, thread: thread::current() });
            queue.waiting.push(waiter.clone());
            waiter
        };
        loop {
            match waiter.state.load(Acquire) {
                WAITING => thread::park(),
                SERVED => return Role::Served,
                _ => return Role::Leader,
            }
        }
    }

    #[cfg(test)]
    pub fn is_led(&self) -> bool {
        self.queue.lock().led
    }

    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.queue.lock().waiting.len()
    }

    /// Wakes those who wait for an end at or before `durable`.
    pub fn serve(&self, durable: u64) {
        Self::serve_locked(&mut self.queue.lock(), durable);
    }

    /// Ends the caller's lead: serves, then passes the lead to one who is left.
    pub fn hand_over(&self, durable: u64) {
        let mut queue = self.queue.lock();
        assert!(queue.led, "only a leader hands over");
        Self::serve_locked(&mut queue, durable);
        match queue.waiting.pop() {
            Some(next) => next.wake(LEADING),
            None => queue.led = false,
        }
    }

    fn serve_locked(queue: &mut Queue, durable: u64) {
        queue.waiting.retain(|waiter| {
            let left = waiter.end > durable;
            if !left {
                waiter.wake(SERVED);
            }
            left
        });
    }
}
