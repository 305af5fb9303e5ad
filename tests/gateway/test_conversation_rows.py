"""Who is asked in a conversation, what is crossed off, and what commands come to."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from tests.gateway.parts import Rig, model, place, rig
from whet.contract.channels import Incoming, Outgoing
from whet.contract.errors import StoreBusy, WhetError
from whet.contract.messages import Message
from whet.gateway.chat import ChatCommands
from whet.gateway.chat_record import MAX_WAITING
from whet.gateway.conversations import Conversation, Conversations
from whet.store import chats, goals, schedules, sessions
from whet.store.goals import GoalRow
from whet.store.transcript import Transcript

__all__ = ["model", "rig"]  # fixtures


async def test_whoever_may_decide_is_asked_in_their_group_or_alone(rig: Rig) -> None:
    here = await rig.rows(place("8"))
    group = await rig.rows(place("8", "g1", group=True))
    assert await here.approver() is None is await group.approver()
    cat = rig.chat(place("9", channel="two"))
    route = await here.approver()
    assert route is not None and (route.chat_id, route.room) == (cat.id, ("two", "c9"))
    ann = rig.chat(place("7"))
    route = await here.approver()
    assert route is not None and (route.chat_id, route.room) == (ann.id, ("one", "c7"))
    rig.chat(place("7", "g2", group=True))
    route = await group.approver()
    assert route is not None and route.chat_id == ann.id, "in another group they do not read along"
    rig.chat(place("9", "g1", group=True))
    route = await group.approver()
    assert route is not None and (route.chat_id, route.room) == (group.chat.id, ("one", "g1"))
    assert route.limits is rig.board.limits
    await route.post([Outgoing("asked")])
    assert rig.texts() == ["asked"] and rig.woken == [group.chat.id]


async def test_what_cannot_be_run_is_crossed_off_and_open_work_is_told(rig: Rig) -> None:
    rows = await rig.rows(place())
    assert await rows.cross_off(None) is False
    first = rig.received(place(), "u1")
    assert await rows.cross_off(first) is True and rig.state("u1") == "dropped"
    assert await rows.cross_off(first) is False
    second, third = rig.received(place(), "u2"), rig.received(place(), "u3")
    await rows.mark(second, "begun")
    assert await rows.cross_off(None) is True and rig.state("u2") == "done"
    await rows.mark(second, "begun")
    await rows.mark(third, "done")
    assert await rows.cross_off(third) is True
    assert (rig.state("u2"), rig.state("u3")) == ("done", "dropped")


async def test_a_conversation_goes_on_in_its_session_until_its_person_has_another_memory(rig: Rig) -> None:
    rows = await rig.rows(place("8"))
    ben, owner = rig.parts.router.find_in_file(place("8")), rig.parts.router.find_in_file(place("7"))
    assert ben is not None and owner is not None
    first = await rows.session_id(ben)
    assert await rows.session_id(ben) == first == rig.chat(place("8")).session_id
    row = rig.app.database.read_now(lambda db: sessions.get(db, first))
    second = await rows.begin_session(ben)
    opened = rig.parts.hosted.find_open
    assert opened(first) is None and opened(second) is not None, "what was left is let go"
    assert (row.source, Path(row.workspace)) == ("one", rig.app.services.home.people / "ben" / "work")
    other = await rows.session_id(owner)
    assert other != second and rows.chat.session_id == other
    assert opened(second) is not None and opened(other) is not None, "it is of another conversation"
    assert rig.app.database.read_now(lambda db: sessions.profile_of(db, other)) == ""


async def test_an_answer_takes_the_drafts_place_and_says_nothing_where_it_is_empty(rig: Rig) -> None:
    rows = await rig.rows(place())
    text = "\n\n".join(letter * 150 for letter in "ab")
    rig.app.database.write_now(lambda db: rows.queue_answer(db, text, 5))
    assert rig.queued() == [Outgoing("a" * 150, edits="?"), Outgoing("b" * 150)]
    rig.app.database.write_now(lambda db: rows.queue_answer(db, "", 5))
    await rows.say(text)
    assert rig.texts() == ["a" * 150, "b" * 150]


# Commands.


async def commanded(rig: Rig, user: str, line: str) -> list[str]:
    """Run a command of somebody's and give what it says; its refusal where it is refused."""
    conversation = await rig.conversation(place(user))
    name, _, rest = line.partition(" ")
    try:
        await rig.commands.run(conversation, name, rest)
    except WhetError as error:
        return [f"refused: {error.message}"]
    return rig.texts()


