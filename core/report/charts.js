"use strict";
// Draws the four charts from the JSON in #data, with uPlot. All share the time axis, the cursor and the zoom.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const t = data.table;
  const css = (name) => () => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const narrow = () => window.innerWidth < 640;
  const local = (ts) => new Date(ts * 1000); // in the reader's zone, as everything that uPlot writes

  // The page is written in UTC, and read in the reader's zone: its name stands wherever UTC stood.
  const spell = (at, how) => new Intl.DateTimeFormat("en-GB", how).formatToParts(at).find((p) => p.type === Object.keys(how).pop())?.value;
  const zoneAt = (at) => (spell(at, { timeZoneName: "shortOffset" }) || "UTC").replace("GMT", "UTC").replace(/[+]0$/, "");
  const zone = zoneAt(local(t.t[0]));
  const zoneName = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const day = uPlot.fmtDate("{D} {MMM} {YYYY}"), clockText = uPlot.fmtDate("{HH}:{mm}:{ss}");
  for (const el of document.querySelectorAll("time[datetime]")) {
    const at = new Date(el.dateTime);
    el.textContent = ("date" in el.dataset || day(at) !== day(local(t.t[0])) ? day(at) + " " : "") + clockText(at);
  }
  for (const el of document.querySelectorAll(".zone")) el.textContent = "name" in el.dataset && zoneName && zone !== "UTC" ? zone + " (" + zoneName + ")" : zone;

  // How quantities are read. Lengths of time choose one unit per axis.
  const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
  const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
  const quantity = (unit) => (u, v) => (v == null ? "" : (Math.abs(v) >= 100 ? grouped.format(Math.round(v)) : grouped.format(v)) + unit);
  const short = (v) => (Math.abs(v) < 10000 ? grouped.format(v) : compact.format(v));
  const duration = (s) => {
    if (s == null) return "";
    if (s < 1) return Math.round(s * 1000) + "ms";
    if (s < 60) return grouped.format(s) + "s";
    if (s < 3600) return Math.floor(s / 60) + "m" + (Math.round(s % 60) ? Math.round(s % 60) + "s" : "");
    return Math.floor(s / 3600) + "h" + (Math.round(s % 3600 / 60) ? Math.round(s % 3600 / 60) + "m" : "");
  };
  const lagUnit = (max) => (max < 120 ? [1, "s"] : max < 7200 ? [60, "min"] : [3600, "h"]);

  const clock = [ // increment, its format, and what is added where a year, month, day, hour, minute or second begins
    [3600 * 24 * 365, "{YYYY}", null, null, null, null, null, null, 1],
    [3600 * 24 * 28, "{MMM}", "\n{YYYY}", null, null, null, null, null, 1],
    [3600 * 24, "{D} {MMM}", "\n{YYYY}", null, null, null, null, null, 1],
    [60, "{HH}:{mm}", "\n{D} {MMM} {YYYY}", null, "\n{D} {MMM}", null, null, null, 1],
    [1, "{HH}:{mm}:{ss}", "\n{D} {MMM} {YYYY}", null, "\n{D} {MMM}", null, null, null, 1],
    [0.001, "{HH}:{mm}:{ss}.{fff}", "\n{D} {MMM} {YYYY}", null, "\n{D} {MMM}", null, null, null, 1],
  ];

  const font = "12px system-ui, -apple-system, 'Segoe UI', Roboto, Arial, sans-serif";
  const axisStyle = { stroke: css("soft"), font, labelFont: font, grid: { stroke: css("grid"), width: 1 }, ticks: { stroke: css("line"), width: 1, size: 4 } };
  const timeAxis = () => ({ ...axisStyle, values: clock, space: () => (narrow() ? 74 : 92) });
  // All value axes are equally wide, so that the same moment stands in the same column of every chart.
  const valueAxis = (label, more) => ({ ...axisStyle, label: () => (narrow() ? "" : label), labelSize: 18, labelGap: 2, size: 50, gap: 4, ...more });

  // Lines and shades for what happened, under the series: rescales while they were under way, time over the objective, the end of what was observed.
  const x = (u, ts) => u.valToPos(ts, "x", true);
  const inside = (u, draw) => {
    const c = u.ctx, b = u.bbox;
    c.save();
    c.beginPath();
    c.rect(b.left, b.top, b.width, b.height);
    c.clip();
    draw(c, b, uPlot.pxRatio);
    c.restore();
  };
  const under = (shades, colour) => (u) => inside(u, (c, b) => {
    c.fillStyle = css(colour)();
    for (const [from, to] of shades) {
      const left = x(u, from);
      c.fillRect(left, b.top, Math.max(x(u, to) - left, uPlot.pxRatio), b.height);
    }
  });
  const marks = (labels) => (u) => inside(u, (c, b, px) => {
    c.lineWidth = px;
    c.font = 11 * px + "px system-ui, sans-serif";
    c.textBaseline = "top";
    c.textAlign = "left";
    const at0 = data.rescales.map((r) => Math.round(x(u, r.decided)) + 0.5);
    const seen = at0.filter((at) => at >= b.left && at <= b.left + b.width).length;
    data.rescales.forEach((r, i) => {
      const at = at0[i], up = r.to > r.from;
      c.strokeStyle = c.fillStyle = css(up ? "running" : "good")();
      c.setLineDash([3 * px, 3 * px]);
      c.globalAlpha = seen * 30 * px > b.width ? 0.25 : 0.7; // many lines are faint, or they would hide the series
      c.beginPath();
      c.moveTo(at, b.top + 10 * px);
      c.lineTo(at, b.top + b.height);
      c.stroke();
      c.globalAlpha = 1;
      const tip = b.top + (up ? 1 : 9) * px, base = b.top + (up ? 9 : 1) * px;
      c.beginPath();
      c.moveTo(at, tip);
      c.lineTo(at - 4.5 * px, base);
      c.lineTo(at + 4.5 * px, base);
      c.fill();
      const text = r.from + "→" + r.to, room = (at0[i + 1] ?? b.left + b.width) - at;
      if (labels && room > 14 * px + c.measureText(text).width) c.fillText(text, at + 7 * px, b.top);
    });
    if (t.t[t.t.length - 1] > data.end) {
      c.strokeStyle = css("mark")();
      c.setLineDash([]);
      c.beginPath();
      c.moveTo(x(u, data.end), b.top);
      c.lineTo(x(u, data.end), b.top + b.height);
      c.stroke();
    }
  });
  const aside = data.counted ? under([[t.t[0], data.counted[0]], [data.counted[1], t.t[t.t.length - 1]]], "aside") : () => {};
  const unseen = under(data.unwatched, "aside");
  const blind = (u) => {
    unseen(u);
    inside(u, (c, b, px) => {
      c.fillStyle = css("soft")();
      c.font = 11 * px + "px system-ui, sans-serif";
      c.textBaseline = "middle";
      c.textAlign = "center";
      for (const [from, to] of data.unwatched) {
        const left = Math.max(x(u, from), b.left), right = Math.min(x(u, to), b.left + b.width);
        if (right - left > c.measureText("not watched").width + 12 * px) c.fillText("not watched", (left + right) / 2, b.top + b.height / 2);
      }
    });
  };
  const underWay = data.rescales.map((r) => [r.decided, r.done]);

  const step = uPlot.paths.stepped({ align: 1 });
  const line = (label, colour, more) => ({ label, class: "line", stroke: css(colour), width: 1.6, points: { show: false }, ...more });
  const charts = [];
  const make = (id, what, columns, series, y, axis, more) => {
    const box = document.getElementById(id);
    box.setAttribute("role", "img");
    box.setAttribute("aria-label", what);
    const height = box.classList.contains("tall") ? 310 : 200;
    const options = {
      width: box.clientWidth, height, tzDate: local, series: [{ value: (u, v) => (v == null ? "" : clockText(local(v))) }, ...series], axes: [timeAxis(), axis], scales: { x: { time: true }, y },
      padding: [8, 12, 0, 0], legend: { live: true, markers: { width: 2.5 } },
      cursor: { sync: { key: "kale", scales: ["x", null] }, y: false, focus: { prox: -1 }, points: { size: 6 }, drag: { x: true, y: false } },
      hooks: { drawClear: [], draw: [] }, ...more,
    };
    const u = new uPlot(options, [t.t, ...columns], box);
    // The box is as high as the chart with its legend, however many lines that has.
    const fit = () => { box.style.height = u.root.offsetHeight + "px"; };
    fit();
    charts.push({ u, box, height, fit });
  };

  // What came, was trained and can be trained is seen whole; a forecast far above all that, as one that knows too little, is cut off and stands in the legend.
  const rates = (u, min, max) => {
    const [from, to] = u.series[0].idxs ?? [0, t.t.length - 1];
    let seen = 0;
    for (let i = from ?? 0; i <= (to ?? -1); i++) for (const v of [t.rate[i], t.trained[i], t.capacity[i]]) seen = Math.max(seen, v ?? 0);
    return [0, (seen > 0 ? Math.min(max ?? seen, 2 * seen) : max || 1) * 1.08];
  };

  const drawAll = () => {
    const none = (u, v) => "";
    make("traffic", "Arrivals, trained records, forecast and capacity over time", [t.upper, t.lower, t.mean, t.capacity, t.rate, t.trained], [
      { label: "forecast, 10–90 %", stroke: "transparent", fill: css("band"), width: 0, points: { show: false },
        value: (u, v, s, i) => (i == null || v == null ? "" : quantity("")(u, t.lower[i]) + " – " + quantity("")(u, v)) },
      { label: "lower", class: "hidden", stroke: "transparent", width: 0, points: { show: false }, value: none },
      line("forecast", "forecast", { dash: [6, 4], value: quantity("") }),
      line("capacity of the workers that train", "capacity", { paths: step, width: 1.4, value: quantity("") }),
      line("arrivals", "arrivals", { width: 3.5, value: quantity("") }),
      line("trained", "trained", { width: 1.3, value: quantity("") }),
    ], { range: rates }, valueAxis("records per second", { values: (u, v) => v.map(short) }),
    { bands: [{ series: [1, 2], fill: css("band") }], hooks: { drawClear: [aside, blind, under(underWay, "shade")], draw: [marks(true)] } });

    // States stand on each other; the legend says each one's own number.
    const sum = (...columns) => columns[0].map((_, i) => columns.reduce((a, c) => (a == null || c[i] == null ? null : a + c[i]), 0));
    const own = (column) => (u, v, s, i) => (i == null ? "" : quantity("")(u, column[i]));
    const state = (label, colour, column) => ({ label, stroke: css(colour), fill: css(colour), width: 0, alpha: 0.85, paths: step, points: { show: false }, value: own(column) });
    make("workers", "Workers by state over time, and how many are wanted", [
      t.running, sum(t.running, t.pending), sum(t.running, t.pending, t.draining), t.held, t.target,
    ], [
      state("train", "running", t.running), state("starting", "pending", t.pending), state("leaving", "draining", t.draining),
      line("held (paid for)", "held", { paths: step, dash: [2, 3], value: quantity("") }),
      line("wanted", "capacity", { paths: step, width: 1.6, dash: [7, 3], value: quantity("") }),
    ], { range: (u, min, max) => [0, Math.max(max || 0, data.max || 0, 1) * 1.12] }, valueAxis("workers", { incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000] }),
    { bands: [{ series: [2, 1], fill: css("pending") }, { series: [3, 2], fill: css("draining") }], hooks: { drawClear: [aside, blind], draw: [marks(false)] } });

    // The objective is in the picture unless lag would be a flat line under it; then words say where it is.
    // A lag of more than 30 days is of a record with a wrong date: it is out of the picture, which is of the others, and words say so.
    const plausible = 30 * 24 * 3600, highest = t.lag.reduce((a, v) => Math.max(a, v ?? 0), 0);
    const worst = highest > plausible ? t.lag.reduce((a, v) => (v > plausible ? a : Math.max(a, v ?? 0)), 0) : highest;
    const shown = data.max_lag > 0 && data.max_lag <= 25 * worst;
    const top = Math.max(worst, shown ? data.max_lag : 0, 0.001) * 1.12;
    const [per, unit] = lagUnit(top);
    const objective = (u) => inside(u, (c, b, px) => {
      if (highest > plausible) {
        c.fillStyle = css("bad")();
        c.font = "600 " + 11.5 * px + "px system-ui, sans-serif";
        c.textBaseline = "top";
        c.textAlign = "left";
        c.fillText("beyond this picture: up to " + grouped.format(Math.floor(highest / 86400)) + " days", b.left + 6 * px, b.top + 3 * px);
      }
      if (!(data.max_lag > 0)) return;
      const y = shown ? Math.round(u.valToPos(data.max_lag, "y", true)) + 0.5 : b.top + 14 * px;
      c.fillStyle = c.strokeStyle = css("bad")();
      c.lineWidth = 1.5 * px;
      c.setLineDash([8 * px, 4 * px]);
      if (shown) {
        c.beginPath();
        c.moveTo(b.left, y);
        c.lineTo(b.left + b.width, y);
        c.stroke();
      }
      c.font = "600 " + 11.5 * px + "px system-ui, sans-serif";
      const high = y - b.top > 18 * px || !shown;
      c.textBaseline = high ? "bottom" : "top";
      c.textAlign = "right";
      c.fillText("objective " + duration(data.max_lag) + (shown ? "" : ", far above"), b.left + b.width - 6 * px, high ? y - 3 * px : y + 3 * px);
    });
    const scaled = (u, min, max, found) => { // whole numbers of the unit
      const nice = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 20, 30, 60, 120, 240, 600, 1200, 2400, 6000, 24000, 1e5, 1e6, 1e7];
      return nice.map((n) => n * per);
    };
    make("lag", "Lag over time against its objective", [t.lag], [line("lag", "lag", { value: (u, v) => duration(v) })],
      { range: () => [0, top] }, valueAxis(unit === "s" ? "seconds" : unit === "min" ? "minutes" : "hours", { incrs: scaled, values: (u, v) => v.map((s) => grouped.format(s / per)) }),
      { hooks: { drawClear: [aside, blind, under(data.violations, "violation")], draw: [marks(false), objective] } });

    make("busy", "Share of time that accelerators were busy", [t.busy], [line(data.emulated ? "busy (emulated)" : "busy", "busy", { class: "area", fill: css("busyfill"), value: quantity(" %") })],
      { range: () => [0, 105] }, valueAxis("percent", { splits: [0, 25, 50, 75, 100] }), { hooks: { drawClear: [aside, blind, under(underWay, "shade")], draw: [marks(false)] } });
  };
  drawAll();

  // Width follows the window; colours follow the theme.
  let waiting = 0;
  const resize = () => {
    waiting = 0;
    for (const { u, box, height, fit } of charts) {
      if (box.clientWidth !== u.width) u.setSize({ width: box.clientWidth, height });
      fit();
    }
  };
  new ResizeObserver(() => { waiting = waiting || requestAnimationFrame(resize); }).observe(document.querySelector("main"));
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { // The legend and the cursor take their colours when they are made.
    const { min, max } = charts[0].u.scales.x;
    for (const { u } of charts.splice(0)) u.destroy();
    drawAll();
    for (const { u } of charts) u.setScale("x", { min, max });
  });
})();
