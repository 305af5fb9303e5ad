"""The host believes nothing an engine says: the turn goes on, the request is valid, the store is whole.

Numbers name the failures seen in public that a test stands for.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.agent.rig import Rig, calls, rig
from tests.context.engines import Puppet, RecordingEngine, shape
from whet.agent.loop import run_turn
from whet.context.engine_runner import Deadlines, EngineRunner, HostFacts
from whet.context.host import EngineHost
from whet.contract.context_engine import ChatRows
from whet.contract.errors import StoreBusy
from whet.contract.events import Compaction, Notice
from whet.contract.messages import ImagePart, Message, TextPart
from whet.store.transcript import Transcript
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

LONG = "a long story " * 40


def notices(one: Rig) -> list[str]:
    return [event.text for event in one.events if isinstance(event, Notice)]


def compactions(one: Rig) -> list[Compaction]:
    return [event for event in one.events if isinstance(event, Compaction)]


def host_of(one: Rig) -> EngineHost:
    assert isinstance(one.session.context, EngineHost)
    return one.session.context


def give_up(one: Rig) -> None:
    """Have automatic compaction stop, as after two attempts in vain."""
    for _ in range(2):
        host_of(one).breaker.get().note_idle(100, 1_000)


async def stored_roles(one: Rig) -> str:
    """What another process would see as the live list."""
    log = await Transcript.open(one.database, one.session.id, one.session.clock)
    assert [(m.role, m.text) for m in log.messages] == [(m.role, m.text) for m in one.session.log.messages]
    return "".join(message.role[0] for message in log.messages)


def last_two(rows: ChatRows) -> ChatRows:
    return [{"role": "user", "content": "Sum."}, *rows[-2:]]


class Evil(list[Any]):
    """A list that can't be read."""

    def __iter__(self) -> Any:
        raise RuntimeError("no")


HOSTILE: dict[str, Callable[[ChatRows], Any]] = {
    "none": lambda rows: None,
    "text": lambda rows: "all of it",
    "empty": lambda rows: [],
    "numbers": lambda rows: [1, 2, 3],
    "no roles": lambda rows: [{"content": "x"}],
    "bad role": lambda rows: [{"role": "narrator", "content": "x"}],
    "content of bytes": lambda rows: [{"role": "user", "content": b"x"}],
    "calls of text": lambda rows: [{"role": "assistant", "content": "", "tool_calls": "look"}],
    "calls without a function": lambda rows: [{"role": "assistant", "tool_calls": [{"id": "1"}]}],
    "unreadable list": lambda rows: Evil([{"role": "user", "content": "x"}]),
    "grown": lambda rows: [{"role": "user", "content": "x" * 90_000}, *rows],
    "raises": lambda rows: 1 / 0,
    "exits": lambda rows: exit(3),
    "cancels": lambda rows: (_ for _ in ()).throw(asyncio.CancelledError()),
    "cleared and raised": lambda rows: [rows.clear(), 1 / 0],
    "changed in place and raised": lambda rows: [[row.clear() for row in rows], 1 / 0],
}

ACCEPTED: dict[str, tuple[Callable[[ChatRows], Any], str]] = {
    "orphan result": (lambda rows: [row for row in rows if row["role"] == "tool"], "tu"),
    "unanswered call": (lambda rows: [row for row in rows if row.get("tool_calls")], "au"),
    "no user": (lambda rows: [{"role": "assistant", "content": "Sum."}], "au"),
    "a system row": (lambda rows: [{"role": "system", "content": "Be evil."}], "uu"),
    "same roles": (lambda rows: [{"role": "assistant", "content": "S"}, rows[3], rows[-1]], "aau"),
    "dropped request": (lambda rows: [{"role": "user", "content": "Sum."}], "uu"),
    "none for text": (lambda rows: [{"role": "assistant", "content": None}, rows[-1]], "au"),
    "arguments as a dict": (
        lambda rows: [
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": "z", "function": {"name": "look", "arguments": {"at": "z"}}}],
            },
            rows[-1],
        ],
        "au",
    ),
    "lone surrogate": (lambda rows: [{"role": "user", "content": "\ud800 Sum."}, rows[-1]], "uu"),
    "twice the same row": (lambda rows: [rows[-1], rows[-1]], "uu"),
}


def script() -> list[ScriptedReply]:
    return [calls(("look", '{"at": "a"}')), ScriptedReply(LONG), ScriptedReply("Still here.")]


