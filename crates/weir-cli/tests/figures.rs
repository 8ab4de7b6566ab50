//! What is made of a database's figures: the Grafana dashboard, `weir top --once`.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use serde_json::Value;
use weir::{Database, Options, Status};

fn exported() -> BTreeSet<String> {
    Status::default().figures().iter().map(|figure| figure.metric()).collect()
}

fn metrics(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("weir_"))
}

/// The panels of the Grafana dashboard.
fn panels() -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/grafana/weir.json");
    let dashboard: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    dashboard["panels"].as_array().unwrap().clone()
}

fn texts<'a>(panel: &'a Value, key: &str) -> Vec<&'a str> {
    let targets = panel["targets"].as_array().unwrap();
    targets.iter().map(|target| target[key].as_str().unwrap()).collect()
}

#[test]
fn the_dashboard_uses_what_the_endpoint_tells() {
    let panels = panels();
    let titles: Vec<&str> = panels.iter().map(|panel| panel["title"].as_str().unwrap()).collect();
    for title in ["Checkpoint Age", "Flushing by Type", "Buffer Pool Data", "Redo Generation Rate"]
    {
        assert!(titles.contains(&title), "{titles:?}");
    }
    let exported = exported();
    for panel in &panels {
        let used = texts(panel, "expr");
        assert!(!used.is_empty(), "{} shows nothing", panel["title"]);
        for expression in used {
            let names: Vec<_> = metrics(expression).collect();
            assert!(!names.is_empty(), "{expression}");
            for name in names {
                assert!(exported.contains(name), "{}: no metric {name}", panel["title"]);
            }
        }
    }
}

#[test]
fn lines_of_several_databases_in_one_panel_have_names_of_their_own() {
    for panel in panels() {
        let legends = texts(&panel, "legendFormat");
        for legend in &legends {
            let instance = legend.contains("{{instance}}");
            assert!(instance, "{}: whose `{legend}`?", panel["title"]);
        }
        let different = legends.iter().collect::<BTreeSet<_>>().len();
        assert_eq!(different, legends.len(), "{}: {legends:?}", panel["title"]);
    }
}

fn top(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir")).arg("top").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn top_shows_every_line_of_a_running_database_once() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("weir.sock");
    let options = Options::default().memory_bytes(16 << 20).status_listen(socket.clone());
    let db = Database::open(dir.path(), options).unwrap();
    let by_dir = ["--once", "--interval", "0.05", dir.path().to_str().unwrap()];
    let by_socket = ["--once", "--interval", "0.05", "--socket", socket.to_str().unwrap()];
    for arguments in [by_dir.as_slice(), by_socket.as_slice()] {
        let output = top(arguments);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{err}");
        assert!(out.starts_with("weir at unix:"), "{out}");
        let panels = ["Checkpoint Age", "Flushing by Type", "Buffer Pool Data", "Redo Generation"];
        let lines = ["age", "maximum", "deadline", "dirty limit", "redo", "commits", "pacing"];
        for word in panels.iter().chain(&lines) {
            assert!(out.contains(word), "{word}: {out}");
        }
    }
    drop(db);
    let output = top(&by_dir);
    assert_eq!(output.status.code(), Some(1));
    let err = text(&output.stderr);
    assert!(err.contains("nobody listens at unix:") && err.contains("status_listen"), "{err}");
}

/// Answers the first that asks, and keeps the second waiting; tells when it has come.
fn one_that_hangs() -> (u16, Receiver<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, hanging) = mpsc::channel();
    thread::spawn(move || {
        let (mut first, _) = listener.accept().unwrap();
        let mut request = [0; 1024];
        assert!(first.read(&mut request).unwrap() > 0);
        let text = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nweir_commits_total 1\n";
        first.write_all(text.as_bytes()).unwrap();
        drop(first);
        sender.send(listener.accept().unwrap().0).unwrap();
    });
    (port, hanging)
}

/// Starts `top` of a port in a terminal, as `command` says.
fn in_terminal(command: &str, port: u16) -> Child {
    let weir = env!("CARGO_BIN_EXE_weir");
    let top = format!("'{weir}' top --interval 0.05 {port}");
    let command = format!("stty rows 24 cols 80; {}", command.replace("TOP", &top));
    let mut script = Command::new("script");
    script.args(["-q", "-e", "-c", &command, "/dev/null"]).env("TERM", "xterm");
    script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

#[test]
fn top_leaves_the_terminal_as_it_was_when_it_is_told_to_end() {
    let dir = tempfile::tempdir().unwrap();
    let told = dir.path().join("told");
    let wait = format!("until [ -e '{}' ]; do sleep 0.1; done", told.display());
    let (port, hanging) = one_that_hangs();
    let command = format!("TOP & {wait}; kill $!; wait $!; echo ended with $?; stty -a");
    let child = in_terminal(&command, port);
    let hanging = hanging.recv().unwrap();
    std::fs::write(told, "").unwrap();
    let output = child.wait_with_output().unwrap();
    drop(hanging);
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(out.contains("ended with 130") && out.contains(" icanon "), "{out}");
}

#[test]
fn top_refuses_what_is_no_terminal() {
    let (port, hanging) = one_that_hangs();
    let mut child = in_terminal("TOP | cat", port);
    // Were it not refused it would wait for this.
    child.stdin.as_mut().unwrap().write_all(b"q").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(hanging.try_recv().is_err(), "it looked once");
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(out.contains("this needs a terminal; see --once"), "{out}");
}

#[test]
fn top_hears_a_key_while_the_database_hangs() {
    let (port, hanging) = one_that_hangs();
    let mut child = in_terminal("exec TOP", port);
    let hanging = hanging.recv().unwrap();
    child.stdin.as_mut().unwrap().write_all(b"q").unwrap();
    let output = child.wait_with_output().unwrap();
    drop(hanging);
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && out.contains("quit"), "{out}");
    assert!(!out.contains("timed out"), "it waited for the answer first: {out}");
}

#[test]
fn top_refuses_nonsense() {
    for (arguments, reason) in [
        (&["--once", "no-address"][..], "is no address"),
        (&["--once", "--interval", "0", "9104"], "use 0.05 to 3600"),
        (&[], "required"),
        (&["--socket", "x", "9104"], "cannot be used with"),
    ] {
        let output = top(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(reason), "{}", text(&output.stderr));
    }
}
