//! Who may use what is set aside: dirty pages, and room on the device, for rollbacks and for what
//! makes room.
//!
//! A thread says so for as long as it holds a [`OnReserve`]: what it does meanwhile, in mtrs
//! several calls further down, needs no argument for it.

use std::cell::Cell;
use std::marker::PhantomData;

/// For what something is set aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Rollback,
    MakingRoom,
}

thread_local! {
    /// How many [`OnReserve`] this thread has of each use.
    static HELD: [Cell<u32>; 2] = const { [Cell::new(0), Cell::new(0)] };
}

/// While it lives, mtrs of this thread may use what is set aside.
#[must_use = "it ends as soon as it is dropped"]
pub struct OnReserve {
    held_for: Use,
    of_thread: PhantomData<*const ()>,
}

/// Lets mtrs of this thread take something back: at every limit they have a reserve, and nobody
/// interrupts them.
pub fn on_reserve() -> OnReserve {
    OnReserve::hold(Use::Rollback)
}

/// Lets mtrs of this thread use half of the room set aside: what they do makes room in the end.
pub fn to_make_room() -> OnReserve {
    OnReserve::hold(Use::MakingRoom)
}

/// Whether this thread takes something back.
#[inline]
pub(super) fn is_on_reserve() -> bool {
    is_held(Use::Rollback)
}

/// Whether what this thread does makes room.
pub(super) fn makes_room() -> bool {
    is_held(Use::MakingRoom)
}

#[inline]
fn is_held(held_for: Use) -> bool {
    HELD.with(|held| held[held_for as usize].get() > 0)
}

impl OnReserve {
    fn hold(held_for: Use) -> OnReserve {
        HELD.with(|held| held[held_for as usize].update(|n| n + 1));
        OnReserve { held_for, of_thread: PhantomData }
    }
}

impl Drop for OnReserve {
    fn drop(&mut self) {
        HELD.with(|held| held[self.held_for as usize].update(|n| n - 1));
    }
}
