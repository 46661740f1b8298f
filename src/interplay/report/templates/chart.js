// Draws figures from their data (draw/figures.py), in the place of the static picture: values under the pointer and at the arrow keys,
// arms that can be hidden, linear and logarithmic axes, and what is shown as PNG, SVG or CSV. `drawChart(host, chart, name)`.
const SVG = "http://www.w3.org/2000/svg";
const MARKERS = {
  o: "M-3.4 0a3.4 3.4 0 1 0 6.8 0a3.4 3.4 0 1 0-6.8 0", s: "M-3-3h6v6h-6z", "^": "M0-4L4 3.4H-4z", v: "M0 4L4-3.4H-4z", D: "M0-4.2L4.2 0 0 4.2-4.2 0z",
  P: "M-1.4-4h2.8v2.6H4v2.8H1.4V4h-2.8V1.4H-4v-2.8h2.6z", X: "M-4-2.4L-2.4-4 0-1.6 2.4-4 4-2.4 1.6 0 4 2.4 2.4 4 0 1.6-2.4 4-4 2.4-1.6 0z",
  "*": "M0-5L1.3-1.6 5-1.5 2.1.8 3.1 4.4 0 2.3-3.1 4.4-2.1.8-5-1.5-1.3-1.6z",
};
const INK = "#1b2026";

function make(parent, tag, given, text) {
  const made = document.createElementNS(parent.namespaceURI === SVG || tag === "svg" ? SVG : parent.namespaceURI, tag);
  for (const [key, value] of Object.entries(given || {})) if (value !== null && value !== undefined) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

// Numbers and axes.

function shown(number) {
  if (number === null || number === undefined) return "–";
  const size = Math.abs(number);
  const text = size && (size < 1e-3 || size >= 1e6) ? number.toExponential(1) : String(+number.toPrecision(size >= 100 ? 4 : 3));
  return text.replace("-", "−");
}

function niceTicks(low, high, count, log) {
  const found = [];
  if (log) {
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++)
      for (const digit of Math.log10(high / low) > 2.5 ? [1] : [1, 2, 5]) found.push(digit * 10 ** power);
    return found.filter((tick) => tick >= low * 0.999 && tick <= high * 1.001);
  }
  const rough = (high - low) / Math.max(count, 1);
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * ([1, 2, 5, 10].find((factor) => factor * unit >= rough) || 10);
  for (let tick = Math.ceil(low / step - 1e-9) * step; tick <= high + 1e-9 * step; tick += step) found.push(+tick.toPrecision(12));
  return found;
}

// A scale from an axis of the data to pixels. An axis whose scale was changed takes its limits from the values that are shown.
function scaleOf(axis, log, values, from, to) {
  let [low, high] = axis.limits;
  if (log !== axis.log) {
    const known = values.filter((value) => value !== null && (!log || value > 0));
    [low, high] = known.length ? [Math.min(...known), Math.max(...known)] : [1, 10];
    if (log) [low, high] = [low / 1.25, high * 1.25];
    else [low, high] = [Math.min(0, low), high + (high - low) * 0.04 || 1];
  }
  const at = (number) => (log ? Math.log(number) : number);
  const place = (number) => from + ((at(number) - at(low)) / (at(high) - at(low))) * (to - from);
  const ticks = axis.ticks ? axis.ticks : niceTicks(Math.min(low, high), Math.max(low, high), Math.abs(to - from) / 55, log).map((tick) => [tick, shown(tick)]);
  return { place, ticks, inside: (number) => number !== null && (!log || number > 0), floor: log ? low : Math.max(Math.min(low, high), 0) };
}

