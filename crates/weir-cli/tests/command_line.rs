//! The command as a user meets it: help, refusals, exit codes, files left and files removed.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

mod common;

use common::{names, text, weir};
use std::process::{Command, Stdio};
use weir::{Database, Options, RawIndex, Schema, Type};

const TINY: [&str; 12] = [
    "bench",
    "insert",
    "--engine",
    "model",
    "--rows",
    "2k",
    "--steps",
    "l.i0,l.x,l.i1,l.i2:delete,scan,qr100:seconds=1",
    "--clients",
    "2",
    "--quiet",
    "--json=out/run.json",
];

#[test]
fn a_run_prints_the_fields_columns_and_leaves_only_its_document() {
    let dir = tempfile::tempdir().unwrap();
    let output = weir(&TINY, dir.path());
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{err}");
    let columns = "ips.av ips.99 secs r/i rKB/i wKB/i Mcpu/i size rss r/s rMB/s wMB/s cpu engine";
    let squeezed = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(out.lines().any(|line| squeezed(line) == format!("step {columns}")), "{out}");
    assert!(out.lines().any(|line| squeezed(line).starts_with("step QPS.av QPS.99 secs rKB/q")));
    assert!(out.lines().any(|line| squeezed(line).starts_with("scan secs rMB/s rKB/o rGB Mcpu/o")));
    assert_eq!(names(dir.path()), ["out"]);
    assert_eq!(names(&dir.path().join("out")), ["run.json"]);
}

#[test]
fn a_given_directory_is_emptied_again_unless_kept() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let run = |more: &[&str]| {
        let arguments: Vec<_> = TINY.iter().chain(more).copied().collect();
        weir(&arguments, dir.path())
    };
    assert!(run(&["--dir", "data"]).status.success());
    assert!(names(&data).is_empty());
    let output = run(&["--dir", "new", "--keep"]);
    assert!(output.status.success() && dir.path().join("new").exists());
    assert!(text(&output.stderr).contains("database kept in new"));
    assert!(run(&["--dir", "far/away/other"]).status.success());
    assert!(!dir.path().join("far").exists(), "nor what was made above it");
    assert!(run(&["--dir", "data/other"]).status.success());
    assert!(data.exists() && names(&data).is_empty());
}

#[test]
fn a_directory_with_files_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("precious"), "x").unwrap();
    let arguments: Vec<_> = TINY.iter().chain(&["--dir", "."]).copied().collect();
    let output = weir(&arguments, dir.path());
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("is not empty"));
    assert_eq!(names(dir.path()), ["precious"]);
}

