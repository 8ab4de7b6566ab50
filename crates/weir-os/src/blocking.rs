//! Threads that block, told to whoever runs them: a server that keeps as many threads at work as it
//! has processors lets another one work meanwhile, and must, where that is the one that the first
//! waits for.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::OnceLock;

/// Called in the thread that is about to block, or doesn't any more. They must not call the engine.
pub struct BlockingObserver {
    /// It is about to block.
    pub begins: Box<dyn Fn() + Send + Sync>,
    /// It goes on.
    pub ends: Box<dyn Fn() + Send + Sync>,
}

impl std::fmt::Debug for BlockingObserver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockingObserver").finish_non_exhaustive()
    }
}

static OBSERVER: OnceLock<BlockingObserver> = OnceLock::new();

thread_local! {
    /// [`Blocked`]s of this thread.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Has all threads of the process that block from here on tell `observer`. Once: whether it was the
/// first.
pub fn observe_blocking(observer: BlockingObserver) -> bool {
    OBSERVER.set(observer).is_ok()
}

/// While it is there its thread may block, for a read of the device or longer; of several in one
/// thread the first is told.
#[must_use = "its thread may block while it is there"]
#[derive(Debug)]
pub struct Blocked {
    observer: Option<&'static BlockingObserver>,
    of_one_thread: PhantomData<*const ()>,
}

impl Blocked {
    /// This thread is about to block.
    pub fn begin() -> Blocked {
        let observer = OBSERVER.get();
        if let Some(observer) = observer
            && DEPTH.replace(DEPTH.get() + 1) == 0
        {
            (observer.begins)();
        }
        Blocked { observer, of_one_thread: PhantomData }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        if let Some(observer) = self.observer {
            let left = DEPTH.get() - 1;
            DEPTH.set(left);
            if left == 0 {
                (observer.ends)();
            }
        }
    }
}
