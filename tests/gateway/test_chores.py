"""What a gateway does beside its chats: reviews, old rows, and a turn that an earlier process began."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from tests.confirm.vendors.telegram_chat import TelegramChat
from tests.gateway.running import TELEGRAM, GatewayProcess, opened, served
from tests.gateway.test_telegram import world
from tests.review.rig import LESSON, SAID, corrected, does, says
from whet.clock import SystemClock
from whet.contract.channels import ChatPlace
from whet.contract.messages import Message
from whet.gateway.chat import ChatCommands
from whet.gateway.conversations import Conversations
from whet.store import chats
from whet.store.database import StateDatabase
from whet.store.transcript import Transcript
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

pytestmark = pytest.mark.unconfined


@pytest.mark.slow
def test_a_review_runs_beside_chats_and_says_what_it_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHET_REVIEW_WORKER", "auto")
    with world(tmp_path, corrected(does(LESSON), says("Saved.")), reviews="true") as w:
        w.telegram.ask("Run the tests", "I ran pytest.")
        w.telegram.ask(SAID, "Memory updated")


def test_what_is_long_done_with_is_dropped(tmp_path: Path) -> None:
    def leave(db: apsw.Connection) -> None:
        two_weeks_ago_ms = SystemClock().unix_ms() - 14 * 86_400_000
        for at_ms, id_ in ((two_weeks_ago_ms - 3_600_000, "old"), (two_weeks_ago_ms + 3_600_000, "new")):
            row = chats.add_update(db, ChatPlace("telegram", "7", "", "7"), id_, "{}", at_ms)
            assert row is not None
            chats.set_update_state(db, row, "done")

    def kept() -> list[str]:
        with closing(StateDatabase.open(tmp_path / "home" / "state.db", SystemClock())) as database:
            return database.read_now(
                lambda db: [row[0] for row in db.execute("SELECT update_id FROM gateway_inbox")]
            )

    with TelegramChat() as telegram, PracticeServer(script=[]) as model:
        gateway = GatewayProcess(tmp_path / "home", TELEGRAM.format(url=telegram.url), model)
        with closing(StateDatabase.open(tmp_path / "home" / "state.db", SystemClock())) as database:
            database.write_now(leave)
        with served(gateway):
            telegram.wait(lambda: kept() == ["new"], "the old row dropped")


def test_a_gateway_that_is_stopped_as_it_starts_ends_the_turn_that_it_goes_on_with(tmp_path: Path) -> None:
    script = [ScriptedReply("Hello."), ScriptedReply("In the end.")]

    async def left_behind(database: StateDatabase) -> None:
        chat_place = ChatPlace("telegram", "7", "", "7")

        def begun(db: apsw.Connection) -> str:
            row = chats.add_update(db, chat_place, "later", "{}", SystemClock().unix_ms())
            assert row is not None
            chats.set_update_state(db, row, "begun")
            return chats.get_or_create_chat(db, chat_place).session_id

        log = await Transcript.open(database, database.write_now(begun), SystemClock())
        await log.begin_turn(Message("user", "and then?"))
        log.close()

    async def stopped_at_once(gateway: GatewayProcess) -> None:
        async with opened(gateway) as server:
            await left_behind(server.parts.database)
            conversations = Conversations(server.parts, ChatCommands([]))
            await conversations.recover()
            assert await conversations.drain(30)
            await server.parts.deliveries.drain(30)
            for channel in server.parts.channels.values():
                await channel.aclose()

    with TelegramChat() as telegram, PracticeServer(script=script) as model:
        gateway = GatewayProcess(tmp_path / "home", TELEGRAM.format(url=telegram.url), model)
        with served(gateway):
            telegram.ask("hello", "Hello.")
        asyncio.run(stopped_at_once(gateway))
        assert telegram.said() == ["Hello.", "In the end."]