#[test]
fn nonsense_ends_with_code_2_and_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let url = "mysql://localhost/";
    let cases: [(&[&str], &str); 58] = [
        (&["bench", "insert", "--engine", "oracle"], "`oracle` is no engine"),
        (&["bench", "insert", "--rows", "many"], "not a number"),
        (&["bench", "insert", "--memory", "5Q"], "unknown unit"),
        (&["bench", "insert", "--memory", "99999T"], "memory of 99999T: use 16M to 64T"),
        (&["bench", "tpcc", "--memory", "1M"], "memory of 1M: use 16M to 64T"),
        (&["bench", "tpcc", "--redo", "99999T"], "redo of 99999T: use 8M to 16T"),
        (&["check", ".", "--memory", "99999T"], "above 32 TiB"),
        (&["compact", ".", "--memory", "1M"], "below 2 MiB"),
        (&["bench", "insert", "--durability", "maybe"], "use sync, write or relaxed"),
        (&["bench", "insert", "--steps", "l.i0,scan:fast"], "takes no parameters"),
        (&["bench", "insert", "--engine", "model", "--steps", "scan"], "begin with l.i0 or load"),
        (&["bench", "insert", "--engine", "model", "--clients", "0"], "0 clients"),
        (&["bench", "insert", "--engine", "model", "--rows", "1"], "at least one"),
        (&["bench", "compare", "--engines", "model,", "--quiet"], "is no engine"),
        (
            &["bench", "compare", "--engines", "model,weir,model"],
            "model with 1 client is named twice",
        ),
        (&["bench", "compare", "--engines", "model", "--clients", "2,2"], "named twice"),
        (
            &["bench", "insert", "--rows", "90", "--steps", "load,l.i1:commit=50:delete"],
            "a client has 45: load at least 100 rows",
        ),
        (&["bench", "insert", "--steps", "load,qr1:commit=100"], "less than one commit per minute"),
        (&["bench", "insert", "--url", "http://localhost/"], "mysql://user:password@host:port/"),
        (&["bench", "insert", "--url", url, "--memory", "1G"], "cannot be used with"),
        (
            &["bench", "insert", "--url", url, "--table-engine", "a b"],
            "no name of a storage engine",
        ),
        (&["bench", "insert", "--url", url, "--statements", "loud"], "prepared or text"),
        (&["bench", "insert", "--table-engine", "innodb"], "required arguments"),
        (&["bench", "insert", "--existing-tables"], "required arguments"),
        (
            &["bench", "insert", "--url", url, "--existing-tables", "--table-engine", "weir"],
            "cannot be used with",
        ),
        (&["bench", "compare", "--engines", "model", "--binlog"], "--binlog needs --servers"),
        (&["bench", "compare", "--pin"], "--pin needs --servers"),
        (
            &["bench", "compare", "--engines", "model", "--statements", "prepared"],
            "cannot be used with",
        ),
        (&["bench", "compare", "--warm-up"], "--servers"),
        (&["bench", "compare", "--servers", "oracle"], "use weir, innodb, rocksdb"),
        (
            &["bench", "compare", "--servers", "weir", "--server-command", "gone"],
            "gone is not there",
        ),
        (&["bench", "sysbench", "--tests", "oltp_everything"], "use oltp_read_write"),
        (&["bench", "sysbench", "--threads", "4,4"], "4 threads: named twice"),
        (&["bench", "tpcc", "--warehouses", "0"], "0 warehouses: use 1 to 1,000,000"),
        (&["bench", "tpcc", "--clients", "4,4"], "4 clients: named twice"),
        (&["bench", "tpcc", "--binlog"], "--binlog needs --servers"),
        (&["bench", "tpcc", "--url", url, "--pin"], "--pin needs --servers"),
        (&["bench", "tpcc", "--device", "floppy"], "unknown disk profile `floppy`"),
        (&["bench", "tpcc", "--servers", "weir", "--device", "slow-ssd"], "cannot be used with"),
        (&["bench", "sysbench", "--iops", "0"], "0 reads and writes per second"),
        (&["no-such-command"], "unrecognized subcommand"),
        (&["sim", "--workload", "cahed"], "use one of cached, skewed, insert"),
        (&["sim", "--device", "floppy"], "is no device; use two-disks"),
        (&["sim", "--policies", "governor,innodb:5"], "is no policy; use governor"),
        (&["sim", "--policies", "innodb:900/300"], "io_capacity is above io_capacity_max"),
        (&["sim", "--policies", "fixed:5,governor,fixed:5.0"], "fixed:5 is named twice"),
        (&["sim", "--study", "2017"], "is no study; use redo-size-2017"),
        (&["sim", "--dirty-limit", "0"], "1 to 100 percent"),
        (&["sim", "--workload", "insert", "--indexes", "65"], "--indexes 65: at most 64"),
        (&["sim", "--indexes", "2"], "--indexes: cached has none"),
        (&["sim", "--redo", "1"], "--redo 1: at least 16M"),
        (&["sim", "--seconds", "4294967295"], "use 3 to 604800"),
        (&["bench", "insert", "--dirty-limit", "0"], "use 1 to 100"),
        (&["bench", "insert", "--dirty-limit", "4000000000"], "use 1 to 100"),
        (&["sim", "--redo", "16M", "--rate", "1M"], "is filled in 0.1 s"),
        (&["sim", "--advise", "--study", "dirty-limit-2009"], "cannot be used with"),
        (&["sim", "--study", "dirty-limit-2009", "--device", "nvme"], "cannot be used with"),
        (&["sim", "--advise", "--redo", "4G"], "cannot be used with"),
    ];
    for (arguments, reason) in cases {
        let output = weir(arguments, dir.path());
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {err}");
        assert!(err.contains(reason), "{arguments:?}: {err}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
    assert!(names(dir.path()).is_empty(), "nothing was created");
}

#[test]
fn failures_end_with_code_1_and_the_cause() {
    let dir = tempfile::tempdir().unwrap();
    let output = weir(&["check", "no-such-directory"], dir.path());
    assert_eq!(output.status.code(), Some(1));
    let err = text(&output.stderr);
    assert!(err.contains("checking no-such-directory: no such directory"), "{err}");
    std::fs::write(dir.path().join("out"), "a file where a directory is needed").unwrap();
    let output = weir(&TINY, dir.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("preparing the result's file out/run.json"));
}

#[test]
fn an_engine_that_does_not_open_is_named_once() {
    let dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let bench = ["bench", "insert", "--rows", "100", "--steps", "load", "--status-listen", &port];
    let output = weir(&bench, dir.path());
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.starts_with("weir: open: "), "{err}");
    assert!(names(dir.path()).is_empty(), "nothing was left");
}

