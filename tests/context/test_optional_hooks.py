"""Newer engines' optional verbs: each is called where it should be, and no answer is trusted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.agent.rig import Rig, calls, rig
from tests.context.engines import Puppet, RecordingEngine, shape
from tests.context.test_host import LONG, compactions, host_of, notices, stored_roles
from whet.agent.session import Session, TurnObserver
from whet.context.host import EngineHost
from whet.contract.context_engine import ChatRows
from whet.contract.events import TurnEnd
from whet.contract.messages import Message, Usage
from whet_lab.practice.script import ScriptedReply


class Newer(RecordingEngine):
    """Has every verb; each does what a test sets."""

    pending: str | None = None
    defers = False
    info: Any = (False, None)
    selects: Callable[[ChatRows], Any] = staticmethod(lambda rows: None)
    prunes: Callable[[ChatRows], Any] = staticmethod(lambda rows: (rows, 0))
    words: Any = "tidying up"
    early = False

    def should_compress_preflight(self, messages: ChatRows) -> bool:
        early, self.early = self.early, False
        return super().should_compress_preflight(messages) or early

    def pending_compression_operation(self, messages: ChatRows) -> str | None:
        self._write("pending_compression_operation")
        return self.pending

    def should_defer_preflight_to_real_usage(self, rough_tokens: int) -> bool:
        self._write(f"should_defer_preflight_to_real_usage {type(rough_tokens).__name__}")
        return self.defers

    def should_compress_info(self, prompt_tokens: int | None = None) -> Any:
        self._write("should_compress_info")
        return self.info

    def get_automatic_compaction_status_message(
        self, *, phase: str, default_message: str, **context: Any
    ) -> Any:
        self._write(f"get_automatic_compaction_status_message {phase} {' '.join(sorted(context))}")
        return self.words

    def prune_tool_results_only(self, messages: ChatRows, current_tokens: int | None = None) -> Any:
        self._write(f"prune_tool_results_only {shape(messages)} {type(current_tokens).__name__}")
        return self.prunes(messages)

    def select_context(self, request_messages: ChatRows, **given: Any) -> Any:
        incoming = given["incoming_message"]["content"][:5]
        self._write(f"select_context {shape(request_messages)} {incoming} {given['budget_tokens']}")
        return self.selects(request_messages)

    def on_turn_complete(self, messages: ChatRows, usage: dict[str, Any] | None = None, **given: Any) -> None:
        self._write(f"on_turn_complete {shape(messages)} {len(usage or {})} {' '.join(sorted(given))}")
        messages.clear()


class Telling(TurnObserver):
    """Tells the engine of each turn's end."""

    async def after_turn(self, session: Session, end: TurnEnd) -> None:
        assert isinstance(session.context, EngineHost)
        await session.context.turn_ended(end)


@asynccontextmanager
async def rigged(
    tmp_path: Path, script: list[ScriptedReply], window: int = 0
) -> AsyncIterator[tuple[Rig, Newer]]:
    engine = Newer([])
    async with rig(tmp_path, script, engine=engine, window=window, observers=[Telling()]) as one:
        yield one, engine


def run(tmp_path: Path, script: list[ScriptedReply], act: Callable[[Rig, Newer], Any]) -> list[str]:
    async def main() -> list[str]:
        async with rigged(tmp_path, script) as (one, engine):
            await act(one, engine)
        return engine.trace

    return asyncio.run(main())


def test_the_order_of_every_verb_in_a_turn_with_a_tool(tmp_path: Path) -> None:
    async def act(one: Rig, engine: Newer) -> None:
        del engine.trace[:]
        await one.turn("hello")
        assert await stored_roles(one) == "uata"

    trace = run(tmp_path, [calls(("look", "{}")), ScriptedReply("Hi.")], act)
    lines = [line for line in trace if "update_from" not in line]
    assert lines[: lines.index("on_turn_complete uata 8 conversation_id reason session_id turn_id") + 1] == [
        "should_compress_preflight u",
        "pending_compression_operation",
        "should_defer_preflight_to_real_usage int",
        "should_compress int",
        "should_compress_info",
        "select_context u hello 96000",
        "pending_compression_operation",
        "should_compress int",
        "should_compress_info",
        "prune_tool_results_only uat int",
        "select_context uat hello 96000",
        "on_turn_complete uata 8 conversation_id reason session_id turn_id",
    ]


async def test_a_rough_size_is_left_to_the_servers_count_where_the_engine_says_so(tmp_path: Path) -> None:
    """Failure 7: an estimate that counts the tool schemas may be far off."""
    async with rigged(tmp_path, [ScriptedReply(LONG), ScriptedReply("b")]) as (one, engine):
        engine.wants = engine.defers = True
        await one.turn(LONG)
        assert engine.wants and not compactions(one)
        await one.turn("now it was counted")
        assert not engine.wants and len(compactions(one)) == 1


