"""What a person must read about an answer, on every surface: notice by notice, surface by surface."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.agent.rig import calls, rig
from tests.cli.running import flags, run
from tests.gateway.test_telegram import world
from whet.contract.events import Event, Notice, TurnEnd
from whet.contract.messages import Usage
from whet.contract.tools import ToolContext
from whet.editors.view import side_note
from whet.serve.board.live_turn import LiveTurns
from whet.serve.chat import ChatCodec
from whet.serve.messages import MessagesCodec, MessagesRequest
from whet.serve.responses import ResponsesCodec, ResponsesRequest
from whet.serve.wire import encode
from whet.terminal import wording
from whet.tools.signature import tool
from whet_lab.practice.script import Fault, ScriptedReply
from whet_lab.practice.server import PracticeServer

RULES = "".join(f"- rule {number}: check the thing.\n" for number in range(900))
THOUGHT = ScriptedReply(reasoning="I should read the file now")
ANSWERS: dict[str, tuple[list[ScriptedReply], str]] = {
    "cut": ([ScriptedReply("First, stop the", stop="length")], "was cut at the model's output limit"),
    "cut before a word": ([msgspec.structs.replace(THOUGHT, stop="length")], "before its first word"),
    "thought alone": ([THOUGHT, THOUGHT], "only thought and gave no answer"),
    "nothing": ([ScriptedReply(), ScriptedReply()], "ended its turn and gave no answer"),
}
RULE = ([ScriptedReply("ok")], "Read(secrets/*) names no tool, so it holds nothing")
HOOK = ([ScriptedReply("ok")], "hooks: guard names no tool, so it never runs")
INSTRUCTIONS = ([ScriptedReply("ok")], "AGENTS.md has more than 12,000 characters")

MISTAKES = {"rule": RULE, "hook": HOOK, "instructions": INSTRUCTIONS}


def on_page(events: Sequence[Event]) -> str:
    live = LiveTurns()
    for event in events:
        live.handle_event("s", event)
    return live.problem("s")


def body_of(codec: Any, events: Sequence[Event]) -> str:
    """Return an API's answer, whole and as a stream."""
    for event in events:
        codec.event(event)
    end = next(event for event in events if isinstance(event, TurnEnd))
    shown = encode(codec.whole(end)).decode()
    assert ("notices" in shown) is (b"notices" in codec.end(end)), "whole and streamed differ"
    return shown


SURFACES: dict[str, Callable[[Sequence[Event]], str]] = {
    "chat": lambda events: "\n".join(wording.aside(event) for event in events),
    "editor": lambda events: "\n".join(side_note(event) for event in events),
    "page": on_page,
    "api chat": lambda events: body_of(ChatCodec("a", "whet"), events),
    "api responses": lambda events: body_of(ResponsesCodec("r", ResponsesRequest("whet", "go")), events),
    "api messages": lambda events: body_of(MessagesCodec("a", MessagesRequest("whet", [])), events),
    "one-shot and gateway": lambda events: "\n".join(
        event.text for event in events if isinstance(event, Notice) and event.must_show
    ),
}


def unlucky(status: int, message: str, when: str) -> list[ScriptedReply]:
    body = json.dumps({"error": {"message": message}})
    return [ScriptedReply(fault=Fault(status=status, body=body), when=when)] * 6


CHANGES: dict[str, tuple[list[ScriptedReply], str]] = {
    "calls as text": (
        [*unlucky(400, "Bad Request", '"tool_call_id"'), calls(("look", "{}")), ScriptedReply("ok")],
        "tool calls and their results sent as plain text from now on",
    ),
    "a tool left out": (
        [*unlucky(400, "Invalid schema for function 'shout'", '"name":"shout"'), ScriptedReply("ok")],
        "refused the tool shout, so it is left out",
    ),
    "tools left out": (
        [*unlucky(400, "Too many tools: 4 at most", '"name":"crash"'), ScriptedReply("ok")],
        "as too many, so the last",
    ),
    "a text shortened": (
        [
            *unlucky(400, "This model's maximum context length is 9 tokens", "x" * 5_000),
            calls(("shout_long", "{}")),
            ScriptedReply("ok"),
        ],
        "1 long text shortened from now on",
    ),
}