#[test]
fn results_that_have_no_place_are_told_of_before_anything_runs() {
    let dir = tempfile::tempdir().unwrap();
    // In the way of what comes last.
    for last in ["model-2.json", "wave.json", "sim.json"] {
        std::fs::create_dir_all(dir.path().join("out").join(last)).unwrap();
    }
    let compare =
        "bench compare --engines model --clients 1,2 --rows 1k --steps load --results out";
    let experiment = "bench experiment wave --scale 0.01 --out out";
    let study = "sim --study dirty-limit-2009 --results out";
    for (line, last) in
        [(compare, "model-2"), (experiment, "wave"), (study, "sim"), ("sim --results out", "sim")]
    {
        let arguments: Vec<_> = line.split(' ').collect();
        let output = weir(&arguments, dir.path());
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line}: {err}");
        let told = format!("weir: preparing the result's file out/{last}.json");
        assert!(err.starts_with(&told) && output.stdout.is_empty(), "{line}: {err}");
    }
}

#[test]
fn a_report_is_one_page() {
    let dir = tempfile::tempdir().unwrap();
    assert!(weir(&TINY, dir.path()).status.success());
    let output = weir(&["report", "out/run.json"], dir.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "report.html\n");
    assert_eq!(names(dir.path()), ["out", "report.html"]);
    let page = std::fs::read_to_string(dir.path().join("report.html")).unwrap();
    for word in ["ips.av", "QPS.av", "secs", "Mcpu/i", "model", "</html>"] {
        assert!(page.contains(word), "{word}");
    }
}

