//! The endpoint: one thread that answers requests one after the other.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fs, str};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use crate::address::Address;
use crate::figure::Figure;
use crate::text::{CONTENT_TYPE, exposition};

/// The longest request that is read.
const REQUEST_BYTES_MAX: usize = 8 << 10;
/// Header lines of a request.
const HEADERS_MAX: usize = 64;
/// How long a connection may take in all.
const DEADLINE: Duration = Duration::from_secs(2);
/// How long one write waits before the thread looks whether it is to end.
const SLICE: Duration = Duration::from_millis(100);
/// How long others wait for who has not sent its request yet.
const PATIENCE: Duration = Duration::from_millis(25);

/// A running endpoint; dropping it ends it.
pub struct Server {
    address: Address,
    listener: Arc<Listener>,
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A connection.
trait Stream: Read + Write {
    fn set_timeout(&self, timeout: Duration) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(timeout))?;
        self.set_write_timeout(Some(timeout))
    }
}

impl Stream for UnixStream {
    fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(timeout))?;
        self.set_write_timeout(Some(timeout))
    }
}

impl Listener {
    fn bind(address: &Address) -> io::Result<(Self, Address)> {
        match address {
            Address::Tcp(address) => {
                let listener = TcpListener::bind(address)?;
                let bound = Address::Tcp(listener.local_addr()?);
                Ok((Listener::Tcp(listener), bound))
            }
            Address::Unix(path) => Ok((Listener::Unix(bind_unix(path)?), address.clone())),
        }
    }

    fn accept(&self) -> io::Result<Box<dyn Stream>> {
        match self {
            Listener::Tcp(listener) => Ok(Box::new(listener.accept()?.0)),
            Listener::Unix(listener) => Ok(Box::new(listener.accept()?.0)),
        }
    }

    /// Whether somebody waits to be accepted.
    fn is_wanted(&self) -> bool {
        let mut events = [PollFd::new(self, PollFlags::IN)];
        poll(&mut events, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener) => listener.as_fd(),
            Listener::Unix(listener) => listener.as_fd(),
        }
    }
}

/// Binds a Unix socket that only this user may connect to. A socket that a dead process left behind
/// is replaced; one that somebody listens on is not, nor any other file.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let listener = match UnixListener::bind(path) {
        Err(error) if error.kind() == ErrorKind::AddrInUse && is_abandoned(path) => {
            fs::remove_file(path)?;
            UnixListener::bind(path)?
        }
        bound => bound?,
    };
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

fn is_abandoned(path: &Path) -> bool {
    matches!(UnixStream::connect(path), Err(error) if error.kind() == ErrorKind::ConnectionRefused)
        && fs::metadata(path).is_ok_and(|data| {
            use std::os::unix::fs::FileTypeExt;
            data.file_type().is_socket()
        })
}

impl Server {
    /// Listens at `address` and answers with what `figures` returns, on a thread of its own.
    ///
    /// # Errors
    /// The system's: the address is in use, or not one of this machine; the file can't be created.
    pub fn start(
        address: &Address,
        figures: impl Fn() -> Vec<Figure> + Send + 'static,
    ) -> io::Result<Self> {
        let (listener, address) = Listener::bind(address)?;
        let (listener, ending) = (Arc::new(listener), Arc::new(AtomicBool::new(false)));
        let (listens, ends) = (Arc::clone(&listener), Arc::clone(&ending));
        let body = move || serve(&listens, &ends, &figures);
        let thread = thread::Builder::new().name("weir-status".into()).spawn(body)?;
        Ok(Server { address, listener, ending, thread: Some(thread) })
    }

    /// Where it listens, with the port that was found when any was asked for.
    pub fn address(&self) -> &Address {
        &self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Release);
        // Wakes the thread out of `accept`, which fails from now on.
        let woken = rustix::net::shutdown(self.listener.as_fd(), rustix::net::Shutdown::Both);
        assert!(woken.is_ok(), "a listening socket can be shut down: {woken:?}");
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the endpoint's thread does not panic");
        }
        if let Address::Unix(path) = &self.address {
            // Whoever removed it before did our work.
            let _ = fs::remove_file(path);
        }
    }
}

