// Keeps a page up to date and plays a session back. Everything also works without it; nothing is decided here: a
// press sends the form. What is shown comes from the server's own pages, never from text put together here.
"use strict";
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const policy = window.trustedTypes
    ? trustedTypes.createPolicy("whet", { createHTML: (html) => html })
    : { createHTML: (html) => html };
  const read = (html) => new DOMParser().parseFromString(policy.createHTML(html), "text/html");
  const say = (text) => { $("#spoken").textContent = text; };

  // On a phone the page's own name may be out of sight in the row of names.
  $("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

  const get = async (path) => {
    const answer = await fetch(path, { credentials: "same-origin", headers: { accept: "text/html" } });
    if (answer.redirected && new URL(answer.url).pathname === "/login") { location.reload(); return null; }
    return answer.ok ? read(await answer.text()) : null;
  };
  const swap = (fresh, selector) => {
    const old = $(selector), young = $(selector, fresh);
    if (!old || !young || old.isEqualNode(young)) return;
    const opened = [...old.querySelectorAll("details")].map((fold) => fold.open);
    old.replaceWith(document.adoptNode(young));
    $(selector).querySelectorAll("details").forEach((fold, index) => { if (opened[index]) fold.open = true; });
  };
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
  if (document.body.dataset.live) {
    const lamp = $("#live");
    const source = new EventSource("/live");
    source.addEventListener("open", () => { lamp.hidden = false; lamp.classList.remove("lost"); $("span", lamp).textContent = "live"; refresh(); });
    source.addEventListener("error", () => { lamp.hidden = false; lamp.classList.add("lost"); $("span", lamp).textContent = "connecting"; });
    source.addEventListener("change", refresh);
    addEventListener("pagehide", () => source.close());
  }

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
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.target.closest("input, textarea, select")) { if (event.key === "Escape") event.target.blur(); return; }
    if (event.key === "/" && $("#search")) { event.preventDefault(); $("#search").focus(); }
    if (event.key === "j" && $("#next")) showNext($("#next")).then(setPlay);
    if (event.key === "k" && $("#back")) showNext($("#back")).then(setPlay);
  });
  // One press, one deed: a second tap while the first is on its way sends nothing.
  addEventListener("submit", (event) => {
    const form = event.target;
    if (form.dataset.sent) { event.preventDefault(); return; }
    form.dataset.sent = "1";
  });
  addEventListener("pageshow", () => document.querySelectorAll("form").forEach((form) => { delete form.dataset.sent; }));
})();