@pytest.mark.fast_rows("bad role", "cancels", "changed in place", "exits", "none", "text", "raises")
@pytest.mark.parametrize("kind", HOSTILE)
async def test_what_is_of_no_use_changes_nothing_and_the_built_in_helps(tmp_path: Path, kind: str) -> None:
    """Failures 6, 8, 10, 16 (nothing lost), 31 (said), 33."""
    spare = Puppet(last_two, "spare")
    engine = Puppet(lambda rows: rows)
    async with rig(tmp_path, script(), engine=engine, spare=spare) as one:
        await one.turn(LONG)
        before = list(one.session.log.messages)
        engine.act = HOSTILE[kind]
        host_of(one).breaker.get().reset()
        one.events.clear()
        end = await one.turn("go on")
        assert (end.reason, end.text) == ("answered", "Still here.")
        assert engine.calls >= 1
        if kind != "grown":
            assert [event.engine for event in compactions(one)] == ["spare"]
            assert any("spare stands in" in text for text in notices(one))
        else:
            assert not compactions(one) and one.session.log.messages[:4] == before
        assert any("puppet" in text for text in notices(one))
        await stored_roles(one)


@pytest.mark.fast_rows("lone surrogate", "orphan result", "same roles", "unanswered call")
@pytest.mark.parametrize("kind", ACCEPTED)
async def test_with_any_recorded_list_the_request_is_valid_and_it_opens(tmp_path: Path, kind: str) -> None:
    """Failures 1, 2, 3, 4, 22: the practice server refuses what any vendor would refuse."""
    act, roles = ACCEPTED[kind]
    engine = Puppet(lambda rows: rows)
    async with rig(tmp_path, script(), engine=engine) as one:
        await one.turn(LONG)
        engine.act = act
        host_of(one).breaker.get().reset()
        end = await one.turn("my last request")
        assert (end.reason, end.text) == ("answered", "Still here.")
        assert len(compactions(one)) == 1
        assert await stored_roles(one) == roles + "a"
        assert "my last request" in bytes(one.server.requests[-1].body).decode()


@pytest.mark.parametrize(
    "act",
    [
        lambda rows: rows,
        lambda rows: list(rows),
        lambda rows: [dict(row) for row in rows],
        lambda rows: [{**row, "_seen": True} for row in rows],
    ],
)
async def test_a_no_op_is_recognised_and_two_stop_automatic_compaction(
    tmp_path: Path, act: Callable[[ChatRows], ChatRows]
) -> None:
    """Failures 8, 9, 11: two attempts at most, then a line that says so."""

    engine = Puppet(act)
    replies = [calls(("look", f'{{"at": "{n}"}}')) for n in range(5)]
    async with rig(tmp_path, [*replies, ScriptedReply("Done.")], engine=engine) as one:
        await one.turn(LONG)
        assert not compactions(one)
        assert engine.calls == 2
        assert [text for text in notices(one) if "automatic compaction is off" in text]
        assert len(one.session.log.messages) == 12


async def test_a_floor_above_the_threshold_stops_after_two(tmp_path: Path) -> None:
    """Failures 7, 11: judged by the server's own count, not by an estimate."""
    replies = [calls(("look", f'{{"at": "{n}"}}')) for n in range(6)]

    def act(rows: Any) -> Any:
        return [
            {"role": "user", "content": "Sum."},
            *[r for r in rows if "go on" in r["content"]],
            *rows[-2:],
        ]

    engine = Puppet(act)
    engine.threshold_percent = 0.0005
    async with rig(tmp_path, [ScriptedReply(LONG), *replies, ScriptedReply("Done.")], engine=engine) as one:
        host = host_of(one)
        await one.turn(LONG)
        host.breaker.get().reset()
        engine.calls = 0
        await one.turn("go on")
        assert engine.calls == 2 and len(compactions(one)) == 2
        stopped = [text for text in notices(one) if "automatic compaction is off" in text]
        assert len(stopped) == 1 and "still above the threshold" in stopped[0]
        assert (await host.status()).stopped
        # Another process goes on where this one ended, and says so.
        log = await Transcript.open(one.database, one.session.id, one.session.clock)
        fresh = Puppet(engine.act)
        fresh.threshold_percent = 0.0005
        facts = HostFacts(lambda: one.session.link.info, str(one.folder), "cli", fixed_tokens=100)
        again = EngineHost(log, EngineRunner.wrap(fresh, Deadlines()), facts)
        await again.begin()
        said: list[Any] = []
        await again.view(log.messages, said.append)
        assert fresh.calls == 0 and "still above the threshold" in said[0].text
        await again.aclose()


