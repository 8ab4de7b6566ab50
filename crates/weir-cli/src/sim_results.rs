//! Simulated runs as documents that `weir report` draws like any other run.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::json;
use weir_bench::accounting::Usage;
use weir_bench::environment::Environment;
use weir_bench::percentile::rate_99;
use weir_bench::result::{FORMAT, Measured, Second};
use weir_bench::series::Latency;
use weir_bench::{Durability, EngineKind, Run, Step};
use weir_sim::PAGE_BYTES;

/// Writes `run`, which was made under `label`, to a file of its own in `dir`.
///
/// # Errors
/// When the file can't be written.
pub fn save(dir: &Path, label: &str, run: &weir_sim::run::Run) -> Result<()> {
    let name = format!("{label} {}", run.policy);
    let name: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect();
    document(label, run)?.save(&dir.join(format!("{}.json", name.replace("--", "-"))))?;
    Ok(())
}

/// A document as an earlier program might have written it: what it lacks has its default.
fn document(label: &str, run: &weir_sim::run::Run) -> Result<Run> {
    let setup = &run.setup;
    let step: Step = "l.i1".parse().expect("it is a step");
    let rates: Vec<f64> = run.seconds.iter().map(|s| s.operations).collect();
    let total: f64 = rates.iter().sum();
    let series = series(run);
    let sum = |value: fn(&Usage) -> u64| series.iter().map(|s| value(&s.usage)).sum::<u64>();
    let usage = Usage {
        read_bytes: sum(|u| u.read_bytes),
        write_bytes: sum(|u| u.write_bytes),
        ..Usage::default()
    };
    let measured = Measured {
        seconds: rates.len() as f64,
        usage,
        device_reads: Some(usage.read_bytes / PAGE_BYTES),
        ..Measured::default()
    };
    let document = json!({
        "format": FORMAT,
        "settings": {
            "engine": EngineKind::Model,
            "clients": 1,
            "rows": total as u64,
            "steps": [step],
            "memory_bytes": setup.memory_bytes,
            "redo_bytes": setup.redo_bytes,
            "durability": Durability::Write,
            "delete": false,
            "seed": setup.seed,
            "disk": { "io": "simulated", "device": setup.device.name },
        },
        "environment": Environment::look(Some(Path::new("."))),
        "engine": {
            "name": format!("sim {}", run.policy),
            "version": env!("CARGO_PKG_VERSION"),
            "settings": [format!("dirty_limit={}%", setup.dirty_limit_percent)],
            "notes": ["a simulation: nothing was written"],
        },
        "steps": [{
            "step": step,
            "name": label,
            "inserts": {
                "total": total as u64,
                "rate_mean": total / rates.len() as f64,
                "rate_99": rate_99(&rates),
                "latency": Latency::default(),
            },
            "deletes": 0,
            "scans": [],
            "measured": measured,
            "series": series,
        }],
        "close_seconds": 0.0,
        "interrupted": false,
    });
    serde_json::from_value(document).context("making a document of a simulation")
}

/// Levels as they are, counters from the start, by the engine's names.
fn series(run: &weir_sim::run::Run) -> Vec<Second> {
    let mut counters: BTreeMap<&str, f64> = BTreeMap::new();
    let frames = run.setup.memory_bytes / PAGE_BYTES;
    let mut out = Vec::with_capacity(run.seconds.len());
    for (at, second) in run.seconds.iter().enumerate() {
        let read_bytes = second.reads * PAGE_BYTES as f64;
        let write_bytes = second.pages_written() * PAGE_BYTES as f64 + second.log_bytes;
        for (name, value) in [
            ("lsn_current", second.log_bytes),
            ("pages_written_deadline", second.written[0]),
            ("pages_written_dirty_limit", second.written[1]),
            ("pages_written_free_frames", second.written[2]),
            ("pages_read", second.reads),
            ("disk_reads", second.reads),
            ("disk_read_bytes", read_bytes),
            ("disk_writes", second.pages_written()),
            ("disk_write_bytes", write_bytes),
            ("admission_wait_us", 1e6 * second.paced),
            ("log_wait_us", 1e6 * second.stalled),
        ] {
            *counters.entry(name).or_default() += value;
        }
        let levels = [
            ("checkpoint_age", second.age as f64),
            ("checkpoint_max_age", second.age_max as f64),
            ("buffer_pool_pages_total", frames as f64),
            ("buffer_pool_pages_free", second.free_frames),
            ("buffer_pool_pages_dirty", second.dirty),
            ("buffer_pool_pages_dirty_max", second.dirty_limit),
        ];
        let engine = counters.iter().map(|(&name, &value)| (name, value)).chain(levels);
        out.push(Second {
            second: at as u32,
            inserts: second.operations as u64,
            usage: Usage {
                read_bytes: read_bytes as u64,
                write_bytes: write_bytes as u64,
                ..Usage::default()
            },
            sample_seconds: 1.0,
            engine: engine.map(|(name, value)| (name.to_string(), value.round())).collect(),
            ..Second::default()
        });
    }
    out
}