// What can be pointed at in a panel: places on the x axis (rows of bars that lie on their side), each with a value of every arm.
function stopsOf(panel, hidden) {
  const stops = new Map();
  const level = panel.bars.some((bar) => bar.level);
  const axis = level ? panel.y : panel.x;
  const add = (at, row) => {
    const tick = axis.ticks && axis.ticks.reduce((best, one) => (Math.abs(one[0] - at) < Math.abs(best[0] - at) ? one : best));
    const near = tick && (axis.names || tick[0] === at);
    const key = near ? tick[0] : at;
    if (!stops.has(key)) stops.set(key, { at: key, level, label: near ? tick[1].replace("\n", " ") : shown(at), rows: [] });
    stops.get(key).rows.push(row);
  };
  for (const line of panel.lines.filter((line) => line.name && !hidden.has(line.name)))
    for (const [x, y, low, high] of line.points) if (y !== null) add(x, { name: line.name, color: line.color, value: y, low, high });
  for (const bar of panel.bars.filter((bar) => !hidden.has(bar.name)))
    bar.boxes.forEach(([left, bottom, width, height], number) => {
      const [low, high] = bar.ends[number];
      if (height === null || width === null) return;
      if (bar.level) add(bottom + height / 2, { name: bar.name, color: bar.color, value: width, low, high });
      else add(left + width / 2, { name: bar.name, color: bar.color, value: height, low, high });
    });
  for (const cell of panel.cells)
    add(cell.at[0], { name: panel.y.ticks ? panel.y.ticks[cell.at[1]][1].replace("\n", " ") : String(cell.at[1]), color: cell.color, value: cell.value, low: null, high: null });
  return [...stops.values()].sort((one, other) => one.at - other.at);
}

function rowText(row) {
  return `${shown(row.value)}${row.low === null ? "" : ` [${shown(row.low)}, ${shown(row.high)}]`}`;
}

// Saving what is shown.

function save(name, ending, content) {
  const link = document.createElement("a");
  link.download = `${name}.${ending}`;
  link.href = content instanceof Blob ? URL.createObjectURL(content) : content;
  link.click();
}

function csvOf(chart, hidden) {
  const quoted = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const lines = ["panel,series,x,y,low,high"];
  for (const panel of chart.panels)
    for (const stop of stopsOf(panel, hidden))
      for (const row of stop.rows)
        lines.push([panel.title, row.name, stop.label.replace("−", "-"), row.value, row.low, row.high].map((item) => quoted(String(item ?? ""))).join(","));
  return new Blob([lines.join("\n") + "\n"], { type: "text/csv" });
}

// The picture with its legend above it, on white.
function pictureOf(svg, series) {
  const width = +svg.getAttribute("width"), copy = svg.cloneNode(true);
  copy.querySelectorAll(".guide").forEach((part) => part.remove());
  const whole = document.createElementNS(SVG, "svg");
  let x = 8, y = 18;
  for (const one of series) {
    const room = 40 + 7.2 * one.name.length;
    if (x + room > width && x > 8) [x, y] = [8, y + 20];
    swatch(make(whole, "g", { transform: `translate(${x},${y - 12})` }), one);
    make(whole, "text", { x: x + 28, y: y - 1, "font-size": 12, fill: INK }, one.name);
    x += room;
  }
  const top = series.length ? y + 10 : 0, height = +svg.getAttribute("height") + top;
  for (const [key, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}`, "font-family": "system-ui, DejaVu Sans, sans-serif", color: INK })) whole.setAttribute(key, value);
  whole.prepend(make(whole, "rect", { width, height, fill: "#fff" }));
  copy.setAttribute("y", top);
  whole.append(copy);
  return new Blob([new XMLSerializer().serializeToString(whole)], { type: "image/svg+xml" });
}

async function pngOf(blob, scale) {
  const image = new Image();
  image.src = URL.createObjectURL(blob);
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [image.width * scale, image.height * scale];
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

// Drawing.

function hatchOf(svg, one) {
  if (!one.hatch) return one.color;
  const id = `hatch${one.color.slice(1)}${one.hatch.charCodeAt(0)}${one.hatch.length}`;
  if (!svg.querySelector(`#${id}`)) {
    const pattern = make(svg, "pattern", { id, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: { "/": "rotate(45)", "\\": "rotate(-45)" }[one.hatch[0]] });
    make(pattern, "rect", { width: 6, height: 6, fill: one.color });
    if (one.hatch[0] === ".") make(pattern, "circle", { cx: 3, cy: 3, r: 1.3, fill: "#fff" });
    else make(pattern, "rect", { width: 1.6, height: 6, fill: "#fff" });
  }
  return `url(#${id})`;
}

