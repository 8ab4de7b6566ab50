//! Documents that benchmarks have left, read back.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::result::{self, Run};
use crate::tpcc::document::{self, Document};

/// Days of seconds take less.
const BYTES_MAX: u64 = 1 << 30;

/// A document with the seconds of what it is about.
#[derive(Debug)]
pub enum Stored {
    /// Of `weir bench insert`, or one that has its form.
    Insert(Box<Run>),
    /// Of `weir bench tpcc`.
    Tpcc(Box<Document>),
}

/// What tells a document of this program, in whatever format, from any other, and which it is.
#[derive(Deserialize)]
struct Head {
    format: Option<u32>,
    /// Of `weir bench tpcc`.
    loads: Option<serde::de::IgnoredAny>,
    /// Of `weir bench sysbench`.
    runs: Option<serde::de::IgnoredAny>,
    /// Of `weir bench experiment`.
    experiment: Option<serde::de::IgnoredAny>,
}

impl Stored {
    /// Reads a document.
    ///
    /// # Errors
    /// When it can't be read, is of another format, or is but a table of several runs.
    pub fn load(path: &Path) -> Result<Self> {
        let what = format!("reading {}", path.display());
        let value = json(path, &what)?;
        // A list of three would pass for the three fields.
        let head = value.is_object().then(|| Head::deserialize(&value).ok()).flatten();
        match head {
            Some(Head { loads: Some(_), format, .. }) => {
                let document = of_format(value, &what, format, document::FORMAT)?;
                Ok(Stored::Tpcc(Box::new(document)))
            }
            Some(Head { runs: Some(_), .. }) => Err(Error::NoRun { what, of: "sysbench" }),
            Some(Head { experiment: Some(_), .. }) => Err(Error::NoRun { what, of: "experiment" }),
            Some(Head { format: format @ Some(_), .. }) => {
                Ok(Stored::Insert(Box::new(of_format(value, &what, format, result::FORMAT)?)))
            }
            _ => Err(Error::Usage(format!("{what}: no result of `weir bench`"))),
        }
    }
}

/// What a file holds, which may be a device that never ends.
fn json(path: &Path, what: &str) -> Result<Value> {
    let io = |source| Error::io(what, source);
    let mut reader = BufReader::new(File::open(path).map_err(io)?.take(BYTES_MAX));
    let value = serde_json::from_reader(&mut reader);
    value.map_err(|source| {
        if reader.get_ref().limit() == 0 {
            let message = format!("{what}: larger than a GiB, and no result of `weir bench`");
            return Error::Usage(message);
        }
        match source.io_error_kind() {
            Some(_) => io(source.into()),
            // A result that was cut short is one.
            None if source.is_eof() => Error::Json { what: what.into(), source },
            None => Error::Usage(format!("{what}: no result of `weir bench`: {source}")),
        }
    })
}

fn of_format<T: DeserializeOwned>(
    value: Value,
    what: &str,
    format: Option<u32>,
    known: u32,
) -> Result<T> {
    match format {
        Some(format) if format != known => {
            let message = format!("{what}: format {format}, this program reads {known}");
            Err(Error::Usage(message))
        }
        _ => serde_json::from_value(value)
            .map_err(|source| Error::Json { what: what.into(), source }),
    }
}