def test_a_pending_operation_asks_for_compress_whatever_the_size(tmp_path: Path) -> None:
    async def act(one: Rig, engine: Newer) -> None:
        await one.turn(LONG)
        engine.pending = "sanitize"
        await one.turn("go on")
        assert len(compactions(one)) == 1 and "tidying up" in notices(one)

    trace = run(tmp_path, [ScriptedReply(LONG), ScriptedReply("b")], act)
    assert any("status_message sanitize context_length threshold_tokens tokens" in line for line in trace)


@pytest.mark.parametrize(
    ("words", "emits", "shown"),
    [
        ("tidying up", True, "tidying up"),
        (None, True, ""),
        ("", True, ""),
        (7, True, "making the context smaller"),
        ("tidying up", False, ""),
    ],
)
async def test_the_engine_words_the_line_before_a_compaction_or_leaves_it_out(
    tmp_path: Path, words: object, emits: bool, shown: str
) -> None:
    """Failure 39: a compaction is never silent; its record is shown in any case."""
    async with rigged(tmp_path, [ScriptedReply(LONG), ScriptedReply("b")]) as (one, engine):
        await one.turn(LONG)
        engine.wants, engine.words = True, words
        engine.emit_automatic_compaction_status = emits  # type: ignore[attr-defined] (newer engines have it)
        await one.turn("go on")
        assert len(compactions(one)) == 1
        lines = notices(one)
        assert len(lines) == bool(shown) and (not shown or lines[0].startswith(shown))


async def test_why_it_can_not_compact_is_said_once(tmp_path: Path) -> None:
    async with rigged(tmp_path, [ScriptedReply(text) for text in "123"]) as (one, engine):
        await one.turn("a")
        engine.info = (False, "cooldown:30")
        for text in ("b", "c"):
            await one.turn(text)
        assert [line for line in notices(one) if "cooldown:30" in line] == [
            "context engine recording should compact and can't now: cooldown:30"
        ]


async def test_results_pruned_without_a_model_are_recorded(tmp_path: Path) -> None:
    def prune(rows: ChatRows) -> tuple[ChatRows, int]:
        done = [{**row, "content": "(cut)"} if row["role"] == "tool" else row for row in rows]
        return done, 1

    async with rigged(tmp_path, [calls(("shout", "{}")), ScriptedReply("Ok.")]) as (one, engine):
        engine.prunes = prune
        await one.turn("shout")
        assert [event.engine for event in compactions(one)] == ["recording"]
        assert one.session.log.messages[2].text == "(cut)"
        assert await stored_roles(one) == "uata"


async def test_pruning_is_no_compaction_that_must_make_room(tmp_path: Path) -> None:
    full = {"prompt_tokens": 99_000, "completion_tokens": 1, "total_tokens": 99_001}
    async with rigged(tmp_path, [calls(("shout", "{}")), ScriptedReply("Ok.", usage=full)] * 4) as (
        one,
        engine,
    ):
        engine.prunes = lambda rows: (
            [{**row, "content": "(cut)"} if row["role"] == "tool" else row for row in rows],
            1,
        )
        for _ in range(4):
            await one.turn("shout")
        assert len(compactions(one)) == 4 and not [line for line in notices(one) if "still above" in line]


def test_pruning_is_asked_for_where_a_result_has_come(tmp_path: Path) -> None:
    async def act(one: Rig, engine: Newer) -> None:
        await one.session.log.begin_turn(Message("user", "hello"))
        for _ in range(2):
            await host_of(one).view(one.session.log.messages, one.events.append)

    assert not [line for line in run(tmp_path, [], act) if line.startswith("prune")]


@pytest.mark.fast_rows("0", "3", "6", "9")
@pytest.mark.parametrize(
    "prune",
    [
        lambda rows: None,
        lambda rows: ([], 3),
        lambda rows: (rows[:1], 2),
        lambda rows: [[{**row, "content": "(cut)"} for row in rows], 1],
        lambda rows: ([{**row, "content": "(cut)"} if row["role"] == "tool" else row for row in rows], 0),
        lambda rows: ([{**row, "content": "(cut)"} if row["role"] == "tool" else row for row in rows], 1, 2),
        lambda rows: ([*rows, {"role": "user", "content": "x"}], 1),
        lambda rows: ([{**row, "content": row["content"] + "y" * 9000} for row in rows], 1),
        lambda rows: ([{**row, "content": row["content"].replace("x", "y")} for row in rows], 1),
        lambda rows: [row.update(content="gone") for row in rows],
    ],
)
async def test_a_hostile_pruning_changes_nothing(tmp_path: Path, prune: Callable[[ChatRows], Any]) -> None:
    async with rigged(tmp_path, [calls(("shout", "{}")), ScriptedReply("Ok.")]) as (one, engine):
        engine.prunes = prune
        assert (await one.turn("shout")).text == "Ok."
        assert not compactions(one) and one.session.log.messages[2].text.startswith("xxx")
        assert engine.trace[-1].startswith("on_turn_complete uata")


