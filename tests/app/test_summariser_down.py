"""A summariser that never answers well, and a server that refuses what is larger than its window: each turn
is answered all the same, because code writes the summary."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.app.opened import ask, open_app, practice_model
from whet.config.schema import ContextSettings, ReviewSettings
from whet.contract.events import Compaction, Event
from whet_lab.practice.ask import PracticeRequest
from whet_lab.practice.script import Fault, ScriptedReply
from whet_lab.practice.server import PracticeServer
from whet_lab.practice.strict import Options

WINDOW = 12_000
ANSWER = "It goes on and on, and this is number {}. " + "Some words that fill the window. " * 150
FAULTS = {
    "down": ScriptedReply(fault=Fault(status=503, message="down for repair")),
    "dropped": ScriptedReply(fault=Fault(drop=True)),
    "a refusal": ScriptedReply(stop="refusal"),
    "declines in words": ScriptedReply("I'm sorry, but I can't help with that."),
    "cut": ScriptedReply("## Goal\nTo", stop="length"),
    "empty": ScriptedReply(),
    "a wish for a tool": ScriptedReply("Let me call read_file to see what was said."),
    "the window is too small for it": ScriptedReply(
        fault=Fault(status=400, message="too long", code="context_length_exceeded")
    ),
}


@pytest.mark.fast_rows("a refusal", "cut", "empty")
@pytest.mark.parametrize("kind", FAULTS)
def test_twelve_of_twelve_turns_are_answered_under_any_fault_of_the_summariser(
    tmp_path: Path, kind: str
) -> None:
    summaries = 0

    def mind(request: PracticeRequest) -> ScriptedReply:
        nonlocal summaries
        if not request.offers:  # a session always offers tools; the summariser never does
            summaries += 1
            return FAULTS[kind]
        return ScriptedReply(ANSWER.format(request.last_user.split()[-1] if request.last_user else ""))

    async def main(url: str) -> tuple[list[str], list[Event]]:
        model = practice_model(url, max_retries=0, window_tokens=WINDOW)
        review = ReviewSettings(worker="off", turns=0, steps=0)
        events: list[Event] = []
        async with open_app(tmp_path / "home", tmp_path, model, review=review) as app:
            session = await app.new_session()
            ends = [await ask(session, f"question {number}", events) for number in range(12)]
        return [end.reason for end in ends], events

    with PracticeServer(responder=mind, options=Options(window_tokens=WINDOW)) as server:
        reasons, events = asyncio.run(main(server.base_url))
    assert reasons == ["answered"] * 12
    assert summaries and sum(isinstance(event, Compaction) for event in events) >= 1


async def test_another_model_for_summaries_has_its_own_limits(tmp_path: Path) -> None:
    def mind(request: PracticeRequest) -> ScriptedReply:
        return ScriptedReply(ANSWER.format(1) if request.offers else "## Goal\nTo answer.")

    with PracticeServer(responder=mind) as server:
        model = practice_model(server.base_url, window_tokens=WINDOW, max_output_tokens=2_000)
        sections: dict[str, Any] = {
            "context": ContextSettings(summary_model="practice-small"),
            "review": ReviewSettings(worker="off", turns=0, steps=0),
        }
        async with open_app(tmp_path / "home", tmp_path, model, **sections) as app:
            session = await app.new_session()
            for number in range(12):
                await ask(session, f"question {number}")
        bodies = [request.json_body for request in server.requests]
        summaries = [body for body in bodies if body["model"] == "practice-small"]
        assert summaries and not any("max_tokens" in body for body in summaries)
        assert all(len(str(body["messages"])) > 20_000 for body in summaries), "nothing is cut"
