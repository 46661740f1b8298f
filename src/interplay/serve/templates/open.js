// The live parts of `interplay open`. Everything from the server is put in as text, never as HTML.
"use strict";
const main = document.querySelector("main"), given = main.dataset;
const PALETTE = ["#777777", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F3C8D"];
const SVG = "http://www.w3.org/2000/svg";

function el(name, props = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(props)) key in made ? made[key] = value : made.setAttribute(key, value);
  made.append(...children.filter(child => child !== null && child !== undefined));
  return made;
}
function svg(name, props, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(props)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
const query = values => new URLSearchParams(Object.entries(values).filter(([, value]) => value !== null && value !== undefined && value !== "")).toString();
async function ask(path, values = {}) {
  const answer = await fetch(`${path}?${query(values)}`);
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error);
  return found;
}
function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  const minutes = Math.round(seconds / 60);
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (minutes < 90) return `${minutes} min`;
  return minutes < 2880 ? `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min` : `${Math.floor(minutes / 1440)} d`;
}
const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;
const studyLink = (study, scale) => `/study?${query({study, scale})}`;
const chip = state => el("span", {className: `chip ${state}`}, state);

// Repeats a view while the page is seen; slower where nothing runs. An error stays on the page and the next round tries again.
function live(round) {
  const pulse = document.getElementById("pulse");
  async function once() {
    let running = false;
    if (!document.hidden) {
      try {
        running = await round();
        pulse.textContent = `${running ? "live" : "up to date"} ${new Date().toTimeString().slice(0, 8)}`;
        pulse.className = running ? "on" : "";
      } catch (error) {
        pulse.textContent = error instanceof TypeError ? "no answer: is `interplay open` still running?" : error.message;
        pulse.className = "off";
      }
    }
    setTimeout(once, running ? 2000 : 8000);
  }
  once();
  document.addEventListener("visibilitychange", () => document.hidden || round().catch(() => {}));
}

// A choice among names, kept in the address of the page.
const place = new URL(location.href);
const chosen = (name, otherwise = "") => place.searchParams.get(name) ?? otherwise;
function choose(name, value) {
  value === "" ? place.searchParams.delete(name) : place.searchParams.set(name, value);
  history.replaceState(null, "", place);
}
function select(name, label, options, value, changed) {
  const box = el("select", {ariaLabel: label}, ...options.map(option => Array.isArray(option) ? option : [option, option]).map(([key, said]) => el("option", {value: key, selected: key === value}, said)));
  box.addEventListener("change", () => { choose(name, box.value); changed(); });
  return el("label", {}, `${label} `, box);
}

// ---- curves

const hidden = new Set();
let logarithmic = false;
function ticks(low, high, count, whole = false) {
  if (!(high > low)) return [low];
  const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map(m => m * power).find(size => size >= raw && (!whole || Number.isInteger(size))) ?? 1;
  const found = [];
  for (let at = Math.ceil(low / step); at * step <= high + step * 1e-9; at++) found.push(at * step);
  return found;
}
const short = value => Math.abs(value) >= 1e4 || (value && Math.abs(value) < 1e-3) ? value.toExponential(1) : String(+value.toPrecision(3));
const armName = one => given.view === "compare" ? `${one.study}/${one.arm}` : one.arm;

function meanOf(series) {
  const sums = new Map();
  for (const one of series) one.x.forEach((x, at) => { const known = sums.get(x) ?? [0, 0]; sums.set(x, [known[0] + one.y[at], known[1] + 1]); });
  const pairs = [...sums].filter(([, [, count]]) => count === series.length).sort((a, b) => a[0] - b[0]);
  return {x: pairs.map(([x]) => x), y: pairs.map(([, [sum, count]]) => sum / count)};
}

function colourAt(place) {  // as in the figures (palette_color): after the last colour the first again, darker, then lighter
  const round = Math.floor(place / PALETTE.length), kept = Math.round(100 * 0.62 ** Math.ceil(round / 2));
  const own = PALETTE[place % PALETTE.length];
  return round ? `color-mix(in srgb, ${own} ${kept}%, ${round % 2 ? "black" : "white"})` : own;
}

