"""Drives every interface through the calls of `tests/writes.py` and gathers what each question showed."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import httpx2
from acp.schema import ContentToolCallContent, FileEditToolCallContent, TextContentBlock

from tests.cli.running import Tty, flags
from tests.editors.rig import Desk, pick
from tests.gateway.test_telegram import world
from tests.serve.conftest import Api
from tests.serve.test_board import sign_in
from tests.serve.test_native import begin
from tests.writes import WRITES, missing, prepare
from whet.visible import WHOLE, visible
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

Shown = dict[str, str]


def script() -> list[ScriptedReply]:
    """The model makes every call, one a step."""
    return [*(ScriptedReply(tool_calls=(call,)) for call, _ in WRITES.values()), ScriptedReply("All done.")]


def blind(shown: Shown) -> list[str]:
    """Say what of which writes was not shown."""
    return [
        f"{kind}: {text[:200]!r}"
        for kind, (_, lines) in WRITES.items()
        for text in missing(shown[kind], lines)
    ]


def in_terminal(folder: Path, *, one_shot: bool) -> Shown:
    """A terminal: the question, and all of it where the question offers that."""
    prepare(folder)
    texts: Shown = {}
    question = ["-q", "go"] if one_shot else []
    with (
        PracticeServer(script=script()) as server,
        Tty(["chat", *flags(server), *question], folder, columns=100, environ={"PAGER": "cat"}) as tty,
    ):
        if not one_shot:
            tty.wait_for("Ctrl-D")
            tty.type("go\r")
        for kind in WRITES:
            texts[kind] = tty.wait_for("Whet wants to") + tty.wait_for("Enter alone is no:")
            if "only shows all" in texts[kind]:
                tty.type("v\r")
                texts[kind] += tty.wait_for("Enter alone is no:")
            tty.type("o\r")
            if not one_shot:
                texts[kind] += tty.wait_for("● ")  # the call has run: its question is drawn no more
        texts["the end"] = tty.wait_for("All done.")
    return texts


def in_editor(desk: Desk) -> Shown:
    """An editor: texts, and files before and after, which the editor compares itself."""
    prepare(desk.work)
    desk.server.install(script())
    desk.editor.answer = pick("allow_once")

    async def story() -> None:
        await desk.ask(await desk.session(), "go")

    desk.run(story())
    return dict(zip(WRITES, (_blocks(call) for call, _ in desk.editor.asked), strict=True))


def _blocks(call: Any) -> str:
    rows: list[str] = []
    for block in call.content or ():
        if isinstance(block, FileEditToolCallContent):
            rows += _drawn("-", block.old_text or "") + _drawn("+", block.new_text)
        elif isinstance(block, ContentToolCallContent) and isinstance(block.content, TextContentBlock):
            rows.append(block.content.text)
    return "\n".join(rows)


def _drawn(sign: str, text: str) -> list[str]:
    rows = [sign + visible(row, WHOLE) for row in text.split("\n")]
    return rows[:-1] if rows[-1] == sign else [*rows[:-1], rows[-1] + "  (no newline at the end)"]


def in_chat(folder: Path) -> Shown:
    """A chat platform: every message of a question, and of all of it where a button offers that."""
    found: Shown = {}
    with world(folder, script(), mode="ask") as w:
        prepare(w.work)
        w.telegram.write("go")
        said = last = 0

        def fresh(*labels: str) -> int | None:
            number = max(w.telegram.buttons().get(label, (0, ""))[0] for label in labels)
            return number if number > last else None

        for kind in WRITES:
            last = w.telegram.wait(lambda: fresh("Allow once", "Show all"), f"the question about {kind}")
            if w.telegram.buttons().get("Show all", (0, ""))[0] == last:
                w.telegram.answer(w.telegram.press_at("Show all"))
                last = w.telegram.wait(lambda: fresh("Allow once"), f"all of the question about {kind}")
            texts = w.telegram.said()
            found[kind], said = "\n".join(texts[said:]), len(texts)
            w.telegram.answer(w.telegram.press_at("Allow once"))
        w.telegram.wait_said("All done.")
    return found


def on_page(api: Api) -> tuple[Shown, Shown]:
    """What the API says of each question, and what the page shows."""
    prepare(api.workspace)
    api.say(*script())
    by_api: Shown = {}
    by_page: Shown = {}
    with api.http() as owner, httpx2.Client(base_url=api.url, timeout=30) as person:
        sign_in(person, api, api.token)
        session = begin(owner)
        assert owner.post(f"/api/sessions/{session}/turns", json={"text": "go"}).status_code < 300
        seen: set[str] = set()
        for kind in WRITES:
            fields = waiting(owner, seen)
            seen.add(fields["id"])
            by_api[kind] = "\n".join((fields["title"], *(row["text"] for row in fields["body"])))
            page = person.get(f"/sessions/{session}").text
            asked = page.partition('id="asked"')[2].partition("</section>")[0]
            kept = asked.partition('<details class="fold">')[0]  # the form to change it is no diff
            by_page[kind] = text_of(kept)
            answer = owner.post(f"/api/approvals/{fields['id']}", json={"answer": "once"})
            assert answer.status_code == 200, answer.text
    return by_api, by_page


def text_of(page: str) -> str:
    """Give the text of a piece of a page; the rows of a diff are lines again, with their signs."""
    rows = re.sub(r'<span class="(?:at"[^>]*|spoken")>[^<]*</span>', "", page)
    rows = re.sub(
        r'<span class="mark"[^>]*>([^<]*)</span>', lambda mark: mark[1].replace("−", "-") or " ", rows
    )
    return html.unescape(re.sub(r"<[^>]+>", "", rows.replace('</div><div class="', '</div>\n<div class="')))


def waiting(owner: httpx2.Client, seen: set[str]) -> dict[str, Any]:
    """Give the question that waits and is none of those seen."""
    while True:
        for approval in owner.get("/api/approvals").json()["approvals"]:
            if approval["id"] not in seen:
                return approval
