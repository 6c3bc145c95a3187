// The page of claims: a word, a source and verdicts choose what is shown and unfold it; a link to a claim opens it.
{
  const claims = [...document.querySelectorAll("details.claim")];
  const papers = [...new Set(claims.map((claim) => claim.dataset.paper))];
  const chosen = new Set();
  const input = make("input", "", { type: "search", placeholder: "word, id or number", "aria-label": "Filter claims" });
  const source = make("select", "", { "aria-label": "Source" });
  const count = make("output", "");
  const all = make("button", "Open all", { type: "button" });
  const texts = new Map();
  const text = (claim) => {
    if (!texts.has(claim)) texts.set(claim, claim.textContent.toLowerCase());
    return texts.get(claim);
  };
  const visible = () => claims.filter((claim) => !claim.hidden);

  const show = () => {
    const word = input.value.trim().toLowerCase();
    for (const claim of claims) {
      const { verdict, paper } = claim.dataset;
      claim.hidden = (chosen.size > 0 && !chosen.has(verdict)) || (source.value !== "" && source.value !== paper)
        || !text(claim).includes(word);
    }
    const asked = chosen.size > 0 || source.value !== "" || word !== "";
    for (const part of document.querySelectorAll(".paper")) {
      part.hidden = !part.querySelector(".claim:not([hidden])");
      part.open ||= asked;
    }
    count.textContent = `${visible().length} of ${claims.length} claims`;
    name();
  };
  const name = () => { all.textContent = visible().some((claim) => claim.open) ? "Close all" : "Open all"; };

  if (claims.length > 1) {
    source.append(make("option", "all sources", { value: "" }), ...papers.map((p) => make("option", p, { value: p })));
    const verdicts = [...document.querySelectorAll(".tally .badge")].map((badge) => badge.textContent);
    const buttons = verdicts.map((verdict) => {
      const button = make("button", verdict, { type: "button", "aria-pressed": "false" });
      button.addEventListener("click", () => {
        if (!chosen.delete(verdict)) chosen.add(verdict);
        button.setAttribute("aria-pressed", String(chosen.has(verdict)));
        show();
      });
      return button;
    });
    input.addEventListener("input", show);
    source.addEventListener("change", show);
    all.addEventListener("click", () => {
      const open = !visible().some((claim) => claim.open);
      for (const claim of visible()) claim.open = open;
      for (const part of document.querySelectorAll(".paper")) part.open = open;
      name();
    });
    document.addEventListener("toggle", name, true);
    const tools = make("div", "", { class: "tools", role: "group", "aria-label": "Choose claims" });
    tools.append(input, source, ...buttons, all, count);
    document.getElementById("claims").before(tools);
    show();
  }
  const follow = () => {
    const target = document.querySelector(":target"); // the browser has read the address already
    if (!target?.matches("details.claim")) return;
    target.open = true;
    target.closest(".paper").open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", follow);
  addEventListener("load", follow);
}