@pytest.mark.fast_rows("0", "3")
@pytest.mark.parametrize(
    "select",
    [
        lambda rows: rows[-1:],
        lambda rows: [{"role": "system", "content": "chosen"}, rows[-1]],
        lambda rows: [row for row in rows if row["role"] == "tool"],
        lambda rows: [],
        lambda rows: "text",
        lambda rows: [row.clear() for row in rows],
    ],
)
async def test_what_one_request_shows_can_be_chosen_and_is_valid_and_not_recorded(
    tmp_path: Path, select: Callable[[ChatRows], Any]
) -> None:
    """Failures 1, 3, 4, whatever is chosen; None leaves every byte as it was."""
    async with rigged(tmp_path, [calls(("look", "{}")), ScriptedReply("Ok."), ScriptedReply("Later.")]) as (
        one,
        engine,
    ):
        await one.turn("look")
        engine.selects = select
        assert (await one.turn("and now")).text == "Later."
        assert await stored_roles(one) == "uataua" and not compactions(one)
        assert one.session.log.messages[0].text == "look"


class Failing(Puppet):
    """Says what went wrong with its summary, as engines for Hermes Agent do."""

    _last_summary_error: str | None = None

    def report(self, error: str | None) -> None:
        self._last_summary_error = error


async def test_a_failed_summary_is_shown_once_until_another_thing_fails(tmp_path: Path) -> None:
    """Failure 16: the person reads why nothing was compacted."""

    engine = Failing(lambda rows: rows)
    async with rig(tmp_path, [ScriptedReply(LONG)] * 3, engine=engine) as one:
        await one.turn(LONG)
        one.events.clear()
        shown: list[list[str]] = []
        for error in ("401 bad key", "401 bad key", "timed out", None, "timed out"):
            engine.report(error)
            one.events.clear()
            assert await one.session.context.compact("", one.events.append) == "unchanged"
            shown.append(notices(one))
        first, second = ["context engine puppet: 401 bad key"], ["context engine puppet: timed out"]
        assert shown == [first, [], second, [], second]


async def test_engines_hear_of_the_session_again_where_the_list_was_cut_without_them(tmp_path: Path) -> None:
    """Failure 35: after /undo the list is no longer what the engine counted."""
    async with rigged(tmp_path, [ScriptedReply(text) for text in "123"]) as (one, engine):
        for text in ("one", "two"):
            await one.turn(text)
        await one.session.log.undo_last_turn()
        del engine.trace[:]
        await one.turn("three")
        assert engine.trace[0].startswith("on_session_start") and "old_session_id" not in engine.trace[0]
        assert engine.trace[1] == "should_compress_preflight uau"


async def test_a_list_that_grew_is_taken_with_fewer_messages_and_counts_as_no_help(tmp_path: Path) -> None:
    """Failures 10, 35: the engine's place in the list is kept; two such stop automatic compaction."""

    engine = Puppet(lambda rows: rows)
    async with rig(tmp_path, [ScriptedReply("ok")] * 6, engine=engine) as one:
        for text in ("a", "b"):
            await one.turn(text)
        host_of(one).breaker.get().reset()
        engine.act = lambda rows: [{"role": "user", "content": rows[0]["content"] * 9 + LONG}, *rows[-2:]]
        for text in ("c", "d", "e", "f"):
            await one.turn(text)
        assert len(compactions(one)) == 2
        assert all(event.tokens_after > event.tokens_before for event in compactions(one))
        assert [line for line in notices(one) if "made the conversation larger" in line]


async def test_observe_gives_each_engine_a_dict_of_its_own(tmp_path: Path) -> None:
    async with rigged(tmp_path, []) as (one, engine):
        one.session.context.observe(Usage(prompt_tokens=5))
        await one.session.context.status()
        assert engine.last_prompt_tokens == 5


@pytest.mark.parametrize(("share", "phase"), [(0.0, "preflight"), (1.0, "engine_preflight_maintenance")])
def test_a_compaction_below_the_engines_own_threshold_is_called_its_maintenance(
    tmp_path: Path, share: float, phase: str
) -> None:
    async def act(one: Rig, engine: Newer) -> None:
        await one.turn(LONG)
        engine.threshold_tokens = int(engine.context_length * share)
        engine.early = True
        await one.turn("go on")
        assert len(compactions(one)) == 1

    trace = run(tmp_path, [ScriptedReply(LONG), ScriptedReply("b")], act)
    assert [line.split()[1] for line in trace if "status_message" in line] == [phase]


async def test_maintenance_that_changes_nothing_leaves_automatic_compaction_on(tmp_path: Path) -> None:
    class Maintaining(Puppet):
        is_full = False

        def should_compress_preflight(self, messages: ChatRows) -> bool:
            return True

        def should_compress(self, prompt_tokens: int | None = None) -> bool:
            return self.is_full

        def update_model(self, **given: Any) -> None:
            self.threshold_tokens = 40_000

    engine = Maintaining(lambda rows: rows)
    async with rig(tmp_path, [ScriptedReply("ok")] * 6, engine=engine) as one:
        for text in ("a", "b", "c", "d", "e"):
            await one.turn(text)
        assert engine.calls == 5 and not [line for line in notices(one) if "is off" in line]
        engine.is_full, engine.act = True, lambda rows: rows[-2:]
        await one.turn("f")
        assert len(compactions(one)) == 1