@tool(toolset="x", effects={"read"})
async def shout_long(ctx: ToolContext) -> str:
    """Say very much."""
    return "x" * 9_000


@pytest.mark.parametrize("name", [*CHANGES, *ANSWERS])
async def test_what_was_left_out_and_a_missing_answer_are_shown_on_every_surface(
    tmp_path: Path, name: str
) -> None:
    script, line = (CHANGES | ANSWERS)[name]
    async with rig(tmp_path, script, more_tools=[shout_long]) as r:
        end = await r.turn("go")
        assert end.reason == "answered" and (name in ANSWERS or end.text == "ok"), end.error
        shown = {surface: show(r.events) for surface, show in SURFACES.items()}
        assert [surface for surface, text in shown.items() if line not in text] == []
        (notice,) = [notice for notice in r.seen(Notice) if line in notice.text]
        assert notice.must_show, "one-shots and chats show no other notices"


async def test_a_thought_without_words_is_asked_for_once_more_and_both_are_counted(tmp_path: Path) -> None:
    async with rig(tmp_path, [THOUGHT, ScriptedReply("Here it is.")]) as r:
        end = await r.turn("go")
        assert (end.text, len(r.server.requests), end.steps) == ("Here it is.", 2, 1)
        assert end.usage.prompt_tokens > 1.5 * len(r.server.requests[0].body) / 8
        assert not any(notice.must_show for notice in r.seen(Notice))


def test_a_page_shows_the_notices_of_the_last_turn_only() -> None:
    live = LiveTurns()
    end = TurnEnd("s", "t", "answered", "", 1, usage=Usage(), duration_s=0.0)
    for event in (Notice("cut", must_show=True), Notice("a key was switched"), end):
        live.handle_event("s", event)
    assert live.problem("s") == "cut"
    live.handle_event("s", end)
    assert live.problem("s") == ""


@pytest.mark.slow
@pytest.mark.parametrize("name", [*ANSWERS, *MISTAKES])
def test_a_one_shot_says_it_on_standard_error_and_in_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    script, line = (ANSWERS | MISTAKES)[name]
    folder = tmp_path / "work"
    folder.mkdir()
    if name == "rule":
        monkeypatch.setenv("WHET_APPROVAL_DENY", "Read(secrets/*)")
    if name == "hook":
        guard = {"event": "PreToolUse", "tools": "Bash", "command": "exit 2"}
        monkeypatch.setenv("WHET_HOOKS_COMMANDS", json.dumps({"guard": guard}))
    if name == "instructions":
        (folder / "AGENTS.md").write_text(RULES)
    with PracticeServer(script=[*script, *script]) as server:
        code, _, err = run(["chat", "-q", "go", *flags(server)], folder)
        assert (code, line in err) == (int(name in ANSWERS and name != "cut"), True)
        _, out, _ = run(["chat", "-q", "go", "--json", *flags(server)], folder)
        assert any(line in notice for notice in json.loads(out)["notices"])


@pytest.mark.slow
@pytest.mark.unconfined
@pytest.mark.parametrize("name", ANSWERS)
def test_a_chat_is_told_below_the_answer(tmp_path: Path, name: str) -> None:
    script, line = ANSWERS[name]
    with world(tmp_path, script) as w:
        w.telegram.write("hello")
        w.telegram.wait(lambda: any(line in text for text in w.telegram.said()), line)


@pytest.mark.slow
def test_shortened_input_is_told_in_a_one_shot(tmp_path: Path) -> None:
    with PracticeServer(script=[ScriptedReply("ok"), ScriptedReply("ok")]) as server:
        _, _, err = run(["chat", "-q", "sum up", *flags(server)], tmp_path, given=b"word " * 60_000)
        assert "standard input was too long" in err
        _, out, _ = run(["chat", "-q", "sum up", "--json", *flags(server)], tmp_path, given=b"w " * 150_000)
        assert "standard input was too long" in json.loads(out)["notices"][0]