function swatch(parent, one) {
  const ink = { stroke: one.color, style: `--c:${one.color}`, class: "ink-line" };
  if (one.boxes) return make(parent, "rect", { x: 5, y: 2, width: 12, height: 12, ...(one.hatch ? { fill: hatchOf(parent, one) } : { fill: one.color, style: ink.style, class: "ink-area" }) });
  make(parent, "line", { x1: 0, x2: 22, y1: 8, y2: 8, "stroke-width": 2.2, "stroke-dasharray": one.dash || null, ...ink });
  if (MARKERS[one.marker]) make(parent, "path", { d: MARKERS[one.marker], transform: "translate(11,8)", fill: one.color, style: ink.style, class: "ink-area" });
}

// Names above a panel: a name that would overlap another, or the label of the y axis, is raised to the next row with room for it.
const ROW = 14;
function rowsOf(panel, x, left) {
  const ends = [Math.max(left - 38, 0) + 6.2 * panel.y.label.length];
  return panel.marks.map(([at, text]) => {
    const middle = x.place(at), half = 3.6 * text.length, free = ends.findIndex((end) => end + 4 < middle - half), row = free < 0 ? ends.length : free;
    ends[row] = middle + half;
    return row;
  });
}

function drawAxes(group, panel, x, y, box) {
  const grey = { stroke: "currentColor", "stroke-opacity": 0.16 };
  const raised = rowsOf(panel, x, box.left);
  let last = -Infinity;
  if (panel.title) make(group, "text", { x: box.left, y: box.top - 24 - ROW * Math.max(0, ...raised), "font-size": 13, "font-weight": 650, fill: "currentColor" }, panel.title);
  make(group, "text", { x: Math.max(box.left - 38, 0), y: box.top - 8, "font-size": 11, fill: "currentColor", opacity: 0.75 }, panel.y.label);
  for (const [at, text] of y.ticks) {
    const place = y.place(at);
    if (!(place >= box.top - 1 && place <= box.bottom + 1)) continue;
    if (!panel.cells.length && !panel.y.names) make(group, "line", { x1: box.left, x2: box.right, y1: place, y2: place, ...grey });
    text.split("\n").forEach((line, number, all) => make(group, "text", { x: box.left - 6, y: place + 4 + 12 * (number - (all.length - 1) / 2), "font-size": 11, "text-anchor": "end", fill: "currentColor" }, line));
  }
  for (const [at, text] of x.ticks) {
    const place = x.place(at), half = 3.4 * text.length;
    if (!(place >= box.left - 1 && place <= box.right + 1)) continue;
    make(group, "line", { x1: place, x2: place, y1: box.bottom, y2: box.bottom + 4, ...grey });
    if (place - half < last + 5) continue;
    make(group, "text", { x: place, y: box.bottom + 17, "font-size": 11, "text-anchor": "middle", fill: "currentColor" }, text);
    last = place + half;
  }
  make(group, "line", { x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom, stroke: "currentColor", "stroke-opacity": 0.5 });
  make(group, "text", { x: (box.left + box.right) / 2, y: box.bottom + 34, "font-size": 11, "text-anchor": "middle", fill: "currentColor", opacity: 0.75 }, panel.x.label);
  panel.marks.forEach(([at, text], number) => make(group, "text", { x: x.place(at), y: box.top - 8 - ROW * raised[number], "font-size": 11, "font-weight": 650, "text-anchor": "middle", fill: "currentColor", opacity: 0.75 }, text));
}

