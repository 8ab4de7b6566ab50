//! Benchmarks that are told to end do so soon, in order, with what they have so far.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

/// Steps of which the last would take longer than anybody waits for a test.
const STEPS: &str = "load,qr100:seconds=3000";

/// Starts the command, tells it alone to end once the last step has begun, and waits for it.
fn interrupted(arguments: &[&str], dir: &Path) -> (ExitStatus, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(arguments).args(["--rows", "2000", "--steps", STEPS]);
    command.args(["--memory", "16M", "--redo", "16M"]);
    command.current_dir(dir).env("TMPDIR", dir).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut err = BufReader::new(child.stderr.take().unwrap());
    let mut told = String::new();
    while !told.contains("qr100") {
        assert!(err.read_line(&mut told).unwrap() > 0, "it ended by itself: {told}");
    }
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let (mut out, mut rest) = (String::new(), String::new());
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    err.read_to_string(&mut rest).unwrap();
    (child.wait().unwrap(), out, told + &rest)
}

/// Names of what is in `dir`.
fn left(dir: &Path) -> Vec<OsString> {
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect()
}

#[test]
fn a_run_shows_what_it_has_and_leaves_its_document() {
    let dir = tempfile::tempdir().unwrap();
    let arguments = ["bench", "insert", "--clients", "1", "--json", "run.json"];
    let (status, out, err) = interrupted(&arguments, dir.path());
    assert_eq!(status.code(), Some(130), "{out}{err}");
    assert!(out.contains("load"), "{out}");
    assert_eq!(left(dir.path()), ["run.json"]);
}

#[test]
fn a_comparison_ends_the_run_that_is_under_way() {
    let dir = tempfile::tempdir().unwrap();
    let arguments = ["bench", "compare", "--engines", "weir,model", "--clients", "1"];
    let (status, out, err) =
        interrupted(&[&arguments[..], &["--results", "out"]].concat(), dir.path());
    assert_eq!(status.code(), Some(130), "{out}{err}");
    assert!(out.contains("weir with 1 client: interrupted") && !out.contains("model"), "{out}");
    assert_eq!(err.matches("ending").count(), 1, "{err}");
    assert_eq!(left(dir.path()), ["out"]);
}
