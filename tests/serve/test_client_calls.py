"""Tools of a program at the other end: what is offered, who waits for which result, how a talk is known."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.serve.test_reading import CALL, IMAGE, SPEC, refused
from whet.contract.errors import ToolError
from whet.contract.events import Event, TurnEnd
from whet.contract.messages import Message, TextPart, ToolCall, to_dict
from whet.contract.tools import ToolContext, ToolOutput, ToolSpec
from whet.serve.client_tools import CallResult, ClientTools, public_id, session_of_call, spec_of
from whet.serve.content import Utterance
from whet.serve.history import fingerprint, to_past_messages
from whet.serve.suspended_turn import SuspendedTurn

SESSION = "s" * 16


async def nobody(question: str, choices: object) -> None:
    return None


def context(call_id: str = "c1", session_id: str = SESSION) -> ToolContext:
    return ToolContext(session_id, "t1", call_id, Path(), print, nobody)


def test_a_call_is_known_by_its_session_and_the_same_after_a_restart() -> None:
    text = public_id(context())
    assert text == public_id(context()) != public_id(context("c2"))
    assert text.startswith(f"call_{SESSION}_") and len(text) == 5 + 16 + 1 + 12
    assert session_of_call(text) == SESSION
    for other in ("", "c1", text + "0", text.replace("call_", "Call_"), f"call_{'s' * 15}_{'0' * 12}"):
        assert session_of_call(other) == ""


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ((7, "", None), ("a tool needs a name of at most 64 letters, digits, _ and -", "t.name", "")),
        (("a b", "", None), ("a tool needs a name of at most 64 letters, digits, _ and -", "t.name", "")),
        (("a" * 65, "", None), ("a tool needs a name of at most 64 letters, digits, _ and -", "t.name", "")),
        (("a", "", 7), ("a tool's schema must be an object", "t.parameters", "")),
        (("a", "", {"type": "array"}), ("a tool's schema must be of type object", "t.parameters.type", "")),
    ],
)
def test_a_tool_of_no_use_is_named(given: tuple[Any, Any, Any], told: tuple[str, str, str]) -> None:
    assert refused(lambda: spec_of(*given, "t")) == told


def test_a_tool_is_read_with_what_is_left_out_of_it() -> None:
    empty = {"type": "object", "properties": {}}
    assert spec_of("a" * 64, None, None, "t") == ToolSpec("a" * 64, "", empty)
    assert spec_of("a", "A.", {"properties": {}}, "t") == ToolSpec("a", "A.", {"properties": {}})


async def test_calls_wait_for_their_results_and_those_without_one_are_told_so() -> None:
    tools, asked = ClientTools(), list[str]()
    tools.on_call = asked.append
    assert tools.tools_for(SESSION) == ()
    tools.offer(SESSION, [SPEC])
    (tool,) = tools.tools_for(SESSION)
    assert (tool.spec, tool.toolset, tool.effects, tool.parallel, tool.repeatable) == (
        SPEC,
        "client",
        {"read"},
        True,
        True,
    )
    assert tool.timeout_s is None and tool.tags == {"untrusted"}
    running = [asyncio.create_task(tool.run(context(name), {"q": 1})) for name in ("c1", "c2", "c3")]
    while len(asked) < 3:
        await asyncio.sleep(0)
    waiting = tools.waiting_calls(SESSION)
    assert [(call.name, call.arguments) for call in waiting] == [("look", '{"q":1}')] * 3
    ids = [call.id for call in waiting]
    assert ids == [public_id(context(name)) for name in ("c1", "c2", "c3")] and asked == [SESSION] * 3
    assert tools.waiting_calls("other") == ()
    results = [CallResult(ids[0], "4", images=(IMAGE,)), CallResult(ids[1], "no", is_error=True)]
    assert tools.deliver(SESSION, results) is True and tools.waiting_calls(SESSION) == ()
    assert await asyncio.gather(*running) == [
        ToolOutput("4", images=(IMAGE,), origin="brought"),
        ToolOutput("no", "failed", origin="brought"),
        ToolOutput("The program gave no result for this call.", error_kind="cancelled"),
    ]
    tools.withdraw(SESSION)
    with pytest.raises(ToolError, match="look belongs to a program that is not there now"):
        await tool.run(context(), {})


async def test_a_result_that_comes_before_its_call_is_kept_until_the_offer_is_withdrawn() -> None:
    tools = ClientTools()
    tools.offer(SESSION, [SPEC])
    (tool,) = tools.tools([SPEC])
    ids = [public_id(context(name)) for name in ("c1", "c2")]
    foreign = public_id(context("c1", "o" * 16))
    given = [CallResult(text, text) for text in (*ids, foreign, "x")]
    assert tools.deliver(SESSION, given) is False
    assert await tool.run(context("c1"), {}) == ToolOutput(ids[0], "", origin="brought")
    tools.withdraw(SESSION)
    tools.offer(SESSION, [SPEC])
    late = asyncio.create_task(tool.run(context("c2"), {}))
    while not tools.waiting_calls(SESSION):
        await asyncio.sleep(0)
    late.cancel()
    await asyncio.gather(late, return_exceptions=True)
    assert tools.waiting_calls(SESSION) == ()


# A turn that is held.


async def test_a_turn_whose_program_does_not_come_back_is_given_up() -> None:
    tools = ClientTools()
    tools.offer(SESSION, [SPEC])
    (tool,) = tools.tools([SPEC])
    held = SuspendedTurn(SESSION, tools, 0.01)
    tools.on_call = lambda session_id: held.note_waiting_call()
    missed: list[Event] = []

    async def work(emit: Any) -> TurnEnd:
        await tool.run(context(), {})
        raise AssertionError

    held.start(work)
    await held.run_round(lambda event: None)
    await asyncio.wait((held.task,))
    end = await held.run_round(missed.append)  # type: ignore[arg-type]
    assert end.reason == "cancelled" and held.task.cancelled() and missed == []


# By what a conversation is known.

ASKED, SAID = Utterance("user", "q"), Utterance("assistant", "a")


def test_the_fingerprint_of_the_words_leaves_out_how_they_are_split_and_what_is_no_word() -> None:
    text = fingerprint([ASKED], "a", has_all=False)
    assert text.startswith("tip:") and len(text) == 44
    system, result = Utterance("system", "x"), Utterance("other", "", results=(CallResult("c1", "4"),))
    for same in (
        [ASKED, SAID],
        [ASKED, SAID, Utterance("user", "next")],
        [system, ASKED, result, SAID, system],
        [Utterance("user", " q\n"), Utterance("assistant", "a ")],
        [ASKED, Utterance("assistant", ""), Utterance("user", ""), SAID],
    ):
        assert fingerprint(same, has_all=False) == text
    for other in (
        [Utterance("user", "q", (IMAGE,)), SAID],
        [SAID],
        [ASKED, Utterance("assistant", "b")],
        [Utterance("assistant", "qa")],
        [ASKED, SAID, ASKED, SAID],
    ):
        assert fingerprint(other, has_all=False) not in (text, "")
    split = [ASKED, Utterance("assistant", "a"), Utterance("assistant", "b")]
    assert fingerprint(split) == fingerprint([ASKED, Utterance("assistant", "ab")])
    assert fingerprint([]) == fingerprint([ASKED]) == fingerprint([Utterance("assistant", " ")]) == ""


def test_the_fingerprint_of_all_differs_by_instructions_calls_results_and_owner() -> None:
    system, result = Utterance("system", "x"), Utterance("other", "", results=(CallResult("c1", "4"),))
    calling = Utterance("assistant", "", calls=(CALL,))
    plain = fingerprint([ASKED], "a")
    assert plain == fingerprint([ASKED, SAID, system, Utterance("user", "next")])
    others = [
        fingerprint([system, ASKED], "a"),
        fingerprint([ASKED, calling], "a"),
        fingerprint([ASKED, calling, result], "a"),
        fingerprint([ASKED, calling, Utterance("other", "", results=(CallResult("c1", "5"),))], "a"),
        fingerprint([ASKED], "a", "ann"),
        fingerprint([ASKED], "a", has_all=False),
    ]
    assert len({plain, *others}) == 1 + len(others)


def test_a_history_is_stored_with_each_answers_results_behind_it() -> None:
    second = ToolCall("c2", "look", "{}")
    utterances = [
        Utterance("system", "x"),
        Utterance("user", "q", (IMAGE,)),
        Utterance("assistant", "", calls=(CALL, second)),
        Utterance("other", "", results=(CallResult("c1", "4", images=(IMAGE,)),)),
        Utterance("user", ""),
        Utterance("assistant", "", (IMAGE,)),
        Utterance("assistant", "no", calls=(CALL,)),
        Utterance("other", "", results=(CallResult("c1", "bad", is_error=True),)),
        Utterance("user", "next"),
    ]
    none = "The program that this conversation comes from gave no result for this call."
    rows = [(to_dict(message.message), message.error_kind) for message in to_past_messages(utterances, 7)]
    wanted = [
        (Message("user", (TextPart("q"), IMAGE)), ""),
        (Message("assistant", "", (CALL, second)), ""),
        (Message("tool", (TextPart("4"), IMAGE), tool_call_id="c1", tool_name="look"), ""),
        (Message("tool", none, tool_call_id="c2", tool_name="look", is_error=True), "interrupted"),
        (Message("assistant", "[images]"), ""),
        (Message("assistant", "no", (CALL,)), ""),
        (Message("tool", "bad", tool_call_id="c1", tool_name="look", is_error=True), "failed"),
        (Message("user", "next"), ""),
    ]
    assert rows == [(to_dict(message), kind) for message, kind in wanted]
