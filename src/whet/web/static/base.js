// What every page of ours does where there is a script: takes in a newer version of itself, hears that there is one,
// and sends a form once. Everything also works without it. What is shown comes from the server's own pages, never
// from text put together here.
"use strict";
document.documentElement.classList.add("js");
const Page = (() => {
  const WORKER = "/sw.js"; // the only script that may be registered
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
  const policy = window.trustedTypes
    ? trustedTypes.createPolicy("whet", { createHTML: (html) => html, createScriptURL: () => WORKER })
    : { createHTML: (html) => html, createScriptURL: () => WORKER };
  const read = (html) => new DOMParser().parseFromString(policy.createHTML(html), "text/html");
  const say = (text) => { $("#spoken").textContent = text; };

  // Fetch a page of ours; null where there is none, and the login page where nobody is signed in any more.
  const get = async (path) => {
    const answer = await fetch(path, { credentials: "same-origin", headers: { accept: "text/html" } });
    if (answer.redirected && new URL(answer.url).pathname === "/login") { location.reload(); return null; }
    return answer.ok ? read(await answer.text()) : null;
  };
  // A part of a newer version takes the place of the old one; what was unfolded stays so.
  const swap = (fresh, selector) => {
    const old = $(selector), young = $(selector, fresh);
    if (!old || !young || old.isEqualNode(young)) return;
    const opened = $$("details", old).map((fold) => fold.open), at = old.scrollLeft;
    old.replaceWith(document.adoptNode(young));
    young.scrollLeft = at;
    $$("details", young).forEach((fold, index) => { if (opened[index]) fold.open = true; });
  };
  // The server says that something changed; `changed` looks. `opened` runs at each connection.
  const listen = (path, changed, opened = () => {}) => {
    const lamp = $("#live");
    const source = new EventSource(path);
    const show = (word) => {
      lamp.hidden = false;
      lamp.classList.toggle("lost", word !== "live");
      $("span", lamp).textContent = word;
    };
    source.addEventListener("open", () => { show("live"); opened(); });
    source.addEventListener("error", () => show("connecting"));
    source.addEventListener("change", changed);
    addEventListener("pagehide", () => source.close());
    return source;
  };
  // Keys that are letters: not while somebody types, nor with a modifier, nor under a dialog.
  const onKeys = (keys) => addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    const typing = event.target.closest("input, textarea, select");
    if (event.key === "Escape" && typing) { typing.blur(); return; }
    if (typing || $("dialog[open]") || !Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    keys[event.key]();
  });

  // One press, one deed: a second tap while the first is on its way sends nothing.
  addEventListener("submit", (event) => {
    const form = event.target;
    if (form.method === "dialog") return;
    if (form.dataset.sent) { event.preventDefault(); return; }
    form.dataset.sent = "1";
  });
  addEventListener("pageshow", () => $$("form").forEach((form) => { delete form.dataset.sent; }));
  // On a phone the page's own name may be out of sight in the row of names.
  $("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

  const registerWorker = async () => {
    await navigator.serviceWorker.register(policy.createScriptURL(WORKER), { scope: "/" });
    return navigator.serviceWorker.ready;
  };

  return { $, $$, say, read, get, swap, listen, onKeys, registerWorker };
})();