async def test_the_commands_that_the_owner_keeps_at_home_are_for_who_shares_their_memory(rig: Rig) -> None:
    mine = rig.app.services.home.root / "commands" / "mine.md"
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("Do what is mine.")
    for user, is_found in (("7", True), ("8", False)):
        conversation = await rig.conversation(place(user))
        assert await rig.commands.waits(conversation, "mine") is is_found  # an unknown one never waits


@pytest.mark.parametrize(
    ("user", "line", "said"),
    [
        ("8", "stop", ["Nothing was running."]),
        ("8", "missing", ["Nothing is missing here."]),
        ("8", "approve", ["Nothing waits for a decision here."]),
        ("8", "approve always", ["Nothing waits for a decision here."]),
        ("8", "approve never", ["refused: 'never' is not a way to allow"]),
        ("8", "deny", ["Nothing waits for a decision here."]),
        ("8", "model other", ["refused: you may not change the model here"]),
        ("8", "stranger", ["refused: there is no command /stranger"]),
        (
            "9",
            "mcp add x -- y",
            [
                "refused: there is no /mcp here: it is about the machine that Whet runs on, not about this"
                " conversation"
            ],
        ),
        (
            "8",
            "goal x",
            ["refused: goals run with the owner's rights; only the owner begins them, alone with the bot"],
        ),
        (
            "9",
            "goal x",
            ["refused: goals run with the owner's rights; only the owner begins them, alone with the bot"],
        ),
        ("44", "stop", []),
    ],
)
async def test_a_command_says_what_it_did_or_why_not(rig: Rig, user: str, line: str, said: list[str]) -> None:
    texts = await commanded(rig, user, line)
    assert [text[: len(want)] for text, want in zip(texts, said, strict=True)] == said


async def test_stop_drops_what_waits_and_missing_shows_what_may_not_have_arrived(rig: Rig) -> None:
    for count, text in ((1, "1 message that waited was"), (2, "2 messages that waited were")):
        for number in range(count):
            rig.received(place(), f"u{count}{number}")
        assert await commanded(rig, "8", "stop") == [f"Nothing was running. {text} dropped."]
        assert rig.state(f"u{count}0") == "dropped"
    rows = await rig.rows(place())
    await rows.post([Outgoing("lost", edits="r1", since_ms=5)])
    (row,) = rig.app.database.read_now(lambda db: chats.list_messages(db, ("queued",)))
    rig.app.database.write_now(lambda db: chats.end_sending(db, row.id, "unknown", error="cut"))
    assert await commanded(rig, "8", "missing") == ["lost", "That is all."]
    assert await commanded(rig, "8", "missing") == ["Nothing is missing here."]


async def test_the_last_goal_is_shown_and_stopped_by_the_owner(rig: Rig) -> None:
    for line in ("goal", "goal show", "goal stop"):
        assert (await commanded(rig, "7", line))[0].startswith("refused: there is no goal")
    (text,) = await commanded(rig, "7", "goal tidy up --verify true")
    (schedule,) = rig.app.database.read_now(lambda db: schedules.list_schedules(db))
    ways = "you are told how it ends. /goal shows it, /goal stop ends it."
    assert text == f"A worker begins with {schedule.name}; {ways}" and schedule.target == "one:c7"
    ann = rig.parts.router.find_in_file(place("7"))
    assert ann is not None
    session_id = await (await rig.rows(place("7"))).session_id(ann)
    before = GoalRow("g0", session_id, "older", "", {}, 0.5, 3, "running", 1, begun="2026-11-20T09:00:00")
    rig.app.database.write_now(lambda db: goals.add(db, before))
    for line in ("goal", "goal show"):
        assert await commanded(rig, "7", line) == ["It waits for a worker."]
    assert await commanded(rig, "7", "goal stop") == ["It was dropped before it began."]
    assert rig.app.database.read_now(schedules.list_schedules) == []
    assert "goal cancelled: older" in (await commanded(rig, "7", "goal stop"))[0]
    goal = GoalRow("g1", session_id, "tidy up", "", {}, 0.5, 3, "running", 1, begun="2099-11-22T09:00:00")
    rig.app.database.write_now(lambda db: goals.add(db, goal))
    for line in ("goal", "goal show"):
        assert "goal running: tidy up" in (await commanded(rig, "7", line))[0]
    assert "goal cancelled: tidy up" in (await commanded(rig, "7", "goal stop"))[0]
    for steps in ("many", "0", "-3"):
        assert (await commanded(rig, "7", f"goal x --steps {steps}"))[0].startswith(
            "refused: --steps takes a number from 1"
        )


