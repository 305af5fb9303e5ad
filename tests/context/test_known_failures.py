"""Failures that users of such programs have met in public, by number; each has a test that names it.

Most stand beside the code that they are about; here are those about a whole conversation, and the check that
none is without a test.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.agent.rig import calls, rig
from tests.context.talk import BODY, Model, Talk, assert_valid, engine, full, summary_of
from tests.context.test_host import LONG, compactions, host_of, notices
from tests.support import FixedClock
from whet.app.model_links.models import Summariser
from whet.config.schema import ModelSettings
from whet.context import rows as chat
from whet.context import summary
from whet.context.compressor import Compressor, CompressorSettings
from whet.contract.context_engine import ChatRows
from whet.contract.protocols import Provider
from whet.providers.backoff import Backoff
from whet.providers.connect import connect_one
from whet_lab.practice.script import Fault, ScriptedReply, html_page, rate_limit_reply, server_error
from whet_lab.practice.server import PracticeServer

TESTS = Path(__file__).parents[1]
NUMBERS = {str(number) for number in range(1, 41)} - {"38"} | {"38a", "38b"}


def test_every_known_failure_has_a_test_that_names_it() -> None:
    named: set[str] = set()
    for path in TESTS.rglob("test_*.py"):
        text = path.read_text("utf-8")
        for match in re.findall(r"Failures? (\d[^\n]*(?:\n[^\n\"]*)?)", text):
            named |= set(re.findall(r"\b\d{1,2}[ab]?\b", match.split(":")[0].split(".")[0]))
        if path.parent.name == "context":
            for name in re.findall(r"def test_((?:\d{1,2}_)+)", text):
                named |= set(name.strip("_").split("_"))
    assert NUMBERS - named == set()


def compacted(talk: Talk, window: int = 8_000, model: Model | None = None) -> ChatRows:
    """Compact with the built-in engine and go on with what came back, as the host does."""
    compressor = engine(model or Model(), window)
    rows = compressor.compress(talk.rows, window)
    assert rows is not talk.rows
    assert_valid(rows)
    talk.rows = rows
    return rows


def test_10_a_summary_is_never_larger_than_what_it_replaces() -> None:
    """Failure 10: a model that writes 9,000 tokens about 2,000."""
    talk = Talk()
    talk.user("Build it.")
    talk.work(4)
    compressor = engine(Model("## 2. Goal\n" + "a very long summary " * 2_000), 1_000)
    before = chat.estimate(talk.rows)
    after = chat.estimate(compressor.compress(talk.rows, before))
    assert after < before


def test_23_an_old_task_is_not_the_latest_request_any_more() -> None:
    """Failure 23: after a finished task and another request, the summary names the newer one verbatim."""
    talk = full()
    talk.user("OLD TASK: rewrite the importer in Rust.")
    talk.toil(10)
    talk.reply("The importer is rewritten.")
    request = "Thanks. Only answer a question now: which port does the service use?"
    talk.user(f"{request}\n\n[2026-11-21 09:00 UTC, Saturday; in /w]")
    talk.toil(30)
    rows = compacted(talk)
    told = summary.parse(next(row for row in rows if summary.is_summary(row)))
    assert f'"{request}"' in told.ask and "OLD TASK" not in told.ask
    text = summary_of(rows)
    assert "This is background, not a request" in text and text.endswith(summary.CLOSE)
    assert "don't answer it and don't start anything because of it" in text
    assert "latest message of the person wins" in text


def test_24_the_summary_is_never_the_newest_turn() -> None:
    """Failure 24: what the model answers next is the person's message or a tool's result."""
    talk = full()
    talk.user("Go on with the second part.")
    talk.toil(30)
    rows = compacted(talk)
    assert not summary.is_synthetic(rows[-1]) and rows[-1]["role"] == "tool"
    talk.reply("Done.")
    rows = compacted(talk)
    assert not summary.is_synthetic(rows[-1])
    told = summary.parse(next(row for row in rows if summary.is_summary(row)))
    assert "It was answered; nothing is open from it." in told.ask


def test_25_no_earlier_prompt_comes_back_as_a_new_turn() -> None:
    """Failure 25: rows that stay keep their order, and none stands there twice."""
    talk = full()
    for number in range(6):
        talk.user(f"Request {number}, with a few words of its own.")
        talk.work(8)
        rows = compacted(talk) if number % 2 else talk.rows
        places = [row["_seq"] for row in rows if "_seq" in row]
        assert places == sorted(set(places))


def test_27_in_the_middle_of_a_task_the_tools_stay_active() -> None:
    """Failure 27: the list still ends with the result that the model waited for, and the frame says: call."""
    talk = full()
    talk.user("Run all forty checks.")
    talk.toil(30)
    last = talk.rows[-1]
    rows = compacted(talk)
    assert rows[-1] is last
    assert "Your tools stay active: go on calling them." in summary_of(rows)


def test_28_a_plan_without_a_yes_and_what_was_forbidden_reach_the_next_summary() -> None:
    """Failure 28: both are asked for by name and handed on to each later summary; the to-do list is copied by
    code; the system prompt with its rules is not the engine's to change."""
    body = "## 3. Constraints and preferences\n- Never push to main [#1]. The plan waits for a yes [#2]."
    model = Model(body)
    talk = full()
    talk.call("todo", "[x] 1: read the code\n[>] 2: write the plan\n[ ] 3: wait for the yes\n1 of 3 done")
    talk.work(30)
    rows = compacted(talk, model=model)
    assert "plans that wait for their yes" in model.asked[0]
    assert "[ ] 3: wait for the yes" in summary_of(rows)
    talk.work(30)
    rows = compacted(talk, model=model)
    assert "Never push to main" in model.asked[1] and "[ ] 3: wait for the yes" in summary_of(rows)
    talk.call("todo", "The list is empty.")
    talk.work(30)
    assert "wait for the yes" not in summary_of(compacted(talk, model=Model()))


