//! The flush governor, and policies to compare it with, on models of devices and workloads.
//!
//! Time goes in ticks of some milliseconds. Pages are counted, not kept: a [`pages::Pages`] knows
//! how many pages of each area are dirty since when, and how many of them a given number of changes
//! at random makes dirty anew. So a server with terabytes of memory costs no more than a small one.
//! The governor is the engine's own (`weir-governor`).
//!
//! # What is modelled
//! - The log: each operation adds redo; the age never exceeds its limit: who would make it do so
//!   waits.
//! - Pages: cached or not, dirty since a bucket of LSNs. A change of a page that isn't cached costs
//!   a read and a frame; frames are freed from the coldest area, where dirty pages are written
//!   first.
//! - The device: reads and writes of pages share a rate that varies; now and then it hangs for a
//!   moment. The page writer keeps a bounded number of pages under way.
//!
//! # What is not
//! Syncs, the bandwidth of log and pages, processors: an operation rate is given, and the device's
//! rate is in pages. Policies are compared on the same device; engines are not.

pub mod advise;
pub mod device;
pub mod pages;
pub mod run;
pub mod study;
pub mod summary;
pub mod workload;

pub use device::DeviceModel;
pub use run::{Second, Setup, simulate};
pub use summary::Summary;
pub use weir_governor::{PAGE_RATES, PolicyChoice};
pub use workload::{Demand, Workload, WorkloadKind};

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 16 << 10;
