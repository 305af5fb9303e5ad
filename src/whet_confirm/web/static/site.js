// Keeps the page up to date and adds keys. No decision is made here: a press sends the form.
"use strict";
(() => {
  const body = document.body;
  const { $, $$, say, get, swap, listen, onKeys } = Page;

  // --- time: the server's clock at load, and what has passed here since; the wall clock of this machine may be wrong
  let serverNow = Number(body.dataset.now || 0);
  let readAt = performance.now();
  const now = () => serverNow + (performance.now() - readAt) / 1000;
  const left = (seconds) => {
    const whole = Math.max(0, Math.ceil(seconds));
    if (whole < 3600) return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
    if (whole < 172800) return `${Math.floor(whole / 3600)} h ${String(Math.floor((whole % 3600) / 60)).padStart(2, "0")} min`;
    return `${Math.floor(whole / 86400)} d`;
  };
  let warned = "";
  const tick = () => {
    for (const element of $$("[data-expires]")) {
      const rest = Number(element.dataset.expires) - now();
      const soon = rest < 60 || rest < 0.2 * Number(element.dataset.total || element.max || 0);
      element.classList.toggle("soon", soon && rest < 600);
      if (element.tagName === "PROGRESS") element.value = Math.max(0, rest);
      else element.textContent = rest > 0 ? left(rest) : "over";
    }
    const clock = $("#detail .clock .left");
    const shown = $("#detail");
    if (clock && shown) {
      const rest = Number(clock.dataset.expires) - now();
      if (rest <= 60 && rest > 0 && Number(clock.dataset.total) > 90 && warned !== shown.dataset.id) {
        warned = shown.dataset.id;
        say("One minute left to decide.");
      }
      if (rest <= 0) $$(".decide button", shown).forEach((button) => { button.disabled = true; });
    }
    const approve = $("#approve[data-wait]");
    if (approve) {
      approve.dataset.until ||= String(now() + Number(approve.dataset.wait));
      const wait = Number(approve.dataset.until) - now();
      approve.disabled = wait > 0;
      approve.textContent = wait > 0 ? `Approve in ${left(wait)}` : "Approve";
      if (wait <= 0) { approve.removeAttribute("data-wait"); delete approve.dataset.until; }
    }
  };

  // --- parts of a newer version of this page take the place of the old ones
  const takeTime = (fresh) => {
    const value = Number(fresh.body.dataset.now || 0);
    if (value) { serverNow = value; readAt = performance.now(); }
  };
  const takeList = (fresh) => {
    const before = new Set($$("#list .card").map((card) => card.dataset.id));
    const chosen = $("#detail")?.dataset.id;
    const focused = document.activeElement?.closest?.(".card")?.dataset.id;
    swap(fresh, "#list");
    swap(fresh, "#count");
    const count = Number($("#count")?.dataset.count || 0);
    document.title = document.title.replace(/^(\(\d+\) )?/, count ? `(${count}) ` : "");
    const news = [];
    for (const card of $$("#list .card")) {
      card.toggleAttribute("aria-current", false);
      if (card.dataset.id === chosen) card.setAttribute("aria-current", "true");
      if (card.dataset.id === focused) card.focus();
      if (!before.has(card.dataset.id)) {
        card.classList.add("fresh");
        news.push([card.dataset.action, card.querySelector(".risk")?.textContent.toLowerCase()].filter(Boolean).join(", "));
      }
    }
    if (news.length) say(`New request: ${news.join("; ")}`);
  };
  const takeDetail = (fresh, isAsked = false) => {
    const old = $("#detail"), young = $("#detail", fresh);
    if (!old || !young) return;
    // Meanwhile another request may have been opened: nothing changes under the eyes of who reads that.
    if (!isAsked && old.dataset.id && old.dataset.id !== young.dataset.id) return;
    const same = old.dataset.id === young.dataset.id && old.dataset.digest === young.dataset.digest
      && old.dataset.status === young.dataset.status && old.dataset.status === "pending";
    if (same) { swap(fresh, "#more"); return; }      // what is being read and typed stays as it is
    const changed = old.dataset.id === young.dataset.id && old.dataset.digest !== young.dataset.digest;
    const ended = old.dataset.id === young.dataset.id && old.dataset.status !== young.dataset.status;
    swap(fresh, "#detail");
    if (changed) {
      // A press that was on its way must not approve what came under it.
      const approve = $("#approve");
      if (approve && !approve.dataset.wait) approve.dataset.wait = "3";
      say("The request was changed. Read it again.");
    }
    if (ended) say(`This request is now ${young.dataset.status}.`);
  };
  const isWide = () => matchMedia("(min-width: 861px)").matches;
  let busy = false, again = false;
  const refresh = async () => {
    if (busy) { again = true; return; }
    busy = true;
    try {
      const shown = $("#detail")?.dataset.id;
      const path = shown && (isWide() || body.classList.contains("is-record")) ? `/r/${shown}` : "/";
      const fresh = await get(path);
      if (fresh) {
        takeTime(fresh);
        takeList(fresh);
        if (path !== "/" || !shown) takeDetail(fresh);
        tick();
      }
    } finally {
      busy = false;
      if (again) { again = false; refresh(); }
    }
  };

  // --- moving about
  let opening = 0;
  const open = async (path, push) => {
    const turn = ++opening;
    const fresh = await get(path);
    if (turn !== opening) return;
    if (!fresh || !$("#detail", fresh)) { location.assign(path); return; }
    takeTime(fresh);
    takeDetail(fresh, true);
    takeList(fresh);
    $$(".pane > .problem").forEach((element) => element.remove());
    if (push) history.pushState(null, "", path);
    body.classList.replace("is-home", "is-record");
    $("#pane").scrollTop = 0;
    tick();
  };
  const step = (by) => {
    const cards = $$("#list .card");
    if (!cards.length) return;
    const at = cards.findIndex((card) => card.hasAttribute("aria-current"));
    const next = cards[Math.min(cards.length - 1, Math.max(0, at + by))];
    next.scrollIntoView({ block: "nearest" });
    if (isWide()) open(next.getAttribute("href"), true).then(() => say($("#what")?.textContent || ""));
    else location.assign(next.getAttribute("href"));
  };
  const keys = {
    j: () => step(1),
    k: () => step(-1),
    a: () => $("#approve")?.focus(),
    d: () => ($("#reason") || $("#deny"))?.focus(),
    o: () => { const folds = $$("#detail details"); const all = folds.every((f) => f.open); folds.forEach((f) => { f.open = !all; }); },
    "/": () => { const search = $("#search"); if (search) search.focus(); else location.assign("/history"); },
    "?": () => $("#help")?.showModal(),
  };
  onKeys(keys);
  addEventListener("click", (event) => {
    const card = event.target.closest?.("#list .card");
    if (!card || !isWide() || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    open(card.getAttribute("href"), true);
  });
  addEventListener("popstate", () => location.reload());

  if (body.classList.contains("desk")) {
    listen(`/live?after=${body.dataset.event || 0}`, refresh);
    // On a wide screen the most urgent request is open from the start: fetched by its own address, it counts as seen.
    const shown = $("#detail")?.dataset.id;
    if (shown && body.classList.contains("is-home") && isWide()) refresh();
  }
  if (body.dataset.now) { tick(); setInterval(tick, 500); }
})();
