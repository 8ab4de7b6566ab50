//! Results as one table, and a line for each test that says how the first server stands.

use super::document::{Document, Run};
use crate::quantity::counted;
use crate::report::{TextTable, seconds_of_99, stolen_share};
use crate::rounds::{Median, medians, verdict};

/// What the columns mean, for readers of tables.
pub const COLUMNS: &[(&str, &str)] = &[
    ("tps.av", "transactions per second, mean of the seconds that count"),
    ("range", "with --rounds, the lowest and the highest tps.av; the line is the median run's"),
    (
        "tps.99",
        "the rate that 99 % of them reach; of fewer than 100 the slowest; 99/av: that of the mean",
    ),
    ("secs", "seconds that count, of which tps.99 is: below 100 it is the slowest one's"),
    ("vs.X", "tps.av against the first server's"),
    (
        "p95.ms",
        "latency of 95 % of a second's transactions: mean of the seconds in which any ended",
    ),
    ("p95.max", "that of the second in which it was worst"),
    ("empty", "seconds that count in which no transaction ended: they have no latency"),
    ("err/s", "transactions per second that were rolled back and tried again"),
    ("Mcpu/t", "microseconds of the server's processor time per transaction, of the whole run"),
    ("rKB/t wKB/t", "KB read from and written to the device per transaction, of the whole run"),
    ("size rss", "GB that the server's files and memory take at the end, binary log left out"),
];

/// One run on one line.
pub fn line(run: &Run) -> String {
    let Run { server, test, threads, .. } = run;
    match &run.failure {
        Some(failure) => format!("{test} {threads} {server}: failed: {failure}"),
        None => format!(
            "{test} {threads} {server}: {:.0} tps, 99 % of the seconds above {:.0}",
            run.rate_mean, run.rate_99
        ),
    }
}

/// All runs as one table.
pub fn table(document: &Document) -> String {
    let Some(first) = document.runs.first().map(|run| run.server.as_str()) else {
        return String::new();
    };
    let relative = format!("vs.{first}");
    let mut table = TextTable::new(&[
        "test", "threads", "server", "tps.av", "range", "tps.99", "secs", "99/av", &relative,
        "p95.ms", "p95.max", "empty", "err/s", "Mcpu/t", "rKB/t", "wKB/t", "size", "rss",
    ]);
    let mut verdicts = String::new();
    for (test, threads) in cases(document) {
        let is_of_case = |run: &&Run| (run.test.as_str(), run.threads) == (test, threads);
        let good = document.runs.iter().filter(is_of_case).filter(|run| run.failure.is_none());
        let lines = medians(good.map(|run| (run.server.as_str(), run)), |run| run.rate_mean);
        let base = lines.iter().find(|(server, _)| *server == first);
        let base = base.map(|(_, median)| median.run.rate_mean);
        for (_, median) in &lines {
            let seconds = median.run.counted_seconds(document.settings.dropped_seconds);
            table.row(format!("{test} {threads}"), cells(median, seconds, base));
        }
        let case = format!("{test}, {}", counted(threads, "thread"));
        verdicts.extend(verdict(&case, first, &lines, |run| run.rate_mean));
    }
    let mut text = table.render(&["test", "server"]);
    if !verdicts.is_empty() {
        text += &format!("\n{verdicts}");
    }
    for server in &document.servers {
        let settings = server.settings.join(", ");
        text += &format!("\n{}: {}, {settings}\n", server.name, server.version);
    }
    text += &format!("\nBuilt from {}\n", document.environment.build);
    for run in &document.runs {
        let round = match document.settings.rounds {
            1 => String::new(),
            _ => format!("round {}: ", run.round),
        };
        if let Some(remark) = remark(run, document) {
            text += &format!("\n{round}{remark}\n");
        }
    }
    text
}

/// What a reader has to know of a run.
fn remark(run: &Run, document: &Document) -> Option<String> {
    if run.failure.is_some() {
        return Some(line(run));
    }
    let Run { server, test, threads, usage, .. } = run;
    let seconds = f64::from(document.settings.seconds);
    let share = stolen_share(usage, seconds, document.environment.cores_to_steal())?;
    Some(format!("{test} {threads} {server}: the host took processors (steal): {share}"))
}

/// Tests with numbers of threads, in the order in which they ran first.
fn cases(document: &Document) -> Vec<(&str, u32)> {
    let mut cases = Vec::new();
    for run in &document.runs {
        let case = (run.test.as_str(), run.threads);
        if !cases.contains(&case) {
            cases.push(case);
        }
    }
    cases
}

