//! Compiles the C side of the WiredTiger adapter, when that is wanted: its API is made of structs
//! of function pointers, which C declares best. And finds out what this program is built from, for
//! results.

use std::path::Path;
use std::process::Command;

/// The crates that an engine in this program is made of.
const CRATES: [&str; 8] = [
    "weir",
    "weir-bench",
    "weir-governor",
    "weir-os",
    "weir-page",
    "weir-redo",
    "weir-status",
    "weir-store",
];

fn main() {
    println!("cargo:rerun-if-changed=src/engines/wiredtiger.c");
    #[cfg(feature = "wiredtiger")]
    {
        cc::Build::new().file("src/engines/wiredtiger.c").warnings(true).compile("weir_wiredtiger");
        println!("cargo:rustc-link-lib=wiredtiger");
    }
    let build = description().unwrap_or_else(|| "unknown".into());
    println!("cargo:rustc-env=WEIR_BUILD={build}");
}

/// The commit, and whether anything differs from it; `None` outside a checkout, and without git.
fn description() -> Option<String> {
    // What lies in another repository, of vendored sources say, isn't described by that.
    if !Path::new("../../.git").exists() {
        return None;
    }
    // A commit and a checkout write the one, changes that aren't committed the others.
    println!("cargo:rerun-if-changed={}", git(&["rev-parse", "--git-path", "logs/HEAD"])?);
    for name in CRATES {
        println!("cargo:rerun-if-changed=../{name}/src");
    }
    git(&["describe", "--always", "--dirty"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let text = text.trim();
    (output.status.success() && !text.is_empty()).then(|| text.to_string())
}
