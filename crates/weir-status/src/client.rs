//! Reads the figures of a running database.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::address::Address;
use crate::text::parse;

/// The longest answer that is read.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Of it, at a time.
const PART_BYTES: usize = 16 << 10;
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
    let deadline = Instant::now() + timeout;
    match address {
        Address::Tcp(address) => {
            let stream = TcpStream::connect_timeout(address, timeout)?;
            stream.set_read_timeout(Some(timeout))?;
            stream.set_write_timeout(Some(timeout))?;
            exchange(stream, deadline)
        }
        Address::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(timeout))?;
            stream.set_write_timeout(Some(timeout))?;
            exchange(stream, deadline)
        }
    }
}

fn exchange(mut stream: impl Read + Write, deadline: Instant) -> io::Result<Vec<u8>> {
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n")?;
    let (mut answer, mut part) = (Vec::new(), [0; PART_BYTES]);
    while answer.len() < ANSWER_BYTES_MAX {
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(read) => answer.extend_from_slice(&part[..read]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Err(ErrorKind::TimedOut.into());
            }
            Err(error) => return Err(error),
        }
        // Each part may come in time, and all of them never.
        if Instant::now() >= deadline {
            return Err(ErrorKind::TimedOut.into());
        }
    }
    Ok(answer)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers a byte at a time.
    struct Drip;

    impl Read for Drip {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            to[0] = b'x';
            Ok(1)
        }
    }

    impl Write for Drip {
        fn write(&mut self, from: &[u8]) -> io::Result<usize> {
            Ok(from.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_answer_that_has_no_end_is_waited_for_no_longer_than_another() {
        let error = exchange(Drip, Instant::now()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let far = Instant::now() + Duration::from_secs(3600);
        assert_eq!(exchange(Drip, far).unwrap().len(), ANSWER_BYTES_MAX);
    }
}
