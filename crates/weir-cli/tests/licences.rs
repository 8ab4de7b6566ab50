//! Every dependency can be had under a licence that permits what ours do.

use std::collections::BTreeSet;
use std::process::Command;

const ALLOWED: [&str; 12] = [
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-1-Clause",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "Zlib",
    "ISC",
    "Unicode-3.0",
    "Unicode-DFS-2016",
    "CC0-1.0",
    "0BSD",
];

/// `name version` and licence expression of all that is built, tests and build scripts included.
fn dependencies() -> BTreeSet<(String, String)> {
    let out = Command::new(env!("CARGO"))
        .args(["tree", "--workspace", "--offline", "--locked", "--all-features"])
        .args(["--edges", "normal,build,dev", "--prefix", "none", "--format", "{p}|{l}"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .output()
        .expect("cargo runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let lines = String::from_utf8(out.stdout).expect("cargo writes UTF-8");
    let split = |line: &str| {
        let (package, licence) = line.trim_end_matches(" (*)").split_once('|')?;
        Some((package.to_string(), licence.to_string()))
    };
    lines.lines().filter_map(split).collect()
}

/// Whether one of the alternatives of an SPDX expression has allowed licences only.
fn is_satisfiable(expression: &str) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let ok = any_of(&tokens, &mut at);
    ok && at == tokens.len()
}

fn any_of(tokens: &[&str], at: &mut usize) -> bool {
    let mut ok = all_of(tokens, at);
    while tokens.get(*at) == Some(&"OR") {
        *at += 1;
        ok |= all_of(tokens, at);
    }
    ok
}

fn all_of(tokens: &[&str], at: &mut usize) -> bool {
    let mut ok = one(tokens, at);
    while tokens.get(*at) == Some(&"AND") {
        *at += 1;
        ok &= one(tokens, at);
    }
    ok
}

fn one(tokens: &[&str], at: &mut usize) -> bool {
    let Some(token) = tokens.get(*at) else { return false };
    *at += 1;
    if *token == "(" {
        let ok = any_of(tokens, at);
        let closed = tokens.get(*at) == Some(&")");
        *at += 1;
        return ok && closed;
    }
    let mut licence = token.to_string();
    if tokens.get(*at) == Some(&"WITH") {
        licence += &format!(" WITH {}", tokens.get(*at + 1).copied().unwrap_or_default());
        *at += 2;
    }
    ALLOWED.contains(&licence.as_str())
}

#[test]
fn every_dependency_has_a_permissive_licence() {
    let dependencies = dependencies();
    assert!(dependencies.len() > 10, "cargo named few dependencies: {dependencies:?}");
    let bad: Vec<String> = dependencies
        .iter()
        .filter(|(_, licence)| !is_satisfiable(licence))
        .map(|(package, licence)| format!("{package}: {licence:?}"))
        .collect();
    let allowed = ALLOWED.join(", ");
    assert!(bad.is_empty(), "not to be had under {allowed}:\n{}", bad.join("\n"));
}

#[test]
fn expressions_are_read() {
    for good in ["MIT", "MIT/GPL-2.0", "GPL-3.0 OR (MIT AND Zlib)", "(MIT OR X) AND Unicode-3.0"] {
        assert!(is_satisfiable(good), "{good}");
    }
    for bad in ["", "GPL-3.0", "MIT AND GPL-2.0", "(MIT", "MIT) OR MIT", "MIT Zlib"] {
        assert!(!is_satisfiable(bad), "{bad}");
    }
}