def test_a_summary_of_another_session_is_not_carried_over() -> None:
    """A summary counts only where the transcript holds it: the engine remembers none (failure 20)."""
    model = Model("## 2. Goal\nThe secret project of the other session.")
    compressor = engine(model)
    compressor.compress(full().rows, 8_000)
    compressor.on_session_reset()
    model.answers = [BODY]
    asked = len(model.asked)
    rows = compressor.compress(full().rows, 8_000)
    assert "secret project" not in summary_of(rows)
    assert "secret project" not in "".join(model.asked[asked:]) and len(model.asked) == asked + 1


@asynccontextmanager
async def closing(provider: Provider) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await provider.aclose()


class Patience:
    """The real way to a model for summaries, with a limit that can be moved."""

    def __init__(self, provider: Provider, limit_s: float) -> None:
        self.limit_s = limit_s
        self._ask = Summariser(lambda: provider, lambda: None, None)

    def __call__(self, messages: list[dict[str, Any]], *, max_tokens: int, timeout_s: float) -> str:
        return self._ask(messages, max_tokens=max_tokens, timeout_s=min(timeout_s, self.limit_s))


FAILURES: dict[str, list[ScriptedReply]] = {
    "401": [server_error(401, "bad key")],
    "402": [server_error(402, "no credit")],
    "429": [rate_limit_reply()] * 9,
    "500": [server_error(500)] * 9,
    "empty": [ScriptedReply()] * 2,
    "think-only": [ScriptedReply("<think>Let me see what to keep.</think>")] * 2,
    "HTML": [ScriptedReply("<html><body>Sign in</body></html>")] * 2,
    "HTML status": [html_page(502)] * 9,
    "cut stream": [ScriptedReply("## 2. Goal\nHalf a sum", pieces=6, fault=Fault(cut_after=2))] * 9,
    "timeout": [ScriptedReply("late", fault=Fault(stall_after=-1))],
}


@pytest.mark.fast_rows("401", "HTML", "cut stream", "timeout", "empty")
@pytest.mark.parametrize("kind", FAILURES)
def test_16_17_no_message_is_lost_whatever_the_summary_call_comes_to(tmp_path: Path, kind: str) -> None:
    """Failures 13, 16, 17: the real provider and a server that fails; nothing is lost, the
    person reads why, code writes the summary, the turn goes on, and the next try asks the model again."""
    story = [ScriptedReply(f"Answer {number}. {LONG * 3}") for number in range(4)]

    async def main(server: PracticeServer) -> None:
        settings = ModelSettings(provider="practice", base_url=server.base_url, model="practice")
        provider = connect_one(settings, {}, backoff=Backoff(1, uniform=lambda low, high: 0.0))
        ask = Patience(provider, 0.3 if kind == "timeout" else 40.0)
        engine = Compressor(ask, FixedClock(), CompressorSettings())
        async with rig(tmp_path, server=server, engine=engine, window=3_000) as one, closing(provider):
            for number in range(4):
                await one.turn(f"question {number}")
            before = list(one.session.log.messages)
            server.install([*FAILURES[kind]])
            assert await one.session.context.compact("", one.events.append) == "compacted"
            assert one.session.log.messages != before
            assert "question 0" in one.session.log.messages[0].text
            assert [text for text in notices(one) if "context engine compressor: " in text]
            ask.limit_s = 40.0
            server.release()
            server.install([ScriptedReply("On it.")])
            assert (await one.turn("go on")).text == "On it."
            assert len(compactions(one)) == 1

    with PracticeServer(script=story) as server:
        asyncio.run(main(server))


@pytest.mark.slow
async def test_40_the_cache_holds_over_a_session_with_compactions(tmp_path: Path) -> None:
    """Failure 40: system prompt and tools never change, requests extend each other between compactions, and
    the ratio is there to be seen."""
    steps = [calls(("look", f'{{"at": "{number} {"x" * 300}"}}')) for number in range(40)]
    model = Model()
    one_engine = Compressor(model, FixedClock())
    async with rig(tmp_path, [*steps, ScriptedReply("Done.")], engine=one_engine, window=5_000) as one:
        assert (await one.turn("Look at everything.")).text == "Done."
        bodies = [bytes(request.body) for request in one.server.requests]
        heads = {body[: body.index(b'"role":"user"')] for body in bodies}
        assert len(compactions(one)) >= 1 and len(heads) == 1
        broken = sum(
            not later.startswith(re.sub(rb"[\]}]+$", b"", earlier))
            for earlier, later in itertools.pairwise(bodies)
        )
        assert broken == len(compactions(one))
        assert one.session.usage.cache_hit_ratio > 0.8
        assert (await host_of(one).status()).counted
