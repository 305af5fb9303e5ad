"""A gateway's parts on a store, without platforms: who is asked, what is crossed off, what commands and what
comes in lead to. Nothing runs here; what would be sent is read from the outbox."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from tests.gateway.test_deliveries import Board
from tests.support import FixedClock
from whet.app.build import App
from whet.app.hosted import SessionHost
from whet.app.people import Switchboard
from whet.cli.commands import builtin_commands
from whet.config.paths import Home
from whet.config.schema import GatewaySettings, ModelSettings, ReviewSettings, SandboxSettings, Settings
from whet.contract.channels import ChatPlace, Incoming, Outgoing, PlatformLimits
from whet.contract.errors import StoreBusy, WhetError
from whet.contract.events import ReviewFinished
from whet.gateway import outbox
from whet.gateway.chat import ChatCommands
from whet.gateway.chat_record import ConversationRows
from whet.gateway.conversations import Conversation, Conversations
from whet.gateway.deliveries import Deliveries
from whet.gateway.intake import UpdateIntake
from whet.gateway.server import GatewayServer
from whet.gateway.settings import ConfiguredChannel, GatewayChannelText, GatewayPersonText, GatewayText
from whet.practice.server import PracticeServer
from whet.store import chats, goals, sessions
from whet.store.chats import InRow
from whet.store.goals import GoalRow

ANN = GatewayPersonText({"board": "7"}, owner=True)
BEN = GatewayPersonText({"board": "8"})
CAT = GatewayPersonText({"board": "9", "wall": "9"}, approves=True)
PEOPLE = {"ann": ANN, "ben": BEN, "cat": CAT}


def place(user: str = "8", chat: str = "", *, channel: str = "one", group: bool = False) -> ChatPlace:
    return ChatPlace(channel, chat or f"c{user}", "", user, is_group=group)


class Quiet(Deliveries):
    """Sends nothing, and keeps what was said to be there for whom."""

    woken: list[int]

    def wake(self, chat_id: int) -> None:
        self.woken.append(chat_id)


class Wall(Board):
    """A platform that keeps what presses are answered with."""

    def __init__(self, name: str) -> None:
        super().__init__(FixedClock(), 0.0, [])
        self.name = name
        self.limits = PlatformLimits(200, 1.0, 1.0)
        self.answers: list[str] = []

    async def answer(self, press: Incoming, text: str, *, is_alert: bool = False) -> None:
        self.answers.append(text)


class Rig:
    """A gateway that was put together and does not run."""

    def __init__(self, app: App, hosted: SessionHost, boards: Sequence[Wall]) -> None:
        seats = [
            ConfiguredChannel(board, GatewayChannelText(kind), ())
            for board, kind in zip(boards, ("board", "wall"), strict=True)
        ]
        self.app = app
        self.board = boards[0]
        self.server = GatewayServer(app, hosted, seats, GatewayText(people=PEOPLE), print)
        deliveries = Quiet(
            app.database, app.clock, self.server.parts.channels, self.server.parts.drafts.settled
        )
        deliveries.woken = []
        self.woken = deliveries.woken
        self.parts = msgspec.structs.replace(self.server.parts, deliveries=deliveries)
        self.server.parts = self.parts
        self.commands = ChatCommands(list(builtin_commands()))
        self.conversations = Conversations(self.parts, self.commands)
        self.intake = UpdateIntake(self.parts, self.conversations)

    def chat(self, where: ChatPlace) -> chats.ChatRecord:
        return self.app.database.write_now(lambda db: chats.chat_at(db, where))

    async def rows(self, where: ChatPlace) -> ConversationRows:
        return await ConversationRows.load(self.parts, self.chat(where).id)

    async def conversation(self, where: ChatPlace) -> Conversation:
        made = Conversation(self.parts, self.commands, self.chat(where).id, resume=False)
        made.record = await self.rows(where)
        return made

    def received(self, where: ChatPlace, update_id: str, text: str = "x") -> InRow:
        body = msgspec.json.encode(
            Incoming(where, update_id, "message", text=text, ref=f"r{update_id}")
        ).decode()
        self.app.database.write_now(lambda db: chats.receive(db, where, update_id, body, 0))
        return self.app.database.read_now(lambda db: chats.waiting(db, chats.chat_at(db, where).id))[-1]

    def state(self, update_id: str) -> str:
        sql = "SELECT state FROM gateway_inbox WHERE update_id = ?"
        row = self.app.database.read_now(lambda db: db.execute(sql, (update_id,)).fetchone())
        return "" if row is None else row[0]

    def queued(self, where: ChatPlace | None = None) -> list[Outgoing]:
        """Give what waits to be sent, to a conversation or at all, and take it away."""
        number = self.chat(where).id if where else 0
        found = self.app.database.read_now(lambda db: chats.out_in(db, ("queued",), number))
        for row in found:
            self.app.database.write_now(lambda db, row=row: chats.end_sending(db, row.id, "sent"))
        return [msgspec.json.decode(row.body, type=Outgoing) for row in found]

    def texts(self) -> list[str]:
        return [message.text for message in self.queued()]


Test = Callable[[Rig], Coroutine[Any, Any, None]]
Run = Callable[[Test], None]


@pytest.fixture(scope="module")
def model() -> Any:
    with PracticeServer() as server:
        yield server


@pytest.fixture
def run(tmp_path: Path, model: PracticeServer) -> Run:
    settings = Settings(
        model=ModelSettings(provider="practice", base_url=model.base_url, model="practice-echo"),
        review=ReviewSettings(worker="off", turns=0, steps=0, on_correction=False, on_recovery=False),
        sandbox=SandboxSettings(mode="off"),
        gateway=GatewaySettings(flood_per_minute=2),
    )

    @asynccontextmanager
    async def opened() -> AsyncGenerator[Rig]:
        people, work = Switchboard(), tmp_path / "work"
        work.mkdir()
        app = await App.start(Home(tmp_path / "home"), settings, {}, people, work, source="gateway")
        hosted = SessionHost(app, people)
        try:
            yield Rig(app, hosted, [Wall("one"), Wall("two")])
        finally:
            await hosted.aclose()
            await app.aclose()

    def all_of(test: Test) -> None:
        async def main() -> None:
            async with opened() as rig, asyncio.timeout(30):
                await test(rig)

        asyncio.run(main())

    return all_of


def test_whoever_may_decide_is_asked_in_their_group_or_alone(run: Run) -> None:
    async def test(rig: Rig) -> None:
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

    run(test)


def test_what_cannot_be_run_is_crossed_off_and_open_work_is_told(run: Run) -> None:
    async def test(rig: Rig) -> None:
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

    run(test)


def test_a_conversation_goes_on_in_its_session_until_its_person_has_another_memory(run: Run) -> None:
    async def test(rig: Rig) -> None:
        rows = await rig.rows(place("8"))
        ben, owner = rig.parts.router.listed(place("8")), rig.parts.router.listed(place("7"))
        assert ben is not None and owner is not None
        first = await rows.session_id(ben)
        assert await rows.session_id(ben) == first == rig.chat(place("8")).session_id
        row = rig.app.database.read_now(lambda db: sessions.get(db, first))
        assert (row.source, Path(row.workspace)) == ("one", rig.app.home.people / "ben" / "work")
        other = await rows.session_id(owner)
        assert other != first and rows.chat.session_id == other
        assert rig.app.database.read_now(lambda db: sessions.profile_of(db, other)) == ""

    run(test)


def test_an_answer_takes_the_drafts_place_and_says_nothing_where_it_is_empty(run: Run) -> None:
    async def test(rig: Rig) -> None:
        rows = await rig.rows(place())
        text = "\n\n".join(letter * 150 for letter in "ab")
        rig.app.database.write_now(lambda db: rows.answer_in(db, text, 5))
        assert rig.queued() == [Outgoing("a" * 150, edits="?"), Outgoing("b" * 150)]
        rig.app.database.write_now(lambda db: rows.answer_in(db, "", 5))
        await rows.say(text)
        assert rig.texts() == ["a" * 150, "b" * 150]

    run(test)


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


@pytest.mark.parametrize(
    ("user", "line", "said"),
    [
        ("8", "stop", ["Nothing was running."]),
        ("8", "missing", ["Nothing is missing here."]),
        ("8", "approve", ["Nothing waits for a decision here."]),
        ("8", "approve always", ["Nothing waits for a decision here."]),
        ("8", "approve never", ["refused: 'never' is no way to allow"]),
        ("8", "deny", ["Nothing waits for a decision here."]),
        ("8", "model other", ["refused: you may not change the model here"]),
        ("8", "stranger", ["refused: there is no command /stranger"]),
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
def test_a_command_says_what_it_did_or_why_not(run: Run, user: str, line: str, said: list[str]) -> None:
    async def test(rig: Rig) -> None:
        found = await commanded(rig, user, line)
        assert [text[: len(want)] for text, want in zip(found, said, strict=True)] == said

    run(test)


def test_stop_drops_what_waits_and_missing_shows_what_may_not_have_arrived(run: Run) -> None:
    async def test(rig: Rig) -> None:
        for count, said in ((1, "1 message that waited was"), (2, "2 messages that waited were")):
            for number in range(count):
                rig.received(place(), f"u{count}{number}")
            assert await commanded(rig, "8", "stop") == [f"Nothing was running. {said} dropped."]
            assert rig.state(f"u{count}0") == "dropped"
        rows = await rig.rows(place())
        await rows.post([Outgoing("lost", edits="r1", since_ms=5)])
        (row,) = rig.app.database.read_now(lambda db: chats.out_in(db, ("queued",)))
        rig.app.database.write_now(lambda db: chats.end_sending(db, row.id, "unknown", error="cut"))
        assert await commanded(rig, "8", "missing") == ["lost", "That is all."]
        assert await commanded(rig, "8", "missing") == ["Nothing is missing here."]

    run(test)


def test_the_last_goal_is_shown_and_stopped_by_the_owner(run: Run) -> None:
    async def test(rig: Rig) -> None:
        for line in ("goal", "goal show", "goal stop"):
            assert (await commanded(rig, "7", line))[0].startswith("refused: there is no one goal")
        ann = rig.parts.router.listed(place("7"))
        assert ann is not None
        session_id = await (await rig.rows(place("7"))).session_id(ann)
        goal = GoalRow("g1", session_id, "tidy up", "", {}, 0.5, 3, "running", 1, begun="2026-11-21")
        rig.app.database.write_now(lambda db: goals.add(db, goal))
        for line in ("goal", "goal show"):
            assert "goal running: tidy up" in (await commanded(rig, "7", line))[0]
        assert "goal cancelled: tidy up" in (await commanded(rig, "7", "goal stop"))[0]
        assert (await commanded(rig, "7", "goal x --steps many"))[0].startswith(
            "refused: --steps takes a number"
        )

    run(test)


def test_a_command_waits_for_a_turn_unless_it_works_at_any_time(run: Run) -> None:
    async def test(rig: Rig) -> None:
        known = await rig.conversation(place("8"))
        assert not await rig.commands.waits(known, "stop") and not await rig.commands.waits(known, "none")
        stranger = await rig.conversation(place("44"))
        assert not await rig.commands.waits(stranger, "stop")
        parse = rig.commands.parse
        assert parse(Incoming(place(), "u", "message", text="  /stop now ")) == ("stop", "now")
        assert parse(Incoming(place(), "u", "message", text="stop")) is None

    run(test)


class Failing(ChatCommands):
    """Commands that fail as they are named."""

    async def run(self, conversation: Conversation, name: str, rest: str) -> None:
        raise {"store": StoreBusy("busy"), "no": WhetError("not now", hint="later")}.get(name, KeyError(name))


@pytest.mark.logs_errors("/odd broke")
def test_a_command_that_fails_is_told_and_one_whose_store_fails_is_tried_again(run: Run) -> None:
    async def test(rig: Rig) -> None:
        chat_id = rig.chat(place()).id
        one = Conversation(rig.parts, Failing([]), chat_id, resume=False)
        for text, said in (
            ("/no", "not now (later)"),
            ("/odd", "⚠️ something went wrong; the log has it"),
        ):
            rig.received(place(), text, text)
            await one.work()
            assert rig.texts() == [said] and rig.state(text) == "done"
        rig.received(place(), "/store", "/store")
        with pytest.raises(StoreBusy):
            await one.work()
        assert rig.texts() == []

    run(test)


# What comes in.


async def took(rig: Rig, *updates: Incoming) -> list[str]:
    await rig.intake.take(updates)
    return rig.texts()


def says(user: str, update_id: str, text: str = "x", **more: Any) -> Incoming:
    return Incoming(place(user), update_id, "message", text=text, at_s=1.0, **more)


def test_an_update_is_taken_offered_a_code_or_left_alone(run: Run) -> None:
    async def test(rig: Rig) -> None:
        assert await took(rig, says("8", "u1")) == [] and rig.state("u1") == "waiting"
        assert rig.conversations.count == 1
        await rig.conversations.drain(30)
        assert await took(rig, says("8", "u1")) == [] and len(rig.woken) == 0
        (offer,) = await took(rig, says("44", "u2"))
        assert offer.startswith("This assistant is private. Your pairing code is `")
        assert "good for 10 minutes." in offer and rig.woken == [rig.chat(place("44")).id]
        assert await took(rig, says("44", "u3")) == [], "a code is given once"
        edited = msgspec.structs.replace(says("45", "u4"), verb="edit")
        assert await took(rig, edited) == [] and rig.state("u4") == ""
        grouped = Incoming(place("8", "g", group=True), "u5", "message", text="x")
        assert await took(rig, grouped) == [] and rig.state("u5") == ""

    run(test)


def test_a_flood_is_told_once_and_what_is_over_is_not_read(run: Run) -> None:
    async def test(rig: Rig) -> None:
        said = await took(rig, *(says("8", f"u{number}") for number in range(5)))
        assert said == ["That was a lot at once: 2 messages a minute are read. This one was not."]
        assert [rig.state(f"u{number}") for number in range(5)] == ["waiting", "waiting", "", "", ""]
        await rig.conversations.drain(30)

    run(test)


def test_an_edit_counts_while_its_message_waits_and_is_told_about_where_that_was_read(run: Run) -> None:
    late = "An edited message is read only while it waits; that one was read already. Send it again."

    async def test(rig: Rig) -> None:
        rig.received(place(), "u1")
        edit = msgspec.structs.replace(says("8", "u2", "better", ref="ru1"), verb="edit")
        assert await took(rig, edit) == []
        (row,) = await (await rig.rows(place())).waiting()
        assert msgspec.json.decode(row.body)["text"] == "better" and rig.state("u2") == "done"
        emptied = msgspec.structs.replace(edit, update_id="u3", text="", place=place("9"))
        assert await took(rig, emptied) == []
        await (await rig.rows(place())).mark(row, "done")
        again = msgspec.structs.replace(edit, update_id="u4", place=place("8"), at_s=100.0)
        assert await took(rig, again) == [late] and rig.woken == [rig.chat(place()).id]

    run(test)


def presses(user: str, data: str, **more: Any) -> Incoming:
    return Incoming(place(user, "g", group=True), "p", "press", "Ann\u202e", data, ref="m1", **more)


def test_a_press_decides_for_those_who_may_in_the_chat_of_the_question(run: Run) -> None:
    async def test(rig: Rig) -> None:
        asking = rig.parts.asking
        rows = await rig.rows(place("8", "g", group=True))

        async def asked() -> tuple[str, asyncio.Task[str]]:
            buttons = [(outbox.MessageButton("Yes", "1"), "once")]
            task = asyncio.create_task(asking.put(rows.desk(), ["May I?"], buttons, open_ended=False))
            while not (found := rig.queued()):
                await asyncio.sleep(0)
            return found[0].buttons[0].data, task

        data, task = await asked()
        for user, said in (("44", "You may not decide this."), ("8", "You may not decide this.")):
            await rig.intake.take([presses(user, data)])
            assert rig.board.answers.pop() == said and not task.done()
        elsewhere = Incoming(place("7"), "p", "press", "Ann", data, ref="m1")
        await rig.intake.take([elsewhere])
        assert rig.board.answers.pop() == "This question is over." and not task.done()
        await rig.intake.take([presses("7", data)])
        assert rig.board.answers.pop() == "Allowed once." and await task == "once"
        assert rig.queued() == [Outgoing("May I?\n\n**Allowed once.** Ann<U+202E>", edits="m1")]
        await rig.intake.take([presses("7", data)])
        assert rig.board.answers.pop() == "This question is over." and rig.queued() == []
        data, task = await asked()
        rig.board.limits = PlatformLimits(200, 1.0, 1.0, can_edit=False)
        await rig.intake.take([presses("9", data)])
        assert await task == "once" and rig.queued() == [], "its messages can't be changed"

    run(test)


def test_the_button_under_a_notice_shows_what_may_be_missing_once(run: Run) -> None:
    async def test(rig: Rig) -> None:
        rows = await rig.rows(place("8", "g", group=True))
        await rows.post([Outgoing("lost")])
        (row,) = rig.app.database.read_now(lambda db: chats.out_in(db, ("queued",)))
        rig.app.database.write_now(lambda db: chats.end_sending(db, row.id, "unknown", error="cut"))
        rig.woken.clear()
        await rig.intake.take([presses("44", outbox.SHOW)])
        assert rig.board.answers.pop() == "It is shown." and rig.texts() == [] and rig.woken == []
        await rig.intake.take([presses("8", outbox.SHOW)])
        assert rig.board.answers.pop() == "Here it is." and rig.texts() == ["lost"]
        assert rig.woken == [rows.chat.id]
        await rig.intake.take([presses("8", outbox.SHOW)])
        assert rig.board.answers.pop() == "It is shown." and rig.texts() == [] and len(rig.woken) == 1

    run(test)


# What is posted beside answers.


def test_a_review_that_saved_something_is_told_to_its_conversation(run: Run) -> None:
    async def test(rig: Rig) -> None:
        rows, ben = await rig.rows(place("8")), rig.parts.router.listed(place("8"))
        assert ben is not None
        session_id = await rows.session_id(ben)
        send = rig.app.tools.by_name["send_file"]
        assert send.toolset == "file"

        def finished(state: Literal["saved", "nothing"], summary: str, session: str = session_id) -> None:
            rig.server._reviewed(ReviewFinished("j1", session, "r1", state, summary))

        finished("saved", "")
        finished("nothing", "x")
        finished("saved", "Learned it.", "unknown")
        finished("saved", "Learned it.")
        await rig.app.database.append(lambda db: None)
        assert rig.queued() == [Outgoing("_Learned it._", quiet=True)]
        assert await rig.server._post(session_id, Outgoing("a file")) is True
        assert await rig.server._post("unknown", Outgoing("a file")) is False
        assert rig.texts() == ["a file"] and rig.woken == [rows.chat.id]

    run(test)
