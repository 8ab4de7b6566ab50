//! `weir sim`: the flush governor on models of devices and workloads.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use weir_bench::Error::Usage;
use weir_bench::quantity::{format_bytes, parse_bytes, parse_count};
use weir_bench::report::TextTable;
use weir_sim::study::{Outcome, Study, written_kb};
use weir_sim::{
    DeviceModel, PAGE_RATES, PolicyChoice, Setup, Workload, WorkloadKind, advise, simulate, summary,
};

use crate::bench::columns_help;
use crate::output::{self, ProgressLine};
use crate::place::check_place;
use crate::sim_results;

const HELP: &str = "\
Workloads: cached (updates, all pages alike), skewed (Zipf), insert (the Insert Benchmark), bursts
(as cached, all of it in 2 of each 10 seconds), day-and-night (as cached, a day of 30 minutes).
Devices: two-disks, slow-ssd, sata-ssd, nvme, nvmex2 to nvmex100.
Policies: governor, at-deadline, fixed:PAGES, innodb:IO_CAPACITY/IO_CAPACITY_MAX,
innodb-plain:IO_CAPACITY (before adaptive flushing).
Studies: redo-size-2017, dirty-limit-2009, nothing-to-tune-2020.";

const DATA_BYTES_MIN: u64 = 1 << 20;
const MEMORY_BYTES_MIN: u64 = 16 << 20;
const REDO_BYTES_MIN: u64 = 16 << 20;
const RATE_MIN: u64 = 1;
const REDO_PER_ROW_BYTES_MIN: u64 = 1;

/// As many as a table in MariaDB has.
const INDEXES: RangeInclusive<u32> = 0..=64;

const DIRTY_LIMIT_PERCENT: RangeInclusive<f64> = 1.0..=100.0;
const CONTENTION: RangeInclusive<f64> = 0.0..=1.0;

/// Every second is kept: a week takes 100 MB.
const SECONDS: RangeInclusive<u32> = 3..=7 * 24 * 3600;

/// Limits, as the help and the errors say them.
fn range<T: Display>(limits: &RangeInclusive<T>) -> String {
    format!("{} to {}", limits.start(), limits.end())
}

fn at_least_bytes(least: u64) -> String {
    format!("at least {}", format_bytes(least))
}

/// Simulate page writing on models of devices and workloads.
#[derive(Args)]
#[command(after_help = format!("{HELP}\n{}", columns_help(&summary::COLUMNS)))]
pub struct Sim {
    /// What operations change
    #[arg(long, default_value = "cached")]
    workload: WorkloadKind,
    /// What pages are written to
    #[arg(long, default_value = "sata-ssd")]
    device: DeviceModel,
    #[arg(
        long,
        default_value = "16G",
        value_parser = parse_bytes,
        help = format!("Data at the start, {}", at_least_bytes(DATA_BYTES_MIN)),
    )]
    data: u64,
    #[arg(
        long,
        default_value = "32G",
        value_parser = parse_bytes,
        help = format!("Memory for pages, {}", at_least_bytes(MEMORY_BYTES_MIN)),
    )]
    memory: u64,
    #[arg(
        long,
        default_value = "4G",
        value_parser = parse_bytes,
        help = format!("Redo log capacity, {}", at_least_bytes(REDO_BYTES_MIN)),
    )]
    redo: u64,
    #[arg(
        long,
        default_value = "50k",
        value_parser = parse_count,
        help = format!(
            "Operations (rows) per second that clients would do if nothing held them back, at least \
             {RATE_MIN}"
        ),
    )]
    rate: u64,
    #[arg(
        long,
        default_value = "300",
        value_parser = parse_bytes,
        help = format!("Bytes of redo per operation, {}", at_least_bytes(REDO_PER_ROW_BYTES_MIN)),
    )]
    redo_per_row: u64,
    #[arg(
        long,
        help = format!(
            "Secondary indexes, for the workload insert: {} [default: 3]",
            range(&INDEXES),
        ),
    )]
    indexes: Option<u32>,
    #[arg(
        long,
        default_value_t = 90.0,
        help = format!("Dirty pages at most, {} percent of memory", range(&DIRTY_LIMIT_PERCENT)),
    )]
    dirty_limit: f64,
    #[arg(
        long,
        default_value_t = 0.0,
        help = format!(
            "Share of the operations' rate that is lost to a device that does nothing but write \
             pages, {}",
            range(&CONTENTION),
        ),
    )]
    contention: f64,
    #[arg(
        long,
        default_value_t = 3600,
        help = format!(
            "Simulated seconds, of which the first third doesn't count, {}",
            range(&SECONDS),
        ),
    )]
    seconds: u32,
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "governor,at-deadline,innodb:200/2000,innodb:2000/4000",
        help = format!(
            "What decides when pages are written, separated by commas; pages per second are {}",
            range(&PAGE_RATES),
        ),
    )]
    policies: Vec<PolicyChoice>,
    /// Seed of the device's variation
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Reproduce a public study at its own size
    #[arg(long, conflicts_with_all = [
        "workload", "device", "data", "memory", "redo", "rate", "redo_per_row", "indexes",
        "dirty_limit", "contention", "seconds", "policies", "seed", "advise",
    ])]
    study: Option<Study>,
    /// Answer how large the redo log should be for this workload
    #[arg(long, conflicts_with_all = ["redo", "seconds", "policies", "results"])]
    advise: bool,
    /// Directory for one document per run, with every second, as `weir bench` leaves them
    #[arg(long)]
    results: Option<PathBuf>,
}