function draw(box, found) {
  const names = [...new Set(found.series.filter(one => one.x.length).map(armName))], colour = name => colourAt(given.view === "compare" ? names.indexOf(name) + 1 : found.arms.indexOf(name));
  const shown = found.series.filter(one => !hidden.has(armName(one)) && one.x.length);
  const width = Math.max(280, box.clientWidth), height = width < 500 ? 260 : 340, left = 52, right = 12, top = 26, bottom = 38;
  const usable = y => !logarithmic || y > 0;
  const xs = shown.flatMap(one => one.x), ys = shown.flatMap(one => one.y).filter(usable);
  const legend = el("div", {className: "legend"}, ...names.map(name => {
    const count = found.series.filter(one => armName(one) === name).length;
    const item = el("button", {type: "button", className: hidden.has(name) ? "off" : "", title: "show or hide", ariaPressed: String(!hidden.has(name))}, el("i"), name, count > 1 ? el("small", {}, ` mean of ${count}`) : null);
    item.firstChild.style.background = colour(name);
    item.addEventListener("click", () => { hidden.has(name) ? hidden.delete(name) : hidden.add(name); draw(box, found); });
    return item;
  }));
  if (!ys.length) {
    box.replaceChildren(legend, el("p", {className: "soft"}, found.series.length ? "No value to draw." : "No stage has logged a curve yet."));
    return;
  }
  const scale = logarithmic ? Math.log10 : y => y;
  let [x0, x1] = [Math.min(...xs), Math.max(...xs)], [y0, y1] = [Math.min(...ys.map(scale)), Math.max(...ys.map(scale))];
  if (x0 === x1) [x0, x1] = [x0 - 1, x1 + 1];
  const pad = (y1 - y0 || Math.abs(y1) || 1) * 0.06;
  [y0, y1] = [y0 - pad, y1 + pad];
  const px = x => left + (x - x0) / (x1 - x0) * (width - left - right), py = y => height - bottom - (scale(y) - y0) / (y1 - y0) * (height - top - bottom);
  const marks = logarithmic ? ticks(y0, y1, 4).map(at => 10 ** at) : ticks(y0, y1, 5);
  const picture = svg("svg", {viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `${found.metric} of ${names.join(", ")} by step`});
  for (const mark of marks) picture.append(svg("line", {class: "grid", x1: left, x2: width - right, y1: py(mark), y2: py(mark)}), svg("text", {x: left - 7, y: py(mark) + 4, "text-anchor": "end"}, short(mark)));
  for (const mark of ticks(x0, x1, width < 500 ? 4 : 8, true)) picture.append(svg("text", {x: px(mark), y: height - bottom + 18, "text-anchor": "middle"}, short(mark)));
  picture.append(svg("text", {x: width - right, y: height - 4, "text-anchor": "end"}, "step"), svg("text", {x: 4, y: 13}, found.metric));
  const path = (x, y) => x.map((at, n) => usable(y[n]) ? `${n ? "L" : "M"}${px(at).toFixed(1)},${py(y[n]).toFixed(1)}` : "").join("").replace(/^L/, "M");
  const means = new Map();
  for (const name of names) {
    const own = shown.filter(one => armName(one) === name);
    if (!own.length) continue;
    if (own.length > 1) for (const one of own) picture.append(svg("path", {class: "seed", d: path(one.x, one.y), stroke: colour(name)}));
    const mean = own.length > 1 ? meanOf(own) : own[0];
    means.set(name, mean);
    picture.append(svg("path", {class: "mean", d: path(mean.x, mean.y), stroke: colour(name)}));
    if (mean.x.length) picture.append(svg("circle", {cx: px(mean.x.at(-1)), cy: py(mean.y.at(-1)), r: 3.2, fill: colour(name)}));
  }
  const rule = svg("line", {class: "rule", y1: top, y2: height - bottom, x1: -9, x2: -9}), tip = el("div", {className: "tip", hidden: true});
  picture.append(rule);
  picture.addEventListener("pointermove", event => {
    const at = x0 + (event.clientX - picture.getBoundingClientRect().left - left) / (width - left - right) * (x1 - x0);
    const rows = [...means].filter(([, mean]) => mean.x.length).map(([name, mean]) => {
      const nearest = mean.x.reduce((best, x, n) => Math.abs(x - at) < Math.abs(mean.x[best] - at) ? n : best, 0);
      return [name, mean.x[nearest], mean.y[nearest]];
    });
    if (!rows.length) return;
    const step = rows.reduce((best, row) => Math.abs(row[1] - at) < Math.abs(best - at) ? row[1] : best, rows[0][1]);
    rule.setAttribute("x1", px(step)); rule.setAttribute("x2", px(step));
    tip.replaceChildren(el("b", {}, `step ${short(step)}`), ...rows.filter(row => row[1] === step).sort((a, b) => b[2] - a[2]).map(([name, , y]) => {
      const dot = el("i"); dot.style.background = colour(name);
      return el("span", {}, dot, `${name} ${short(y)}`);
    }));
    tip.hidden = false;
    const x = px(step) + 12;
    tip.style.left = `${x + tip.offsetWidth > width ? Math.max(0, px(step) - tip.offsetWidth - 12) : x}px`;
  });
  picture.addEventListener("pointerleave", () => { tip.hidden = true; rule.setAttribute("x1", -9); rule.setAttribute("x2", -9); });
  const same = found.same.length ? [el("p", {className: "soft"}, `The same curve: ${found.same.map(arms => arms.join(", ")).join("; ")}.`)] : [];  // as the captions of the figures say
  box.replaceChildren(legend, el("div", {className: "plot"}, picture, tip), ...same);
}

