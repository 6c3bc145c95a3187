// The page of a certificate: a word and kinds choose rows, heads sort them, a link to a row opens it.
{
  const table = document.querySelector("table.rows");
  const prepare = () => {
    const body = table.tBodies[0];
    const inOrder = [...body.rows];
    const chosen = new Set();
    const input = make("input", "", { type: "search", placeholder: "name, family or reason", "aria-label": "Filter rows" });
    const count = make("output", "");
    const full = (row) => document.getElementById(row.dataset.row);
    const texts = new Map(inOrder.map((row) => [row, row.textContent.toLowerCase()]));

    const show = () => {
      const word = input.value.trim().toLowerCase();
      for (const row of inOrder) {
        row.hidden = (chosen.size > 0 && !chosen.has(row.dataset.kind)) || !texts.get(row).includes(word);
        full(row).hidden = row.hidden;
      }
      count.textContent = `${inOrder.filter((row) => !row.hidden).length} of ${inOrder.length} rows`;
    };
    const state = { column: -1, down: false };
    const arrange = () => {
      const told = (row) => (row.cells[state.column].querySelector("[data-sort]")?.dataset.sort ?? row.cells[state.column].textContent);
      const missing = (row) => Number(told(row) === "·");
      const sorted = state.column < 0 ? inOrder : [...inOrder].sort(
        (a, b) => missing(a) - missing(b) || (state.down ? -1 : 1) * order(told(a), told(b)));
      body.append(...sorted);
      heads.forEach((head, i) => head.setAttribute(
        "aria-sort", i !== state.column ? "none" : state.down ? "descending" : "ascending"));
    };
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, i) => {
      const button = make("button", head.textContent, { type: "button" });
      head.replaceChildren(button);
      button.addEventListener("click", () => { // up, down, as it was
        if (i !== state.column) Object.assign(state, { column: i, down: false });
        else if (!state.down) state.down = true;
        else state.column = -1;
        arrange();
      });
    });
    const buttons = [...document.querySelectorAll(".tally .badge")].map((badge) => {
      const button = make("button", badge.textContent, { type: "button", "aria-pressed": "false" });
      button.addEventListener("click", () => {
        if (!chosen.delete(badge.textContent)) chosen.add(badge.textContent);
        button.setAttribute("aria-pressed", String(chosen.has(badge.textContent)));
        show();
      });
      return button;
    });
    input.addEventListener("input", show);
    const tools = make("div", "", { class: "tools", role: "group", "aria-label": "Choose rows" });
    tools.append(input, ...buttons, count);
    table.parentElement.before(tools);
    arrange();
    show();
  };
  if (table) prepare();
  const follow = () => {
    const target = document.querySelector(":target");
    if (!target?.matches("details.row")) return;
    for (let part = target; part; part = part.parentElement.closest("details")) part.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", follow);
  addEventListener("load", follow);
}
