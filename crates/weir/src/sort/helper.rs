//! A thread that works for a sort beside its caller.

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{Builder, JoinHandle};
use weir_os::Blocked;

/// Why nothing more comes of what a helper does: it doesn't end before its work is done.
const PANICKED: &str = "the thread that helps a sort has panicked";

type Work = Box<dyn FnOnce() + Send>;

/// A running thread; dropped, it does what it has been given, and ends.
pub(super) struct Helper {
    work: Option<Sender<Work>>,
    thread: Option<JoinHandle<()>>,
}

impl Helper {
    /// Starts it; `None` if the system gives no thread.
    pub(super) fn start() -> Option<Helper> {
        let (work, given) = mpsc::channel::<Work>();
        let run = move || given.iter().for_each(|work| work());
        let thread = Builder::new().name("weir-sort".into()).spawn(run).ok()?;
        Some(Helper { work: Some(work), thread: Some(thread) })
    }

    /// Has something done after all that was given before.
    pub(super) fn give(&self, work: impl FnOnce() + Send + 'static) {
        let sender = self.work.as_ref().expect("it takes work until it is dropped");
        sender.send(Box::new(work)).expect(PANICKED);
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.work = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Waits for what a helper has to say.
pub(super) fn wait<T>(answers: &Receiver<T>) -> T {
    let _blocked = Blocked::begin();
    answers.recv().expect(PANICKED)
}
