"""Who takes part in a turn: observers, receipts, and what each call and turn took."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from tests.agent.rig import calls, rig
from tests.agent.test_dispatch import shell
from tests.agent.test_loop import ANSWER, roles
from tests.support import FixedClock
from whet.agent.loop import run_turn
from whet.agent.session import CallRound, Inbox, InboxEntry, Session, TurnObserver, accepted_entry
from whet.contract.events import Emit, EndReason, ReviewQueued, ToolFinished, ToolStarted, TurnEnd
from whet.contract.messages import ImagePart, Message, TextPart
from whet.contract.protocols import NobodyPresent
from whet.contract.tools import ToolContext
from whet.store.jobs import QueuedJob, TransactionWork, queue_nothing
from whet.store.transcript import TurnRecord
from whet.tools.signature import tool
from whet_lab.practice.script import Fault, ScriptedReply


class Nosy(TurnObserver):
    """Adds its name to a message, stores it at the end, and notes what it saw."""

    def __init__(self, name: str, seen: list[str]) -> None:
        self.name = name
        self.seen = seen

    async def before(self, session: Session, message: Message) -> Message:
        self.seen.append(f"{self.name} before {message.note}")
        return msgspec.structs.replace(message, note=f"{message.note}{self.name}")

    async def at_end(self, session: Session, turn: TurnRecord, reason: EndReason) -> TransactionWork:
        self.seen.append(f"{self.name} {reason} {session.last_answer}")
        return lambda connection: [QueuedJob(self.name, ("memory",))]

    async def after_turn(self, session: Session, end: TurnEnd) -> None:
        self.seen.append(f"{self.name} ended {end.text}")


async def test_observers_take_part_in_their_order(tmp_path: Path) -> None:
    seen: list[str] = []
    observers = [Nosy("a", seen), TurnObserver(), Nosy("b", seen)]
    async with rig(tmp_path, [ANSWER], observers=observers) as r:
        await r.turn("go")
        assert r.session.log.messages[0].note == "ab"
        assert [event.job_id for event in r.seen(ReviewQueued)] == ["a", "b"]  # type: ignore[union-attr]
    assert seen == [
        "a before ",
        "b before a",
        "a answered All done.",
        "b answered All done.",
        "a ended All done.",
        "b ended All done.",
    ]


async def test_extra_work_of_a_message_runs_in_the_transaction_that_stores_it(tmp_path: Path) -> None:
    given: list[tuple[str, int]] = []

    def note(name: str) -> TransactionWork:
        def work(connection: apsw.Connection) -> Sequence[QueuedJob]:
            given.append((name, connection.execute("select count(*) from messages").fetchone()[0]))  # type: ignore[index]
            return ()

        return work

    async with rig(tmp_path, [calls(("look", "{}")), ANSWER]) as r:

        def emit(event: object) -> None:
            if isinstance(event, ToolStarted):
                r.session.inbox.put(Message("user", "one"), note("one"))
                r.session.inbox.put(Message("user", "two"))
                r.session.inbox.put(Message("user", "three"), note("three"))

        incoming = Message("user", "go")
        await run_turn(r.session, incoming, emit, on_stored=note("go"))
        assert roles(r.session.log.messages) == "u a t u u u a"
        r.session.steer("late")
        assert [entry.message.text for entry in r.session.inbox.take_back()] == [
            "late"
        ] and not r.session.inbox
    assert given == [("go", 1), ("one", 4), ("three", 6)]


async def test_what_a_call_and_a_turn_took_is_told_without_what_people_took(tmp_path: Path) -> None:
    clock = FixedClock()

    class Slow(NobodyPresent):
        async def clarify(self, question: str, choices: Sequence[str]) -> str | None:
            return await think()

    async def think() -> None:
        clock.advance(100)

    @tool(toolset="file", effects={"read"})
    async def work(ctx: ToolContext) -> str:
        """Take five seconds."""
        await ctx.ask("Which?", ())
        clock.advance(5)
        return "done"

    script = [calls(("work", "{}"), ("work", "{}"), ("look", "{}")), ANSWER]
    async with rig(tmp_path, script, clock=clock, more_tools=[work], person=Slow()) as r:
        r.gate.takes = think
        end = await r.turn("go")
        assert [event.duration_s for event in r.seen(ToolFinished)] == [5, 5, 0]  # type: ignore[union-attr]
        assert end.duration_s == 10


class Watching(TurnObserver):
    """Keeps which calls it saw begin and end; `wants` to see their end or does not."""

    def __init__(self, name: str, seen: list[object], *, wants: bool = True) -> None:
        self.name, self.seen, self.wants = name, seen, wants

    async def before_calls(self, session: Session, step: CallRound, emit: Emit) -> object:
        self.seen.append((self.name, session.id, step.turn, step.step, [one.name for one in step.tools]))
        return self.name if self.wants else None

    async def after_calls(self, session: Session, token: object, emit: Emit) -> None:
        self.seen.append((token, session.id, emit))


async def test_who_sees_calls_begin_sees_them_end_too_where_they_want_to(tmp_path: Path) -> None:
    seen: list[object] = []
    script = [calls(("none", "{}")), calls(("look", "{}"), ("hang", "{}"), ("none", "{}")), ANSWER]
    watchers = [Watching("a", seen), Watching("b", seen, wants=False), Watching("c", seen)]
    async with rig(tmp_path, script, observers=watchers) as r:
        emit = r.events.append
        await run_turn(r.session, Message("user", "go"), emit)
        begun = [(name, r.session.id, 1, 2, ["look", "hang"]) for name in "abc"]
        assert seen == [*begun, ("c", r.session.id, emit), ("a", r.session.id, emit)]


async def test_a_command_beginning_where_another_of_its_reply_ends_is_a_step(tmp_path: Path) -> None:
    seen: list[Any] = []
    wanted = [("look", "{}"), ("sh", '{"command": "ls"}'), ("look", "{}"), ("sh", '{"command": "pwd"}')]
    watcher = Watching("a", seen, wants=False)
    async with rig(tmp_path, [calls(*wanted), ANSWER], observers=[watcher], more_tools=[shell([])]) as r:
        await r.turn("go")
        assert [tools for *_, tools in seen] == [["look", "sh", "look"], ["sh"]]


async def test_what_is_stored_with_a_turns_end_can_name_its_error(tmp_path: Path) -> None:
    errors: list[str] = []

    class Curious(TurnObserver):
        async def at_end(self, session: Session, turn: TurnRecord, reason: EndReason) -> TransactionWork:
            errors.append(turn.error)
            return queue_nothing

    script = [ScriptedReply(fault=Fault(status=401, message="bad key")), ANSWER]
    async with rig(tmp_path, script, observers=[Curious()]) as r:
        end = await r.turn("go")
        assert (await r.turn("again")).error == ""
        assert "bad key" in end.error and errors == [end.error, ""]


def test_what_comes_from_elsewhere_is_read_after_what_was_said_here() -> None:
    from_elsewhere = [InboxEntry(Message("user", "a"))]
    inbox = Inbox(lambda: from_elsewhere[0] if from_elsewhere else None)
    inbox.put(Message("user", "b"))
    assert [inbox.take().message.text for _ in range(2)] == ["b", "a"] and inbox
    from_elsewhere.clear()
    assert not inbox
    with pytest.raises(IndexError):
        inbox.take()


@pytest.mark.parametrize("is_fresh", [True, False])
async def test_what_came_after_the_session_was_read_waits_its_turn(tmp_path: Path, *, is_fresh: bool) -> None:
    """The turn begins with the state that was read before; only a removed message is known to be read."""
    async with rig(tmp_path) as r:
        log, inbox = r.session.log, r.session.inbox
        inbox.add(accepted_entry(7, Message("user", "two")))
        async with inbox.first_entry(Message("user", "one"), queue_nothing, log, is_fresh=is_fresh) as first:
            assert first is not None and first.message.text == "one"
        assert [entry.message.text for entry in inbox.take_back()] == (["two"] if is_fresh else [])


async def test_images_go_with_what_is_said_and_a_note_with_what_begins_a_turn(tmp_path: Path) -> None:
    image = ImagePart("image/gif", "R0lGODlh")
    seen = (TextPart("see"), image)
    async with rig(tmp_path) as r:
        r.session = msgspec.structs.replace(r.session, note=lambda: "noon")
        messages = [r.session.user_message("see", [image]), r.session.user_message("see")]
        assert [(message.role, message.content, message.note) for message in messages] == [
            ("user", seen, "noon"),
            ("user", "see", "noon"),
        ]
        r.session.steer("see", [image])
        r.session.steer("see")
        assert [(entry.message.content, entry.message.note) for entry in r.session.inbox.take_back()] == [
            (seen, ""),
            ("see", ""),
        ]
