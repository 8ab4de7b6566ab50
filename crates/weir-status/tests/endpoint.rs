//! Endpoint and client, over real sockets.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use weir_status::{Address, FetchError, Figure, Kind, Server, Unit, fetch};

const TIMEOUT: Duration = Duration::from_secs(10);

fn figures() -> Vec<Figure> {
    static ASKED: AtomicU64 = AtomicU64::new(0);
    let value = ASKED.fetch_add(1, Ordering::Relaxed) + 1;
    vec![Figure {
        name: "asked",
        help: "How often.",
        kind: Kind::Counter,
        unit: Unit::Count,
        value,
    }]
}

fn server() -> (Server, std::net::SocketAddr) {
    let server = Server::start(&Address::loopback(0), figures).unwrap();
    let Address::Tcp(address) = *server.address() else { panic!("a port was asked for") };
    (server, address)
}

fn say(address: std::net::SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn each_question_gets_the_figures_of_its_moment() {
    let (server, _) = server();
    let ask = || fetch(server.address(), TIMEOUT).unwrap()["weir_asked_total"];
    let first = ask();
    assert!(ask() > first);
}

#[test]
fn what_is_no_question_for_figures_is_refused() {
    let (_server, address) = server();
    let get = say(address, "GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(get.starts_with("HTTP/1.1 200 OK\r\n") && get.contains("\n# TYPE weir_asked_total"));
    let head = say(address, "HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
    let cases = [
        ("GET / HTTP/1.0\r\n\r\n", "200"),
        ("GET /etc/passwd HTTP/1.1\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\nContent-Length: 0\r\n\r\n", "405"),
        ("\u{1}\u{2}\r\n\r\n", "400"),
    ];
    for (request, status) in cases {
        let answer = say(address, request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{request}: {answer}");
    }
    let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat((8 << 10) - 16));
    assert!(say(address, &long).starts_with("HTTP/1.1 400"));
}

#[test]
fn who_says_nothing_does_not_keep_it_from_ending() {
    let (server, address) = server();
    let silent = TcpStream::connect(address).unwrap();
    drop(server);
    drop(silent);
    let gone = fetch(&address.into(), TIMEOUT).unwrap_err();
    assert!(matches!(gone, FetchError::NobodyListens { .. }), "{gone}");
    assert!(gone.to_string().contains("status_listen"));
}

/// Whether figures can be had within `seconds` behind `count` connections that sent `part` and no
/// more.
fn is_answered_behind(count: usize, part: &str, seconds: u64) -> bool {
    let (server, address) = server();
    let connect = |_| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(part.as_bytes()).unwrap();
        stream
    };
    let others: Vec<_> = (0..count).map(connect).collect();
    let answer = fetch(server.address(), Duration::from_secs(seconds));
    drop(others);
    answer.is_ok()
}

#[test]
fn who_has_sent_half_a_request_makes_way() {
    assert!(is_answered_behind(6, "GET /metrics HT", 5));
}

#[test]
fn many_that_say_nothing_make_way() {
    assert!(is_answered_behind(60, "", 4));
}

#[test]
fn a_socket_is_private_replaced_when_abandoned_and_removed() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("weir.sock");
    // A socket nobody listens on any more.
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let server = Server::start(&path.clone().into(), figures).unwrap();
    assert!(fetch(server.address(), TIMEOUT).is_ok());
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(Server::start(&path.clone().into(), figures).is_err(), "it is in use");
    assert!(fetch(server.address(), TIMEOUT).is_ok(), "and stays so");
    drop(server);
    assert!(!path.exists());
    let gone = fetch(&path.into(), TIMEOUT).unwrap_err();
    assert!(matches!(gone, FetchError::NobodyListens { .. }), "{gone}");
}

#[test]
fn other_files_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path: PathBuf = dir.path().join("precious");
    std::fs::write(&path, "x").unwrap();
    assert!(Server::start(&path.clone().into(), figures).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"x");
}

#[test]
fn other_servers_are_told_apart() {
    let page = "HTTP/1.1 200 OK\r\n\r\n<html>";
    let other_metrics = "HTTP/1.1 200 OK\r\n\r\nnode_cpu 1\n";
    let missing = "HTTP/1.1 404 Not Found\r\n\r\n";
    for (answer, why) in [
        (page, "can't be read"),
        (other_metrics, "no figures named weir_"),
        (missing, "status 404"),
        ("SSH-2.0-OpenSSH\r\n", "invalid"),
        ("", "no end"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address: Address = listener.local_addr().unwrap().into();
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 256];
            assert!(stream.read(&mut request).unwrap() > 0);
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let error = fetch(&address, TIMEOUT).unwrap_err();
        thread.join().unwrap();
        assert!(matches!(error, FetchError::Foreign { .. }), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
}
