"use strict";
// Without this script the page is complete: all scopes one after the other, plain tables, titles on the bars.

const make = (tag, text, attributes = {}) => {
  const node = document.createElement(tag);
  node.textContent = text;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
};

// Tables of layers: sort, filter, fold.
const number = (text) => (text === "inf" ? Infinity : text === "-inf" ? -Infinity : Number.parseFloat(text));
const order = (a, b) => {
  const [x, y] = [number(a), number(b)];
  if (Number.isNaN(x) && Number.isNaN(y)) return a.localeCompare(b);
  return Number.isNaN(x) ? 1 : Number.isNaN(y) ? -1 : x - y || 0;
};
const equipped = new WeakSet();
const equip = () => { // only what can be seen: a page may hold many long tables
  for (const table of document.querySelectorAll("table.layers")) {
    if (equipped.has(table) || !table.checkVisibility()) continue;
    equipped.add(table);
    prepare(table);
  }
};
const prepare = (table) => {
  const body = table.tBodies[0];
  const inOrder = [...body.rows];
  const layers = inOrder.filter((row) => !row.dataset.fold);
  const folds = inOrder.filter((row) => row.dataset.fold);
  const open = new Set();
  const state = { column: 0, down: false, word: "" };
  const input = make("input", "", { type: "search", placeholder: "name, kind or note", "aria-label": "Filter layers" });
  const count = make("output", "");
  const all = make("button", "Unfold all", { type: "button" });

  const show = () => {
    const flat = state.word !== "" || state.column !== 0 || state.down;
    for (const row of folds) {
      row.hidden = flat;
      row.querySelector("button").setAttribute("aria-expanded", String(open.has(row.dataset.fold)));
    }
    let shown = 0;
    for (const row of layers) {
      const match = state.word === "" || row.dataset.words.includes(state.word);
      row.hidden = !match || (!flat && row.dataset.in !== undefined && !open.has(row.dataset.in));
      if (match) shown += 1;
    }
    count.textContent = state.word === "" ? "" : `${shown} of ${layers.length} layers`;
    all.textContent = open.size ? "Fold repeated blocks" : "Unfold all";
    all.hidden = !folds.length || flat;
    for (const row of layers) row.tabIndex = -1;
    const first = layers.find((row) => !row.hidden);
    if (first) first.tabIndex = 0;
  };
  const arrange = () => {
    const cell = (row) => row.cells[state.column].textContent;
    const missing = (row) => Number(cell(row) === "·" || cell(row) === "");
    const sorted = state.column === 0 && !state.down ? inOrder : [...layers].sort(
      (a, b) => missing(a) - missing(b) || (state.down ? -1 : 1) * order(cell(a), cell(b)));
    if (sorted.some((row, i) => row !== body.rows[i])) body.append(...sorted);
    [...table.tHead.rows[0].cells].forEach((head, i) => head.setAttribute(
      "aria-sort", i !== state.column ? "none" : state.down ? "descending" : "ascending"));
    show();
  };
  for (const row of layers) {
    row.dataset.words = [1, 2, 10].map((i) => row.cells[i].textContent).join(" ").toLowerCase();
  }
  for (const row of folds) {
    const head = row.cells[1];
    const button = make("button", "", { type: "button" });
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      if (!open.delete(row.dataset.fold)) open.add(row.dataset.fold);
      show();
    });
  }
  [...table.tHead.rows[0].cells].forEach((head, i) => {
    const button = make("button", head.textContent, { type: "button" });
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = i === state.column ? !state.down : i > 2 && i < 10;
      Object.assign(state, { column: i, down });
      arrange();
    });
  });
  input.addEventListener("input", () => { state.word = input.value.trim().toLowerCase(); show(); });
  all.addEventListener("click", () => {
    if (open.size) open.clear(); else folds.forEach((row) => open.add(row.dataset.fold));
    show();
  });
  const tools = make("div", "", { class: "tools" });
  tools.append(input, all, count);
  table.parentElement.before(tools);
  arrange();
};

// Say where a table goes on beyond the edge, besides the style sheet's shadow.
const cut = new ResizeObserver((changes) => {
  for (const { target } of changes) {
    const region = target.closest(".scroll");
    region.classList.toggle("cut", region.scrollWidth > region.clientWidth + 1);
  }
});
globalThis.equipScrolls = (root) => { // a live page brings new ones
  for (const region of root.querySelectorAll(".scroll")) [region, region.firstElementChild].forEach((n) => cut.observe(n));
};
equipScrolls(document);