async function curves(values) {
  const found = await ask("/api/curves", {...values, stage: chosen("stage"), metric: chosen("metric")});
  const again = () => curves(values), box = document.getElementById("chart"), tools = document.getElementById("chooser");
  if (!tools.contains(document.activeElement)) {
    const scale = el("input", {type: "checkbox", checked: logarithmic});
    scale.addEventListener("change", () => { logarithmic = scale.checked; draw(box, found); });
    tools.replaceChildren(...(found.metrics.length ? [found.stages.length > 1 ? select("stage", "stage", found.stages, found.stage, again) : "", select("metric", "metric", found.metrics, found.metric, again), el("label", {}, scale, " log")] : []));
  }
  draw(box, found);
}

// ---- parts that several views show

function spark(values) {
  const picture = svg("svg", {class: "spark", viewBox: "0 0 90 20", width: 90, height: 20, "aria-hidden": "true"});
  if (values.length > 1) {
    const low = Math.min(...values), high = Math.max(...values);
    picture.append(svg("path", {d: values.map((y, n) => `${n ? "L" : "M"}${(2 + 86 * n / (values.length - 1)).toFixed(1)},${(17 - 14 * (high > low ? (y - low) / (high - low) : 0.5)).toFixed(1)}`).join("")}));
  }
  return picture;
}
function command(text) {
  const copy = el("button", {type: "button", className: "copy", title: "copy"}, "copy");
  copy.addEventListener("click", () => navigator.clipboard?.writeText(text).then(() => { copy.textContent = "copied"; }));
  return el("span", {className: "command"}, el("code", {}, text), copy);
}
const stageLink = row => el("a", {href: `/stage/${row.digest}?${query({study: given.study, scale: given.scale})}`}, row.name);
function halted(rows) {
  const failed = rows.filter(row => row.state === "failed" || row.state === "stopped");
  document.getElementById("halted").replaceChildren(...failed.slice(0, 8).map(row => el("div", {className: `note ${row.state}`}, el("p", {}, chip(row.state), " ", el("b", {}, given.view === "stage" ? row.address : stageLink(row))), el("p", {className: "cause"}, row.detail || "no cause is known"), row.debug ? el("p", {}, "make it again in the foreground: ", command(row.debug)) : "")), failed.length > 8 ? el("p", {className: "soft"}, `and ${failed.length - 8} more`) : "");
}
function warnings(rows) {
  const found = rows.flatMap(row => row.warnings.map(said => [row, said]));
  document.getElementById("warnings").replaceChildren(...found.slice(0, 8).map(([row, said]) => el("div", {className: "note warned"}, el("p", {}, el("span", {className: "chip warned"}, said.name), " ", el("b", {}, stageLink(row)), ` ${said.text}`))));
}

