//! The page of `weir report` in a browser: every chart has its data, and the reader's hands work.
//!
//! Needs Chromium, which `./test` installs; without it these tests fail.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

use weir_bench::engine::{DiskChoice, Limits};
use weir_bench::files::write_json;
use weir_bench::phase::Progress;
use weir_bench::result::Second;
use weir_bench::server::ServerSetup;
use weir_bench::tpcc::document::Document;
use weir_bench::tpcc::random::Size;
use weir_bench::tpcc::{Listener, Plan, Subject};
use weir_bench::{Durability, Run};
use weir_report::{Benchmark, CHARTS, Chart, Shape, Source, Timeline, page};

/// Opens a page and returns the document as it is when scripts are done.
fn open(path: &Path) -> String {
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new("timeout")
        .args(["120", "chromium", "--headless", "--disable-gpu", "--no-sandbox"])
        .args(["--virtual-time-budget=10000", "--window-size=1200,900", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("file://{}", path.display()))
        .output()
        .expect("`timeout` is there");
    let dom = String::from_utf8(output.stdout).unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(!dom.is_empty(), "chromium is needed: `./test` installs it\n{}: {err}", output.status);
    dom
}

/// Values of an attribute of the elements `name` that have it, with that of another.
fn attribute<'a>(element: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = element.split_once(&format!(" {name}=\""))?;
    Some(rest.split_once('"')?.0)
}

fn root(dom: &str) -> &str {
    let (_, rest) = dom.split_once("<html").unwrap();
    rest.split_once('>').unwrap().0
}

/// A panel as the page describes it.
#[derive(Debug)]
struct Panel {
    /// Values of each line.
    points: Vec<usize>,
    /// Vertices drawn.
    drawn: usize,
    /// What is inside of the element.
    inside: String,
}

fn panels(dom: &str) -> BTreeMap<(String, String), Panel> {
    let parts = dom.split("<svg").skip(1);
    parts
        .map(|part| {
            let (head, rest) = part.split_once('>').unwrap();
            let get = |name| attribute(head, name).unwrap().to_string();
            let points = get("data-points");
            let panel = Panel {
                points: points.split(' ').map(|n| n.parse().unwrap()).collect(),
                drawn: get("data-drawn").parse().unwrap(),
                inside: rest.split_once("</svg>").unwrap().0.to_string(),
            };
            ((get("data-chart"), get("data-run")), panel)
        })
        .collect()
}

fn assert_ready(dom: &str) {
    let root = root(dom);
    assert_eq!(attribute(root, "data-ready"), Some("true"), "{root}");
    assert_eq!(attribute(root, "data-errors"), Some("0"), "{root}");
}

fn weir(dir: &Path, arguments: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output = command.args(arguments).current_dir(dir).env("TMPDIR", dir).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn bench(dir: &Path, engine: &str) {
    let steps = "load,l.i1:seconds=2,scan,qr100:seconds=2";
    let json = format!("{engine}.json");
    let arguments = ["bench", "insert", "--engine", engine, "--rows", "20k", "--memory", "16M"];
    let more = ["--redo", "8M", "--steps", steps, "--quiet", "--json", &json];
    weir(dir, &[&arguments[..], &more].concat());
}

/// What the page must have drawn of a run.
fn expected(run: &Run, column: &str) -> usize {
    let timeline = Timeline::of(run);
    timeline.columns.get(column).map_or(0, |values| values.iter().flatten().count())
}

/// The charts of a page with runs of this benchmark alone.
fn charts_of(benchmark: Benchmark) -> Vec<&'static Chart> {
    let is_shown = |chart: &&Chart| chart.benchmark.is_none_or(|other| other == benchmark);
    CHARTS.iter().filter(is_shown).collect()
}

