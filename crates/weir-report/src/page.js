// The page: builds a section for each chart, keeps what is shown, and listens to the reader.
"use strict";

(() => {
  const HEIGHT = 190;
  const WHOLE = "";
  const RUN_COLOURS = 6;
  const root = document.documentElement;
  const data = JSON.parse(document.getElementById("data").textContent);

  // What is shown: a step (or the whole run), the seconds of it, and the second under the line.
  const shown = { step: WHOLE, from: 0, to: 1, cursor: null };
  const charts = [];

  function html(name, attributes, ...children) {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  }

  // Errors are the reader's business, and the tests'.
  window.addEventListener("error", (event) => {
    root.dataset.errors = String(Number(root.dataset.errors ?? 0) + 1);
    document.getElementById("charts").prepend(html("p", {}, `A script failed: ${event.message}`));
  });

  // --- What a step shows of a run -------------------------------------------------------------

  function lengthOf(run) {
    return run.segments.reduce((end, segment) => Math.max(end, segment.from + segment.len), 0);
  }

  // The part of a run that is shown: its first second and how many; null when it has no such step.
  function partOf(run) {
    if (shown.step === WHOLE) return { from: 0, len: lengthOf(run) };
    return run.segments.find((segment) => segment.name === shown.step) ?? null;
  }

  function valuesOf(run, column, part) {
    const all = part === null ? undefined : run.columns[column];
    return all === undefined ? [] : all.slice(part.from, part.from + part.len);
  }

  function boundsOf(run) {
    if (shown.step !== WHOLE) return [];
    return run.segments.filter((s) => s.len > 0).map((s) => ({ at: s.from, name: s.name }));
  }

  const counted = (values) => values.reduce((count, value) => count + (value === null ? 0 : 1), 0);

  function lineOf(run, spec, part, look) {
    const values = valuesOf(run, spec.column, part);
    return { label: spec.label, values, class: look, count: counted(values) };
  }

  const lookOf = (line) => (line.colour === 0 ? "limit" : `c${line.colour}`);
  const lookOfRun = (number) => {
    return `run${number % RUN_COLOURS}${number < RUN_COLOURS ? "" : " dash1"}`;
  };

  function fillRun(panel, chart, run) {
    const part = partOf(run);
    panel.len = part === null ? 0 : part.len;
    const look = (line) => (chart.overlay ? lookOfRun(panel.run) : lookOf(line));
    panel.lines = chart.lines.map((line) => lineOf(run, line, part, look(line)));
    panel.bounds = boundsOf(run);
    panel.absent = part === null ? "has no such step" : `not told by ${run.engine} here`;
  }

  function fillOverlay(panel, chart) {
    const parts = chart.runs.map((i) => partOf(data.runs[i]));
    panel.len = Math.max(0, ...parts.map((part) => (part === null ? 0 : part.len)));
    panel.lines = chart.runs.map((i, at) => {
      const spec = { column: chart.lines[0].column, label: data.runs[i].name };
      return lineOf(data.runs[i], spec, parts[at], lookOfRun(i));
    });
    panel.bounds = [];
    panel.absent = "nothing in this step";
  }

  function fill(panel, chart) {
    if (panel.run === null) fillOverlay(panel, chart);
    else fillRun(panel, chart, data.runs[panel.run]);
    panel.count = panel.lines.reduce((sum, line) => sum + line.count, 0);
    if (panel.shape === "stack") panel.levels = Chart.stacked(panel.lines, panel.len);
  }

  // --- Drawing --------------------------------------------------------------------------------

  function viewOf(chart, panel) {
    const { low, high } = chart.extremes;
    const width = Math.max(240, Math.round(panel.svg.clientWidth || 600));
    return { width, height: HEIGHT, from: shown.from, to: shown.to, low, high };
  }

  // All panels of a chart have one scale, so that their heights can be compared.
  function drawChart(chart) {
    const all = chart.panels.map((panel) =>
      Chart.extremes(panel, Math.floor(shown.from), Math.ceil(shown.to) + 1),
    );
    chart.extremes = {
      low: Math.min(...all.map((e) => e.low)),
      high: Math.max(...all.map((e) => e.high)),
    };
    for (const panel of chart.panels) {
      panel.view = viewOf(chart, panel);
      const vertices = Chart.draw(panel, panel.view);
      panel.svg.dataset.points = panel.lines.map((line) => line.count).join(" ");
      panel.svg.dataset.drawn = vertices;
    }
  }

  function drawAll() {
    for (const chart of charts) drawChart(chart);
    showCursor();
    document.getElementById("reset").disabled = shown.from === 0 && shown.to === fullLength();
  }

  function fullLength() {
    const lengths = data.runs.map((run) => partOf(run)?.len ?? 0);
    return Math.max(1, Math.max(...lengths) - 1);
  }

  function showStep(step) {
    shown.step = step;
    for (const chart of charts) {
      for (const panel of chart.panels) fill(panel, chart);
      // What no run has in this step is not worth an empty frame.
      chart.section.hidden = chart.panels.every((panel) => panel.count === 0);
    }
    zoom(0, Infinity);
  }

  function zoom(from, to) {
    const end = fullLength();
    const [a, b] = [Math.max(0, Math.min(from, to)), Math.min(end, Math.max(from, to))];
    // Closer than a few seconds there is nothing more to see.
    const middle = (a + b) / 2;
    const half = Math.max(b - a, Math.min(4, end)) / 2;
    shown.from = Math.max(0, Math.min(middle - half, end - 2 * half));
    shown.to = shown.from + 2 * half;
    drawAll();
  }

  // --- The line under the pointer ---------------------------------------------------------------

  function readout(panel, second) {
    const values = panel.lines.filter((line) => line.count > 0);
    const parts = values.map((line) => {
      const value = Chart.number(line.values[second]);
      return values.length === 1 ? value : `${line.label} ${value}`;
    });
    return `${Chart.time(second)}  ${parts.join(", ")}`;
  }

  function showCursor() {
    const second = shown.cursor;
    for (const chart of charts) {
      for (const panel of chart.panels) {
        Chart.showCursor(panel, panel.view, second);
        const has = second !== null && second < panel.len && panel.count > 0;
        panel.output.textContent = has ? readout(panel, second) : "";
      }
    }
  }

  let pending = false;
  function moveCursor(second) {
    shown.cursor = second;
    if (pending) return;
    pending = true;
    requestAnimationFrame(() => {
      pending = false;
      showCursor();
    });
  }

  // --- The reader -------------------------------------------------------------------------------

  function listen(panel) {
    const { svg } = panel;
    let begun = null;
    const at = (event) => Chart.secondAt(panel, panel.view, event.clientX);
    const end = () => {
      begun = null;
      Chart.showChoice(panel, panel.view, 0, 0);
    };
    svg.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      begun = { second: at(event), x: event.clientX };
      if (event.isTrusted) svg.setPointerCapture(event.pointerId);
      moveCursor(Math.round(at(event)));
    });
    svg.addEventListener("pointermove", (event) => {
      moveCursor(Math.round(at(event)));
      if (begun !== null) Chart.showChoice(panel, panel.view, begun.second, at(event));
    });
    svg.addEventListener("pointerup", (event) => {
      if (begun === null) return;
      const [from, far] = [begun.second, Math.abs(event.clientX - begun.x) > 6];
      end();
      if (far) zoom(from, at(event));
    });
    svg.addEventListener("pointercancel", end);
    svg.addEventListener("pointerleave", (event) => {
      if (begun === null && event.pointerType === "mouse") moveCursor(null);
    });
    svg.addEventListener("dblclick", () => zoom(0, Infinity));
    svg.addEventListener("keydown", key);
  }

  function key(event) {
    const span = shown.to - shown.from;
    const here = shown.cursor ?? Math.round(shown.from + span / 2);
    const step = Math.max(1, Math.round(span / 100));
    const inside = (second) => Math.max(0, Math.min(fullLength(), second));
    const keys = {
      ArrowLeft: () => moveCursor(inside(here - step)),
      ArrowRight: () => moveCursor(inside(here + step)),
      "+": () => zoom(here - span / 4, here + span / 4),
      "=": () => zoom(here - span / 4, here + span / 4),
      "-": () => zoom(here - span, here + span),
      0: () => zoom(0, Infinity),
      Escape: () => zoom(0, Infinity),
    };
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
    event.preventDefault();
    keys[event.key]();
  }

  // --- Building -----------------------------------------------------------------------------------

  function buildPanel(chart, run) {
    const name = run === null ? "all runs; means where seconds are too many" : data.runs[run].name;
    const svg = Chart.element("svg", { class: "panel", tabindex: "0", role: "img" });
    svg.setAttribute("aria-label", `${chart.title}, ${name}`);
    svg.dataset.chart = chart.id;
    svg.dataset.run = run === null ? "all" : run;
    const output = html("output", {});
    const title = html("span", { class: "name" }, name);
    if (run !== null && chart.overlay)
      title.prepend(html("span", { class: `chip ${lookOfRun(run)}` }));
    const single = data.runs.length === 1;
    const caption = html("figcaption", {}, ...(single ? [] : [title]), output);
    const shape = chart.shape;
    const means = run === null;
    const panel = { svg, output, run, shape, means, lines: [], len: 0, count: 0 };
    listen(panel);
    return { panel, figure: html("figure", {}, caption, svg) };
  }

  function legend(entries) {
    const node = html("div", { class: "legend" });
    for (const [look, label] of entries) {
      node.append(html("span", {}, html("span", { class: `chip line ${look}` }), label));
    }
    return node;
  }

  function buildChart(spec) {
    // A chart of one benchmark is about its runs.
    const isTheirs = (run) => spec.benchmark === null || run.benchmark === spec.benchmark;
    const runs = [...data.runs.keys()].filter((i) => isTheirs(data.runs[i]));
    const chart = { ...spec, runs, panels: [], extremes: { low: 1, high: 1 } };
    const heading = html(
      "h3",
      {},
      `${spec.title} `,
      html("span", { class: "unit" }, `(${spec.unit})`),
    );
    const section = html(
      "section",
      { class: "chart", id: `chart-${spec.id}` },
      heading,
      html("p", {}, spec.about),
    );
    const several = runs.length > 1;
    if (spec.overlay && several) {
      const { panel, figure } = buildPanel(chart, null);
      chart.panels.push(panel);
      section.append(legend(runs.map((i) => [lookOfRun(i), data.runs[i].name])));
      section.append(html("div", { class: "panels single" }, figure));
    }
    if (spec.lines.length > 1) {
      section.append(legend(spec.lines.map((line) => [lookOf(line), line.label])));
    }
    const grid = html("div", { class: several ? "panels" : "panels single" });
    grid.style.setProperty("--columns", runs.length === 4 ? 2 : Math.min(3, runs.length));
    runs.forEach((run) => {
      const { panel, figure } = buildPanel(chart, run);
      chart.panels.push(panel);
      grid.append(figure);
    });
    section.append(grid);
    document.getElementById("charts").append(section);
    chart.section = section;
    charts.push(chart);
  }

  function buildControls() {
    const steps = [
      ...new Set(
        data.runs.flatMap((run) => run.segments.filter((s) => s.len > 0).map((s) => s.name)),
      ),
    ];
    const select = html("select", { id: "step" }, html("option", { value: WHOLE }, "whole run"));
    for (const step of steps) select.append(html("option", { value: step }, step));
    select.addEventListener("change", () => showStep(select.value));
    const reset = html("button", { id: "reset", type: "button" }, "Show all");
    reset.addEventListener("click", () => zoom(0, Infinity));
    const label = html("label", { for: "step" }, "Step");
    document.getElementById("controls").append(label, select, reset);
  }

  function setTheme(theme) {
    root.dataset.theme = theme;
    document.getElementById("theme").textContent = theme === "dark" ? "Light" : "Dark";
  }

  function followTheme() {
    const dark = window.matchMedia("(prefers-color-scheme: dark)");
    const follow = () => setTheme(dark.matches ? "dark" : "light");
    dark.addEventListener("change", follow);
    follow();
    const other = () => setTheme(root.dataset.theme === "dark" ? "light" : "dark");
    document.getElementById("theme").addEventListener("click", other);
  }

  let width = 0;
  function resized() {
    if (document.body.clientWidth === width) return;
    width = document.body.clientWidth;
    drawAll();
  }

  followTheme();
  buildControls();
  data.charts.forEach(buildChart);
  // Panels are measured when all of them are there: a scroll bar narrows them.
  showStep(WHOLE);
  width = document.body.clientWidth;
  window.addEventListener("resize", () => requestAnimationFrame(resized));
  root.dataset.charts = String(charts.length);
  root.dataset.errors = root.dataset.errors ?? "0";
  root.dataset.ready = "true";
})();