async def test_a_command_waits_for_a_turn_unless_it_works_at_any_time(rig: Rig) -> None:
    conversation = await rig.conversation(place("8"))
    assert not await rig.commands.waits(conversation, "stop") and not await rig.commands.waits(
        conversation, "none"
    )
    stranger = await rig.conversation(place("44"))
    assert not await rig.commands.waits(stranger, "stop")
    parse = rig.commands.parse
    assert parse(Incoming(place(), "u", "message", text="  /stop now ")) == ("stop", "now")
    assert parse(Incoming(place(), "u", "message", text="stop")) is None


class Failing(ChatCommands):
    """Commands that fail as they are named."""

    tries = 0

    async def run(self, conversation: Conversation, name: str, argument: str) -> None:
        self.tries += 1
        raise {"store": StoreBusy("busy"), "no": WhetError("not now", hint="later")}.get(name, KeyError(name))


@pytest.mark.logs_errors("/odd broke")
async def test_a_command_that_fails_is_told_and_one_whose_store_fails_is_tried_again(rig: Rig) -> None:
    chat_id = rig.chat(place()).id
    conversation = Conversation(rig.parts, Failing([]), chat_id, resume=False)
    for text, said in (("/no", "not now (later)"), ("/odd", "⚠️ something went wrong; the log has it")):
        rig.received(place(), text, text)
        await conversation.process()
        assert rig.texts() == [said] and rig.state(text) == "done"
    rig.received(place(), "/store", "/store")
    with pytest.raises(StoreBusy):
        await conversation.process()
    assert rig.texts() == []


async def test_a_stopped_turn_has_ended_before_it_is_said(rig: Rig) -> None:
    conversation = await rig.conversation(place())
    conversation.begin_with("hello")
    while not rig.count_turns():
        await asyncio.sleep(0)
    assert (
        await conversation.stop() == (True, 0) and not conversation.is_running and rig.texts() == ["Stopped."]
    )


async def test_a_store_that_fails_is_left_alone_for_a_while(rig: Rig) -> None:
    commands = Failing([])
    conversations = Conversations(rig.parts, commands)
    rig.received(place(), "/store", "/store")
    conversations.nudge(rig.chat(place()).id)
    while not commands.tries:
        await asyncio.sleep(0)
    for _ in range(200):  # time enough for more tries
        await rig.app.database.read(lambda db: db.execute("SELECT 1").fetchone())
    assert commands.tries == 1 and not await conversations.drain(0)


async def test_a_message_is_taken_once_however_often_the_inbox_is_looked_at(rig: Rig) -> None:
    rig.received(place(), "u1", "hello")
    conversation = await rig.conversation(place())
    work = asyncio.create_task(conversation.process())
    while not work.done():
        conversation.wake.set()
        await asyncio.sleep(0)
    await work
    assert not conversation.is_running and rig.state("u1") == "done" and len(rig.texts()) == 1


async def test_a_turn_that_is_gone_on_with_at_the_gateways_end_takes_nothing_in(rig: Rig) -> None:
    rig.received(place("44"), "u1")
    conversation = Conversation(rig.parts, rig.commands, rig.chat(place("44")).id, resume=True)
    conversation.closing = True
    await conversation.process()
    assert rig.state("u1") == "waiting" and rig.texts() == []


async def left_behind(rig: Rig) -> int:
    """Leave a turn that was begun and has no end, and give its conversation."""
    rows, ben = await rig.rows(place()), rig.parts.router.find_in_file(place())
    assert ben is not None
    log = await Transcript.open(rig.app.database, await rows.session_id(ben), rig.app.clock)
    await log.begin_turn(Message("user", "and then?"))
    log.close()
    await rows.mark(rig.received(place(), "u0"), "begun")
    return rows.chat.id


