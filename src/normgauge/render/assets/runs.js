// The part of the page that knows runs. A live page exchanges sections, so everything here finds its target anew.
{
  // Tables: a click sorts; what was chosen outlives an exchange of the table.
  const sorting = new Map();
  const amount = (text) => (text === "inf" ? Infinity : text === "-inf" ? -Infinity : Number.parseFloat(text.replace(/^[≤≥] /, "").replaceAll(",", "")));
  const arrange = (table) => {
    const state = sorting.get(table.id) || { column: 0, down: false };
    const body = table.tBodies[0];
    const cell = (row) => row.cells[state.column].textContent.trim();
    const missing = (row) => Number(["·", ""].includes(cell(row)));
    const compare = (a, b) => {
      const [x, y] = [amount(cell(a)), amount(cell(b))];
      if (Number.isNaN(x) || Number.isNaN(y)) return cell(a).localeCompare(cell(b));
      return x - y || 0;
    };
    body.append(...[...body.rows].sort((a, b) => missing(a) - missing(b) || (state.down ? -1 : 1) * compare(a, b)));
    [...table.tHead.rows[0].cells].forEach((head, i) => head.setAttribute(
      "aria-sort", i !== state.column ? "none" : state.down ? "descending" : "ascending"));
  };
  const words = new Map();
  const narrow = (table) => {
    const word = words.get(table.id) || "";
    for (const row of table.tBodies[0].rows) row.hidden = !row.textContent.toLowerCase().includes(word);
  };
  const dressTable = (table) => {
    [...table.tHead.rows[0].cells].forEach((head, i) => {
      const button = make("button", "", { type: "button" });
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const old = sorting.get(table.id) || { column: 0, down: false };
        sorting.set(table.id, { column: i, down: i === old.column ? !old.down : i > 2 && i < 10 });
        arrange(table);
      });
    });
    const input = make("input", "", { type: "search", placeholder: "name, kind or alarm", "aria-label": "Filter layers" });
    input.value = words.get(table.id) || "";
    input.addEventListener("input", () => { words.set(table.id, input.value.trim().toLowerCase()); narrow(table); });
    const tools = make("div", "", { class: "tools" });
    tools.append(input);
    table.parentElement.before(tools);
    arrange(table);
    narrow(table);
  };

  // One quantity of the maps at a time.
  const picked = new Map();
  const dressChoices = (box) => {
    const all = [...box.querySelectorAll(":scope > .choice")];
    if (all.length < 2) return;
    const list = make("div", "", { class: "tabs", role: "tablist", "aria-label": "Quantity" });
    const choose = (name, focus) => {
      picked.set(box.id, name);
      all.forEach((part, i) => {
        const on = part.dataset.name === name;
        part.hidden = !on;
        list.children[i].setAttribute("aria-selected", String(on));
        list.children[i].tabIndex = on ? 0 : -1;
        if (on && focus) list.children[i].focus();
      });
    };
    all.forEach((part, i) => {
      part.id = `${box.id}-${i}`;
      part.setAttribute("role", "tabpanel");
      part.querySelector("h3").hidden = true;
      const tab = make("button", part.dataset.name, { type: "button", role: "tab", "aria-controls": part.id });
      tab.addEventListener("click", () => choose(part.dataset.name, false));
      list.append(tab);
    });
    list.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      const now = [...list.children].indexOf(document.activeElement);
      if (step && now >= 0) choose(all[(now + step + all.length) % all.length].dataset.name, true);
    });
    box.prepend(list);
    const kept = picked.get(box.id);
    choose(all.some((part) => part.dataset.name === kept) ? kept : all[0].dataset.name, false);
  };

  const dress = (root) => {
    root.querySelectorAll("table.sorted").forEach(dressTable);
    root.querySelectorAll(".choices").forEach(dressChoices);
    root.querySelectorAll(".plot .fig").forEach((fig) => { fig.tabIndex = 0; });
  };
  dress(document);

  // Values under the pointer.
  const note = document.getElementById("tip") || document.body.appendChild(make("div", "", { id: "tip", role: "tooltip", hidden: "" }));
  const show = (lines, x, y) => {
    note.replaceChildren(...lines.map((line) => make("p", line)));
    note.hidden = false;
    const width = document.documentElement.clientWidth;
    const below = y + 20 + note.offsetHeight < innerHeight;
    note.style.left = `${Math.max(Math.min(x + 14, width - note.offsetWidth - 12), 4) + scrollX}px`;
    note.style.top = `${Math.max(below ? y + 16 : y - note.offsetHeight - 12, 4) + scrollY}px`;
  };
  const near = (steps, wanted) => {
    let [low, high] = [0, steps.length - 1];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (steps[middle] <= wanted) low = middle; else high = middle;
    }
    return Math.abs(steps[low] - wanted) <= Math.abs(steps[high] - wanted) ? low : high;
  };
  const parsed = new WeakMap();
  const once = (figure, read) => {
    if (!parsed.has(figure)) parsed.set(figure, read());
    return parsed.get(figure);
  };
  let cursor = null;
  const leave = () => {
    if (cursor) cursor.style.visibility = "";
    cursor = null;
  };
  const plotAt = (fig, wanted, x, y) => {
    const figure = fig.closest(".plot");
    const hit = fig.querySelector(".hit");
    const curves = once(figure, () => JSON.parse(figure.dataset.curves)).filter((curve) => curve.steps.length);
    const all = curves.map((curve) => curve.steps[near(curve.steps, wanted)]);
    const step = all.reduce((best, one) => (Math.abs(one - wanted) < Math.abs(best - wanted) ? one : best), all[0]);
    const lines = curves.map((curve) => {
      const i = near(curve.steps, step);
      const ends = curve.ends?.[i];
      const at = curve.steps[i] === step ? "" : ` (step ${curve.steps[i].toLocaleString("en")})`;
      return `${curve.label}: ${curve.values[i]}${ends ? ` (${ends[0]} to ${ends[1]})` : ""}${at}`;
    });
    const [first, last] = [Number(hit.dataset.first), Number(hit.dataset.last)];
    const place = hit.x.baseVal.value + hit.width.baseVal.value * (step - first) / (last - first);
    leave();
    cursor = fig.querySelector(".cursor");
    cursor.setAttribute("x1", place);
    cursor.setAttribute("x2", place);
    cursor.style.visibility = "visible";
    show([`step ${step.toLocaleString("en")}`, ...lines], x, y);
    return step;
  };
  const heatAt = (image, x, y) => {
    const figure = image.closest(".heat");
    const map = once(figure, () => ({ ...JSON.parse(figure.dataset.map),
      cells: Uint8Array.from(atob(figure.dataset.cells), (c) => c.charCodeAt(0)) }));
    const box = image.getBoundingClientRect();
    const bin = Math.min(Math.max(Math.floor((x - box.left) / box.width * map.bins), 0), map.bins - 1);
    const row = Math.min(Math.max(Math.floor((y - box.top) / box.height * map.names.length), 0), map.names.length - 1);
    const level = map.cells[row * map.bins + bin];
    const value = level === 0 ? "not measured" : level === 255 ? "not finite"
      : `about ${Number((10 ** (map.low + (level - 1) / 253 * (map.high - map.low))).toPrecision(3))}`;
    const width = (map.last - map.first) / map.bins;
    const [from, to] = [bin, bin + 1].map((k) => Math.round(map.first + k * width).toLocaleString("en"));
    show([map.names[row], `${value}, steps ${from} to ${to}`], x, y);
  };
  let shown = false;
  document.addEventListener("pointermove", (event) => {
    const target = event.target;
    if (target.matches?.(".plot .hit")) {
      const box = target.getBoundingClientRect();
      const [first, last] = [Number(target.dataset.first), Number(target.dataset.last)];
      plotAt(target.ownerSVGElement, first + (last - first) * (event.clientX - box.left) / box.width, event.clientX, event.clientY);
      shown = true;
    } else if (target.matches?.(".heat .cells")) {
      leave();
      heatAt(target, event.clientX, event.clientY);
      shown = true;
    } else if (shown) {
      leave();
      note.hidden = true;
      shown = false;
    }
  });
  const places = new WeakMap();
  document.addEventListener("keydown", (event) => {
    const fig = document.activeElement?.closest?.(".plot .fig");
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!fig || !step) return;
    event.preventDefault();
    const hit = fig.querySelector(".hit");
    const [first, last] = [Number(hit.dataset.first), Number(hit.dataset.last)];
    const before = places.has(fig) ? places.get(fig) : first - step * (last - first) / 50;
    const wanted = Math.min(Math.max(before + step * (last - first) / 50, first), last);
    places.set(fig, wanted);
    const box = hit.getBoundingClientRect();
    plotAt(fig, wanted, box.left + box.width * (wanted - first) / (last - first), box.top + 20);
    shown = true;
  });

  // For the live page: exchange the sections that changed, and keep what the reader chose.
  globalThis.exchange = (fresh) => {
    for (const [id, html] of Object.entries(fresh)) {
      const old = document.getElementById(id);
      if (!old) continue;
      const focused = old.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
      old.innerHTML = html;
      dress(old);
      globalThis.equipScrolls?.(old);
      if (focused) [...old.querySelectorAll("[aria-label]")].find((n) => n.getAttribute("aria-label") === focused)?.focus();
    }
    leave();
  };
}
