// Keeps a page up to date, follows a session while it runs, and plays one back. Nothing is decided here: a press
// sends the form. Others' text is only ever set as text.
"use strict";
(() => {
  const { $, $$, say, read, get, swap, listen, onKeys } = Page;

  // What somebody types into, or a form that is being sent, stays as it is.
  const isTouched = () => {
    const at = document.activeElement;
    return Boolean(at && at.closest("input, textarea, select, form")) || Boolean($("form[data-sent]"));
  };

  // Where the menu is wider than the screen, the page that is open stands in its middle.
  const centre = () => {
    const menu = $(".top nav"), here = $(".top nav [aria-current]");
    if (here) menu.scrollLeft = here.offsetLeft - menu.offsetLeft - (menu.clientWidth - here.offsetWidth) / 2;
  };
  centre();
  addEventListener("resize", centre);

  // --- live: the page asks for itself again when something changed
  let busy = false, again = false, held = false;
  const refresh = async () => {
    if (busy) { again = true; return; }
    held = isTouched();
    if (held) return;
    busy = true;
    try {
      const before = document.querySelectorAll(".question").length;
      const fresh = await get(location.pathname + location.search);
      held = isTouched();
      if (fresh && !held) {
        swap(fresh, "#main");
        swap(fresh, ".top nav");
        centre();
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
    listen("/live", refresh, refresh);
    // What changed while somebody typed is shown when they leave the field.
    addEventListener("focusout", () => setTimeout(() => { if (held) refresh(); }));
  }

  // --- a session: what is stored comes as parts of the server's own page, what is being written as plain text
  const talking = $("#main[data-session]");
  const follow = () => {
    const path = `/sessions/${encodeURIComponent(talking.dataset.session)}`;
    const now = $("#now"), talk = $("#talk"), dock = $("#dock");
    const isAtEnd = () => innerHeight + scrollY >= document.documentElement.scrollHeight - 160;
    const toEnd = () => scrollTo({ top: document.documentElement.scrollHeight });
    const keepEnd = (change) => { const stay = isAtEnd(); change(); if (stay) toEnd(); };

    // The newest messages again, from the last one that was not a result: that one shows which calls wait.
    const since = () => {
      const said = $$(".said:not(.tool)", talk).pop();
      return said ? said.dataset.seq : 1;
    };
    const merge = (fresh) => {
      for (const young of $$("#talk li[id]", fresh)) {
        const old = document.getElementById(young.id);
        if (!old) {
          $(".none", talk)?.remove();
          talk.lastElementChild.append(document.adoptNode(young));
          if (young.classList.contains("user")) $(".pending", now)?.remove();
        } else if (!old.isEqualNode(young)) {
          const open = $$("details", old).map((fold) => fold.open);
          old.replaceWith(document.adoptNode(young));
          $$("details", young).forEach((fold, index) => { if (open[index]) fold.open = true; });
        }
      }
      const asked = $$(".question", fresh).length > $$(".question").length;
      const typing = document.activeElement?.closest("#asked .question");
      const keeps = typing && fresh.getElementById(typing.id);
      const planned = $("#plan textarea"), drafts = planned && planned.value !== planned.defaultValue;
      for (const part of ["#title", "#facts", "#player", "#state", ".top nav", ...(keeps ? [] : ["#asked"]), ...(drafts ? [] : ["#plan"])]) swap(fresh, part);
      centre();
      document.title = fresh.title;
      if (asked) say("Something waits for your answer.");
    };
    let fetching = false, again = false;
    const take = async () => {
      if (fetching) { again = true; return; }
      fetching = true;
      try {
        const fresh = await get(`${path}?from=${since()}`);
        if (!fresh) return;
        const ran = $("#state").dataset.running;
        keepEnd(() => {
          merge(fresh);
          const runs = $("#state").dataset.running, step = Number($("#state").dataset.step);
          for (const box of $$(".writing", now)) if (!runs || Number(box.dataset.step) < step) box.remove();
          if (!runs) $(".running", now)?.remove();
          if ($(".question")) $(".thinking", now)?.remove();
          dock?.classList.toggle("busy", Boolean(runs));
          if (ran && !runs) say("The turn has ended.");
        });
      } finally {
        fetching = false;
        if (again) { again = false; take(); }
      }
    };

    const boxOf = (step) => {
      let box = $$(".writing", now).find((one) => Number(one.dataset.step) === step);
      if (!box) {
        box = document.createElement("pre");
        box.className = "writing plain";
        box.dataset.step = step;
        box.append("");
        now.insertBefore(box, $(".running", now));
      }
      return box;
    };
    const onText = (event) => keepEnd(() => {
      const { step, at, text } = JSON.parse(event.data);
      const box = boxOf(step);
      const node = box.firstChild ?? box.appendChild(document.createTextNode(""));
      if (at === node.length) node.appendData(text); else node.replaceData(at, node.length - at, text);
      $(".thinking", now)?.remove();
    });
    const element = (name, kind, text) => {
      const made = document.createElement(name);
      made.className = kind;
      made.textContent = text;
      return made;
    };
    const onCalls = (event) => keepEnd(() => {
      const { calls, note, thinking } = JSON.parse(event.data);
      const box = element("div", "running", "");
      for (const call of calls) {
        const row = element("div", "call", "");
        row.append(element("b", "", call.name), " ", element("code", "about", call.about));
        if (call.tail) row.append(element("pre", "tail", call.tail));
        box.append(row);
      }
      if (note) box.append(element("p", "warning", note));
      else if (!calls.length && !$(".writing", now) && !$(".question")) box.append(element("p", "thinking", thinking ? "thinking…" : "working…"));
      $(".running", now)?.remove();
      now.append(box);
    });

    const source = listen(`${path}/follow`, () => {}, take);
    source.addEventListener("stored", take);
    source.addEventListener("text", onText);
    source.addEventListener("calls", onCalls);

    // A form of this page is sent without leaving it; what the server says to it is the page again.
    const send = async (form, button) => {
      const body = new FormData(form, button);
      const answer = await fetch(form.action, { method: "POST", body, credentials: "same-origin" });
      const page = read(await answer.text());
      if (answer.ok && !$(".problem[role]", page)) return true;
      swapProblem($(".problem", page)?.textContent ?? "That did not work. Nothing was sent.");
      return false;
    };
    const swapProblem = (text) => {
      $("#state").replaceChildren(element("p", "problem", text));
      say(text);
    };
    addEventListener("submit", async (event) => {
      const form = event.target;
      if (!form.closest("#dock, #asked")) return;
      event.preventDefault();
      const field = form.id === "say" ? $("textarea", form) : null;
      const text = field?.value ?? "";
      const sent = $(".send", form);
      if (sent) sent.disabled = true;
      try {
        if (!(await send(form, event.submitter))) return;
        if (field) {
          if (field.value === text) field.value = "";
          $("input[type=file]", form).value = "";
          showFiles(form);
          if (text.trim()) { now.append(element("pre", "said user pending plain", text)); toEnd(); }
        } else if (form.closest("#asked")) form.closest(".question").remove();
        take();
      } catch {
        swapProblem("The server can't be reached. Nothing was sent.");
      } finally {
        delete form.dataset.sent;
        if (sent) sent.disabled = false;
      }
    });
    if (!location.hash && !location.search) toEnd();
  };
  if (talking) follow();

  // --- a composer: Enter sends where there is a keyboard, pictures may be pasted and dropped
  const showFiles = (form) => {
    const names = [...$("input[type=file]", form).files].map((file) => file.name);
    $(".attached", form).textContent = names.join(", ");
  };
  const attach = (form, files) => {
    const input = $("input[type=file]", form), all = new DataTransfer();
    for (const file of [...input.files, ...files]) all.items.add(file);
    input.files = all.files;
    showFiles(form);
  };
  for (const form of $$(".composer")) {
    form.addEventListener("change", () => showFiles(form));
    form.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.target.type !== "textarea") return;
      if (!(event.ctrlKey || event.metaKey) && matchMedia("(pointer: coarse)").matches) return;
      event.preventDefault();
      if (event.target.value.trim() || $("input[type=file]", form).files.length) form.requestSubmit();
    });
    form.addEventListener("paste", (event) => {
      if (!event.clipboardData.files.length) return;
      event.preventDefault();
      attach(form, event.clipboardData.files);
    });
    form.addEventListener("dragover", (event) => event.preventDefault());
    form.addEventListener("drop", (event) => {
      if (!event.dataTransfer.files.length) return;
      event.preventDefault();
      attach(form, event.dataTransfer.files);
    });
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
  onKeys({
    "/": () => ($("#search") ?? $(".composer textarea"))?.focus(),
    j: () => showNext($("#next")).then(setPlay),
    k: () => showNext($("#back")).then(setPlay),
  });
})();