// One tab a scope.
for (const group of document.querySelectorAll(".group")) {
  const panels = [...group.querySelectorAll(":scope > .scoped")];
  if (panels.length < 2) continue;
  const list = make("div", "", { role: "tablist", "aria-label": "Scope", class: "tabs" });
  const choose = (chosen, focus) => {
    panels.forEach((panel, i) => {
      panel.hidden = i !== chosen;
      list.children[i].setAttribute("aria-selected", String(i === chosen));
      list.children[i].tabIndex = i === chosen ? 0 : -1;
    });
    if (focus) list.children[chosen].focus();
    equip();
  };
  panels.forEach((panel, i) => {
    const heading = panel.querySelector(".scope");
    panel.id = heading.id + "-panel";
    panel.setAttribute("role", "tabpanel");
    list.append(make("button", heading.dataset.tab + " ", { role: "tab", type: "button", "aria-controls": panel.id }));
    list.children[i].append(make("small", heading.dataset.scope));
    list.children[i].addEventListener("click", () => choose(i, false));
  });
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const now = [...list.children].indexOf(document.activeElement);
    if (step && now >= 0) choose((now + step + panels.length) % panels.length, true);
  });
  group.classList.add("tabbed");
  group.prepend(list);
  choose(0, false);
}

equip();
document.addEventListener("toggle", equip, true);

// One tooltip for bars and rows: hover, focus, touch.
const formulas = new Map();
for (const rule of document.querySelectorAll(".rules [data-rule]")) {
  formulas.set(rule.dataset.rule, rule.querySelector(".formula").textContent);
}
const tip = make("div", "", { id: "tip", role: "tooltip", hidden: "" });
document.body.append(tip);
const told = (target) => {
  const row = target.dataset.row ? document.getElementById(target.dataset.row) : target;
  if (!row || row.tagName !== "TR") return [target.getAttribute("aria-label") || ""];
  const texts = [...row.cells].map((cell) => cell.textContent);
  const head = row.closest("table").tHead.rows[0].cells;
  const numbers = texts.slice(3, 10).map((text, i) => [head[i + 3].textContent, text]).filter(([, text]) => text !== "·");
  return [`${texts[1]} (${texts[2]})`, formulas.get(row.dataset.rule) || "", ...row.dataset.tip.split("\n"),
    "log10: " + numbers.map((pair) => pair.join(" ")).join(", ")].filter(Boolean);
};
let owner = null;
const hide = () => {
  tip.hidden = true;
  owner?.removeAttribute("aria-describedby");
  owner = null;
};
const reveal = (target) => {
  if (owner === target) return;
  hide();
  owner = target;
  tip.replaceChildren(...told(target).map((line) => make("p", line)));
  target.setAttribute("aria-describedby", "tip");
  tip.hidden = false;
  const place = (target.querySelector("rect:not(.hit)") || target).getBoundingClientRect();
  const below = place.bottom + 8 + tip.offsetHeight < innerHeight || place.top < tip.offsetHeight + 8;
  const width = document.documentElement.clientWidth;
  const left = Math.min(Math.max(place.left, 12), width - tip.offsetWidth - 12);
  tip.style.left = `${Math.max(left, 4) + scrollX}px`;
  tip.style.top = `${(below ? place.bottom + 8 : place.top - tip.offsetHeight - 8) + scrollY}px`;
};
const owning = (event) => event.target.closest?.(".bar, .layers tbody tr[data-tip]");
// pointermove, not pointerover: a page that scrolls under a resting pointer must not take the tip from the keyboard
for (const kind of ["pointermove", "focusin", "click"]) {
  document.addEventListener(kind, (event) => {
    const target = owning(event);
    if (target) reveal(target); else if (kind !== "focusin" || owner) hide();
  });
}
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") hide();
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -Infinity, End: Infinity }[event.key];
  const from = step && document.activeElement.closest(".bar, .layers tbody tr");
  if (!from) return;
  const all = [...from.parentElement.children].filter((node) => node.tabIndex >= -1 && node.matches(".bar, tr[data-tip]:not([hidden])"));
  const to = all[Math.min(Math.max(all.indexOf(from) + step, 0), all.length - 1)];
  if (!to) return;
  event.preventDefault();
  from.tabIndex = -1;
  to.tabIndex = 0;
  to.focus();
});
for (const figure of document.querySelectorAll(".fig")) {
  figure.querySelectorAll(".bar").forEach((bar, i) => {
    const title = bar.querySelector("title");
    bar.setAttribute("role", "img");
    bar.setAttribute("aria-label", title.textContent);
    bar.setAttribute("tabindex", i ? "-1" : "0");
    title.remove(); // the tooltip below says more; two at once would cover each other
  });
}
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((part) => { part.open = true; }));
