//! Figures of a running database, for others to read: the endpoint and its client.
//!
//! A [`Figure`] is a number with a name, a kind, a unit and a sentence about it. A [`Server`] gives
//! the figures of the moment to whoever asks with HTTP, in Prometheus' text format; [`fetch`] asks.
//!
//! # Terms
//! - *address*: where the endpoint listens, a TCP port or a Unix socket ([`Address`]).
//! - *metric*: a figure under the name that Prometheus' conventions give it ([`Figure::metric`]).
//!
//! # Invariants
//! - The endpoint changes nothing: it answers `GET /metrics` and `GET /`, and refuses the rest.
//! - One thread, one connection at a time, each with a deadline and a limit of bytes: whoever is
//!   slow delays other readers of figures, never the database; who has asked nothing yet makes way
//!   for them.
//! - There is no authentication. A port given alone is one of the loopback interface; others have
//!   to be asked for by address.
//!
//! This crate knows no database: figures come from a closure.

mod address;
mod client;
mod figure;
mod server;
mod text;

pub use address::{Address, AddressError};
pub use client::{FetchError, Metrics, fetch};
pub use figure::{Figure, Kind, Unit};
pub use server::Server;
pub use text::{CONTENT_TYPE, exposition};
