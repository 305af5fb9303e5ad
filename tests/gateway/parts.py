"""A gateway's parts on a store, without platforms: nothing runs, and what would be sent is in the outbox."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.gateway.test_deliveries import Board
from tests.support import FixedClock, InLoop
from whet.app.build import App
from whet.app.conversations.hosted import SessionHost
from whet.app.conversations.people import PersonRouter
from whet.cli.interactive.slash_commands import SLASH_COMMANDS
from whet.config.paths import Home
from whet.config.permission_settings import SandboxSettings
from whet.config.schema import GatewaySettings, ModelSettings, ReviewSettings, ScheduleSettings, Settings
from whet.contract.channels import ChatPlace, Incoming, Outgoing, PlatformLimits
from whet.gateway.chat import ChatCommands
from whet.gateway.chat_record import ConversationRows
from whet.gateway.conversations import Conversation, Conversations
from whet.gateway.deliveries import Deliveries
from whet.gateway.intake import UpdateIntake
from whet.gateway.server import GatewayServer
from whet.gateway.settings import ConfiguredChannel, GatewayChannelText, GatewayPersonText, GatewayText
from whet.store import chats
from whet_lab.practice.server import PracticeServer

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
        self.server = GatewayServer(hosted, seats, GatewayText(people=PEOPLE), print)
        deliveries = Quiet(
            app.database, app.clock, self.server.parts.channels, self.server.parts.drafts.end_if_shown
        )
        deliveries.woken = []
        self.woken = deliveries.woken
        self.parts = msgspec.structs.replace(self.server.parts, deliveries=deliveries)
        self.server.parts = self.parts
        self.commands = ChatCommands(SLASH_COMMANDS)
        self.conversations = Conversations(self.parts, self.commands)
        self.intake = UpdateIntake(self.parts, self.conversations)

    def chat(self, where: ChatPlace) -> chats.ChatRecord:
        return self.app.database.write_now(lambda db: chats.get_or_create_chat(db, where))

    async def rows(self, where: ChatPlace) -> ConversationRows:
        return await ConversationRows.load(self.parts, self.chat(where).id)

    async def conversation(self, where: ChatPlace) -> Conversation:
        made = Conversation(self.parts, self.commands, self.chat(where).id, resume=False)
        made.record = await self.rows(where)
        return made

    def received(self, where: ChatPlace, update_id: str, text: str = "x") -> chats.InRow:
        body = msgspec.json.encode(
            Incoming(where, update_id, "message", text=text, ref=f"r{update_id}")
        ).decode()
        self.app.database.write_now(lambda db: chats.add_update(db, where, update_id, body, 0))
        return self.app.database.read_now(
            lambda db: chats.list_waiting(db, chats.get_or_create_chat(db, where).id)
        )[-1]

    def state(self, update_id: str) -> str:
        sql = "SELECT state FROM gateway_inbox WHERE update_id = ?"
        row = self.app.database.read_now(lambda db: db.execute(sql, (update_id,)).fetchone())
        return "" if row is None else row[0]

    def queued(self, where: ChatPlace | None = None) -> list[Outgoing]:
        """Give what waits to be sent, to a conversation or at all, and take it away."""
        number = self.chat(where).id if where else 0
        messages = self.app.database.read_now(lambda db: chats.list_messages(db, ("queued",), number))
        for row in messages:
            self.app.database.write_now(lambda db, row=row: chats.end_sending(db, row.id, "sent"))
        return [msgspec.json.decode(row.body, type=Outgoing) for row in messages]

    def count_turns(self) -> int:
        [(count,)] = self.app.database.read_now(
            lambda db: db.execute("SELECT count(*) FROM turns").fetchall()
        )
        return count

    def texts(self) -> list[str]:
        return [message.text for message in self.queued()]


@pytest.fixture(scope="module")
def model() -> Any:
    with PracticeServer() as server:
        yield server


@pytest.fixture
def rig(tmp_path: Path, model: PracticeServer) -> InLoop[Rig]:
    settings = Settings(
        model=ModelSettings(provider="practice", base_url=model.base_url, model="practice-echo"),
        review=ReviewSettings(worker="off", turns=0, steps=0, on_correction=False, on_recovery=False),
        sandbox=SandboxSettings(mode="off"),
        gateway=GatewaySettings(flood_per_minute=2),
        schedules=ScheduleSettings(worker="off"),
    )

    @asynccontextmanager
    async def opened() -> AsyncGenerator[Rig]:
        people, work = PersonRouter(), tmp_path / "work"
        work.mkdir()
        app = await App.start(Home(tmp_path / "home"), settings, {}, people, work, source="gateway")
        hosted = SessionHost(app.sessions, people)
        try:
            async with asyncio.timeout(30):
                yield Rig(app, hosted, [Wall("one"), Wall("two")])
        finally:
            await hosted.aclose()
            await app.aclose()

    return InLoop(opened())