impl Sim {
    pub fn run(self) -> Result<ExitCode> {
        if let Some(study) = self.study {
            return self.study(study);
        }
        self.check()?;
        let setup = self.setup();
        if self.advise {
            output::print(&advice(&setup, self.workload)?)?;
            return Ok(ExitCode::SUCCESS);
        }
        self.check_results()?;
        let mut progress = ProgressLine::new();
        let mut table = TextTable::new(&summary::heads());
        for policy in &self.policies {
            let run = simulate(&setup, policy);
            progress.show("sim", &format!("{}: done", run.policy));
            line(&mut table, summary::row(&run));
            if let Some(dir) = &self.results {
                sim_results::save(dir, self.workload.name(), &run)?;
            }
        }
        progress.end();
        output::print(&format!("{}\n{}", self.header(&setup), table.render(&["policy"])))?;
        Ok(ExitCode::SUCCESS)
    }

    fn check(&self) -> Result<()> {
        let usage = |what: String| Err(Usage(what).into());
        if !SECONDS.contains(&self.seconds) {
            return usage(format!("--seconds {}: use {}", self.seconds, range(&SECONDS)));
        }
        if !DIRTY_LIMIT_PERCENT.contains(&self.dirty_limit) {
            let limits = range(&DIRTY_LIMIT_PERCENT);
            return usage(format!("--dirty-limit {}: {limits} percent", self.dirty_limit));
        }
        if let Some(indexes) = self.indexes {
            if self.workload != WorkloadKind::Insert {
                return usage(format!("--indexes: {} has none", self.workload.name()));
            }
            if !INDEXES.contains(&indexes) {
                return usage(format!("--indexes {indexes}: at most {}", INDEXES.end()));
            }
        }
        if !CONTENTION.contains(&self.contention) {
            return usage(format!("--contention {}: {}", self.contention, range(&CONTENTION)));
        }
        let twice = |(n, policy)| self.policies[..n].contains(policy);
        if let Some((_, policy)) = self.policies.iter().enumerate().find(|&at| twice(at)) {
            let name = policy.policy(self.dirty_limit).name();
            return usage(format!("--policies: {name} is named twice"));
        }
        if self.rate < RATE_MIN {
            return usage(format!("--rate {}: at least {RATE_MIN}", self.rate));
        }
        for (flag, bytes, least) in [
            ("--data", self.data, DATA_BYTES_MIN),
            ("--memory", self.memory, MEMORY_BYTES_MIN),
            ("--redo", self.redo, REDO_BYTES_MIN),
            ("--redo-per-row", self.redo_per_row, REDO_PER_ROW_BYTES_MIN),
        ] {
            if bytes < least {
                let (bytes, least) = (format_bytes(bytes), at_least_bytes(least));
                return usage(format!("{flag} {bytes}: {least}"));
            }
        }
        // The capacities that are advised on are checked when the rate that they allow is known.
        let lap = self.redo as f64 / (self.rate as f64 * self.redo_per_row as f64);
        if lap < advise::LAP_SECONDS_MIN && !self.advise {
            return usage(format!(
                "the redo log is filled in {lap:.1} s: take a larger --redo or a lower --rate"
            ));
        }
        Ok(())
    }

    fn check_results(&self) -> Result<()> {
        self.results.as_ref().map_or(Ok(()), |dir| check_place(&dir.join("sim.json")))
    }

    fn setup(&self) -> Setup {
        let (redo_per_row, indexes) = (self.redo_per_row as f64, self.indexes.unwrap_or(3));
        let workload =
            Workload::new(self.workload, self.data, self.rate as f64, redo_per_row, indexes);
        Setup {
            dirty_limit_percent: self.dirty_limit,
            contention: self.contention,
            seconds: self.seconds,
            warm_up_seconds: self.seconds / 3,
            seed: self.seed,
            ..Setup::new(workload, self.device.clone(), self.memory, self.redo)
        }
    }