// A row for each arm, a column for each stage of its path, and a mark for each seed.
function grid(rows, order) {
  const arms = new Map(), columns = [], rest = [];
  for (const row of rows) {
    const [, arm, stage, seed] = row.label.match(/^(.+)\/([^/@]+)@(.+)$/) ?? [];
    if (arm === undefined) { rest.push(row); continue; }
    if (!columns.includes(stage)) columns.push(stage);
    if (!arms.has(arm)) arms.set(arm, new Map());
    const cells = arms.get(arm);
    cells.set(stage, [...(cells.get(stage) ?? []), [seed, row]]);
  }
  const last = {evaluate: 1, report: 2}, kindOf = stage => rows.find(row => row.label.includes(`/${stage}@`))?.kind;
  columns.sort((a, b) => (last[kindOf(a)] ?? 0) - (last[kindOf(b)] ?? 0));
  const mark = (said, row) => el("a", {className: `mark ${row.state}`, href: `/stage/${row.digest}?${query({study: given.study, scale: given.scale})}`, title: `${row.address}: ${row.state}`}, said);
  const table = el("table", {className: "grid"}, el("thead", {}, el("tr", {}, el("th", {}, "arm"), ...columns.map(name => el("th", {}, name)))), el("tbody", {}, ...[...arms].sort((a, b) => order.indexOf(a[0]) - order.indexOf(b[0])).map(([arm, cells]) => el("tr", {}, el("th", {}, arm), ...columns.map(name => el("td", {className: (cells.get(name) ?? []).length > 6 ? "many" : ""}, ...(cells.get(name) ?? []).sort((a, b) => String(a[0]).localeCompare(b[0], undefined, {numeric: true})).map(([seed, row]) => mark(seed, row))))))));
  return el("div", {}, el("div", {className: "scroll"}, table), el("p", {className: "data"}, el("span", {className: "soft"}, "data, tokenizers and report: "), ...rest.map(row => mark(row.name.replace(/^data\.|^stages\./, ""), row))));
}

// ---- views

const views = {
  index() {
    live(async () => {
      const found = await ask("/api/studies"), launched = found.filter(one => one.runs.length), running = launched.some(one => one.runs.some(run => run.running));
      const newest = one => Math.max(...one.runs.map(run => run.when + (run.running ? 1e9 : 0)));
      launched.sort((a, b) => newest(b) - newest(a));
      document.getElementById("launched").replaceChildren(...launched.map(one => el("article", {}, el("h2", {}, one.study), el("p", {className: "question"}, one.question), ...one.runs.map(run => {
        const state = run.running ? "running" : run.finished ? "done" : run.failed ? "failed" : "stopped";
        const bar = el("span", {className: `bar ${state}`}, el("i"));
        bar.firstChild.style.width = `${100 * run.done / run.total}%`;
        return el("a", {className: "run", href: studyLink(one.study, run.scale)}, el("b", {}, run.scale), chip(run.finished ? "finished" : state), bar, el("span", {}, `${run.done} of ${run.total}`), el("span", {className: "verdicts"}, ...Object.entries(run.verdicts).map(([word, count]) => el("span", {className: `chip ${{supported: "done", refuted: "failed"}[word] ?? ""}`}, `${count} ${word}`))));
      }))), launched.length ? "" : el("p", {}, "No study was run here yet: ", command("interplay run quickstart --scale smoke")));
      const others = found.filter(one => !one.runs.length), box = document.getElementById("others");
      box.hidden = !others.length;
      box.lastElementChild.replaceChildren(...others.map(one => el("li", {}, el("code", {}, `interplay run ${one.study}`), " ", el("span", {className: "soft"}, one.question))));
      return running;
    });
  },
  study() {
    const rowsOf = found => {
      const busy = found.stages.filter(row => row.state === "running");
      document.getElementById("stages").replaceChildren(...busy.map(row => el("div", {className: `stage ${row.state}`}, chip(row.state), el("span", {className: "name"}, stageLink(row), el("small", {}, ` ${row.kind}`)), el("span", {className: "what"}, row.state === "running" ? `${row.text}${row.left !== null ? `, ${duration(row.left)} left` : ""}` : ""), row.curve.length > 1 ? spark(row.curve) : el("span"), el("span", {className: "values"}, Object.entries(row.values).slice(0, 3).map(([key, value]) => `${key} ${value}`).join("  ")))), grid(found.stages, found.arms));
    };
    live(async () => {
      const found = await ask("/api/state", {study: given.study, scale: given.scale});
      document.querySelector("#status .bar i").style.width = `${100 * found.done / found.total}%`;
      const count = state => found.stages.filter(row => row.state === state).length;
      const parts = [`${found.done} of ${plural(found.total, "stage")} done`, ...["running", "failed", "stopped"].filter(count).map(state => `${count(state)} ${state}`), ...(found.left !== null ? [`about ${duration(found.left)} left`] : [])];
      document.getElementById("line").replaceChildren(el("b", {}, parts.join(", ")), found.basis ? el("small", {}, ` (${found.basis})`) : "", ...(found.next ? [el("span", {}, "; nothing runs: "), command(found.next)] : []));
      document.getElementById("reportlink").hidden = !found.report;
      halted(found.stages);
      warnings(found.stages);
      rowsOf(found);
      await curves({study: given.study, scale: given.scale});
      return found.running;
    });
    addEventListener("resize", () => curves({study: given.study, scale: given.scale}));
  },
  stage() {
    const log = document.getElementById("log");
    live(async () => {
      const row = await ask(`/api/stage/${given.digest}`, {study: given.study, scale: given.scale});
      const values = Object.entries(row.values).slice(0, 8).map(([key, value]) => `${key} ${value}`).join("  ");
      document.getElementById("line").replaceChildren(chip(row.state), " ", row.text, row.left !== null ? `, ${duration(row.left)} left` : "", el("small", {}, ` ${values}`));
      halted([row]);
      warnings([row]);
      const bottom = log.scrollTop + log.clientHeight >= log.scrollHeight - 8;
      log.textContent = row.log || "no line yet";
      if (bottom) log.scrollTop = log.scrollHeight;
      return row.state === "running";
    });
    if (["rl", "evaluate", "generate"].includes(given.kind)) rollouts();
  },
  compare() {
    if (!given.a) return;
    live(async () => { await curves({a: given.a, b: given.b}); return false; });
    const box = document.getElementById("comparison");
    ask("/api/compare", {a: given.a, b: given.b}).then(found => { box.textContent = found.text; }, error => { box.textContent = error.message; });
    addEventListener("resize", () => curves({a: given.a, b: given.b}));
  },
};

