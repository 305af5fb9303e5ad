"""SIGTERM with a turn that does not end in time: a real process, a model that does not answer."""

from __future__ import annotations

import time
from pathlib import Path

import apsw
import pytest

from tests.confirm.vendors.telegram_chat import TelegramChat
from tests.gateway.running import TELEGRAM, GatewayProcess, running
from whet.clock import SystemClock
from whet.practice.script import Fault, ScriptedReply
from whet.practice.server import PracticeServer
from whet.store import live
from whet.store.database import StateDatabase

pytestmark = pytest.mark.slow

DRAIN_S = 1.0


def states(home: Path) -> list[str]:
    """Give what has become of each message that came in, in their order."""
    database = StateDatabase.open(home / "state.db", SystemClock())
    try:
        return database.read_now(
            lambda db: [row[0] for row in db.execute("SELECT state FROM gateway_inbox ORDER BY id")]
        )
    finally:
        database.close()


def heard(home: Path) -> list[str]:
    """Give what the session says that the person said."""
    database = StateDatabase.open(home / "state.db", SystemClock())

    def read(db: apsw.Connection) -> list[str]:
        ids = [row[0] for row in db.execute("SELECT session_id FROM gateway_chats")]
        return [row.text for id_ in ids for row in live.load(db, id_).messages if row.role == "user"]

    try:
        return database.read_now(read)
    finally:
        database.close()


def test_a_turn_that_outlasts_the_drain_goes_on_at_the_next_start(tmp_path: Path) -> None:
    """What waits behind it stays in the inbox; both are answered then, once and in order."""
    slow = ScriptedReply(text="Never sent.", fault=Fault(stall_after=0))
    with TelegramChat(0.0) as telegram, PracticeServer(script=[slow]) as model:
        home = tmp_path / "home"
        text = TELEGRAM.format(url=telegram.url)
        gateway = GatewayProcess(home, text, model, busy="queue", drain_s=DRAIN_S)
        with running(gateway):
            telegram.write("first")
            model.wait_for_stall()
            telegram.write("second")
            telegram.wait(lambda: states(home) == ["begun", "waiting"], "both in the inbox")
            began_s = time.monotonic()
            assert gateway.stop() == 0
            took_s = time.monotonic() - began_s
            assert DRAIN_S <= took_s < DRAIN_S + 30
            assert "turns that still run go on at the next start" in gateway.output()
            assert states(home) == ["begun", "waiting"]
            assert telegram.said() == []
            assert heard(home) == ["first"]
            model.install([ScriptedReply(text="One."), ScriptedReply(text="Two.")])
            gateway.start()
            telegram.wait_said("Two.")
            assert telegram.said() == ["One.", "Two."]
            assert heard(home) == ["first", "second"]
            assert gateway.stop() == 0
        assert states(home) == ["done", "done"]
