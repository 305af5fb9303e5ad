"""SIGTERM with a turn that does not end in time: a real process, a model that does not answer."""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from tests.agent.rig import calls
from tests.confirm.vendors.telegram_chat import TelegramChat
from tests.gateway.running import TELEGRAM, GatewayProcess, running
from whet.clock import SystemClock
from whet.store import live
from whet.store.database import StateDatabase
from whet_lab.practice.script import Fault, ScriptedReply
from whet_lab.practice.server import PracticeServer

pytestmark = pytest.mark.slow

DRAIN_S = 1.0


def states(home: Path) -> list[str]:
    """Give what has become of each message that came in, in their order."""
    with closing(StateDatabase.open(home / "state.db", SystemClock())) as database:
        return database.read_now(
            lambda db: [row[0] for row in db.execute("SELECT state FROM gateway_inbox ORDER BY id")]
        )


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
    slow = ScriptedReply("Never sent.", fault=Fault(stall_after=0))
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
            model.install([ScriptedReply("One."), ScriptedReply("Two.")])
            gateway.start()
            telegram.wait_said("Two.")
            assert telegram.said() == ["One.", "Two."]
            assert heard(home) == ["first", "second"]
            assert gateway.stop() == 0
        assert states(home) == ["done", "done"]


@pytest.mark.parametrize("when", ["before the kill", "while nothing runs"])
def test_words_said_before_a_restart_come_before_the_calls_of_the_old_step(tmp_path: Path, when: str) -> None:
    """The gateway is killed in a step of three calls; what the person says then is read first."""
    home, marks = tmp_path / "home", tmp_path / "work" / "marks"
    home.mkdir()
    marks.parent.mkdir()
    (home / "work").symlink_to(marks.parent)  # commands change nothing in Whet's home unasked
    commands = [
        f"echo {word} >> marks; {rest}" for word, rest in (("1", "sleep 60"), ("2", "true"), ("3", "true"))
    ]
    step = calls(*[("terminal", json.dumps({"command": command})) for command in commands])
    with TelegramChat(0.0) as telegram, PracticeServer(script=[step, ScriptedReply("Stopped.")]) as model:
        text = TELEGRAM.format(url=telegram.url)
        gateway = GatewayProcess(home, text, model, busy="steer")
        with running(gateway):
            telegram.write("go")
            telegram.wait(lambda: marks.exists() and marks.read_text(), "the first call")
            if when == "before the kill":
                telegram.write("Stop! Do nothing more")
                telegram.wait(lambda: len(states(home)) == 2, "both in the inbox")
            gateway.kill()
            if when == "while nothing runs":
                telegram.write("Stop! Do nothing more")
            gateway.start()
            telegram.wait_said("Stopped.")
            assert gateway.stop() == 0
    assert marks.read_text() == "1\n"
    assert heard(home) == ["go", "Stop! Do nothing more"]