async function rollouts() {
  const section = document.getElementById("browser"), values = {error: chosen("error"), step: chosen("step"), problem: chosen("problem"), page: chosen("page", "0")};
  let found;
  section.hidden = false;
  try { found = await ask(`/api/rollouts/${given.digest}`, values); } catch (error) { document.getElementById("rollouts").replaceChildren(el("p", {className: "soft"}, error.message)); return; }
  const to = (name, value) => { choose(name, value); if (name !== "page") choose("page", ""); rollouts(); };
  const total = Object.values(found.errors).reduce((sum, count) => sum + count, 0);
  document.getElementById("errors").replaceChildren(...[["", total], ...Object.entries(found.errors)].map(([name, count]) => {
    const item = el("button", {type: "button", className: name === values.error ? "on" : "", ariaPressed: String(name === values.error)}, name === "" ? "all" : name === "none" ? "right" : name.replaceAll("_", " "), el("small", {}, ` ${count}`));
    item.addEventListener("click", () => to("error", name));
    return item;
  }));
  document.getElementById("chooser").replaceChildren(found.steps.length ? select("step", "step", [["", "all"], ...found.steps.map(step => [String(step), String(step)])], values.step, () => to("step", chosen("step"))) : "", values.problem ? command(`problem ${values.problem}`) : "");
  const text = (parts, className) => el("pre", {}, ...parts.map(([part, differs]) => differs ? el("mark", {className}, part) : part));
  document.getElementById("rollouts").replaceChildren(...found.rows.map(row => {
    const all = el("button", {type: "button", className: "link"}, `problem ${row.problem}`);
    all.addEventListener("click", () => to("problem", values.problem ? "" : String(row.problem)));
    return el("article", {className: row.error === "none" ? "right" : "wrong"},
      el("p", {}, all, " ", el("span", {className: `chip ${row.error === "none" ? "done" : "failed"}`}, row.error === "none" ? "right" : row.error.replaceAll("_", " ")), row.count > 1 ? ` ${row.count} identical` : "", el("small", {}, ` ${Object.entries(row.facts).map(([key, value]) => `${key} ${value}`).join("  ")}`)),
      el("dl", {}, el("dt", {}, "prompt"), el("dd", {}, el("pre", {}, row.prompt)), el("dt", {}, "completion"), el("dd", {}, text(row.wrote, "wrong")), el("dt", {}, "reference"), el("dd", {}, row.gold[0]?.[0] ? text(row.gold, "lacks") : el("span", {className: "soft"}, "its problem set is not in results/"))));
  }), found.rows.length ? "" : el("p", {className: "soft"}, "none"));
  const step = (label, page, enabled) => { const item = el("button", {type: "button", disabled: !enabled}, label); item.addEventListener("click", () => { to("page", String(page)); section.scrollIntoView(); }); return item; };
  document.getElementById("pages").replaceChildren(`${plural(found.total, "completion")}, ${found.distinct} distinct `, ...(found.pages > 1 ? [step("‹", found.page - 1, found.page > 0), ` page ${found.page + 1} of ${found.pages} `, step("›", found.page + 1, found.page + 1 < found.pages)] : []));
}

views[given.view]?.();
