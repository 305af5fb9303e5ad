// Keeps a page up to date and plays a session back. Nothing is decided here: a press sends the form.
"use strict";
(() => {
  const { $, say, get, swap, listen, onKeys } = Page;

  // What somebody types into, or a form that is being sent, stays as it is.
  const isTouched = () => {
    const at = document.activeElement;
    return Boolean(at && at.closest("input, textarea, select, form")) || Boolean($("form[data-sent]"));
  };

  // --- live: the page asks for itself again when something changed
  let busy = false, again = false;
  const refresh = async () => {
    if (busy || isTouched()) { again = busy; return; }
    busy = true;
    try {
      const before = document.querySelectorAll(".question").length;
      const fresh = await get(location.pathname + location.search);
      if (fresh && !isTouched()) {
        swap(fresh, "#main");
        swap(fresh, ".top nav");
        document.title = fresh.title;
        const now = document.querySelectorAll(".question").length;
        if (now > before) say("Something waits for your answer.");
      }
    } finally {
      busy = false;
      if (again) { again = false; refresh(); }
    }
  };
  if (document.body.dataset.live) listen("/live", refresh, refresh);

  // --- replay: Play follows "Next" until there is none
  let timer = 0;
  const showNext = async (link) => {
    const fresh = link && await get(link.getAttribute("href"));
    if (!fresh) return false;
    swap(fresh, "#main");
    history.replaceState(null, "", link.getAttribute("href"));
    $("#talk")?.lastElementChild?.scrollIntoView({ block: "end" });
    return true;
  };
  const setPlay = () => {
    const play = $("#play");
    if (play) { play.hidden = false; play.textContent = timer ? "Pause" : "Play"; }
  };
  const step = async () => {
    const went = await showNext($("#next"));
    timer = timer && went && $("#next") ? setTimeout(step, 700) : 0;
    setPlay();
  };
  setPlay();
  addEventListener("click", (event) => {
    if (event.target.id === "play") {
      if (timer) { clearTimeout(timer); timer = 0; setPlay(); } else { timer = 1; step(); }
    }
  });
  onKeys({
    "/": () => $("#search")?.focus(),
    j: () => showNext($("#next")).then(setPlay),
    k: () => showNext($("#back")).then(setPlay),
  });
})();
