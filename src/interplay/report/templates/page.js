// What a click on a cell shows, from the page's own data; `#cell=TABLE/ROW/COLUMN/METRIC` in the address opens it too. What terms mean,
// filters of completions, and buttons that copy a command.
const dialog = document.getElementById("cell");
const body = document.getElementById("cell-body");
const data = unpacked(document.getElementById("provenance")?.textContent);

// JSON that is packed as base64 of gzip.
async function unpacked(text) {
  if (!text) return { cells: {} };
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

function put(parent, tag, text, className) {
  const made = document.createElement(tag);
  if (text) made.textContent = text;
  if (className) made.className = className;
  parent.append(made);
  return made;
}

function stageLine(parent, depth, role, digest, [kind, label, anchor, why]) {
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

async function show(key) {
  const { cells, chains, stages } = await data, cell = cells[key];
  if (!cell) return;
  body.replaceChildren();
  put(body, "h3", cell.title);
  put(body, "p", `${cell.value} ${cell.interval}`, "big");
  if (cell.over) put(body, "p", `95 % interval for ${cell.over}; ${cell.n}.`, "soft");
  if (cell.made) put(body, "p", `Made on ${cell.made}.`, "soft");
  if (cell.mde) put(body, "p", `Smallest true difference that these seeds would find with 80 % power: ${cell.mde}.`, "soft");
  if (cell.missing.length) put(body, "h4", "Missing");
  for (const reason of cell.missing) put(body, "p", reason, "bad");
  for (const [seed, value, evaluations] of cell.seeds) {
    const section = put(body, "details", "", "plain");
    section.open = seed === cell.seeds[0][0];
    put(section, "summary", `Seed ${seed}: ${value}`);
    for (const digest of evaluations) {
      const chain = put(section, "div", "", "chain");
      for (const [depth, role, at] of chains[digest]) stageLine(chain, depth, role, at, stages[at]);
    }
  }
  put(body, "h4", "The same on the command line");
  put(body, "pre", cell.command);
  dialog.showModal();
  dialog.scrollTop = 0;
}

function fromAddress() {
  const address = decodeURIComponent(location.hash.slice(1));
  if (address.startsWith("cell=")) return show(address.slice(5));
  const entry = address && document.getElementById(address);
  for (let part = entry; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
  if (entry) entry.scrollIntoView();
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-cell]");
  if (button) show(button.dataset.cell);
});
dialog?.addEventListener("click", (event) => event.target === dialog && dialog.close());
addEventListener("hashchange", fromAddress);
addEventListener("beforeprint", () => document.querySelectorAll("details.table").forEach((item) => (item.open = true)));

// Terms: their meaning from the glossary at the end of the page, next to the term under the pointer or the focus.

const tip = document.getElementById("tip");
function explain(term) {
  const entry = term && document.querySelector(`${term.getAttribute("href")} dd`);
  tip.hidden = !entry;
  if (!entry) return;
  tip.textContent = entry.textContent;
  const at = term.getBoundingClientRect(), below = at.bottom + tip.offsetHeight + 12 < innerHeight;
  tip.style.left = `${Math.max(8, Math.min(at.left, document.documentElement.clientWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${below ? at.bottom + 6 : at.top - tip.offsetHeight - 6}px`;
}
for (const term of document.querySelectorAll("a.term")) {
  term.setAttribute("aria-describedby", "tip");
  for (const event of ["mouseenter", "focus"]) term.addEventListener(event, () => explain(term));
  for (const event of ["mouseleave", "blur"]) term.addEventListener(event, () => explain(null));
}
addEventListener("scroll", () => explain(null), { passive: true });
addEventListener("keydown", (event) => event.key === "Escape" && explain(null));

// Completions.

const filters = [...document.querySelectorAll("[data-filter]")];
function filter() {
  const items = [...document.querySelectorAll(".rollout")];
  for (const item of items) item.hidden = filters.some((one) => one.value && item.dataset[one.dataset.filter] !== one.value);
  document.getElementById("count").textContent = `${items.filter((item) => !item.hidden).length} of ${items.length}`;
}
for (const one of filters) one.addEventListener("change", () => (filter(), (document.querySelector("#rollouts details").open = true)));
for (const room of document.querySelectorAll(".filters")) room.hidden = false;
if (filters.length) filter();

for (const command of navigator.clipboard ? document.querySelectorAll(".commands pre") : []) {
  const button = put(command, "button", "copy");
  button.type = "button";
  button.addEventListener("click", async () => (await navigator.clipboard.writeText(command.querySelector("code").textContent), (button.textContent = "copied")));
}
fromAddress();
