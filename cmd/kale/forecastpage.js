"use strict";
// Draws the measurement from the JSON in #data, with uPlot: errors by horizon, and a chart of time for each forecaster; these share cursor and zoom.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const css = (name) => () => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  // Okabe and Ito's colours, which most eyes tell apart, and four more.
  const colours = ["#8a949e", "#009e73", "#0072b2", "#d55e00", "#cc79a7", "#e69f00", "#56b4e9", "#8a4fa0", "#7a8b00", "#a0522d"];
  const names = [...new Set([...data.errors, ...data.courses].map((l) => l.name))];
  const colour = (name) => colours[names.indexOf(name) % colours.length];
  const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 4 });
  const figures = (u, v) => v.map((x) => compact.format(x));
  const value = (unit) => (u, v) => (v == null ? "" : compact.format(v) + unit);
  const font = "12px system-ui, -apple-system, 'Segoe UI', Roboto, Arial, sans-serif";
  const axis = () => ({ stroke: css("soft"), font, grid: { stroke: css("grid"), width: 1 }, ticks: { stroke: css("line"), width: 1, size: 4 } });
  const clock = [ // increment, its format, and what is added where a year, month, day, hour, minute or second begins
    [3600 * 24 * 28, "{MMM}", "\n{YYYY}", null, null, null, null, null, 1],
    [3600 * 24, "{D} {MMM}", "\n{YYYY}", null, null, null, null, null, 1],
    [60, "{HH}:{mm}", "\n{D} {MMM} {YYYY}", null, "\n{D} {MMM}", null, null, null, 1],
    [1, "{HH}:{mm}:{ss}", "\n{D} {MMM} {YYYY}", null, "\n{D} {MMM}", null, null, null, 1],
  ];
  const fromZero = (u, min, max) => [0, Math.max(max || 0, 1e-9) * 1.06];
  const charts = [];
  const make = (box, what, options, columns) => {
    box.setAttribute("role", "img");
    box.setAttribute("aria-label", what);
    const height = 210;
    const u = new uPlot({ width: box.clientWidth, height, padding: [8, 20, 0, 0], ...options }, columns, box);
    const fit = () => { box.style.height = u.root.offsetHeight + "px"; };
    fit();
    charts.push({ u, box, height, fit });
    return u;
  };

  // Horizons stand side by side, however far apart they are.
  const places = data.horizons.map((_, i) => i);
  const byHorizon = (id, what, unit) => make(document.getElementById(id), what, {
    series: [{ label: "ahead", value: (u, v) => data.horizons[v] ?? "" }, ...data.errors.map((l) => ({ label: l.name, class: "line", stroke: colour(l.name), width: 1.8, points: { show: true, size: 6, fill: colour(l.name) }, value: value(unit) }))],
    axes: [{ ...axis(), size: 32, splits: () => places, values: (u, v) => v.map((i) => data.horizons[i] ?? "") }, { ...axis(), values: figures, size: 58 }],
    scales: { x: { time: false, range: [-0.3, places.length - 0.7] }, y: { range: fromZero } },
    cursor: { y: false, drag: { x: false, y: false } },
  }, [places, ...data.errors.map((l) => l[id])]);
  const errors = [byHorizon("wape", "Error by horizon, a line for each forecaster", " %"), byHorizon("pinball", "Pinball loss by horizon, a line for each forecaster", "")];

  // All courses have one scale, so that bands compare; a band far above what came and was expected is cut off.
  const seen = Math.max(0, ...[data.came, ...data.courses.map((c) => c.mean)].flat().filter((v) => v != null));
  const highest = Math.max(seen, ...data.courses.flatMap((c) => c.upper).filter((v) => v != null));
  const top = Math.max(Math.min(highest, 1.5 * seen), 1e-9) * 1.04;
  data.courses.forEach((c, i) => make(document.getElementById("course" + i), "What came against the forecasts of " + c.name, {
    tzDate: (ts) => uPlot.tzDate(new Date(ts * 1000), "Etc/UTC"),
    series: [
      { value: (u, v) => (v == null ? "" : new Date(v * 1000).toISOString().slice(0, 16).replace("T", " ")) },
      { label: "band of 90 %", stroke: "transparent", fill: colour(c.name) + "38", width: 0, points: { show: false }, value: (u, v, s, k) => (k == null || v == null ? "" : compact.format(c.lower[k]) + " – " + compact.format(v)) },
      { label: "lower", class: "hidden", stroke: "transparent", width: 0, points: { show: false }, value: () => "" },
      { label: "came", class: "line", stroke: css("capacity"), width: 1.4, points: { show: false }, value: value("") },
      { label: "forecast", class: "line", stroke: colour(c.name), width: 1.8, points: { show: false }, value: value("") },
    ],
    bands: [{ series: [1, 2], fill: colour(c.name) + "38" }],
    axes: [{ ...axis(), values: clock, space: 80 }, { ...axis(), values: figures, size: 58 }],
    scales: { x: { time: true }, y: { range: () => [0, top] } },
    cursor: { sync: { key: "kale", scales: ["x", null] }, y: false, points: { size: 6 }, drag: { x: true, y: false } },
  }, [data.t, c.upper, c.lower, data.came, c.mean]));

  const chips = document.getElementById("chips");
  names.forEach((name) => {
    const b = document.createElement("button");
    b.type = "button";
    b.textContent = name;
    b.style.setProperty("--chip", colour(name));
    b.setAttribute("aria-pressed", true);
    b.addEventListener("click", () => {
      const show = b.getAttribute("aria-pressed") !== "true";
      b.setAttribute("aria-pressed", show);
      const line = data.errors.findIndex((l) => l.name === name), course = data.courses.findIndex((c) => c.name === name);
      if (line >= 0) for (const u of errors) u.setSeries(1 + line, { show });
      if (course >= 0) document.getElementById("figure" + course).hidden = !show;
      resize();
    });
    chips.append(b);
  });

  // Width follows the window; colours follow the theme.
  const resize = () => {
    for (const { u, box, height, fit } of charts) {
      if (box.clientWidth > 0 && box.clientWidth !== u.width) u.setSize({ width: box.clientWidth, height });
      fit();
    }
  };
  window.addEventListener("resize", resize);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { for (const { u } of charts) u.redraw(); });
})();