#[test]
fn every_chart_has_its_data() {
    let dir = tempfile::tempdir().unwrap();
    bench(dir.path(), "weir");
    bench(dir.path(), "model");
    weir(dir.path(), &["report", "weir.json", "model.json", "-o", "page.html"]);
    let html = std::fs::read_to_string(dir.path().join("page.html")).unwrap();
    assert!(!html.contains(" src=") && !html.contains(" href="), "a page on its own");
    let dom = open(&dir.path().join("page.html"));
    assert_ready(&dom);
    let charts = charts_of(Benchmark::Insert);
    assert_eq!(attribute(root(&dom), "data-charts"), Some(charts.len().to_string().as_str()));

    let panels = panels(&dom);
    for (number, name) in [(0, "weir"), (1, "model")] {
        let run = Run::load(&dir.path().join(format!("{name}.json"))).unwrap();
        for chart in &charts {
            let panel = &panels[&(chart.id.to_string(), number.to_string())];
            for (line, &points) in chart.lines.iter().zip(&panel.points) {
                let place = format!("{name}: {}: {}", chart.title, line.label);
                assert_eq!(points, expected(&run, line.column), "{place}");
                assert!(points > 0 || number == 1, "{place}: the engine tells it");
            }
            let all: usize = panel.points.iter().sum();
            assert_eq!(panel.drawn > 0, all > 0, "{name}: {}", chart.title);
            if chart.shape != Shape::Stack {
                assert_eq!(panel.drawn, all, "{name}: {}: few values are all drawn", chart.title);
            }
            assert_eq!(panel.inside.contains("not told by model"), all == 0, "{}", chart.title);
        }
    }
    let overlay = &panels[&("inserts".to_string(), "all".to_string())];
    assert_eq!(overlay.points.len(), 2);
    let overlays = charts.iter().filter(|chart| chart.overlay).count();
    assert_eq!(panels.len(), charts.len() * 2 + overlays);
}

/// A document of TPC-C on few rows.
fn tpcc(dir: &Path, name: &str) -> Document {
    let limits =
        Limits { memory_bytes: 64 << 20, redo_bytes: 32 << 20, durability: Durability::Write };
    let dir = Some(dir.to_path_buf());
    let plan = Plan {
        subjects: vec![Subject::Embedded],
        setup: ServerSetup {
            command: "/nowhere".into(),
            limits,
            binlog: false,
            pinning: None,
            dir,
        },
        size: Size { warehouses: 2, customers: 30, items: 200 },
        clients: vec![1, 2],
        rounds: 1,
        side_by_side: false,
        seconds: 2,
        warmup_seconds: 0,
        seed: 7,
        disk: DiskChoice::default(),
        status_listen: None,
    };
    let mut document = plan.run(&AtomicBool::new(false), &mut Nobody).unwrap();
    let named = document.engines.iter_mut().map(|info| &mut info.name);
    let named = named.chain(document.loads.iter_mut().map(|load| &mut load.engine));
    named
        .chain(document.runs.iter_mut().map(|run| &mut run.engine))
        .for_each(|of| *of = name.into());
    document
}

struct Nobody;

impl Listener for Nobody {
    fn progress(&mut self, _: &Progress) {}
    fn line(&mut self, _: &str) {}
}

#[test]
fn tpcc_has_its_charts_beside_other_documents_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = tpcc(dir.path(), "weir");
    let second = tpcc(dir.path(), "other");
    first.runs.extend(second.runs.clone());
    first.loads.extend(second.loads.clone());
    first.engines.extend(second.engines.clone());
    write_json(&dir.path().join("both.json"), &first).unwrap();
    write_json(&dir.path().join("one.json"), &second).unwrap();
    weir(dir.path(), &["report", "both.json", "one.json", "-o", "page.html"]);
    let dom = open(&dir.path().join("page.html"));
    assert_ready(&dom);
    let charts = charts_of(Benchmark::Tpcc);
    assert_eq!(attribute(root(&dom), "data-charts"), Some(charts.len().to_string().as_str()));
    for name in ["TPC-C: weir, other, 3 runs", "both weir", "both other", "tpmC", "stock level"] {
        assert!(dom.contains(name), "{name}");
    }

    let panels = panels(&dom);
    for (number, engine) in [(0, "weir"), (1, "other"), (2, "other")] {
        let document = if number == 2 { &second } else { &first };
        let runs = document.runs.iter().filter(|run| run.engine == engine);
        let timeline = Timeline::of_tpcc(runs.map(|run| (run, String::new())));
        for chart in &charts {
            let panel = &panels[&(chart.id.to_string(), number.to_string())];
            for (line, &points) in chart.lines.iter().zip(&panel.points) {
                let values = timeline.columns.get(line.column);
                let place = format!("{number}: {}: {}", chart.title, line.label);
                assert_eq!(points, values.map_or(0, |v| v.iter().flatten().count()), "{place}");
                assert!(points > 0, "{place}: the engine tells it");
            }
        }
    }
    assert_eq!(panels[&("transactions".to_string(), "all".to_string())].points.len(), 3);
}

