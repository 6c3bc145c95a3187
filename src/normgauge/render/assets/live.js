// Ask the server what is new, again and again; say so when it does not answer.
{
  const state = document.getElementById("live");
  let version = state.dataset.version || "";
  const token = new URLSearchParams(location.search).get("token") || "";
  const ask = async () => {
    let wait = 1000;
    try {
      const answer = await fetch(`/news?token=${encodeURIComponent(token)}&version=${encodeURIComponent(version)}`, { cache: "no-store" });
      if (!answer.ok) throw new Error(`the server says ${answer.status}`);
      const news = await answer.json();
      wait = news.wait || wait;
      if (news.version !== version && getSelection().isCollapsed) { // a selection is not torn away
        version = news.version;
        exchange(news.pieces);
        document.querySelector("header p").textContent = news.subtitle;
      }
      state.textContent = news.state;
      state.classList.remove("lost");
    } catch (error) {
      state.textContent = `The server does not answer (${error.message}); what is shown is the last that came.`;
      state.classList.add("lost");
      wait = 3000;
    }
    setTimeout(ask, document.hidden ? Math.max(wait, 5000) : wait);
  };
  setTimeout(ask, 500);
}