function drawLine(group, line, x, y, names) {
  const of = make(group, "g", { "data-name": line.name });
  const known = line.points.filter(([at, value]) => x.inside(at) && y.inside(value));
  const path = (pairs) => pairs.map(([at, value], number) => `${number ? "L" : "M"}${x.place(at).toFixed(1)} ${y.place(value).toFixed(1)}`).join("");
  const ink = { style: `--c:${line.color}`, class: "ink-line", stroke: line.color, fill: "none" };
  const ends = known.filter((point) => point[2] !== null).map(([at, , low, high]) => [at, y.inside(low) ? low : y.floor, high]);
  if (names || ends.length === 1) for (const [at, low, high] of ends) make(of, "line", { x1: x.place(at), x2: x.place(at), y1: y.place(low), y2: y.place(high), "stroke-width": 1.2, "stroke-opacity": 0.7, ...ink });
  else if (ends.length) make(of, "path", { d: `${path(ends.map(([at, , high]) => [at, high]))}${path(ends.map(([at, low]) => [at, low]).reverse()).replace("M", "L")}Z`, fill: line.color, "fill-opacity": 0.14, style: ink.style, class: "ink-area" });
  const pairsOf = (thin) => thin.map((one, number) => (Array.isArray(one) ? one : [line.points[number][0], one]));
  for (const thin of line.thin) make(of, "path", { d: path(pairsOf(thin).filter(([at, value]) => x.inside(at) && y.inside(value))), "stroke-width": 0.8, "stroke-opacity": 0.45, ...ink });
  make(of, "path", { d: path(known), "stroke-width": 2.1, "stroke-dasharray": line.dash || null, "stroke-linejoin": "round", ...ink });
  if (MARKERS[line.marker]) for (const [at, value] of known) make(of, "path", { d: MARKERS[line.marker], transform: `translate(${x.place(at).toFixed(1)},${y.place(value).toFixed(1)})`, fill: line.color, style: ink.style, class: "ink-area" });
}

function drawBars(svg, group, bar, x, y) {
  const of = make(group, "g", { "data-name": bar.name });
  bar.boxes.forEach(([left, bottom, width, height], number) => {
    if (left === null || height === null || width === null) return;
    const [x1, x2] = [x.place(left), x.place(left + width)].sort((a, b) => a - b);
    const [y1, y2] = (bar.level ? [bottom, bottom + height] : [Math.max(bottom, y.floor), Math.max(bottom + height, y.floor)]).map(y.place).sort((a, b) => a - b);
    make(of, "rect", { x: x1, y: y1, width: Math.max(x2 - x1, 0), height: y2 - y1, ...(bar.hatch ? { fill: hatchOf(svg, bar) } : { fill: bar.color, style: `--c:${bar.color}`, class: "ink-area" }), stroke: bar.level ? "#fff" : null, "stroke-width": 0.5 });
    const [low, high] = bar.ends[number], middle = (x1 + x2) / 2;
    if (low !== null) make(of, "line", { x1: middle, x2: middle, y1: y.place(Math.max(low, y.floor)), y2: y.place(Math.max(high, y.floor)), stroke: "currentColor", "stroke-width": 1.3 });
  });
}

function drawCells(group, panel, x, y) {
  const wide = Math.abs(x.place(1) - x.place(0)), high = Math.abs(y.place(1) - y.place(0));
  for (const { at, value, color, bold } of panel.cells) {
    if (color === null) continue;
    const [red, green, blue] = [1, 3, 5].map((place) => parseInt(color.slice(place, place + 2), 16));
    make(group, "rect", { x: x.place(at[0]) - wide / 2, y: y.place(at[1]) - high / 2, width: wide, height: high, fill: color });
    if (wide > 30) make(group, "text", { x: x.place(at[0]), y: y.place(at[1]) + 4, "font-size": 11, "font-weight": bold ? 700 : 400, "text-anchor": "middle", fill: 0.299 * red + 0.587 * green + 0.114 * blue < 140 ? "#fff" : INK }, shown(value));
  }
}

// One figure.