@pytest.mark.parametrize("resume", [True, False])
async def test_a_turn_begins_once_although_the_store_fails_beside_it(rig: Rig, resume: bool) -> None:
    chat_id = await left_behind(rig) if resume else rig.chat(place()).id
    if not resume:
        rig.received(place(), "u1", "hello")
    rig.received(place(), "/store", "/store")
    conversation = Conversation(rig.parts, Failing([]), chat_id, resume=resume)
    with pytest.raises(StoreBusy):
        await conversation.process()
    await conversation.process()
    assert len(rig.texts()) == 1 and not conversation.is_running


class FailsOnce:
    """A host whose first turn fails with the store when its message is in `state`."""

    def __init__(self, rig: Rig, state: str) -> None:
        self.hosted, self.database, self.state = rig.parts.hosted, rig.app.database, state

    def __getattr__(self, name: str) -> Any:
        return getattr(self.hosted, name)

    async def submit(self, *args: Any, **options: Any) -> Any:
        state, self.state = self.state, ""
        if not state:
            return await self.hosted.submit(*args, **options)
        self.database.write_now(lambda db: db.execute("UPDATE gateway_inbox SET state = ?", (state,)))
        raise StoreBusy("busy")


@pytest.mark.parametrize(("state", "answers"), [("begun", 1), ("done", 0), ("waiting", 1)])
async def test_a_turn_that_the_store_failed_is_gone_on_with_or_begins_with_what_still_waits(
    rig: Rig, state: chats.InState, answers: int
) -> None:
    parts = msgspec.structs.replace(rig.parts, hosted=FailsOnce(rig, state))
    conversation = Conversation(parts, rig.commands, await left_behind(rig), resume=state != "waiting")
    if state == "waiting":
        rig.app.database.write_now(lambda db: db.execute("UPDATE gateway_inbox SET state = 'waiting'"))
    with pytest.raises(StoreBusy):
        await conversation.process()
    await conversation.process()
    assert len(rig.texts()) == answers


class Idle(ChatCommands):
    """Commands that do nothing."""

    async def run(self, conversation: Conversation, name: str, argument: str) -> None: ...


@pytest.mark.slow
async def test_more_commands_than_are_read_at_a_time_are_all_run(rig: Rig) -> None:
    def receive(db: apsw.Connection) -> None:
        for number in range(MAX_WAITING + 1):
            body = msgspec.json.encode(Incoming(place(), f"u{number}", "message", text="/idle")).decode()
            chats.add_update(db, place(), f"u{number}", body, 0)

    rig.app.database.write_now(receive)
    await Conversation(rig.parts, Idle([]), rig.chat(place()).id, resume=False).process()
    assert rig.state(f"u{MAX_WAITING}") == "done"


async def test_a_conversation_looks_again_once_a_turn_begins_and_not_while_it_runs(rig: Rig) -> None:
    conversation, started = await rig.conversation(place()), list[asyncio.Task[Any]]()

    def start(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        started.append(asyncio.Task(work, loop=loop, **options))
        return started[-1]

    asyncio.get_running_loop().set_task_factory(start)
    ben = rig.parts.router.find_in_file(place())
    assert ben is not None
    async with rig.parts.hosted.using(await conversation.record.session_id(ben)):  # no turn can begin
        for update_id in ("u1", "u2"):
            rig.received(place(), update_id, "hello")
        work = asyncio.create_task(conversation.process())
        while not conversation.is_running:
            await asyncio.sleep(0)
        await rig.app.database.append(lambda db: db.execute("SELECT 1").fetchone())
        assert rig.state("u2") == "waiting"
    await work
    assert (rig.state("u1"), rig.state("u2")) == ("done", "done")
    assert rig.count_turns() == 1 and len(started) < 100


async def test_what_somebody_wrote_who_is_not_let_in_any_more_is_dropped(rig: Rig) -> None:
    rig.received(place("44"), "u1", "hello")
    conversation = await rig.conversation(place("44"))
    await conversation.process()
    assert rig.state("u1") == "dropped" and rig.texts() == [] and not conversation.is_running
