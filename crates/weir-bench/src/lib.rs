//! The Insert Benchmark, on Weir and on other embedded storage engines; and others.
//!
//! The benchmark is Mark Callaghan's `iibench`: a table with an ascending primary key and three
//! secondary indexes in random order, filled as fast as the engine can, then scanned and queried
//! while rows come in at a given rate. What makes it hard is the random order; what it shows is how
//! evenly and with how little I/O an engine keeps indexes.
//!
//! # How it proceeds
//! [`run::run`] opens an [`engine::Engine`] in an empty directory and does the [`step`]s one after
//! the other. Each step is one or more [`phase`]s: client threads, each with a session on a table
//! of its own, work at the same time while the calling thread samples the process once a second.
//! The result is one [`result::Run`], which is stored as JSON and shown by [`report`]. [`compare`]
//! runs several engines that way, each in a process of its own, and puts their results side by
//! side.
//!
//! # Where it differs from `iibench`
//! - A row that is inserted deletes none unless that is asked for (`delete`), where `iibench`
//!   deletes as many as it inserts in `l.i1`, `l.i2` and beside queries.
//! - Those deletes are in the transaction of the inserts; `iibench` has another connection for
//!   them.
//! - Steps are short where they don't say otherwise: `l.i1` inserts half as many rows as were
//!   loaded, `l.i2` a tenth, and queries take 10 seconds, where the field takes 1,800 or more.
//! - `load` has all indexes from the start, as the benchmark had in 2017; and `update` is none of
//!   its steps.
//!
//! [`tpcc`] is another benchmark on the same engines and with the same measuring: TPC-C.
//! [`sysbench`] has sysbench's tests run on servers, [`experiment`] studies of page writing on
//! Weir, and [`machine`] shows how even the machine is without any engine. [`server`] starts
//! private servers; where several are there at once they take [`turns`].
//!
//! # What is measured
//! - Throughput and worst latency per second, counted exactly by each client ([`series`]).
//! - Device traffic, memory and processor time of the process ([`accounting`]).
//! - Processor time of clients apart from the engine's: rows and keys are made in blocks between
//!   two readings of the thread's clock; everything else that the process spends is the engine's.
//!   What the harness spends per operation (reading a clock, one histogram update: well below 0.1
//!   us) is thus counted for the engine, for all engines alike.

pub mod accounting;
mod child;
mod client;
pub mod compare;
pub mod engine;
pub mod engines;
pub mod environment;
pub mod error;
mod every_second;
pub mod experiment;
pub mod files;
pub mod io_limit;
pub mod machine;
pub mod percentile;
pub mod phase;
pub mod pinning;
pub mod quantity;
pub mod rate;
pub mod report;
pub mod result;
pub mod rounds;
pub mod row;
pub mod run;
pub mod series;
pub mod server;
pub mod step;
mod stopping;
pub mod stored;
pub mod sysbench;
pub mod tpcc;
pub mod turns;

pub use engine::{Durability, EngineKind};
pub use error::{Error, Result};
pub use result::{Run, Settings};
pub use step::Step;
