// What a click on a cell shows, from the page's own data. `#cell=TABLE/ROW/COLUMN/METRIC` in the address opens it too.
const data = JSON.parse(document.getElementById("provenance").textContent);
const dialog = document.getElementById("cell");
const body = document.getElementById("cell-body");

function put(parent, tag, text, className) {
  const made = document.createElement(tag);
  if (text) made.textContent = text;
  if (className) made.className = className;
  parent.append(made);
  return made;
}

function stageLine(parent, depth, role, digest) {
  const [kind, label, anchor, why] = data.stages[digest];
  const line = put(parent, "div");
  line.style.paddingLeft = `${depth * 1.3}em`;
  line.append(`${role}: `);
  const link = put(line, "a", kind);
  if (anchor) link.href = anchor;
  link.addEventListener("click", () => dialog.close());
  line.append(" ");
  put(line, "code", digest);
  if (label) line.append(` ${label}`);
  if (why) put(line, "span", ` ${why}`, "bad");
}

function show(key) {
  const cell = data.cells[key];
  if (!cell) return;
  body.replaceChildren();
  put(body, "h3", cell.title);
  put(body, "p", `${cell.value} ${cell.interval}`, "big");
  if (cell.over) put(body, "p", `95 % interval, uncertain over ${cell.over}. ${cell.n}.`, "soft");
  if (cell.mde) put(body, "p", `Smallest true difference that these seeds would find with 80 % power: ${cell.mde}.`, "soft");
  if (cell.missing.length) put(body, "h4", "Missing");
  for (const reason of cell.missing) put(body, "p", reason, "bad");
  for (const [seed, value, evaluations] of cell.seeds) {
    const section = put(body, "details", "", "plain");
    section.open = seed === cell.seeds[0][0];
    put(section, "summary", `Seed ${seed}: ${value}`);
    for (const digest of evaluations) {
      const chain = put(section, "div", "", "chain");
      for (const [depth, role, at] of data.chains[digest]) stageLine(chain, depth, role, at);
    }
  }
  put(body, "h4", "The same on the command line");
  put(body, "pre", cell.command);
  dialog.showModal();
  dialog.scrollTop = 0;
}

function fromAddress() {
  const [name, key] = [location.hash.slice(0, 6), location.hash.slice(6)];
  if (name === "#cell=") show(decodeURIComponent(key));
  const entry = location.hash.startsWith("#stage-") && document.getElementById(location.hash.slice(1));
  if (entry) entry.closest("details").open = true, entry.scrollIntoView();
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-cell]");
  if (button) show(button.dataset.cell);
});
dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
addEventListener("hashchange", fromAddress);
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((item) => (item.open = true)));
fromAddress();
