//! Comparisons of servers as a user meets them. They start private servers: `mariadb/test` runs
//! these.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

mod common;

use common::{names, text, weir};

#[test]
#[ignore = "needs MariaDB; mariadb/test runs it"]
fn servers_are_compared_and_gone_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    let cores = std::thread::available_parallelism().unwrap().get();
    let arguments = "bench compare --servers weir,innodb:innodb-doublewrite=0 --clients 2 --rows 4k \
                     --steps load,l.i1:rows=1k,scan,qp100:seconds=1 --memory 64M --redo 48M --binlog \
                     --statements text --warm-up --quiet --results out";
    // Where there are processors to divide.
    let pin = (cores > 1).then_some("--pin");
    let arguments: Vec<_> = arguments.split_whitespace().chain(pin).collect();
    let output = weir(&arguments, dir.path());
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    assert!(err.contains("weir: 2 clients, the first step twice"), "{err}");
    for start in ["load", "l.i1", "scan.1.primary", "qp100"] {
        let line = |server: &str| {
            out.lines().any(|line| line.starts_with(&format!("{start} ")) && line.contains(server))
        };
        assert!(line(" weir ") && line(" innodb:innodb-doublewrite=0 "), "{start}: {out}");
    }
    assert!(out.contains("load, 2 clients: weir is at "), "{out}");
    assert_eq!(names(dir.path()), ["out"]);
    assert_eq!(
        names(&dir.path().join("out")),
        ["innodb-innodb-doublewrite-0-2.json", "weir-2.json"]
    );
    let document: serde_json::Value =
        serde_json::from_slice(&std::fs::read(dir.path().join("out/weir-2.json")).unwrap())
            .unwrap();
    assert_eq!(document["settings"]["binlog"], true);
    assert_eq!(document["settings"]["pinned"], pin.is_some());
    assert_eq!(document["environment"]["cores"], cores);
}

#[test]
#[ignore = "needs MariaDB; mariadb/test runs it"]
fn a_server_that_is_warmed_up_loads_twice() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("statements");
    let server = format!("innodb:general-log=1:general-log-file={}", log.display());
    let steps = ["--steps", "load,scan", "--rows", "200", "--clients", "1", "--quiet"];
    let load_twice = ["bench", "compare", "--servers", &server, "--warm-up", "--results", "out"];
    let output = weir(&[&load_twice[..], &steps[..]].concat(), dir.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let statements = std::fs::read_to_string(&log).unwrap();
    let count = |what: &str| statements.lines().filter(|line| line.contains(what)).count();
    let made = (count("CREATE TABLE"), count("DROP TABLE"));
    assert_eq!(made, (2, 1), "{statements}");
}

#[test]
#[ignore = "needs MariaDB and sysbench; mariadb/test runs it"]
fn sysbench_runs_on_each_server() {
    let dir = tempfile::tempdir().unwrap();
    let output = weir(
        &[
            "bench",
            "sysbench",
            "--servers",
            "weir,innodb",
            "--threads",
            "1,3",
            "--tables",
            "2",
            "--table-size",
            "1000",
            "--seconds",
            "3",
            "--drop",
            "1",
            "--memory",
            "64M",
            "--redo",
            "48M",
            "--json",
            "run.json",
        ],
        dir.path(),
    );
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    for test in ["oltp_point_select", "oltp_read_write", "oltp_update_index", "oltp_write_only"] {
        for threads in [1, 3] {
            let plural = if threads == 1 { "" } else { "s" };
            let verdict = format!("{test}, {threads} thread{plural}: weir is at ");
            assert!(out.contains(&verdict), "{out}");
        }
    }
    assert_eq!(names(dir.path()), ["run.json"]);
}

#[test]
#[ignore = "needs MariaDB and sysbench; mariadb/test runs it"]
fn rounds_of_sysbench_give_one_line_for_each_server() {
    let dir = tempfile::tempdir().unwrap();
    let arguments = "bench sysbench --servers weir,innodb --tests oltp_update_index --threads 2 \
                     --rounds 2 --tables 1 --table-size 1000 --seconds 3 --drop 1 --memory 64M \
                     --redo 48M --json run.json";
    let arguments: Vec<_> = arguments.split_whitespace().collect();
    let output = weir(&arguments, dir.path());
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    assert!(err.contains("--- innodb, round 2 of 2: "), "{err}");
    for server in ["weir", "innodb"] {
        let line = |line: &&str| line.split_whitespace().nth(2) == Some(server);
        let lines: Vec<_> = out.lines().filter(line).collect();
        assert_eq!(lines.len(), 1, "{out}");
        let range = lines[0].split_whitespace().nth(4).unwrap();
        assert!(range.contains('-') && range.len() > 1, "{out}");
    }
}

#[test]
#[ignore = "needs MariaDB; mariadb/test runs it"]
fn tpcc_on_servers_side_by_side_gives_each_its_turn_in_each_case() {
    let dir = tempfile::tempdir().unwrap();
    let arguments = "bench tpcc --servers weir,innodb --side-by-side --clients 1,2 --rounds 2 --warehouses 1 \
                     --warmup 1 --seconds 2 --memory 64M --redo 48M --quiet --json run.json";
    let arguments: Vec<_> = arguments.split_whitespace().collect();
    let output = weir(&arguments, dir.path());
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    let document: serde_json::Value =
        serde_json::from_slice(&std::fs::read(dir.path().join("run.json")).unwrap()).unwrap();
    let runs = document["runs"].as_array().unwrap().iter();
    let ran: Vec<_> = runs.map(|run| format!("{} {}", run["clients"], run["engine"])).collect();
    let of =
        |clients| ["weir", "innodb", "innodb", "weir"].map(|name| format!("{clients} \"{name}\""));
    assert_eq!(ran, [of(1), of(2)].concat(), "{err}");
    assert_eq!(document["loads"].as_array().unwrap().len(), 2);
    assert_eq!(names(dir.path()), ["run.json"]);
}

#[test]
#[ignore = "needs MariaDB and sysbench; mariadb/test runs it"]
fn servers_side_by_side_have_their_turn_in_each_case() {
    let dir = tempfile::tempdir().unwrap();
    let arguments = "bench sysbench --servers weir,innodb --side-by-side --threads 1,2 --rounds 2 \
                     --tests oltp_update_index --tables 1 --table-size 1000 --seconds 3 --drop 1 \
                     --memory 64M --redo 48M --json run.json";
    let arguments: Vec<_> = arguments.split_whitespace().collect();
    let output = weir(&arguments, dir.path());
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    let ran: Vec<_> = err
        .lines()
        .filter_map(|line| line.strip_prefix("oltp_update_index ")?.split_once(':'))
        .map(|(case, _)| case)
        .collect();
    let of = |threads| ["weir", "innodb", "innodb", "weir"].map(|name| format!("{threads} {name}"));
    assert_eq!(ran, [of(1), of(2)].concat(), "{err}");
    assert_eq!(names(dir.path()), ["run.json"]);
}
