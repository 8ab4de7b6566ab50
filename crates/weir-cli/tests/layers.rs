//! A layer uses only the layers below it: crates by their manifests, modules by their imports.

use std::fs;
use std::path::{Path, PathBuf};

/// Each crate, and the crates of ours that it may use.
const CRATES: [(&str, &[&str]); 12] = [
    ("weir-governor", &[]),
    ("weir-os", &[]),
    ("weir-page", &[]),
    ("weir-redo", &["weir-os", "weir-page"]),
    ("weir-store", &["weir-os", "weir-page"]),
    ("weir-status", &[]),
    ("weir", &["weir-governor", "weir-os", "weir-page", "weir-redo", "weir-store", "weir-status"]),
    ("weir-ffi", &["weir"]),
    ("weir-bench", &["weir", "weir-governor", "weir-os"]),
    ("weir-report", &["weir-bench"]),
    ("weir-sim", &["weir-governor"]),
    ("weir-cli", &["weir", "weir-bench", "weir-os", "weir-report", "weir-sim", "weir-status"]),
];

/// Modules of crate `weir`, and those that they must not use.
const MODULES: [(&str, &[&str]); 5] = [
    ("sync", &["storage", "tree", "txn", "lock", "engine", "check"]),
    ("storage", &["tree", "txn", "lock", "engine", "check"]),
    ("lock", &["storage", "tree", "txn", "engine", "check"]),
    ("tree", &["txn", "lock", "engine", "check"]),
    ("txn", &["engine", "check"]),
];

/// What a layer must not name, because it is another's affair.
const ABSENT: [(&str, &[&str]); 2] = [
    ("tree", &["weir_redo", "weir_store", "weir_os"]),
    ("txn", &["weir_store", "weir_os", "storage::pool"]),
];

/// Lines past which a file is named in the test's output.
const LONG: usize = 600;
/// Lines past which a file fails.
const TOO_LONG: usize = 1500;
/// Columns of a line of comment.
const COLUMNS: usize = 100;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Rust files of a module: `name.rs` and everything under `name/`; tests may use what they like.
fn files(path: &Path, out: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(path) else { return };
    for entry in entries {
        let path = entry.expect("a directory can be read").path();
        if path.is_dir() && !path.ends_with("target") && !path.ends_with("tests") {
            files(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") && !path.ends_with("tests.rs") {
            out.push(path);
        }
    }
}

fn module(name: &str) -> Vec<PathBuf> {
    let src = root().join("crates/weir/src");
    let mut out = Vec::new();
    files(&src.join(name), &mut out);
    out.extend([src.join(format!("{name}.rs"))].into_iter().filter(|p| p.exists()));
    assert!(!out.is_empty(), "crate weir has no module {name}");
    out
}

/// Lines of code in front of a file's own tests.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let before_tests = text.lines().enumerate().take_while(|(_, l)| !l.contains("mod tests {"));
    before_tests.filter(|(_, l)| !l.trim_start().starts_with("//"))
}

fn mentions(names: &[PathBuf], forbidden: &[String]) -> Vec<String> {
    let mut out = Vec::new();
    for path in names {
        let text = read(path);
        for (number, line) in code(&text) {
            for word in forbidden.iter().filter(|word| line.contains(word.as_str())) {
                out.push(format!("{}:{}: {word}", path.display(), number + 1));
            }
        }
    }
    out
}

#[test]
fn crates_use_those_below() {
    for (name, allowed) in CRATES {
        let manifest = read(&root().join("crates").join(name).join("Cargo.toml"));
        let normal = manifest.split("[dev-dependencies]").next().unwrap_or_default();
        let ours = normal.lines().filter(|l| l.starts_with("weir"));
        let keys = ours.filter_map(|l| l.split(['.', ' ', '=']).next());
        let bad: Vec<&str> = keys.filter(|k| !allowed.contains(k)).collect();
        assert!(bad.is_empty(), "{name} must not use {bad:?}");
    }
}

#[test]
fn modules_use_those_below() {
    for (name, forbidden) in MODULES {
        let paths: Vec<String> = forbidden.iter().map(|f| format!("crate::{f}::")).collect();
        let bad = mentions(&module(name), &paths);
        assert!(bad.is_empty(), "{name} uses a layer above it:\n{}", bad.join("\n"));
    }
}

#[test]
fn layers_keep_to_their_affairs() {
    for (name, forbidden) in ABSENT {
        let words: Vec<String> = forbidden.iter().map(|f| format!("{f}::")).collect();
        let bad = mentions(&module(name), &words);
        assert!(bad.is_empty(), "{name} knows what it should not:\n{}", bad.join("\n"));
    }
}

#[test]
fn files_are_short() {
    let mut all = Vec::new();
    files(&root().join("crates"), &mut all);
    let lines = |path: &PathBuf| read(path).lines().count();
    for path in all.iter().filter(|p| lines(p) > LONG) {
        println!("warning: {} has {} lines", path.display(), lines(path));
    }
    let bad: Vec<&PathBuf> = all.iter().filter(|p| lines(p) > TOO_LONG).collect();
    assert!(bad.is_empty(), "longer than {TOO_LONG} lines: {bad:?}");
}

/// rustfmt breaks lines of code, not of comments. Tables and examples may be wider.
#[test]
fn comments_fit_into_the_columns() {
    let mut all = Vec::new();
    files(&root().join("crates"), &mut all);
    let mut wide = Vec::new();
    for path in all {
        let mut is_example = false;
        for (number, line) in read(&path).lines().enumerate() {
            let Some(comment) = line.trim_start().strip_prefix("//") else { continue };
            let text = comment.trim_start_matches(['/', '!', ' ']);
            is_example ^= text.starts_with("```");
            if line.chars().count() > COLUMNS && !is_example && !text.starts_with('|') {
                wide.push(format!("{}:{}", path.display(), number + 1));
            }
        }
    }
    assert!(wide.is_empty(), "comments of more than {COLUMNS} columns:\n{}", wide.join("\n"));
}