fn cells(median: &Median<&Run>, seconds: usize, base: Option<f64>) -> Vec<String> {
    let run = median.run;
    let per = |amount: f64| amount / run.transactions.max(1) as f64;
    let gb = |bytes: u64| format!("{:.2}", bytes as f64 / f64::from(1 << 30));
    let ratio = |a: f64, b: f64| if b > 0.0 { format!("{:.2}", a / b) } else { "-".into() };
    vec![
        run.test.clone(),
        run.threads.to_string(),
        run.server.clone(),
        format!("{:.0}", run.rate_mean),
        median.range_text(),
        format!("{:.0}", run.rate_99),
        seconds_of_99(Some(run.rate_99), seconds),
        ratio(run.rate_99, run.rate_mean),
        base.map_or("-".into(), |base| ratio(run.rate_mean, base)),
        format!("{:.2}", run.latency_ms_95),
        format!("{:.2}", run.latency_ms_95_max),
        run.empty_seconds.to_string(),
        format!("{:.1}", run.errors_per_second),
        format!("{:.1}", per(run.server_cpu_us as f64)),
        format!("{:.3}", per(run.usage.read_bytes as f64 / 1024.0)),
        format!("{:.3}", per(run.usage.write_bytes as f64 / 1024.0)),
        gb(run.size_bytes),
        gb(run.resident_bytes),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Environment;
    use crate::files::write_json;
    use crate::sysbench::document::{FORMAT, Settings};
    use crate::sysbench::output::Second;

    fn run(server: &str, threads: u32, rate_mean: f64) -> Run {
        let (server, test) = (server.to_string(), "oltp_read_write".to_string());
        let rate_99 = rate_mean / 2.0;
        let seconds = (1..=3).map(|second| Second { second, ..Second::default() }).collect();
        Run {
            server,
            test,
            threads,
            rate_mean,
            rate_99,
            transactions: 10,
            seconds,
            ..Run::default()
        }
    }

    fn document(runs: Vec<Run>) -> Document {
        let settings = Settings {
            tables: 1,
            table_rows: 1,
            rounds: 1,
            side_by_side: false,
            seconds: 2,
            dropped_seconds: 1,
            iops: None,
            rate: None,
            binlog: false,
            pinned: false,
            memory_bytes: 0,
            redo_bytes: 0,
            durability: "write".into(),
        };
        Document {
            format: FORMAT,
            settings,
            environment: Environment::look(None),
            servers: Vec::new(),
            runs,
        }
    }

    #[test]
    fn the_first_server_is_compared_with_the_fastest_other() {
        let failed = Run { failure: Some("gone".into()), ..run("rocksdb", 4, 0.0) };
        let runs =
            vec![run("weir", 1, 300.0), run("weir", 4, 50.0), run("innodb", 1, 100.0), failed];
        let text = table(&document(runs));
        assert!(
            text.contains(
                "oltp_read_write, 1 thread: weir is at 3.00x of the fastest other, innodb"
            )
        );
        assert!(!text.contains("4 threads: weir"), "nothing to compare with: {text}");
        assert!(text.contains("oltp_read_write 4 rocksdb: failed: gone"), "{text}");
        let line = text.lines().find(|line| line.contains("innodb")).unwrap();
        let cells: Vec<_> = line.split_whitespace().collect();
        assert_eq!(cells[1..9], ["1", "innodb", "100", "-", "50", "2", "0.50", "0.33"]);
    }

    #[test]
    fn of_several_rounds_the_median_counts() {
        let rates = [("weir", 900.0), ("innodb", 100.0), ("weir", 100.0), ("weir", 200.0)];
        let of = |(server, rate)| run(server, 4, rate);
        let failed = Run { round: 2, failure: Some("gone".into()), ..run("innodb", 4, 0.0) };
        let mut document = document(rates.map(of).into_iter().chain([failed]).collect());
        document.settings.rounds = 3;
        let text = table(&document);
        let cells = |server: &str| -> Vec<String> {
            let of = |line: &&str| line.split_whitespace().nth(2) == Some(server);
            let line = text.lines().find(of).unwrap_or_else(|| panic!("{server}: {text}"));
            line.split_whitespace().map(str::to_string).collect()
        };
        assert_eq!(cells("weir")[3..9], ["200", "100-900", "100", "2", "0.50", "1.00"]);
        assert_eq!(cells("innodb")[3..9], ["100", "-", "50", "2", "0.50", "0.50"]);
        assert!(text.contains("weir is at 2.00x of the fastest other, innodb"), "{text}");
        assert!(text.contains("round 2: oltp_read_write 4 innodb: failed: gone"), "{text}");
    }

    #[test]
    fn what_a_host_takes_is_told_of_the_run() {
        let mut document = document(vec![run("weir", 1, 300.0), run("innodb", 1, 300.0)]);
        document.environment.machine_cores = Some(2);
        assert!(!table(&document).contains("steal"));
        document.runs[1].usage.stolen_us = 400_000;
        let told = "\noltp_read_write 1 innodb: the host took processors (steal): 10 %\n";
        assert!(table(&document).contains(told), "{}", table(&document));
    }

    #[test]
    fn documents_of_one_round_do_not_name_it() {
        let mut json = serde_json::to_value(document(vec![run("weir", 1, 300.0)])).unwrap();
        json["settings"].as_object_mut().unwrap().remove("rounds").unwrap();
        json["runs"][0].as_object_mut().unwrap().remove("round").unwrap();
        let read: Document = serde_json::from_value(json).unwrap();
        assert_eq!((read.settings.rounds, read.runs[0].round), (1, 1));
    }

    #[test]
    fn a_document_reads_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new").join("run.json");
        let document = document(vec![run("weir", 1, 300.0)]);
        write_json(&path, &document).unwrap();
        let text = std::fs::read(&path).unwrap();
        assert_eq!(serde_json::from_slice::<Document>(&text).unwrap(), document);
    }
}
