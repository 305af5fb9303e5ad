"""Notice by surface: what each kind shows where."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import whet
from tests.agent.rig import Rig, rig
from tests.cli.test_notices import SURFACES as ANSWERS
from tests.confirm.process import Served
from tests.gateway.test_telegram import world
from tests.stories.program import use
from tests.support import quiet_port
from whet.cli.oneshot import OneShotReport, Output
from whet.contract.events import Compaction, ConfirmationAsked, Event, Notice, Retry, StreamRestarted, TurnEnd
from whet.contract.messages import Usage
from whet.serve.board.live_turn import LiveTurn
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

END = TurnEnd("s", "t", "answered", "ok", 1, usage=Usage(), duration_s=0.0)
# The kinds of things beside an answer, and a word that shows each.
KINDS: dict[str, tuple[Event, str]] = {
    "must be read": (Notice("the answer was cut", must_show=True), "answer was cut"),
    "passing": (Notice("recording files"), "recording files"),
    "retry": (Retry(1, 2.0, "server is busy"), "server is busy"),
    "restart": (StreamRestarted("connection lost"), "connection lost"),
    "compaction": (Compaction("built-in", 77_731, 4, 9_000, 900), "77731"),
    "confirmation": (ConfirmationAsked("c", "delete_data", "rm x", "r", "https://c/r", 60.0), "https://c/r"),
}
LIVE = {"chat", "editor", "page while it runs", "stream-json"}
APIS = {"api chat", "api responses", "api messages"}
# A gateway sends a confirmation at once (below); it and the APIs add what must be read to the answer.
SHOWN: dict[str, set[str]] = {
    "must be read": {*LIVE, "one-shot", "json", *ANSWERS},
    "passing": {*LIVE, "json"},
    "retry": {*LIVE, "one-shot"},
    "restart": LIVE - {"page while it runs"},  # its text begins anew there
    "compaction": LIVE,
    "confirmation": {*LIVE, *APIS, "one-shot"},
}


def _on_page(events: Sequence[Event]) -> str:
    turn = LiveTurn()
    for event in events:
        turn.apply(event)
    return turn.note


def _one_shot(r: Rig, output: Output, events: Sequence[Event], capsys: pytest.CaptureFixture[str]) -> str:
    """Return what a one-shot without a terminal writes; of one that writes an object, its notices."""
    opener = SimpleNamespace(services=SimpleNamespace(database=r.database))
    report = OneShotReport(r.session, output, cast("Any", opener))
    for event in (*events, END):
        report.emit(event)
    report.finish(0)
    out, err = capsys.readouterr()
    if output == "json":
        return "\n".join(json.loads(out)["notices"])
    return err if output == "text" else out


async def test_every_kind_of_notice_is_shown_where_the_table_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with rig(tmp_path) as r:
        surfaces: dict[str, Callable[[Sequence[Event]], str]] = {
            **{name: show for name, show in ANSWERS.items() if name not in LIVE},
            "chat": ANSWERS["chat"],
            "editor": ANSWERS["editor"],
            "page while it runs": _on_page,
            "one-shot": lambda events: _one_shot(r, "text", events, capsys),
            "json": lambda events: _one_shot(r, "json", events, capsys),
            "stream-json": lambda events: _one_shot(r, "stream-json", events, capsys),
        }
        wrong: list[str] = []
        for kind, (event, word) in KINDS.items():
            for name, show in surfaces.items():
                is_shown = word in show([event] if name in LIVE else [event, END])
                if is_shown != (name in SHOWN[kind]):
                    wrong.append(f"{kind} on {name}: shown is {is_shown}")
        assert wrong == []


def test_a_program_reads_the_notices_of_its_last_turn(tmp_path: Path) -> None:
    script = [ScriptedReply("First, stop the", stop="length"), ScriptedReply("Done.")]
    with PracticeServer(script=script) as server:
        settings = {"model.provider": "practice", "model.base_url": server.base_url}
        with whet.Agent(settings=settings, workspace=tmp_path) as agent:
            agent.run("go")
            assert [line for line in agent.notices if "was cut at the model's output limit" in line]
            agent.run("go on")
            assert agent.notices == ()


@pytest.mark.slow
@pytest.mark.unconfined
def test_a_chat_reads_at_once_that_a_human_has_to_decide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = use("terminal", command="./ship 1.0")
    script = [ScriptedReply(tool_calls=(call,)), ScriptedReply("That was it.")]
    with Served(tmp_path, "--port", str(quiet_port()), home="service") as service:
        monkeypatch.setenv("WHET_CONFIRM_URL", f"http://127.0.0.1:{service.port}")
        monkeypatch.setenv("WHET_CONFIRM_ACTIONS", "terminal(./ship *) = publish_package")
        monkeypatch.setenv("CONFIRMATION_TOKEN", service.token("submit"))
        with world(tmp_path, script) as w:
            w.telegram.write("ship it")
            line = "publish_package waits for a human's decision"
            w.telegram.wait(lambda: any(line in text for text in w.telegram.said()), line)
            (request,) = service.call("GET", "/confirm?status=pending", role="approve")[1]["requests"]
            service.call("POST", f"/confirm/{request['id']}/deny", {}, role="approve")
            w.telegram.wait(lambda: "That was it." in "".join(w.telegram.said()), "the answer")