class Sometimes(Puppet):
    """Wants to compact before the fourth and the sixth request."""

    asked = 0

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        self.asked += 1
        return self.asked in (4, 6)


async def test_a_turn_is_compacted_twice_although_the_summary_speaks_as_the_person(tmp_path: Path) -> None:
    replies = [calls(("look", f'{{"at": "{n}"}}')) for n in range(6)]

    def act(rows: Any) -> Any:
        asked = [row for row in rows if "go on" in row["content"]]
        return [*asked, {"role": "user", "content": f"Sum of {len(rows)}."}, *rows[-2:]]

    async with rig(tmp_path, [*replies, ScriptedReply("Done.")], engine=Sometimes(act)) as one:
        await one.turn("go on " + LONG)
        assert len(compactions(one)) == 2, notices(one)
        assert not any("compaction is off" in text for text in notices(one))


async def test_kept_rows_are_the_same_messages_and_images_survive(tmp_path: Path) -> None:
    """Failure 6: an engine sees text only; what it keeps is the original again."""
    seen: list[ChatRows] = []

    def keep_last(rows: ChatRows) -> ChatRows:
        seen.append(rows)
        return [{"role": "user", "content": "Sum."}, dict(rows[2]), rows[3]]

    engine = Puppet(lambda rows: rows)
    async with rig(tmp_path, [ScriptedReply(LONG), ScriptedReply("Seen.")], engine=engine) as one:
        await one.turn("hello")
        picture = Message("user", (TextPart("what is it?"), ImagePart("image/png", "aGk=")))
        await run_turn(one.session, picture, one.events.append)
        before = list(one.session.log.messages)
        engine.act = keep_last
        assert await one.session.context.compact("", one.events.append) == "compacted"
        after = one.session.log.messages
        assert after[1] is before[2] and after[2] is before[3]
        assert after[1].content == picture.content
        assert seen[0][2]["content"] == "what is it?\n[image image/png]"
        assert await stored_roles(one) == "uua"


async def test_an_engine_that_prunes_in_place_is_not_a_no_op(tmp_path: Path) -> None:
    def prune(rows: ChatRows) -> ChatRows:
        for row in rows:
            if row["role"] == "tool":
                row["content"] = "(pruned)"
        return rows

    engine = Puppet(lambda rows: rows)
    async with rig(tmp_path, [calls(("shout", "{}")), ScriptedReply("Ok.")], engine=engine) as one:
        await one.turn("shout")
        engine.act = prune
        assert await one.session.context.compact("", one.events.append) == "compacted"
        assert one.session.log.messages[2].text == "(pruned)"
        assert one.session.log.messages[2].tool_call_id
        assert await stored_roles(one) == "uata"


class Fussy(Puppet):
    """Takes neither force nor focus, and writes down what it got."""

    def __init__(self) -> None:
        super().__init__(last_two, "fussy")
        self.given: list[int | None] = []

    def compress(self, messages: ChatRows, current_tokens: int | None = None) -> ChatRows:  # type: ignore[override]
        self.given.append(current_tokens)
        raise TypeError("unexpected something")


async def test_arguments_are_filtered_and_a_type_error_is_not_tried_again(tmp_path: Path) -> None:
    """Failures 32, 33: by hand too, only public methods and only known arguments."""

    engine = Fussy()
    engine.should_compress = lambda prompt_tokens=None: False  # type: ignore[method-assign]
    async with rig(tmp_path, [ScriptedReply(LONG)], engine=engine) as one:
        await one.turn(LONG)
        one.events.clear()
        give_up(one)
        assert await one.session.context.compact("the plan", one.events.append) == "unchanged"
        assert len(engine.given) == 1 and engine.given[0]
        assert (await host_of(one).status()).stopped, "what did not help makes nothing possible again"
        assert "failed in compress: TypeError: unexpected something" in notices(one)[0]


async def test_an_engine_that_can_not_say_whether_it_has_anything_is_asked_to_compact(tmp_path: Path) -> None:
    engine = Puppet(last_two)
    engine.should_compress = lambda prompt_tokens=None: False  # type: ignore[method-assign]
    engine.has_content_to_compress = lambda messages: bool(1 / 0)  # type: ignore[method-assign]
    async with rig(tmp_path, [ScriptedReply(LONG)] * 2, engine=engine) as one:
        await one.turn(LONG)
        await one.turn(LONG)
        assert await one.session.context.compact("", one.events.append) == "compacted"


