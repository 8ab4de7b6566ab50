//! The flush governor: how fast to write pages, and how fast writers may go.
//!
//! A pure function with some memory of the last seconds, and no I/O and no clock: the engine, the
//! simulator and the tests run the same code. `docs/governor.md` tells why it is as it is.
//!
//! # Terms
//! - The *age* is the end of the log less the checkpoint. It must stay below `age_max`.
//! - The *age target* is a little less: `age_max` less a *headroom* for what the log grows while a
//!   slow write is under way.
//! - A page's *deadline* is its recovery LSN plus the age target; its *runway* the bytes of log
//!   left until then.
//! - The *load* is what happened since the last call, the *plan* what to do until the next.
//!
//! # How to use it
//! Call [`Policy::plan`] every 10 to 100 ms. Until the next call
//! - write the oldest dirty pages at `deadline_rate + dirty_limit_rate`. What could not be written
//!   in time is not owed: the next plan asks for it again. Fractions of a page are;
//! - clean cold pages for the free-frame provider at up to `free_frame_rate`;
//! - give out log space at no more than `log_rate_max`, and credits for pages that become dirty at
//!   no more than `dirty_rate_max`.
//!
//! Dirty pages are counted in a [`DirtyHistogram`]; what the device can do is found out by a
//! [`DeviceMeter`].
//!
//! ```
//! use weir_governor::{DirtyHistogram, Governor, Load, Policy};
//!
//! let mut dirty = DirtyHistogram::new(1 << 20);
//! let mut governor = Governor::new();
//! let mut deadlines = Vec::new();
//! for tick in 1..=100u64 {
//!     let log_end = tick << 20;
//!     dirty.add(log_end, 10);
//!     dirty.deadlines(&mut deadlines);
//!     let plan = governor.plan(&Load {
//!         seconds: 0.01,
//!         log_end,
//!         age: log_end,
//!         age_max: 1 << 30,
//!         deadlines: &deadlines,
//!         dirty_pages: dirty.pages(),
//!         ..Load::IDLE
//!     });
//!     // 10 pages per MiB of log could be written later than as they come.
//!     assert!(plan.deadline_rate < 1000.0);
//! }
//! ```

mod choice;
mod device;
mod governor;
mod histogram;
mod innodb;
mod log_rate;
mod plain;

pub use choice::{PAGE_RATES, PolicyChoice};
pub use device::{Device, DeviceMeter};
pub use governor::Governor;
pub use histogram::DirtyHistogram;
pub use innodb::{InnodbAdaptive, InnodbSettings};
pub use plain::{FixedRate, WriteAtDeadline};

/// What happened since the last call, and how things stand.
#[derive(Debug, Clone, Copy)]
pub struct Load<'a> {
    /// Time since the last call.
    pub seconds: f64,
    /// End of the log.
    pub log_end: u64,
    /// End of the log less the checkpoint.
    pub age: u64,
    /// Age that must never be passed.
    pub age_max: u64,
    /// `(x, dirty pages with a recovery LSN of at most x)`, ascending; from a [`DirtyHistogram`].
    pub deadlines: &'a [(u64, u64)],
    /// Dirty pages.
    pub dirty_pages: u64,
    /// Dirty pages that there may be at most.
    pub dirty_limit: u64,
    /// Pages that became dirty since the last call.
    pub dirtied: u64,
    /// Frames of the pool.
    pub frames: u64,
    /// Free frames.
    pub free_frames: u64,
    /// Free frames that there should be.
    pub free_target: u64,
    /// Free frames that were taken since the last call.
    pub frames_taken: u64,
    /// Dirty pages that were written since the last call to free their frames.
    pub written_for_frames: u64,
    /// What the device has been seen to do.
    pub device: Device,
}

impl Load<'_> {
    /// Nothing dirty, nothing limited, an unknown device: for `..Load::IDLE`.
    pub const IDLE: Load<'static> = Load {
        seconds: 0.0,
        log_end: 0,
        age: 0,
        age_max: u64::MAX,
        deadlines: &[],
        dirty_pages: 0,
        dirty_limit: u64::MAX,
        dirtied: 0,
        frames: 0,
        free_frames: 0,
        free_target: 0,
        frames_taken: 0,
        written_for_frames: 0,
        device: Device::UNKNOWN,
    };
}

/// What to do until the next call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// Pages per second to write, oldest first, because of deadlines.
    pub deadline_rate: f64,
    /// Pages per second to write besides, oldest first, because of the dirty limit.
    pub dirty_limit_rate: f64,
    /// Dirty pages per second that may be written to free their frames.
    pub free_frame_rate: f64,
    /// Bytes of log per second that writers may use; infinite when nothing limits them.
    pub log_rate_max: f64,
    /// Clean pages per second that writers may make dirty; infinite when nothing limits them.
    pub dirty_rate_max: f64,
    /// Share of what the log may grow by, evenly, that it does grow by: 1 when writers are held
    /// back for it.
    pub log_used: f64,
    /// The age that is aimed at.
    pub age_target: u64,
}

impl Plan {
    /// Nothing to write, nothing limited.
    pub const IDLE: Plan = Plan {
        deadline_rate: 0.0,
        dirty_limit_rate: 0.0,
        free_frame_rate: 0.0,
        log_rate_max: f64::INFINITY,
        dirty_rate_max: f64::INFINITY,
        log_used: 0.0,
        age_target: u64::MAX,
    };

    /// Pages per second for all reasons.
    pub fn write_rate(&self) -> f64 {
        self.deadline_rate + self.dirty_limit_rate + self.free_frame_rate
    }
}

/// A way to decide when pages are written.
pub trait Policy {
    /// Its name in reports.
    fn name(&self) -> String;

    /// Looks at the load and decides.
    fn plan(&mut self, load: &Load) -> Plan;
}
