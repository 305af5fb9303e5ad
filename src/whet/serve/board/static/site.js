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

  const element = (name, kind, text) => {
    const made = document.createElement(name);
    made.className = kind;
    made.textContent = text;
    return made;
  };

  // On a narrow screen the pages are behind a button, which names the open one.
  const nameMenu = () => {
    const here = $(".pages [aria-current]"), button = $("#menu");
    if (button) button.textContent = here ? `Menu · ${here.firstChild.textContent.trim()}` : "Menu";
  };
  const openMenu = (open) => $("#menu")?.setAttribute("aria-expanded", String(open));
  nameMenu();

  const swapSide = (fresh) => {
    const old = $("#listed");
    if (!old || $("#side").contains(document.activeElement)) return;
    const at = $("#side").scrollTop;
    swap(fresh, "#listed");
    $("#side").scrollTop = at;
    narrow();
  };

  // What is written and not sent yet stays when the page is renewed.
  const hasDraft = (form) => form && ($("textarea", form).value !== "" || $("input[type=file]", form).files.length > 0
    || $$("input, select", form).some((field) => field.defaultValue !== undefined && !["file", "hidden"].includes(field.type) && field.value !== field.defaultValue));

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
        const draft = $("#main .composer");
        swap(fresh, "#main");
        if (hasDraft(draft)) $("#main .composer").replaceWith(draft);
        swap(fresh, "#pages");
        swapSide(fresh);
        nameMenu();
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
    // The message before this one may be shown later than this one was sent: the words say which one came.
    const bare = (node) => node.textContent.replace(/\s+/g, "");
    const isSame = (sent, young) => bare(young).includes(bare(sent));
    const merge = (fresh) => {
      for (const young of $$("#talk li[id]", fresh)) {
        const old = document.getElementById(young.id);
        if (!old) {
          $(".none", talk)?.remove();
          talk.lastElementChild.append(document.adoptNode(young));
          if (young.classList.contains("user")) $$(".pending", now).find((sent) => isSame(sent, young))?.remove();
        } else if (!old.isEqualNode(young)) {
          const open = $$("details", old).map((fold) => fold.open);
          old.replaceWith(document.adoptNode(young));
          $$("details", young).forEach((fold, index) => { if (open[index]) fold.open = true; });
        }
      }
      const asked = $$(".question", fresh).length > $$(".question").length;
      // A question never changes: one that is there already stays, with what is pressed or typed in it.
      const ids = (root) => $$("#asked .question", root).map((question) => question.id).join();
      const typing = document.activeElement?.closest("#asked .question");
      const keeps = ids(document) === ids(fresh) || (typing && fresh.getElementById(typing.id));
      const named = $("#facts").contains(document.activeElement);
      const planned = $("#plan textarea"), drafts = planned && planned.value !== planned.defaultValue;
      for (const part of ["#title", ...(named ? [] : ["#facts"]), "#player", "#state", "#pages", ...(keeps ? [] : ["#asked"]), ...(drafts ? [] : ["#plan"]), ...($("#bar details[open]") ? [] : ["#bar"])]) swap(fresh, part);
      swapSide(fresh);
      nameMenu();
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
          if (ran && !runs) for (const sent of $$(".pending", now)) sent.remove();
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
      if (answer.ok && !$(".problem[role]", page)) { swap(page, "#output"); return true; }
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
          if (text.trim() && !$("#output pre")) { now.append(element("pre", "said user pending plain", text)); toEnd(); }
        } else if (form.closest("#asked")) form.closest(".question").remove();
        else closeChips();
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

  // --- a composer: Enter sends where there is a keyboard, pictures may be pasted and dropped
  const setFiles = (form, files) => {
    const all = new DataTransfer();
    for (const file of files) all.items.add(file);
    $("input[type=file]", form).files = all.files;
    showFiles(form);
  };
  const attach = (form, files) => setFiles(form, [...$("input[type=file]", form).files, ...files]);
  const drawSmall = async (file, canvas) => {
    try {
      const image = await createImageBitmap(file), least = Math.min(image.width, image.height);
      canvas.getContext("2d").drawImage(image, (image.width - least) / 2, (image.height - least) / 2, least, least, 0, 0, 68, 68);
    } catch { canvas.remove(); }
  };
  const showFiles = (form) => {
    const files = [...$("input[type=file]", form).files];
    $(".attached", form).replaceChildren(...files.map((file) => {
      const piece = element("span", "piece", "");
      if (file.type.startsWith("image/")) {
        const canvas = element("canvas", "", "");
        canvas.width = canvas.height = 68;
        piece.append(canvas);
        drawSmall(file, canvas);
      }
      const remove = element("button", "icon", "✕");
      remove.type = "button";
      remove.setAttribute("aria-label", `Remove ${file.name}`);
      remove.addEventListener("click", () => setFiles(form, files.filter((other) => other !== file)));
      piece.append(element("span", "", file.name), remove);
      return piece;
    }));
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
  }
  // A file that is dropped anywhere on the page is attached.
  const composer = $(".composer"), hasFiles = (event) => composer && [...event.dataTransfer.types].includes("Files");
  const showDrop = (on) => document.body.classList.toggle("dropping", on);
  addEventListener("dragover", (event) => { if (hasFiles(event)) { event.preventDefault(); showDrop(true); } });
  addEventListener("dragleave", (event) => { if (!event.relatedTarget) showDrop(false); });
  addEventListener("drop", (event) => {
    showDrop(false);
    if (!hasFiles(event)) return;
    event.preventDefault();
    attach(composer, event.dataTransfer.files);
    composer.scrollIntoView({ block: "nearest" });
  });

  // --- what is small: the menu, copying, the chips at the box, the list at the side, the time that a question has
  const copyText = async (text) => {
    try { await navigator.clipboard.writeText(text); return true; } catch { /* no secure context */ }
    const field = element("textarea", "spoken", "");
    field.value = text;
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  };
  const closeChips = () => { for (const chip of $$("#bar details[open]")) chip.open = false; };
  addEventListener("click", async (event) => {
    const { target } = event;
    if (target.id === "menu") { openMenu(target.getAttribute("aria-expanded") !== "true"); return; }
    if (!target.closest(".top nav")) openMenu(false);
    if (!target.closest("#bar")) closeChips();
    if (!target.matches(".copy")) return;
    const source = target.dataset.copies === "code" ? $("code", target.closest(".block")) : $(".prose", target.closest("li"));
    const text = target.dataset.copies === "code" ? source.textContent : source.innerText;
    target.textContent = await copyText(text) ? "Copied" : "Not copied";
    say(target.textContent);
    setTimeout(() => { target.textContent = "Copy"; }, 1500);
  });
  addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    openMenu(false);
    const chip = $("#bar details[open]");
    if (chip) { chip.open = false; $("summary", chip).focus(); }
  });
  const narrow = () => {
    const words = ($("#find")?.value ?? "").toLowerCase();
    for (const row of $$("#listed li")) row.hidden = !row.textContent.toLowerCase().includes(words);
    for (const head of $$("#listed h2")) head.hidden = $$("li", head.nextElementSibling).every((row) => row.hidden);
  };
  $("#find")?.addEventListener("input", narrow);
  const countDown = () => {
    for (const time of $$("time.left")) {
      const left = Math.max(0, Math.round((new Date(time.dateTime) - Date.now()) / 1000));
      time.textContent = left >= 7200 ? `${Math.floor(left / 3600)} h` : left >= 120 ? `${Math.floor(left / 60)} min` : `${left} s`;
    }
  };
  setInterval(countDown, 1000);

  // --- commands: a line that begins with / lists those that fit; Tab or a press takes one
  const list = $("#commands"), box = list?.closest("form").querySelector("textarea");
  const fits = () => $$("li", list).filter((row) => !row.hidden);
  const mark = (row) => { for (const each of $$("li", list)) each.setAttribute("aria-selected", String(each === row)); };
  const complete = () => {
    const typed = box.value;
    for (const row of $$("li", list)) row.hidden = !row.dataset.name.startsWith(typed);
    list.hidden = !/^\/[a-z0-9-]*$/.test(typed) || !fits().length;
    mark(fits()[0]);
  };
  const take = (row) => { box.value = `${row.dataset.name} `; list.hidden = true; box.focus(); };
  if (list) {
    box.addEventListener("input", complete);
    box.addEventListener("keydown", (event) => {
      if (list.hidden || !["Tab", "ArrowDown", "ArrowUp", "Escape"].includes(event.key)) return;
      event.preventDefault();
      if (event.key === "Escape") { list.hidden = true; return; }
      const rows = fits(), at = rows.findIndex((row) => row.getAttribute("aria-selected") === "true");
      if (event.key === "Tab") take(rows[Math.max(at, 0)]);
      else { const row = rows[(at + (event.key === "ArrowDown" ? 1 : rows.length - 1)) % rows.length]; mark(row); row.scrollIntoView({ block: "nearest" }); }
    });
    list.addEventListener("pointerdown", (event) => { event.preventDefault(); const row = event.target.closest("li"); if (row) take(row); });
    box.form.addEventListener("submit", () => { list.hidden = true; });
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
  const beside = (step) => {
    const rows = $$("#listed li:not([hidden]) a"), at = rows.findIndex((row) => row.hasAttribute("aria-current"));
    const row = rows[at < 0 ? 0 : at + step];
    if (row) location.href = row.href;
  };
  const toAnswer = (number) => $$(".question .deeds button")[number - 1]?.focus();
  const openCalls = () => {
    const calls = $$("#talk .step"), open = calls.some((call) => !call.open);
    for (const call of calls) call.open = open;
  };
  onKeys({
    "?": () => $("#keys")?.showModal(),
    "/": () => ($("#search") ?? $(".composer textarea"))?.focus(),
    s: () => { const find = $("#find"); if (find?.offsetParent) find.focus(); else location.href = "/sessions"; },
    n: () => { if (location.pathname === "/") $(".composer textarea").focus(); else location.href = "/#begin"; },
    "[": () => beside(-1),
    "]": () => beside(1),
    o: openCalls,
    c: () => { if (talking) location.href = `/sessions/${encodeURIComponent(talking.dataset.session)}/changes`; },
    m: () => { const chip = $$("#bar .chip")[1]; if (chip) { chip.open = true; $("button", chip).focus(); } },
    e: () => scrollTo({ top: document.documentElement.scrollHeight }),
    ...Object.fromEntries([1, 2, 3, 4, 5, 6, 7, 8, 9].map((number) => [number, () => toAnswer(number)])),
    j: () => showNext($("#next")).then(setPlay),
    k: () => showNext($("#back")).then(setPlay),
  });
  if (talking) follow();
})();
