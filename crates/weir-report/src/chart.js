// Drawing: a panel is an SVG element with lines over seconds. Knows no page, no runs, no events.
"use strict";

const Chart = (() => {
  const NS = "http://www.w3.org/2000/svg";
  const MARGIN = { left: 54, right: 18, top: 16, bottom: 20 };
  const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200];

  function element(name, attributes, text) {
    const node = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    return node;
  }

  // Numbers for readers: 1234567 -> "1.23M", small ones with three digits.
  function number(value) {
    if (value === null || value === undefined) return "\u2013";
    const size = Math.abs(value);
    for (const [unit, factor] of [
      ["G", 1e9],
      ["M", 1e6],
      ["k", 1e4],
    ]) {
      if (size >= factor) {
        const scaled = value / (unit === "k" ? 1e3 : factor);
        return `${Number(scaled.toPrecision(3))}${unit}`;
      }
    }
    return String(Number(value.toPrecision(size >= 1000 ? 4 : 3)));
  }

  // Seconds for readers: 75 -> "1:15".
  function time(seconds) {
    const whole = Math.round(seconds);
    const two = (value) => String(value).padStart(2, "0");
    const [h, m, s] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
    return h > 0 ? `${h}:${two(m)}:${two(s)}` : `${m}:${two(s)}`;
  }

  // Multiples of 1, 2 or 5 times a power of ten, from 0 until they cover `max`.
  function ticks(max, wanted) {
    const raw = max / wanted;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
    const values = [];
    for (let i = 0; (i - 1) * step < max * 0.999; i += 1) values.push(i * step);
    return values;
  }

  // A scale from values to pixels, with its ticks. `high` and `low` are the extremes to be shown.
  function scaleOf(shape, low, high, height) {
    const [bottom, top] = [height - MARGIN.bottom, MARGIN.top];
    if (shape !== "log") {
      const marks = ticks(high > 0 ? high : 1, 4);
      const end = marks[marks.length - 1];
      return { marks, at: (value) => bottom - (bottom - top) * Math.min(1, value / end) };
    }
    const from = Math.floor(Math.log10(Number.isFinite(low) && low > 0 ? low : 0.1));
    const to = Math.max(from + 1, Math.ceil(Math.log10(high > 0 ? high : 1)));
    const every = Math.ceil((to - from) / 5);
    const marks = [];
    for (let power = from; power <= to; power += every) marks.push(10 ** power);
    const at = (value) => {
      const share = (Math.log10(Math.max(value, 10 ** from)) - from) / (to - from);
      return bottom - (bottom - top) * Math.min(1, share);
    };
    return { marks, at };
  }

  // Which of the values from..to are drawn: all, or for each pixel those where `weights` is least and
  // greatest, so that no peak is lost. Returns places in ascending order.
  function chosen(weights, from, to, pixels) {
    const count = to - from;
    if (count <= 2 * pixels) return Array.from({ length: count }, (_, i) => from + i);
    const places = [];
    for (let pixel = 0; pixel < pixels; pixel += 1) {
      const [begin, end] = [pixel, pixel + 1].map((p) => from + Math.floor((p * count) / pixels));
      let [least, most] = [-1, -1];
      let gap = -1;
      for (let i = begin; i < end; i += 1) {
        const value = weights[i];
        if (value === null || value === undefined) {
          gap = i;
          continue;
        }
        if (least < 0 || value < weights[least]) least = i;
        if (most < 0 || value > weights[most]) most = i;
      }
      const found = least < 0 ? [gap] : [...new Set([least, most])].sort((a, b) => a - b);
      places.push(...found);
    }
    return places;
  }

  // Means of equal parts of the values from..to: for many lines over each other, whose levels are to be
  // compared. Returns places, each the first of its part, and a value for each.
  function means(values, from, to, parts) {
    const [places, means] = [[], []];
    for (let part = 0; part < parts; part += 1) {
      const [begin, end] = [part, part + 1].map(
        (p) => from + Math.floor((p * (to - from)) / parts),
      );
      const known = values.slice(begin, end).filter((value) => (value ?? null) !== null);
      places.push(begin);
      means[begin] =
        known.length > 0 ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
    }
    return { places, values: means };
  }

  // The path through the values at `places`, with gaps where there is none, and the path of dots for
  // values that stand alone.
  function curve(values, places, x, y) {
    const known = (place) => (values[place] ?? null) !== null;
    let [line, dots, vertices] = ["", "", 0];
    places.forEach((place, i) => {
      if (!known(place)) return;
      vertices += 1;
      const point = `${x(place).toFixed(1)} ${y(values[place]).toFixed(1)}`;
      const [before, after] = [
        i > 0 && known(places[i - 1]),
        i + 1 < places.length && known(places[i + 1]),
      ];
      if (!before && !after) dots += `M${point}h0`;
      else line += before ? `L${point}` : `M${point}`;
    });
    return { line, dots, vertices };
  }

  // The area between two lines at `places` that follow each other.
  function area(lower, upper, places, x, y) {
    const point = (values) => (place) => `${x(place).toFixed(1)} ${y(values[place]).toFixed(1)}`;
    const up = places.map(point(upper)).join("L");
    const back = [...places].reverse().map(point(lower)).join("L");
    return `M${up}L${back}Z`;
  }

  // Sums of the lines from below. A missing value counts as nothing; where all are missing there is no
  // sum.
  function stacked(lines, len) {
    const known = (i) => lines.some((line) => (line.values[i] ?? null) !== null);
    const levels = [Array.from({ length: len }, (_, i) => (known(i) ? 0 : null))];
    for (const line of lines) {
      const below = levels[levels.length - 1];
      levels.push(below.map((sum, i) => (sum === null ? null : sum + (line.values[i] ?? 0))));
    }
    return levels;
  }

  // The places that have a value, in groups that follow each other.
  function groups(values, places) {
    const all = [[]];
    for (const place of places) {
      if (values[place] === null) all.push([]);
      else all[all.length - 1].push(place);
    }
    return all.filter((group) => group.length > 0);
  }

  // Least (above 0) and greatest value of a panel between two places, for scales that panels share.
  function extremes(panel, from, to) {
    let [low, high] = [Infinity, 0];
    const look = (values) => {
      for (let i = Math.max(0, from); i < Math.min(to, values.length); i += 1) {
        const value = values[i];
        if (value === null || value === undefined) continue;
        if (value > high) high = value;
        if (value > 0 && value < low) low = value;
      }
    };
    if (panel.shape === "stack") look(panel.levels[panel.levels.length - 1]);
    else for (const line of panel.lines) look(line.values);
    return { low, high };
  }

  function drawTimes(svg, view, x, height) {
    const span = view.to - view.from;
    const fit = Math.max(2, Math.floor((view.width - MARGIN.left - MARGIN.right) / 70));
    const step = TIME_STEPS.find((s) => span / s <= fit) ?? Math.ceil(span / fit / 3600) * 3600;
    for (let t = Math.ceil(view.from / step) * step; t <= view.to; t += step) {
      const at = x(t).toFixed(1);
      svg.append(
        element("path", { class: "grid", d: `M${at} ${MARGIN.top}V${height - MARGIN.bottom}` }),
      );
      const place = { x: at, y: height - 6, "text-anchor": "middle" };
      svg.append(element("text", place, time(t)));
    }
  }

  function drawValues(svg, view, scale) {
    for (const mark of scale.marks) {
      const at = scale.at(mark).toFixed(1);
      svg.append(
        element("path", { class: "grid", d: `M${MARGIN.left} ${at}H${view.width - MARGIN.right}` }),
      );
      const place = { x: MARGIN.left - 6, y: Number(at) + 4, "text-anchor": "end" };
      svg.append(element("text", place, number(mark)));
    }
  }

  // Where steps begin, named where the name fits into the step.
  function drawBounds(svg, panel, view, x, height) {
    panel.bounds.forEach((bound, i) => {
      if (bound.at < view.from || bound.at >= view.to) return;
      const at = x(bound.at);
      svg.append(
        element("path", {
          class: "bound",
          d: `M${at.toFixed(1)} ${MARGIN.top - 10}V${height - MARGIN.bottom}`,
        }),
      );
      const end = i + 1 < panel.bounds.length ? x(panel.bounds[i + 1].at) : view.width;
      if (at + 3 + bound.name.length * 6.5 > Math.min(end, view.width)) return;
      svg.append(element("text", { x: (at + 3).toFixed(1), y: 11 }, bound.name));
    });
  }

  // Draws a panel: `panel` has shape, lines ({values, class}), bounds; `view` has width, height, from
  // and to in seconds, low and high. Returns how many vertices it drew.
  function draw(panel, view) {
    const { svg } = panel;
    const { height } = view;
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${view.width} ${height}`);
    const inner = view.width - MARGIN.left - MARGIN.right;
    const x = (second) =>
      MARGIN.left + (inner * (second - view.from)) / Math.max(1, view.to - view.from);
    const scale = scaleOf(panel.shape, view.low, view.high, height);
    drawValues(svg, view, scale);
    drawTimes(svg, view, x, height);
    drawBounds(svg, panel, view, x, height);
    const [from, to] = [
      Math.max(0, Math.floor(view.from)),
      Math.min(panel.len, Math.ceil(view.to) + 1),
    ];
    const pixels = Math.max(50, Math.floor(inner / 2));
    let vertices = 0;
    if (to > from && panel.shape === "stack") {
      const total = panel.levels[panel.levels.length - 1];
      const parts = groups(total, chosen(total, from, to, pixels));
      panel.lines.forEach((line, i) => {
        if (line.count === 0) return;
        const d = parts.map((part) =>
          area(panel.levels[i], panel.levels[i + 1], part, x, scale.at),
        );
        svg.append(element("path", { class: `area ${line.class}`, d: d.join("") }));
        vertices += parts.reduce((sum, part) => sum + part.length, 0);
      });
    } else if (to > from) {
      for (const line of panel.lines) {
        const drawn =
          panel.means && to - from > 2 * pixels
            ? means(line.values, from, to, Math.floor(pixels / 2))
            : { places: chosen(line.values, from, to, pixels), values: line.values };
        const path = curve(drawn.values, drawn.places, x, scale.at);
        svg.append(element("path", { class: `curve ${line.class}`, d: path.line }));
        if (path.dots !== "")
          svg.append(element("path", { class: `curve dots ${line.class}`, d: path.dots }));
        vertices += path.vertices;
      }
    }
    if (panel.count === 0) {
      const place = { class: "none", x: view.width / 2, y: height / 2, "text-anchor": "middle" };
      svg.append(element("text", place, panel.absent));
    }
    panel.cursor = element("path", { class: "cursor" });
    panel.choice = element("rect", {
      class: "choice",
      y: MARGIN.top,
      height: height - MARGIN.top - MARGIN.bottom,
      width: 0,
    });
    svg.append(panel.choice, panel.cursor);
    return vertices;
  }

  // The second at a place of the panel, given in pixels of the screen, and back.
  function secondAt(panel, view, clientX) {
    const box = panel.svg.getBoundingClientRect();
    const at = ((clientX - box.left) * view.width) / box.width;
    const share = (at - MARGIN.left) / (view.width - MARGIN.left - MARGIN.right);
    return view.from + Math.min(1, Math.max(0, share)) * (view.to - view.from);
  }

  function xOf(view, second) {
    const share = (second - view.from) / Math.max(1, view.to - view.from);
    return MARGIN.left + share * (view.width - MARGIN.left - MARGIN.right);
  }

  function showCursor(panel, view, second) {
    const hidden = second === null || second < view.from || second > view.to;
    const at = hidden ? 0 : xOf(view, second).toFixed(1);
    panel.cursor.setAttribute(
      "d",
      hidden ? "" : `M${at} ${MARGIN.top}V${view.height - MARGIN.bottom}`,
    );
  }

  function showChoice(panel, view, from, to) {
    const [a, b] = [from, to].map((second) => xOf(view, second));
    panel.choice.setAttribute("x", Math.min(a, b));
    panel.choice.setAttribute("width", Math.abs(b - a));
  }

  return { draw, extremes, stacked, number, time, secondAt, showCursor, showChoice, element };
})();
