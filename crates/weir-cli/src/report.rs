//! `weir report`: results of benchmarks as one page of HTML.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use weir_bench::Error;
use weir_bench::files::write_whole;
use weir_bench::stored::Stored;
use weir_report::{Source, is_page, page};

use crate::output::{print, tell};

/// More runs than that are no longer side by side.
const RUNS_MAX: usize = 12;

#[derive(Args)]
pub struct Report {
    /// Runs that `weir bench` has left, 12 at most; the others are compared with the first. Each
    /// engine in a document of TPC-C is a run
    #[arg(required = true, value_name = "RUN.json")]
    runs: Vec<PathBuf>,

    /// Where the page goes; `-` is standard output
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    output: PathBuf,
}

impl Report {
    pub fn run(self) -> Result<ExitCode> {
        self.check()?;
        let (paths, documents): (Vec<_>, Vec<_>) = load(&self.runs)?.into_iter().unzip();
        let named = names(&paths).into_iter().zip(documents);
        let sources: Vec<Source> = named.flat_map(|(name, of)| sources(name, &of)).collect();
        if sources.is_empty() {
            return Err(
                Error::Usage("nothing was measured: it was interrupted before".into()).into()
            );
        }
        if sources.len() > RUNS_MAX {
            return Err(too_many().into());
        }
        let page = page(&sources);
        if self.is_to_standard_output() {
            print(&page)?;
        } else {
            write_whole(&self.output, page.as_bytes())?;
            print(&format!("{}\n", self.output.display()))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn is_to_standard_output(&self) -> bool {
        self.output.as_os_str() == "-"
    }

    fn check(&self) -> Result<(), Error> {
        if self.is_to_standard_output() {
            return Ok(());
        }
        let same = |run: &&PathBuf| {
            let canonical = |path: &Path| fs::canonicalize(path).ok();
            canonical(run).is_some_and(|run| canonical(&self.output) == Some(run))
        };
        if let Some(run) = self.runs.iter().find(same) {
            let message = format!("{}: the page would replace this result", run.display());
            return Err(Error::Usage(message));
        }
        if holds_something_else(&self.output) {
            let output = self.output.display();
            let message = format!(
                "{output}: there is a file that isn't a report: remove it, or choose another with -o"
            );
            return Err(Error::Usage(message));
        }
        Ok(())
    }
}

/// Whether there is a file with something in it that isn't a page of an earlier report.
fn holds_something_else(output: &Path) -> bool {
    if !output.is_file() {
        return false;
    }
    let mut beginning = Vec::new();
    let read = File::open(output).and_then(|file| file.take(1 << 10).read_to_end(&mut beginning));
    // One that can't be read may be anything.
    !matches!(read, Ok(0)) && !is_page(&beginning)
}

/// The runs of a document, which may be about several engines.
fn sources(name: String, document: &Stored) -> Vec<Source> {
    match document {
        Stored::Insert(run) => vec![Source::of_insert(name, run)],
        Stored::Tpcc(document) => Source::of_tpcc(&name, document),
    }
}

/// Those of the documents that have every second: beside them, in one directory, lie the tables of
/// experiments and of sysbench.
fn load(paths: &[PathBuf]) -> Result<Vec<(PathBuf, Stored)>, Error> {
    let (mut runs, mut others) = (Vec::new(), Vec::new());
    for path in paths {
        match Stored::load(path) {
            Ok(document) => runs.push((path.clone(), document)),
            Err(error @ Error::NoRun { .. }) => others.push(error),
            Err(error) => return Err(error),
        }
        if runs.len() > RUNS_MAX {
            return Err(too_many());
        }
    }
    if runs.is_empty()
        && let Some(error) = others.pop()
    {
        return Err(error);
    }
    for error in others {
        tell(&format!("weir: left out: {error}"));
    }
    Ok(runs)
}

fn too_many() -> Error {
    Error::Usage(format!("more than {RUNS_MAX} runs don't fit on a page: name fewer"))
}

/// What the runs are called: as short an end of their paths as tells them apart.
fn names(runs: &[PathBuf]) -> Vec<String> {
    let parts: Vec<Vec<String>> = runs.iter().map(|run| parts(run)).collect();
    let longest = parts.iter().map(Vec::len).max().unwrap_or(0);
    let end = |parts: &[String], len: usize| parts[parts.len().saturating_sub(len)..].join("/");
    for len in 1..longest {
        let names: Vec<String> = parts.iter().map(|parts| end(parts, len)).collect();
        let distinct: std::collections::BTreeSet<_> = names.iter().collect();
        if distinct.len() == names.len() {
            return names;
        }
    }
    parts.iter().map(|parts| parts.join("/")).collect()
}

/// The parts of a path, the last without its `.json`.
fn parts(path: &Path) -> Vec<String> {
    let plain = match path.extension() {
        Some(extension) if extension == "json" => path.with_extension(""),
        _ => path.to_path_buf(),
    };
    plain.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_short_as_they_can_be() {
        let names = |paths: &[&str]| names(&paths.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(names(&["out/weir-1.json"]), ["weir-1"]);
        assert_eq!(names(&["a/weir-1.json", "a/lmdb-1.json"]), ["weir-1", "lmdb-1"]);
        assert_eq!(names(&["a/x/run.json", "b/x/run.json"]), ["a/x/run", "b/x/run"]);
        assert_eq!(names(&["run.json", "a/run.json"]), ["run", "a/run"]);
        assert_eq!(names(&["run.json", "run.json"]), ["run", "run"], "the same twice");
    }
}