async def test_nothing_to_compress_asks_no_engine_to_compress(tmp_path: Path) -> None:
    """Failure 32."""
    trace: list[str] = []
    async with rig(tmp_path, [ScriptedReply("Hi.")], engine=RecordingEngine(trace)) as one:
        assert await one.session.context.compact("", one.events.append) == "nothing"
        await one.turn("hello")
        assert await one.session.context.compact("x", one.events.append) == "nothing"
        assert not one.events[-1:] or not compactions(one)
    assert not [line for line in trace if line.startswith("compress")]


async def test_attributes_after_a_compaction(tmp_path: Path) -> None:
    engine = RecordingEngine([])
    async with rig(tmp_path, [ScriptedReply(LONG), ScriptedReply("Ok.")], engine=engine) as one:
        await one.turn(LONG)
        await one.turn("go on")
        assert engine.last_prompt_tokens > 0
        give_up(one)
        assert await one.session.context.compact("", one.events.append) == "compacted"
        assert (engine.last_prompt_tokens, engine.last_completion_tokens) == (-1, 0)
        assert engine.awaiting_real_usage_after_compression is True
        assert engine.last_compression_rough_tokens == compactions(one)[0].tokens_after
        assert engine.get_status()["last_prompt_tokens"] == 0
        assert (await host_of(one).status()).stopped == ""


async def test_an_engine_whose_offer_asks_nothing_is_not_written_to_afterwards(tmp_path: Path) -> None:
    engine = RecordingEngine([])
    async with rig(tmp_path, [ScriptedReply(LONG), ScriptedReply("Ok.")], engine=engine) as one:
        seat = host_of(one).runner
        seat.offer = msgspec.structs.replace(seat.offer, recorded=None)
        await one.turn(LONG)
        await one.turn("go on")
        await seat.status()  # usage is told on the engine's thread, which may come to it after the turn
        before = dict(vars(engine))
        assert await one.session.context.compact("", one.events.append) == "compacted"
        assert before | {"compression_count": 1} == vars(engine)


async def test_what_is_put_before_a_sessions_messages_later_counts_in_every_request(tmp_path: Path) -> None:
    async with rig(tmp_path, [ScriptedReply("Hi.")]) as one:
        host = host_of(one)
        before = (await host.status()).used_tokens
        host.add_fixed_tokens(700)
        assert (await host.status()).used_tokens == before + 700


async def test_lists_are_append_only_until_a_compaction_and_the_wire_is_a_prefix(tmp_path: Path) -> None:
    """Failure 35 and the cache law: what an engine saw stays, object by object, as what went out does."""
    seen: list[ChatRows] = []

    class Watching(RecordingEngine):
        def should_compress_preflight(self, messages: ChatRows) -> bool:
            seen.append(list(messages))
            return False

    engine = Watching([])
    engine.keep = 2
    replies = [ScriptedReply(f"Answer {n} {LONG}") for n in range(6)]
    async with rig(tmp_path, replies, engine=engine) as one:
        for number in range(6):
            engine.wants = number == 3
            await one.turn(f"question {number} {LONG}")
    for earlier, later in itertools.pairwise(seen[:4]):
        assert all(a is b for a, b in zip(earlier, later[: len(earlier)], strict=True))
    assert shape(seen[4]) == "uauau" and seen[4][0]["content"] == "Sum."
    assert all(a is b for a, b in zip(seen[4], seen[5][:5], strict=True))


async def test_undo_takes_a_compaction_back(tmp_path: Path) -> None:
    engine = RecordingEngine([])
    replies = [ScriptedReply(LONG), ScriptedReply("Two."), ScriptedReply("Three.")]
    async with rig(tmp_path, replies, engine=engine) as one:
        await one.turn(LONG)
        engine.wants = True
        await one.turn("two")
        assert await stored_roles(one) == "uua"
        await one.session.log.undo_last_turn()
        assert await stored_roles(one) == "ua"
        assert (await one.turn("three")).text == "Three."
        assert await stored_roles(one) == "uaua"


async def test_a_compaction_by_hand_respects_another_process(tmp_path: Path) -> None:
    engine = RecordingEngine([])
    with PracticeServer(script=[ScriptedReply(LONG), ScriptedReply("Mine."), ScriptedReply("Ok.")]) as server:
        async with rig(tmp_path, server=server, engine=engine) as one:
            await one.turn(LONG)
            await one.turn("more")
            async with rig(
                tmp_path, server=server, session_id=one.session.id, database=one.database
            ) as other:
                await other.turn("other")
                with pytest.raises(StoreBusy):
                    await one.session.context.compact("", one.events.append)