#[test]
fn a_report_can_go_to_standard_output() {
    let dir = tempfile::tempdir().unwrap();
    assert!(weir(&TINY, dir.path()).status.success());
    let output = weir(&["report", "out/run.json", "-o", "-"], dir.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(names(dir.path()), ["out"], "no file is named `-`");
    assert!(weir(&["report", "out/run.json"], dir.path()).status.success());
    let page = std::fs::read_to_string(dir.path().join("report.html")).unwrap();
    assert_eq!(text(&output.stdout), page, "the page, and nothing else");
}

#[test]
fn what_does_not_fit_is_not_left_half_written() {
    let dir = tempfile::tempdir().unwrap();
    assert!(weir(&TINY, dir.path()).status.success());
    // As on a device that is full after some KiB.
    let limited = "ulimit -f 8; exec \"$0\" \"$@\"";
    let bench = [&TINY[..TINY.len() - 1], &["--json=new.json"]].concat();
    let again = [&TINY[..TINY.len() - 1], &["--json=out/run.json"]].concat();
    let before = std::fs::read(dir.path().join("out/run.json")).unwrap();
    for arguments in [&["report", "out/run.json"][..], &bench, &again] {
        let mut command = Command::new("sh");
        command.args(["-c", limited, env!("CARGO_BIN_EXE_weir")]).args(arguments);
        let output = command.current_dir(dir.path()).env("TMPDIR", dir.path()).output().unwrap();
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {err}");
        assert!(err.contains("weir: writing ") && err.contains("File too large"), "{err}");
        assert_eq!(
            (names(dir.path()), names(&dir.path().join("out"))),
            (vec!["out".into()], vec!["run.json".into()])
        );
    }
    assert_eq!(
        std::fs::read(dir.path().join("out/run.json")).unwrap(),
        before,
        "the old one stays"
    );
}

#[test]
fn a_report_of_what_is_no_result_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert!(weir(&TINY, dir.path()).status.success());
    let run = std::fs::read_to_string(dir.path().join("out/run.json")).unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("foreign.json", "{\"rows\": 1}");
    write("list.json", "[1, 2, 3]");
    write("notes.txt", "notes");
    write("broken.json", &run[..run.len() / 2]);
    write("newer.json", &run.replacen("\"format\":1", "\"format\":7", 1));
    write("lacking.json", "{\"format\": 1}");
    let good = "out/run.json";
    write("tpcc.json", "{\"format\": 1, \"settings\": {}, \"loads\": [], \"runs\": []}");
    write("newer-tpcc.json", "{\"format\": 7, \"loads\": [], \"runs\": []}");
    write("sysbench.json", "{\"format\": 1, \"settings\": {}, \"runs\": []}");
    write("wave.json", "{\"experiment\": \"wave\", \"scale\": 1.0, \"cases\": []}");
    let cases: [(&[&str], i32, &str); 18] = [
        (&["missing.json"], 1, "reading missing.json: No such file"),
        (&["out"], 1, "reading out: Is a directory"),
        (&["/dev/zero"], 2, "reading /dev/zero: no result of `weir bench`: expected value"),
        (&["notes.txt"], 2, "reading notes.txt: no result of `weir bench`: expected"),
        (&["tpcc.json"], 1, "reading tpcc.json: missing field"),
        (&["newer-tpcc.json"], 2, "newer-tpcc.json: format 7, this program reads 1"),
        (&["sysbench.json"], 2, "sysbench.json: the table of `weir bench sysbench`"),
        (&["wave.json"], 2, "wave.json: the table of `weir bench experiment`"),
        (&[good, "foreign.json"], 2, "foreign.json: no result of `weir bench`"),
        (&["list.json"], 2, "list.json: no result of `weir bench`"),
        (&["broken.json"], 1, "broken.json: EOF"),
        (&[good, "newer.json"], 2, "newer.json: format 7, this program reads 1"),
        (&["lacking.json"], 1, "lacking.json: missing field"),
        (&[good, "-o", good], 2, "would replace this result"),
        (&[good, "-o", "notes.txt"], 2, "notes.txt: there is a file that isn't a report"),
        (&[good, "-o", "wave.json"], 2, "wave.json: there is a file that isn't a report"),
        (&[good, "-o", "no-such/page.html"], 1, "writing no-such/page.html"),
        (&[], 2, "required"),
    ];
    for (arguments, code, reason) in cases {
        let output = weir(&[&["report"], arguments].concat(), dir.path());
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {err}");
        assert!(err.contains(reason), "{arguments:?}: {err}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
    assert!(!names(dir.path()).contains(&"report.html".to_string()));
    assert_eq!(std::fs::read_to_string(dir.path().join(good)).unwrap(), run);
    // In a directory of results they lie beside the runs.
    let output = weir(&["report", "sysbench.json", good, "wave.json"], dir.path());
    let err = text(&output.stderr);
    assert!(output.status.success(), "{err}");
    assert!(err.contains("left out: reading wave.json") && err.contains("sysbench.json"), "{err}");
    assert!(names(dir.path()).contains(&"report.html".to_string()));
    let again = weir(&["report", good], dir.path());
    assert!(again.status.success(), "an earlier page is replaced: {}", text(&again.stderr));
}

#[test]
fn figures_are_told_where_they_can_be() {
    let dir = tempfile::tempdir().unwrap();
    let base = ["bench", "insert", "--rows", "100", "--steps", "load", "--quiet"];
    let cases = [
        (&["--engine", "model", "--status-listen", "0"], "model has no status endpoint"),
        (&["--engine", "weir", "--status-listen", "nowhere"], "`nowhere` is no address"),
    ];
    for (more, reason) in cases {
        let output = weir(&[&base[..], more].concat(), dir.path());
        assert_eq!(output.status.code(), Some(2), "{more:?}");
        assert!(text(&output.stderr).contains(reason), "{}", text(&output.stderr));
    }
    let more = ["--json=run.json", "--status-listen", "unix:weir.sock"];
    let output = weir(&[&base[..], &more].concat(), dir.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(names(dir.path()), ["run.json"], "the socket is gone");
}

#[test]
fn what_only_weir_can_do_is_refused_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let base = ["bench", "insert", "--rows", "100", "--steps", "load", "--quiet", "--engine"];
    let cases: [(&[&str], &str); 4] = [
        (&["model", "--device", "slow-ssd"], "for weir only"),
        (&["model", "--dirty-limit", "20"], "for weir only"),
        (&["model", "--policy", "at-deadline"], "for weir only"),
        (&["weir", "--policy", "fixed:0"], "pages per second"),
    ];
    for (more, reason) in cases {
        let output = weir(&[&base[..], more].concat(), dir.path());
        assert_eq!(output.status.code(), Some(2), "{more:?}");
        assert!(text(&output.stderr).contains(reason), "{}", text(&output.stderr));
    }
    assert!(names(dir.path()).is_empty());
}

#[test]
fn help_names_every_step() {
    let dir = tempfile::tempdir().unwrap();
    let output = weir(&["bench", "insert", "--help"], dir.path());
    assert!(output.status.success());
    let help = text(&output.stdout);
    for word in ["l.i0", "l.x", "l.i1", "l.i2", "load", "scan", "qr100", "qp100", "--durability"] {
        assert!(help.contains(word), "{word}");
    }
}

#[test]
fn help_of_a_simulation_has_the_limits() {
    let dir = tempfile::tempdir().unwrap();
    let help = text(&weir(&["sim", "--help"], dir.path()).stdout);
    for (option, limits) in [
        ("--data", "at least 1M"),
        ("--memory", "at least 16M"),
        ("--redo", "at least 16M"),
        ("--rate", "at least 1"),
        ("--redo-per-row", "at least 1"),
        ("--indexes", "0 to 64"),
        ("--dirty-limit", "1 to 100"),
        ("--contention", "0 to 1"),
        ("--seconds", "3 to 604800"),
        ("--policies", "1 to 1000000000"),
    ] {
        let (_, from) = help.split_once(&format!("{option} <")).expect(option);
        let of_option = from.split("\n      --").next().unwrap_or(from);
        let squeezed = of_option.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(squeezed.contains(limits), "{option}: {squeezed}");
    }
}

#[test]
fn help_says_what_each_column_of_the_table_means() {
    let dir = tempfile::tempdir().unwrap();
    let heads = |arguments: &[&str], first: &str| -> Vec<String> {
        let out = text(&weir(arguments, dir.path()).stdout);
        let head = |line: &&str| line.split_whitespace().next() == Some(first);
        let line = out.lines().find(head).unwrap_or_else(|| panic!("a table: {out}"));
        line.split_whitespace().map(str::to_string).collect()
    };
    let sim = ["sim", "--seconds", "6", "--policies", "governor"];
    let compare = ["bench", "compare", "--engines", "model", "--rows", "100", "--quiet"];
    let compare = [&compare[..], &["--steps", "load", "--clients", "1"]].concat();
    let commands: [(&[&str], &[&str], &str); 3] = [
        (&TINY, &["bench", "insert"], "step"),
        (&compare, &["bench", "compare"], "step"),
        (&sim, &["sim"], "policy"),
    ];
    for (arguments, command, first) in commands {
        let help = text(&weir(&[command, &["--help"]].concat(), dir.path()).stdout);
        let (_, legend) = help.split_once("Columns of the result:").unwrap();
        for head in heads(arguments, first) {
            let (plain, known) = (head.replace("vs.model", "vs.X"), ["step", "clients", "engine"]);
            let named = legend.split_whitespace().any(|word| word == plain);
            assert!(named || known.contains(&head.as_str()), "{command:?}: {head}: {legend}");
        }
    }
}

#[test]
fn a_closed_pipe_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(TINY).current_dir(dir.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
}

#[test]
fn a_comparison_runs_each_in_its_own_process() {
    let dir = tempfile::tempdir().unwrap();
    let steps = "load,scan,qp100:seconds=1";
    let arguments = [
        "bench",
        "compare",
        "--engines",
        "model",
        "--clients",
        "1,2",
        "--rows",
        "2k",
        "--steps",
        steps,
        "--quiet",
        "--results",
        "out",
    ];
    let output = weir(&arguments, dir.path());
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{err}");
    assert!(out.contains("vs.model") && out.contains("scan.5.primary"), "{out}");
    assert_eq!(names(&dir.path().join("out")), ["model-1.json", "model-2.json"]);
    assert_eq!(names(dir.path()), ["out"]);
}

#[test]
fn a_simulation_has_a_line_and_a_document_for_each_policy() {
    let dir = tempfile::tempdir().unwrap();
    let arguments = [
        "sim",
        "--workload",
        "insert",
        "--data",
        "1G",
        "--memory",
        "4G",
        "--redo",
        "512M",
        "--rate",
        "20k",
        "--seconds",
        "120",
        "--policies",
        "governor,innodb:200/2000,fixed:500",
        "--results",
        "out",
    ];
    let output = weir(&arguments, dir.path());
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{err}");
    for policy in ["governor", "innodb:200/2000", "fixed:500"] {
        assert_eq!(out.lines().filter(|line| line.starts_with(policy)).count(), 1, "{out}");
    }
    let documents =
        ["insert-fixed-500.json", "insert-governor.json", "insert-innodb-200-2000.json"];
    assert_eq!(names(&dir.path().join("out")), documents);
    let again = weir(&arguments, dir.path());
    assert_eq!(text(&again.stdout), out, "the same seed gives the same figures");
}

#[test]
fn a_study_says_how_far_off_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let output = weir(&["sim", "--study", "dirty-limit-2009"], dir.path());
    let out = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(out.contains("with a limit of 20 %, 60 to 72 % are dirty\n  model: "), "{out}");
    assert_eq!(out.lines().filter(|line| line.starts_with("limit ")).count(), 6, "{out}");
}

#[test]
fn a_check_tells_which_indexes_it_can_not_compare_with_rows() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::default().memory_bytes(8 << 20).redo_capacity_bytes(8 << 20);
    let db = Database::open(dir.path().join("data"), options).unwrap();
    let typed = Schema::builder().column("id", Type::U64).primary_key(&["id"]).index("by", &["id"]);
    db.create_table("typed", typed.build().unwrap()).unwrap();
    let check = || weir(&["check", "data"], dir.path());
    drop(db);
    let output = check();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout).lines().count(), 1, "{}", text(&output.stdout));
    let db = Database::open(dir.path().join("data"), Options::default()).unwrap();
    let indexes = vec![RawIndex::new("one", true), RawIndex::new("two", false)];
    db.create_table("raw", Schema::raw(indexes, Vec::new()).unwrap()).unwrap();
    drop(db);
    let output = check();
    let out = text(&output.stdout);
    assert!(
        output.status.success() && out.contains("\n2 indexes were not compared with rows"),
        "{out}"
    );
}