fn serve(listener: &Listener, ending: &AtomicBool, figures: &dyn Fn() -> Vec<Figure>) {
    while !ending.load(Ordering::Acquire) {
        match listener.accept() {
            // Who went away before the answer doesn't miss it.
            Ok(mut stream) => drop(answer(stream.as_mut(), listener, ending, figures)),
            // Out of file descriptors, perhaps: others will be closed.
            Err(_) if !ending.load(Ordering::Acquire) => thread::sleep(SLICE),
            Err(_) => {}
        }
    }
}

fn answer(
    stream: &mut dyn Stream,
    listener: &Listener,
    ending: &AtomicBool,
    figures: &dyn Fn() -> Vec<Figure>,
) -> io::Result<()> {
    stream.set_timeout(PATIENCE)?;
    let began = Instant::now();
    let go_on = || began.elapsed() < DEADLINE && !ending.load(Ordering::Acquire);
    let makes_way = || began.elapsed() >= PATIENCE && listener.is_wanted();
    let may_read = || go_on() && !makes_way();
    let Some(request) = read_request(stream, &may_read)? else { return Ok(()) };
    stream.set_timeout(SLICE)?;
    let response = respond(&request, figures);
    write_all(stream, response.as_bytes(), &go_on)
}

/// Reads to the end of the head; `None` when it may go on no longer, or the other end closed.
fn read_request(
    stream: &mut dyn Stream,
    may_read: &dyn Fn() -> bool,
) -> io::Result<Option<Vec<u8>>> {
    let mut request = Vec::new();
    let mut part = [0; 1024];
    while may_read() {
        let read = match stream.read(&mut part) {
            Err(error) if is_slow(&error) => continue,
            read => read?,
        };
        request.extend_from_slice(&part[..read]);
        let head_ended = request.windows(4).any(|bytes| bytes == b"\r\n\r\n");
        if head_ended || request.len() >= REQUEST_BYTES_MAX {
            return Ok(Some(request));
        }
        if read == 0 {
            return Ok(None);
        }
    }
    Ok(None)
}

fn write_all(stream: &mut dyn Stream, text: &[u8], go_on: &dyn Fn() -> bool) -> io::Result<()> {
    let mut rest = text;
    while !rest.is_empty() && go_on() {
        match stream.write(rest) {
            Err(error) if is_slow(&error) => {}
            Ok(0) => break,
            written => rest = &rest[written?..],
        }
    }
    Ok(())
}

fn is_slow(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// The answer to a request, head and all.
fn respond(request: &[u8], figures: &dyn Fn() -> Vec<Figure>) -> String {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    let complete = matches!(parsed.parse(request), Ok(status) if status.is_complete());
    let (Some(method), Some(target), true) = (parsed.method, parsed.path, complete) else {
        return response("400 Bad Request", "", "this is not HTTP, or too long\n", true);
    };
    let body = method != "HEAD";
    if !["GET", "HEAD"].contains(&method) {
        let allow = "Allow: GET, HEAD\r\n";
        return response("405 Method Not Allowed", allow, "figures can only be read\n", body);
    }
    match target.split('?').next() {
        Some("/metrics") => response("200 OK", "", &exposition(&figures()), body),
        Some("/") => response("200 OK", "", "A Weir database: its figures are at /metrics\n", body),
        _ => response("404 Not Found", "", "there is only /metrics\n", body),
    }
}

fn response(status: &str, headers: &str, text: &str, body: bool) -> String {
    let length = text.len();
    let text = if body { text } else { "" };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {length}\r\n\
         Cache-Control: no-store\r\nConnection: close\r\n{headers}\r\n{text}"
    )
}