    fn header(&self, setup: &Setup) -> String {
        format!(
            "{} on {}: data {}, memory {}, redo {}, {} op/s wanted of {} bytes of redo, {} s, seed {}\n",
            self.workload.name(),
            setup.device.name,
            format_bytes(self.data),
            format_bytes(self.memory),
            format_bytes(self.redo),
            self.rate,
            self.redo_per_row,
            self.seconds,
            self.seed,
        )
    }

    fn study(&self, study: Study) -> Result<ExitCode> {
        self.check_results()?;
        let mut progress = ProgressLine::new();
        let outcome = study.run(&mut |text| progress.show("study", text));
        progress.end();
        if let Some(dir) = &self.results {
            save_all(dir, &outcome)?;
        }
        output::print(&study_text(&outcome))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn line(table: &mut TextTable, cells: Vec<String>) {
    table.row("", cells);
}

fn save_all(dir: &Path, outcome: &Outcome) -> Result<()> {
    for (label, run) in &outcome.runs {
        sim_results::save(dir, label, run)?;
    }
    Ok(())
}

fn study_text(outcome: &Outcome) -> String {
    let mut heads = vec!["case"];
    heads.extend(summary::heads());
    heads.push("wKB/op");
    let mut table = TextTable::new(&heads);
    for (label, run) in &outcome.runs {
        let mut row = vec![label.clone()];
        row.extend(summary::row(run));
        row.push(format!("{:.2}", written_kb(run)));
        line(&mut table, row);
    }
    let mut text = format!("{}\n\n{}", outcome.title, table.render(&["case", "policy"]));
    text += "\nWhat the study found, and what the model gives:\n";
    for finding in &outcome.findings {
        text += &format!("- {}\n  model: {}\n", finding.theirs, finding.ours);
    }
    text
}

/// Whole percents; nothing is never less than nothing.
fn percent(share: f64) -> String {
    format!("{}%", (100.0 * share).round() as i64)
}

/// The table of `--advise`.
fn advice(setup: &Setup, kind: WorkloadKind) -> Result<String> {
    let rows = advise::advise(setup).map_err(|why| {
        let message = match why {
            advise::Unadvised::TooFar => {
                "data and log are so many times the memory that it would take days: take more --memory"
            }
            advise::Unadvised::TooFast => {
                "a redo log as large as the data is filled in less than 2 s: take a lower --rate or \
                 --redo-per-row"
            }
        };
        Usage(message.into())
    })?;
    let mut table = TextTable::new(&[
        "redo",
        "op/s",
        "pages/op",
        "wKB/op",
        "device",
        "saved",
        "redo to read",
        "pages to redo",
        "reading them",
        "",
    ]);
    for row in &rows {
        let cells = vec![
            format_bytes(row.redo_bytes),
            format!("{:.0}", row.rate),
            format!("{:.4}", row.pages_per_operation),
            format!("{:.2}", row.bytes_per_operation / 1024.0),
            percent(row.device_share),
            row.saved.map_or("-".into(), percent),
            format!("{:.1}G", row.recovery_bytes as f64 / f64::from(1 << 30)),
            row.recovery_pages.to_string(),
            format!("{:.0} s", row.recovery_seconds),
            if row.advised { "<- enough".into() } else { String::new() },
        ];
        line(&mut table, cells);
    }
    let advised = rows.iter().find(|row| row.advised).expect("one is advised");
    Ok(format!(
        "{} on {}: {} op/s wanted of {} bytes of redo, memory {}\n\n{}\n\
         Take {}: twice as much saves less than {:.0} % of the bytes written, or costs throughput, or is\n\
         more than the data, or pages take less than {:.0} % of the device by now. `device` is the part of\n\
         what the device can do that pages take. After a crash, `redo to read` is read and `pages to redo`\n\
         are brought up to date; `reading them` is the device's time for it. Pages are counted\n\
         uncompressed.\n",
        kind.name(),
        setup.device.name,
        setup.workload.rate,
        setup.workload.redo_bytes,
        format_bytes(setup.memory_bytes),
        table.render(&[""]),
        format_bytes(advised.redo_bytes),
        100.0 * advise::ENOUGH,
        100.0 * advise::IDLE,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percents() {
        let shown = [0.4567, 0.004, 0.0, -0.004, -0.02].map(percent);
        assert_eq!(shown, ["46%", "0%", "0%", "0%", "-2%"]);
    }
}