#[test]
fn a_check_that_only_reads_leaves_no_trace() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::default().memory_bytes(8 << 20).redo_capacity_bytes(8 << 20);
    let schema = Schema::builder().column("id", Type::U64).primary_key(&["id"]).build().unwrap();
    let open = |options: Options| Database::open(dir.path().join("data"), options);
    // Closed at once: there is a log to be applied.
    open(options.clone()).unwrap().create_table("numbers", schema).unwrap();
    let traces = || {
        let files = std::fs::read_dir(dir.path().join("data")).unwrap().map(|file| {
            let path = file.unwrap().path();
            let changed = std::fs::metadata(&path).unwrap().modified().unwrap();
            (path.clone(), changed, std::fs::read(path).unwrap())
        });
        files.collect::<std::collections::BTreeSet<_>>()
    };
    let before = traces();
    let reader = open(options.clone().read_only(true)).unwrap();
    let output = weir(&["check", "data", "--read-only"], dir.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(traces(), before);
    let refused = weir(&["check", "data"], dir.path());
    assert!(text(&refused.stderr).contains("in use by others, who only read it"));
    drop(reader);
    assert!(weir(&["check", "data"], dir.path()).status.success());
    assert_ne!(traces(), before);
    let _writer = open(options).unwrap();
    let refused = weir(&["check", "data", "--read-only"], dir.path());
    assert!(text(&refused.stderr).contains("in use by process"), "{}", text(&refused.stderr));
}

