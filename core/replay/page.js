"use strict";
// Draws the comparison, of a job or of a fleet, from the JSON in #data, with uPlot: the charts that the page has a place for. All share the time axis, the cursor, the zoom, and the policies that are drawn.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  if (!data.lines.length) return;
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const dark = window.matchMedia("(prefers-color-scheme: dark)").matches;
  // Okabe and Ito's colours, which most eyes tell apart, and four more.
  const colours = [dark ? "#9aa5b1" : "#59636e", "#0072b2", "#d55e00", "#cc79a7", "#e69f00", "#56b4e9", "#8a4fa0", "#7a8b00", "#a0522d", "#c2185b", "#00838f", "#546e7a", "#ef6c00"];
  const ours = data.lines.findIndex((l) => l.name.startsWith("cost"));
  const of = data.lines.map((l) => (l.parts === undefined ? l.name : l.name.replace(/,[^,]*$/, ""))); // a fleet's policy has one colour, on one pool and in parts
  const names = [...new Set(of)];
  const colour = (i) => (ours >= 0 && of[i] === of[ours] ? "#009e73" : colours[names.indexOf(of[i]) % colours.length]);
  const utc = (ts) => uPlot.tzDate(new Date(ts * 1000), "Etc/UTC");
  const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
  const font = "12px system-ui, -apple-system, 'Segoe UI', Roboto, Arial, sans-serif";
  const axis = () => ({ stroke: css("soft"), font, grid: { stroke: css("grid"), width: 1 }, ticks: { stroke: css("line"), width: 1, size: 4 } });
  const lag = (u, v) => v.map((s) => (s < 120 ? s + " s" : s < 7200 ? Math.round(s / 6) / 10 + " min" : Math.round(s / 360) / 10 + " h"));
  const number = (u, v) => v.map((x) => compact.format(x));
  const clock = [
    [3600 * 24 * 28, "{MMM}", "\n{YYYY}", null, null, null, null, null, 1],
    [3600 * 24, "{D} {MMM}", "\n{YYYY}", null, null, null, null, null, 1],
    [60, "{HH}:{mm}", "\n{D} {MMM} {YYYY}", null, "\n{D} {MMM}", null, null, null, 1],
    [1, "{HH}:{mm}:{ss}", "\n{D} {MMM} {YYYY}", null, "\n{D} {MMM}", null, null, null, 1],
  ];
  const stepped = uPlot.paths.stepped({ align: -1 });
  const shown = data.lines.map((l) => l.shown);
  const charts = [];

  const make = (id, field, more) => {
    const box = document.getElementById(id);
    if (!box) return;
    box.setAttribute("role", "img");
    const height = box.classList.contains("tall") ? 320 : 220;
    const first = more.area ? [{ stroke: css("arrivals"), fill: css("busyfill"), width: 1, points: { show: false } }] : [];
    const series = data.lines.map((l, i) => ({ label: l.name, stroke: colour(i), width: i === ours ? 2.2 : 1.5, show: shown[i], dash: l.parts ? [6, 4] : undefined, paths: more.stepped ? stepped : undefined, points: { show: false } }));
    const u = new uPlot({
      width: box.clientWidth, height, tzDate: utc, legend: { show: false }, padding: [8, 24, 0, 0],
      series: [{}, ...first, ...series],
      axes: [{ ...axis(), values: clock, space: 80 }, { ...axis(), values: more.values || number, incrs: more.incrs, size: 58 }],
      scales: { x: { time: true }, y: { range: (u, min, max) => [0, Math.max(max || 0, more.least || 0, 1e-9) * 1.06] } },
      cursor: { sync: { key: "kale", scales: ["x", null] }, y: false, points: { size: 6 }, drag: { x: true, y: false } },
      hooks: { draw: more.level == null ? [] : [(u) => {
        const y = u.valToPos(more.level, "y", true), c = u.ctx;
        if (y < u.bbox.top) return;
        c.save();
        c.strokeStyle = css("bad");
        c.setLineDash([6 * uPlot.pxRatio, 4 * uPlot.pxRatio]);
        c.beginPath();
        c.moveTo(u.bbox.left, y);
        c.lineTo(u.bbox.left + u.bbox.width, y);
        c.stroke();
        c.restore();
      }] },
    }, [data.t, ...(more.area ? [more.area] : []), ...data.lines.map((l) => l[field])], box);
    box.style.height = height + "px";
    charts.push({ u, box, height, offset: 1 + first.length });
  };
  make("capacity", "capacity", { area: data.rate, stepped: true });
  make("held", "held", data.gpus ? { area: data.need, stepped: true, level: data.gpus, least: data.gpus } : { stepped: true });
  make("jobs_over", "jobs_over", { least: 1 });
  make("lag", "lag", { values: lag, incrs: [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 36000], level: data.max_lag, least: data.max_lag * 0.5 });
  for (const id of ["over", "lag_sum", "downtime", "gpu_hours", "cost"]) make(id, id, { least: 1 });

  const chips = document.getElementById("chips");
  data.lines.forEach((l, i) => {
    const b = document.createElement("button");
    b.type = "button";
    b.textContent = l.name;
    b.style.setProperty("--chip", colour(i));
    b.setAttribute("aria-pressed", shown[i]);
    b.addEventListener("click", () => {
      shown[i] = !shown[i];
      b.setAttribute("aria-pressed", shown[i]);
      for (const c of charts) c.u.setSeries(c.offset + i, { show: shown[i] });
    });
    chips.append(b);
  });
  window.addEventListener("resize", () => { for (const c of charts) c.u.setSize({ width: c.box.clientWidth, height: c.height }); });
})();
