// SPDX-License-Identifier: Apache-2.0
// Draws the pictures of the HTML report from the numbers in #data, with uPlot. Each picture can be walked through with the arrow keys;
// what the cursor is at is written below it.
(function () {
  "use strict";
  const begin = performance.now();
  const data = JSON.parse(document.getElementById("data").textContent);
  const grey = "#7a828c", blue = "#2f7fc1", orange = "#d9690f";
  const ramp = ["#b9c9de", "#7fa3c7", "#4b7fae", "#c9a227", "#e0731d"];
  const axis = {stroke: grey, grid: {stroke: "rgba(128,128,128,.25)", width: 1}, ticks: {stroke: "rgba(128,128,128,.4)"}};
  const whole = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 1e4, 2e4, 5e4, 1e5, 1e6, 1e7, 1e8, 1e9];
  const charts = [];

  function bytes(value) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let unit = 0;
    while (value >= 1024 && unit < units.length - 1) { value /= 1024; ++unit; }
    return (unit ? value.toFixed(1) : Math.round(value)) + " " + units[unit];
  }

  function place(id) {
    const figure = document.getElementById(id);
    return figure && {box: figure.querySelector(".plot"), out: figure.querySelector("output")};
  }

  function width(box) { return Math.max(280, box.clientWidth - 14); }

  // A chart of one column of x and one or more of y; `say(index)` is what stands below it.
  function chart(id, columns, series, say, options) {
    const at = place(id);
    if (!at) return;
    const settings = Object.assign({
      width: width(at.box), height: 240, legend: {show: false}, scales: {x: {time: false}},
      axes: [Object.assign(options.whole ? {incrs: whole} : {}, {label: options.x, labelSize: 22, labelFont: "13px sans-serif"}, axis), Object.assign(options.counts ? {incrs: whole} : {}, {label: options.y, labelSize: 22, size: 64, labelFont: "13px sans-serif"}, axis)],
      cursor: {y: false, drag: {x: true, y: false}},
      series: [{}].concat(series.map((one, n) => one.points ? one : Object.assign({points: {show: columns[n + 1].filter(v => v != null).length < 40}}, one))),
      hooks: {setCursor: [u => { if (u.cursor.idx != null) at.out.textContent = say(u.cursor.idx); }]},
    }, options.plot || {});
    const plot = new uPlot(settings, columns, at.box);
    let index = 0;
    at.box.addEventListener("keydown", event => {
      const step = {ArrowRight: 1, ArrowLeft: -1, PageDown: 32, PageUp: -32, Home: -Infinity, End: Infinity}[event.key];
      if (step === undefined) return;
      event.preventDefault();
      index = Math.min(columns[0].length - 1, Math.max(0, index + step));
      plot.setCursor({left: plot.valToPos(columns[0][index], "x"), top: 10});
      at.out.textContent = say(index);
    });
    charts.push([plot, at.box]);
  }

  function percent(label, values) { return values == null ? label + " not known" : label + " " + values + " %"; }

  function perRank(r) {
    const few = r.rank.length <= 64, x = r.rank.map((_, i) => i);
    const most = Math.max.apply(null, r.share.map(v => v || 0)), top = most > 60 ? Math.max(100, most) : most * 1.15 || 1;
    const series = few ? {stroke: blue, fill: blue + "99", paths: uPlot.paths.bars({size: [0.8, 40]}), points: {show: false}}
      : {stroke: blue, fill: blue, paths: () => null, points: {show: true, size: 3, stroke: blue, fill: blue}};
    // Of many ranks a dot each: those far below the others are circled, else nobody sees them.
    const sorted = r.share.filter(v => v != null).sort((a, b) => a - b), limit = Math.min(sorted[8], 0.8 * sorted[sorted.length >> 1]);
    const low = few ? [] : [r.share.map(v => v != null && v < limit ? v : null)];
    chart("rank-times", [x, r.share, ...low], [series, ...low.map(() => ({stroke: orange, paths: () => null, points: {show: true, size: 11, width: 2, stroke: orange, fill: "transparent"}}))],
      i => "rank " + (r.world[i] ? r.rank[i] + " of world " + r.world[i] : r.rank[i]) + " on " + r.hosts[r.host[i]] + ": " +
        percent("in MPI", r.share[i]) + ", " + r.mpi[i] + " s of " + r.seconds[i] + " s",
      {x: "rank", y: "% of its time in MPI", whole: true, plot: {scales: {x: {time: false, range: () => [-0.5, x.length - 0.5]}, y: {range: () => [0, top]}}}});
  }

  function timeline(t) {
    const x = t.outside.map((_, i) => i * t.width);
    const at = i => x[i].toPrecision(4) + " s: ";
    chart("outside", [x, t.outside], [{stroke: blue, fill: blue + "33", width: 2}], i => at(i) + percent("outside MPI", t.outside[i]),
      {x: "seconds from the first record that is left", y: "% of ranks outside MPI", plot: {scales: {x: {time: false}, y: {range: () => [0, 100]}}}});
    if (t.progress) chart("progress", [x, t.progress.low, t.progress.high],
      [{stroke: orange, width: 2, label: "last"}, {stroke: blue, width: 2, dash: [6, 4], label: "first"}],
      i => at(i) + "the last rank has reached " + t.progress.low[i] + ", the first " + t.progress.high[i],
      {x: "seconds from the first record that is left", y: t.steps ? "step" : "collective", counts: true});
  }

  function statistics(s) {
    chart("s-out", [s.seconds, s.outside], [{stroke: orange, width: 2}], i => s.seconds[i] + " s: " + percent("outside MPI", s.outside[i]),
      {x: "seconds", y: "S_out, % of ranks", plot: {scales: {x: {time: false}, y: {range: () => [0, 100]}}}});
  }

  function sizes(counts) {
    let last = counts.length - 1, first = 0;
    while (last > 0 && !counts[last]) --last;
    while (first < last && !counts[first]) ++first;
    const shown = counts.slice(first, last + 1), x = shown.map((_, i) => first + i);
    chart("sizes", [x, shown], [{stroke: blue, fill: blue + "99", paths: uPlot.paths.bars({size: [0.9, 60]}), points: {show: false}}],
      i => bytes(2 ** x[i]) + " to " + bytes(2 ** (x[i] + 1)) + ": " + shown[i] + " calls",
      {x: "bytes of a call", y: "calls", plot: {scales: {x: {time: false, range: () => [first - 0.6, last + 0.6]}, y: {range: (u, a, b) => [0, b * 1.08 || 1]}},
        axes: [Object.assign({values: (u, v) => v.map(e => Number.isInteger(e) ? bytes(2 ** e) : "")}, axis), Object.assign({size: 64}, axis)]}});
  }

  function matrix(t) {
    const at = place("traffic");
    if (!at) return;
    const value = new Map(t.cells.map(([a, b, n]) => [a * t.side + b, n]));
    const all = t.cells.map(cell => cell[2]).filter(Boolean);
    const low = Math.log(Math.min.apply(null, all)), high = Math.log(Math.max.apply(null, all));
    const ranks = g => t.group === 1 ? "rank " + g : "ranks " + g * t.group + "-" + (Math.min(t.size, (g + 1) * t.group) - 1);
    const edge = Math.min(560, width(at.box));
    // A label stands at the middle of its cell.
    const apart = 2 ** Math.max(0, Math.ceil(Math.log2(t.side / 12))), middles = Array.from({length: Math.ceil(t.side / apart)}, (_, i) => i * apart + 0.5);
    const cells = {splits: () => middles, values: (u, values) => values.map(v => String(Math.floor(v) * t.group)), grid: {show: false}};
    const say = (a, b) => { at.out.textContent = ranks(a) + " to " + ranks(b) + ": " + bytes(value.get(a * t.side + b) || 0); };
    const plot = new uPlot({
      width: edge, height: edge, legend: {show: false}, cursor: {drag: {x: false, y: false}, points: {show: false}},
      scales: {x: {time: false, range: () => [0, t.side]}, y: {dir: -1, range: () => [0, t.side]}},
      axes: [Object.assign({}, axis, cells, {label: "to rank", labelSize: 22, labelFont: "13px sans-serif"}),
        Object.assign({}, axis, cells, {label: "from rank", labelSize: 22, size: 60, labelFont: "13px sans-serif"})],
      series: [{}, {paths: () => null, points: {show: false}}],
      hooks: {
        draw: [u => {
          for (const [a, b, n] of t.cells) {
            const level = high > low ? (Math.log(n || 1) - low) / (high - low) : 0.5;
            u.ctx.fillStyle = ramp[Math.max(0, Math.min(ramp.length - 1, Math.floor(level * ramp.length)))];
            const x = u.valToPos(b, "x", true), y = u.valToPos(a, "y", true);
            const right = u.valToPos(b + 1, "x", true), below = u.valToPos(a + 1, "y", true);
            u.ctx.fillRect(x, y, Math.max(1, right - x), Math.max(1, below - y));
          }
        }],
        setCursor: [u => {
          if (u.cursor.left < 0) return;
          const a = Math.floor(u.posToVal(u.cursor.top, "y")), b = Math.floor(u.posToVal(u.cursor.left, "x"));
          if (a >= 0 && b >= 0 && a < t.side && b < t.side) say(a, b);
        }],
      },
    }, [[0, t.side], [0, t.side]], at.box);
    let from = 0, to = 0;
    at.box.addEventListener("keydown", event => {
      const step = {ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0]}[event.key];
      if (!step) return;
      event.preventDefault();
      from = Math.min(t.side - 1, Math.max(0, from + step[0]));
      to = Math.min(t.side - 1, Math.max(0, to + step[1]));
      plot.setCursor({left: plot.valToPos(to + 0.5, "x"), top: plot.valToPos(from + 0.5, "y")});
      say(from, to);
    });
  }

  function finder(r) {
    const input = document.getElementById("which"), out = document.getElementById("told");
    if (!input) return;
    input.addEventListener("input", () => {
      const i = r.rank.findIndex((rank, n) => String(rank) === input.value.trim() && !r.world[n]);
      out.textContent = i < 0 ? (input.value ? "no report of that rank" : "") : "rank " + r.rank[i] + " on " + r.hosts[r.host[i]] + ": " + r.states[r.state[i]] +
        ", " + r.seconds[i] + " s, " + percent("in MPI", r.share[i]) + ", " + r.calls[i] + " calls, " + bytes(r.sent[i]) + " sent";
    });
  }

  const parts = [["ranks", perRank], ["time", timeline], ["statistics", statistics], ["traffic", matrix]];
  for (const [name, draw] of parts) if (data[name]) draw(data[name]);
  if (data.time && data.time.sizes) sizes(data.time.sizes);
  finder(data.ranks);
  window.addEventListener("resize", () => charts.forEach(([plot, box]) => plot.setSize({width: width(box), height: 240})));
  window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(part => { part.open = true; }));
  document.documentElement.dataset.readyMs = String(Math.round(performance.now()));
  document.documentElement.dataset.drawMs = String(Math.round(performance.now() - begin));
})();