#[test]
fn advice_marks_one_size_of_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let arguments = ["sim", "--advise", "--workload", "skewed", "--data", "8G", "--memory", "2G"];
    let output = weir(&arguments, dir.path());
    let out = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(out.lines().filter(|line| line.ends_with("<- enough")).count(), 1, "{out}");
    assert!(out.contains("\nTake "), "{out}");
}

#[test]
fn a_database_is_compacted_and_checked_where_there_is_one() {
    let dir = tempfile::tempdir().unwrap();
    let steps = "load,l.i1:rows=100k:delete";
    let bench =
        ["bench", "insert", "--rows", "100k", "--steps", steps, "--memory", "16M", "--redo"];
    let rest = ["8M", "--dir", "data", "--keep", "--json=out/run.json", "--quiet"];
    let output = weir(&[&bench[..], &rest[..]].concat(), dir.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let length = || {
        let file = std::fs::metadata(dir.path().join("data/data")).unwrap();
        format!("{:.1} MiB long, ", file.len() as f64 / f64::from(1 << 20))
    };
    let before = length();
    let output = weir(&["compact", "data"], dir.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let now = length();
    let out = text(&output.stdout);
    assert!(out.starts_with(&format!("data file before: {before}")), "{out}");
    assert!(out.contains(&format!("\nnow: {now}")), "{out}");
    let again = weir(&["compact", "data"], dir.path());
    let out = text(&again.stdout);
    assert!(out.starts_with(&format!("data file before: {now}")), "{out}");
    let is_over =
        out.contains(&format!("\nnow: {now}")) && out.ends_with("; 0 pages were freed, 0 moved\n");
    assert!(is_over, "one run gets to the end: {out}");
    assert!(text(&output.stderr).contains("redo: "), "what takes long is seen to go on");
    assert!(text(&output.stderr).contains("close: "), "{}", text(&output.stderr));
    let output = weir(&["check", "data"], dir.path());
    assert!(output.status.success(), "{}", text(&output.stdout));
    assert!(text(&output.stderr).contains("check: "), "{}", text(&output.stderr));
    std::fs::create_dir(dir.path().join("empty")).unwrap();
    let file = ("out/run.json", "not a directory");
    for (place, reason) in [("none", "no such directory"), file, ("empty", "no database in")] {
        let output = weir(&["compact", place], dir.path());
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains(reason), "{}", text(&output.stderr));
    }
    assert!(names(&dir.path().join("empty")).is_empty(), "nothing was created");
}

#[test]
fn what_is_whole_of_a_damaged_database_is_compacted() {
    let dir = tempfile::tempdir().unwrap();
    let steps = "load,l.i1:rows=50k:delete";
    let bench = ["bench", "insert", "--rows", "50k", "--steps", steps, "--memory", "16M"];
    let rest = ["--redo=8M", "--dir", "data", "--keep", "--json=out/run.json", "--quiet"];
    let output = weir(&[&bench[..], &rest[..]].concat(), dir.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    // Nothing is left in the log that pages could be made from.
    assert!(weir(&["compact", "data"], dir.path()).status.success());
    let path = dir.path().join("data/data");
    // A place may be free, or that of a page without which there is no opening.
    let damaged = (4..8).find_map(|eighths| {
        let whole = std::fs::read(&path).unwrap();
        let mut bytes = whole.clone();
        let at = bytes.len() / 8 * eighths;
        bytes[at..at + (64 << 10)].fill(0xa5);
        std::fs::write(&path, bytes).unwrap();
        let output = weir(&["compact", "data"], dir.path());
        let is_open = !text(&output.stderr).contains("weir: opening data");
        if !is_open {
            std::fs::write(&path, whole).unwrap();
        }
        (is_open && !output.status.success()).then_some(output)
    });
    let output = damaged.expect("a place of other pages");
    assert_eq!(output.status.code(), Some(1));
    let err = text(&output.stderr);
    assert!(err.contains("is damaged (`weir check` tells more)"), "{err}");
    assert!(text(&output.stdout).contains("\nnow: "), "it goes on: {}", text(&output.stdout));
    assert!(!weir(&["check", "data"], dir.path()).status.success());
}
