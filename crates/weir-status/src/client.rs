//! Reads the figures of a running database.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::address::Address;
use crate::text::parse;

/// The longest answer that is read.
const ANSWER_BYTES_MAX: u64 = 4 << 20;
/// Header lines of an answer.
const HEADERS_MAX: usize = 64;

/// Metrics by name.
pub type Metrics = BTreeMap<String, f64>;

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// Nobody is there.
    #[error(
        "nobody listens at {address}: is the database open, with `Options::status_listen` (or \
         `weir bench insert --status-listen`)?"
    )]
    NobodyListens {
        /// Where.
        address: Address,
    },
    /// The system's reason.
    #[error("asking {address}: {source}")]
    Io {
        /// Where.
        address: Address,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// Somebody else is there.
    #[error("{address} answers, but not as a Weir database: {what}")]
    Foreign {
        /// Where.
        address: Address,
        /// What was wrong with the answer.
        what: String,
    },
}

/// Asks the endpoint at `address` for all its metrics.
///
/// # Errors
/// Nobody listens there, or something else than a Weir database; it took longer than `timeout`.
pub fn fetch(address: &Address, timeout: Duration) -> Result<Metrics, FetchError> {
    let answer = ask(address, timeout).map_err(|source| match source.kind() {
        ErrorKind::ConnectionRefused | ErrorKind::NotFound => {
            FetchError::NobodyListens { address: address.clone() }
        }
        _ => FetchError::Io { address: address.clone(), source },
    })?;
    read(&answer).map_err(|what| FetchError::Foreign { address: address.clone(), what })
}

fn ask(address: &Address, timeout: Duration) -> io::Result<Vec<u8>> {
    match address {
        Address::Tcp(address) => {
            let stream = TcpStream::connect_timeout(address, timeout)?;
            stream.set_read_timeout(Some(timeout))?;
            stream.set_write_timeout(Some(timeout))?;
            exchange(stream)
        }
        Address::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(timeout))?;
            stream.set_write_timeout(Some(timeout))?;
            exchange(stream)
        }
    }
}

fn exchange(mut stream: impl Read + Write) -> io::Result<Vec<u8>> {
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    match stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Err(ErrorKind::TimedOut.into()),
        read => read.map(|_| answer),
    }
}

fn read(answer: &[u8]) -> Result<Metrics, String> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let parsed = response.parse(answer).map_err(|error| error.to_string())?;
    let httparse::Status::Complete(head) = parsed else {
        return Err("its answer has no end".into());
    };
    match response.code {
        Some(200) => {}
        code => return Err(format!("status {}", code.unwrap_or(0))),
    }
    let body = str::from_utf8(&answer[head..]).map_err(|error| error.to_string())?;
    let metrics = parse(body).ok_or("its figures can't be read")?;
    if !metrics.keys().any(|name| name.starts_with("weir_")) {
        return Err("it has no figures named weir_...".into());
    }
    Ok(metrics)
}