function drawChart(host, chart, name) {
  const all = chart.panels.flatMap((panel) => [...panel.lines, ...panel.bars]).filter((one) => one.name);
  const series = [...new Map(all.map((one) => [one.name, one])).values()];
  const hidden = new Set(), logs = { x: chart.panels[0].x.log, y: chart.panels[0].y.log };
  let svg, places = [], at = -1;
  const root = document.createElement("div");
  root.className = "chart";
  host.insertBefore(root, host.querySelector("figcaption"));
  const legend = make(root, "div", { class: "legend", role: "group", "aria-label": "arms: show or hide" });
  const room = make(root, "div", { class: "room" });
  const tip = make(root, "div", { class: "tip", role: "status", hidden: "" });
  const tools = make(root, "div", { class: "tools" });

  const keys = series.map((one) => {
    const key = make(legend, "button", { type: "button", "aria-pressed": "true", title: "click: hide or show; double click: this one alone" });
    swatch(make(key, "svg", { width: 22, height: 16, "aria-hidden": "true" }), one);
    key.append(one.name);
    key.addEventListener("click", () => (hidden.delete(one.name) || hidden.add(one.name), draw()));
    key.addEventListener("dblclick", () => (series.forEach((other) => (other === one ? hidden.delete(other.name) : hidden.add(other.name))), draw()));
    for (const [event, on] of [["mouseenter", true], ["focus", true], ["mouseleave", false], ["blur", false]]) key.addEventListener(event, () => highlight(on && one.name));
    return [key, one];
  });
  if (series.length > 3) make(legend, "button", { type: "button", class: "all" }, "all").addEventListener("click", () => (hidden.clear(), draw()));

  const highlight = (chosen) => svg.querySelectorAll("[data-name]").forEach((part) => (part.style.opacity = chosen && part.dataset.name !== chosen ? 0.15 : ""));

  for (const axis of ["x", "y"]) {
    const values = chart.panels.flatMap((panel) => numbersOf(panel, axis));
    const fits = chart.panels.every((panel) => !panel[axis].names && !panel.cells.length && !panel.bars.some((bar) => bar.level || axis === "x")) && values.some((value) => value > 0);
    if (!fits) continue;
    const button = make(tools, "button", { type: "button", "aria-pressed": String(logs[axis]) }, `log ${axis}`);
    button.addEventListener("click", () => (button.setAttribute("aria-pressed", String((logs[axis] = !logs[axis]))), draw()));
  }
  make(tools, "span", { class: "grow" });
  const visible = () => series.filter((one) => !hidden.has(one.name));
  for (const [ending, get] of [["PNG", () => pngOf(pictureOf(svg, visible()), 3)], ["SVG", async () => pictureOf(svg, visible())], ["CSV", async () => csvOf(chart, hidden)]])
    make(tools, "button", { type: "button", "aria-label": `save ${name} as ${ending}` }, ending).addEventListener("click", async () => save(name, ending.toLowerCase(), await get()));
  const pdf = host.querySelector("a.pdf");
  if (pdf) tools.append(pdf);

  function numbersOf(panel, axis) {
    const of = axis === "x" ? [0] : [1, 2, 3];
    return [...panel.lines.filter((line) => !hidden.has(line.name)).flatMap((line) => line.points.flatMap((point) => of.map((place) => point[place]))), ...panel.bars.filter((bar) => !hidden.has(bar.name)).flatMap((bar) => bar.boxes.map((box) => box[axis === "x" ? 0 : 3]))].filter((value) => value !== null);
  }

  function draw() {
    const width = Math.max(room.clientWidth, 240), level = chart.panels.some((panel) => panel.y.names);
    const across = Math.max(1, Math.min(chart.panels.length, 4, Math.floor(width / (level ? 300 : 210))));
    const wide = width / across, rows = Math.ceil(chart.panels.length / across);
    const longest = Math.max(...chart.panels.flatMap((panel) => (panel.y.ticks || []).flatMap(([, text]) => text.split("\n").map((line) => line.length))), 0);
    const left = level ? Math.min(6.6 * longest + 14, wide * 0.45) : 44;
    const scaleX = (panel, column) => scaleOf(panel.x, panel.x.names ? false : logs.x, numbersOf(panel, "x"), column * wide + left, (column + 1) * wide - 12);
    const raised = Math.max(0, ...chart.panels.flatMap((panel, number) => rowsOf(panel, scaleX(panel, number % across), (number % across) * wide + left)));
    const top = (chart.panels.some((panel) => panel.title) ? 44 : 26) + ROW * raised;
    const height = top + 46 + (level ? 30 * Math.max(...chart.panels.map((panel) => (panel.y.ticks || []).length)) : Math.max(190, Math.min(0.58 * wide, 320)));
    keys.forEach(([key, one]) => key.setAttribute("aria-pressed", String(!hidden.has(one.name))));
    room.replaceChildren();
    svg = make(room, "svg", { width, height: rows * height, viewBox: `0 0 ${width} ${rows * height}`, role: "img", tabindex: 0, "aria-label": `${host.dataset.title || name}. Arrow keys read the values.` });
    places = [];
    chart.panels.forEach((panel, number) => {
      const [column, row] = [number % across, Math.floor(number / across)];
      const box = { left: column * wide + left, right: (column + 1) * wide - 12, top: row * height + top, bottom: (row + 1) * height - 46 };
      const group = make(svg, "g");
      const x = scaleX(panel, column);
      const y = scaleOf(panel.y, panel.y.names ? false : logs.y, numbersOf(panel, "y"), box.bottom, box.top);
      drawCells(group, panel, x, y);
      drawAxes(group, panel, x, y, box);
      for (const bar of panel.bars) if (!hidden.has(bar.name)) drawBars(svg, group, bar, x, y);
      for (const line of panel.lines) if (!hidden.has(line.name)) drawLine(group, line, x, y, panel.x.names);
      for (const stop of stopsOf(panel, hidden)) {
        const place = (stop.level ? y : x).place(stop.at);
        if (Number.isFinite(place)) places.push({ ...stop, panel, box, place });
      }
    });
    svg.addEventListener("pointermove", (event) => {
      const seen = svg.getBoundingClientRect(), [px, py] = [event.clientX - seen.left, event.clientY - seen.top];
      let best = -1, least = Infinity;
      places.forEach((one, number) => {
        if (px < one.box.left - 20 || px > one.box.right + 12 || py < one.box.top - 30 || py > one.box.bottom + 40) return;
        const away = Math.abs(one.place - (one.level ? py : px));
        if (away < least) [best, least] = [number, away];
      });
      point(best);
    });
    svg.addEventListener("pointerleave", () => point(-1));
    svg.addEventListener("blur", () => point(-1));
    svg.addEventListener("keydown", (event) => {
      const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (event.key === "Escape") point(-1);
      else if (by && places.length) event.preventDefault(), point(at < 0 && by < 0 ? places.length - 1 : (at + by + places.length) % places.length);
    });
    point(-1);
  }

  function point(number) {
    at = number;
    svg.querySelectorAll(".guide").forEach((part) => part.remove());
    tip.hidden = number < 0;
    if (number < 0) return;
    const { box, place, level, rows, label, panel } = places[number];
    const ends = level ? { x1: box.left, x2: box.right, y1: place, y2: place } : { x1: place, x2: place, y1: box.top, y2: box.bottom };
    make(svg, "line", { ...ends, class: "guide", stroke: "currentColor", "stroke-opacity": 0.45, "stroke-dasharray": "3 3", "pointer-events": "none" });
    tip.replaceChildren();
    make(tip, "b", {}, [panel.title, level ? label : `${panel.x.label.replace(/ \(.*/, "")} ${label}`].filter(Boolean).join(", "));
    for (const row of [...rows].sort((one, other) => (level || panel.cells.length ? 0 : other.value - one.value))) {
      const line = make(tip, "div");
      make(line, "i", { style: `background:${row.color}` });
      line.append(`${row.name} `);
      make(line, "span", {}, rowText(row));
    }
    const middle = level ? (box.left + box.right) / 2 : place, left = middle + 14 + tip.offsetWidth > root.clientWidth ? middle - 14 - tip.offsetWidth : middle + 14;
    tip.style.left = `${Math.max(0, Math.min(left, root.clientWidth - tip.offsetWidth))}px`;
    tip.style.top = `${room.offsetTop + (level ? place + 12 : box.top)}px`;
  }

  let width = 0;
  new ResizeObserver(() => {
    if (Math.abs(room.clientWidth - width) > 1) (width = room.clientWidth), draw();
  }).observe(room);
  draw();
  return { draw };
}

for (const host of document.querySelectorAll("figure[data-figure]")) {
  const data = host.querySelector("script.chart");
  if (!data) continue;
  drawChart(host, JSON.parse(data.textContent), host.dataset.figure);
  host.querySelector(".sheet").hidden = true;
}
