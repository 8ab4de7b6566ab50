//! What may go wrong while a benchmark runs.

use std::io;

/// Result of a benchmark operation.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the benchmark, its engine or its surroundings.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The engine refused or failed.
    #[error("{engine}: {operation}: {message}")]
    Engine {
        /// The engine's name.
        engine: &'static str,
        /// What was asked of it.
        operation: String,
        /// Its own words.
        message: String,
    },
    /// The transaction came into another's way, and is to be rolled back and run again.
    #[error("{engine}: a transaction came into others' way, again and again: {message}")]
    Conflict {
        /// The engine's name.
        engine: &'static str,
        /// Its own words.
        message: String,
    },
    /// The request makes no sense.
    #[error("{0}")]
    Usage(String),
    /// A document of this program that is about several runs and has no single one in it.
    #[error("{what}: the table of `weir bench {of}`, not a run with its seconds")]
    NoRun {
        /// Which file.
        what: String,
        /// What made it.
        of: &'static str,
    },
    /// It was told to end, and did so before the operation was done.
    #[error("interrupted")]
    Interrupted,
    /// A table does not hold what was put into it.
    #[error("{engine}: wrong contents: {message}")]
    Contents {
        /// The engine's name.
        engine: &'static str,
        /// What was expected and what was found.
        message: String,
    },
    /// A file or a process of the benchmark itself.
    #[error("{what}: {source}")]
    Io {
        /// What was tried, on what.
        what: String,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// A result file that can't be read.
    #[error("{what}: {source}")]
    Json {
        /// Which file.
        what: String,
        /// The parser's reason.
        #[source]
        source: serde_json::Error,
    },
}

impl Error {
    /// An error of an engine.
    pub fn engine(
        engine: &'static str,
        operation: impl Into<String>,
        message: impl ToString,
    ) -> Self {
        Error::Engine { engine, operation: operation.into(), message: message.to_string() }
    }

    /// An error of the system, with what was tried.
    pub fn io(what: impl Into<String>, source: io::Error) -> Self {
        Error::Io { what: what.into(), source }
    }
}
