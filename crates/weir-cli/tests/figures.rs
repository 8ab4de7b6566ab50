//! What is made of a database's figures: the Grafana dashboard, `weir top --once`.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

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