#[test]
fn a_chart_of_one_benchmark_has_no_panels_of_another() {
    let dir = tempfile::tempdir().unwrap();
    bench(dir.path(), "weir");
    write_json(&dir.path().join("tpcc.json"), &tpcc(dir.path(), "weir")).unwrap();
    weir(dir.path(), &["report", "weir.json", "tpcc.json", "-o", "page.html"]);
    let dom = open(&dir.path().join("page.html"));
    assert_ready(&dom);
    let panels = panels(&dom);
    for chart in CHARTS {
        let of = |benchmark| chart.benchmark.is_none_or(|of| of == benchmark);
        let has = |run: &str| panels.contains_key(&(chart.id.to_string(), run.to_string()));
        assert_eq!(has("0"), of(Benchmark::Insert), "{}", chart.title);
        assert_eq!(has("1"), of(Benchmark::Tpcc), "{}", chart.title);
        assert!(!has("all"), "{}: nothing to compare with", chart.title);
    }
}

/// A run of the model engine with a step of so many seconds, made up.
fn long_run(dir: &Path, seconds: u32) -> Run {
    let json = dir.join("model.json");
    if !json.exists() {
        bench(dir, "model");
    }
    let mut run = Run::load(&json).unwrap();
    run.steps.truncate(1);
    let step = &mut run.steps[0];
    step.measured.seconds = f64::from(seconds);
    let second = |second: u32| Second {
        second,
        // One second in an hour stands out.
        inserts: if second == 1234 { 1_000_000 } else { 100_000 + u64::from(second % 7) * 100 },
        insert_us_99: 900,
        insert_us_max: 5_000,
        sample_seconds: 1.0,
        engine: [("checkpoint_age".into(), f64::from(second)), ("disk_reads".into(), 1.0)].into(),
        ..Second::default()
    };
    step.series = (0..seconds).map(second).collect();
    run
}

fn written(dir: &Path, name: &str, sources: &[Source], script: &str) -> PathBuf {
    let path = dir.join(name);
    let html = page(sources).replace("</body>", &format!("<script>{script}</script></body>"));
    std::fs::write(&path, html).unwrap();
    path
}

#[test]
fn hours_are_thinned_out_and_keep_their_peaks() {
    let dir = tempfile::tempdir().unwrap();
    let source = |name: &str| Source::of_insert(name.into(), &long_run(dir.path(), 4 * 3600));
    let sources: Vec<_> = ["a", "b", "c", "d"].into_iter().map(source).collect();
    let dom = open(&written(dir.path(), "long.html", &sources, ""));
    assert_ready(&dom);
    let panels = panels(&dom);
    let panel = &panels[&("inserts".to_string(), "0".to_string())];
    assert_eq!(panel.points, [4 * 3600]);
    assert!((100..2000).contains(&panel.drawn), "{} vertices", panel.drawn);
    let curve = panel.inside.split("<path").find(|path| path.contains("curve")).unwrap();
    let heights = attribute(curve, "d").unwrap().split(['M', 'L']).skip(1);
    let heights = heights.map(|point| point.split_once(' ').unwrap().1.parse::<f64>().unwrap());
    let (high, low) = heights.partition::<Vec<f64>, _>(|y| *y < 60.0);
    assert_eq!(high.len(), 1, "the peak is there, once");
    assert!(low.iter().all(|y| *y > 120.0), "the others are far below");
}

#[test]
fn zoom_hover_steps_and_theme() {
    let dir = tempfile::tempdir().unwrap();
    bench(dir.path(), "weir");
    let run = Run::load(&dir.path().join("weir.json")).unwrap();
    let whole = expected(&run, "inserts");
    let script = r#"
        (() => {
            const root = document.documentElement;
            const svg = document.querySelector("svg[data-chart=inserts]");
            const say = (name, value) => root.setAttribute(`data-test-${name}`, value);
            const box = svg.getBoundingClientRect();
            const point = (type, share) => svg.dispatchEvent(new PointerEvent(type, {
                clientX: box.left + 60 + (box.width - 75) * share, clientY: box.top + 50,
                button: 0, pointerType: "mouse", bubbles: true }));
            const drawn = () => svg.dataset.drawn;
            say("all", drawn());
            // No frame may ever be drawn here: what is looked at doesn't wait for one.
            point("pointerdown", 0.3); point("pointermove", 0.6); point("pointerup", 0.6);
            say("zoomed", drawn());
            say("hover", svg.closest("figure").querySelector("output").textContent);
            svg.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }));
            say("back", drawn());
            const step = document.getElementById("step");
            step.value = "l.i1";
            step.dispatchEvent(new Event("change"));
            say("step", svg.dataset.points);
            say("hidden", document.getElementById("chart-queries").hidden);
            const before = root.dataset.theme;
            document.getElementById("theme").click();
            say("themes", `${before} ${root.dataset.theme}`);
        })();
    "#;
    let source = Source::of_insert("weir".into(), &run);
    let dom = open(&written(dir.path(), "hands.html", &[source], script));
    assert_ready(&dom);
    let get = |name: &str| {
        let name = format!("data-test-{name}");
        attribute(root(&dom), &name).unwrap_or_else(|| panic!("{name}")).to_string()
    };
    let number = |name: &str| get(name).parse::<usize>().unwrap();
    assert_eq!(number("all"), whole);
    assert!(number("zoomed") < whole, "{} of {whole}", get("zoomed"));
    assert_eq!(number("back"), whole);
    assert!(get("hover").contains(':'), "it tells when: {}", get("hover"));
    assert!(number("step") > 0 && number("step") < whole);
    assert_eq!(get("hidden"), "true", "a chart without anything in this step");
    let themes = get("themes");
    assert!(themes == "light dark" || themes == "dark light", "{themes}");
}

#[test]
fn settings_without_a_space_fit_beside_those_of_other_runs() {
    let dir = tempfile::tempdir().unwrap();
    let mut run = long_run(dir.path(), 3);
    run.engine.settings = vec!["eviction_dirty_target=50,".repeat(20)];
    let sources = ["a", "b", "c"].map(|name| Source::of_insert(name.into(), &run));
    let script = r#"
        const runs = document.querySelector(".runs").parentElement;
        document.documentElement.setAttribute("data-beyond", runs.scrollWidth - runs.clientWidth);
    "#;
    let dom = open(&written(dir.path(), "settings.html", &sources, script));
    assert_ready(&dom);
    assert_eq!(attribute(root(&dom), "data-beyond"), Some("0"));
}

#[test]
fn texts_from_results_stay_texts() {
    let dir = tempfile::tempdir().unwrap();
    let mut run = long_run(dir.path(), 3);
    let evil = "<img src=x onerror=\"document.documentElement.dataset.bad=1\">'\"&</script><b>";
    run.engine.name = evil.into();
    run.engine.notes = vec![evil.into()];
    run.environment.cpu = evil.into();
    run.steps[0].name = evil.into();
    let sources = [evil, "b"].map(|name| Source::of_insert(name.into(), &run));
    let dom = open(&written(dir.path(), "evil.html", &sources, ""));
    assert_ready(&dom);
    assert!(!root(&dom).contains("data-bad"), "{}", root(&dom));
    assert!(!dom.contains("<img") && !dom.contains("<b>"), "an element out of a text");
}
