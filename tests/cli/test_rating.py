"""Saying how a turn went, in the chat and outside it."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.running import Tty, flags, invoke
from tests.cli.stored import Said, store
from tests.support import FixedClock
from whet.store import outcomes
from whet.store.database import StateDatabase
from whet_lab.practice.server import PracticeServer


def signals(home: Path, clock: FixedClock) -> list[list[str]]:
    with closing(StateDatabase.open(home / "state.db", clock)) as database:
        turn_outcomes = database.read_now(lambda db: outcomes.list_turn_outcomes(db))
    return [sorted(turn.signals) for turn in turn_outcomes]


def test_a_turn_is_rated_from_outside(home: Path, clock: FixedClock) -> None:
    assert "no session yet" in str(invoke("rate", "good").exception)
    assert not home.exists()
    session_id = store(home, clock, "one", Said("hi", "hello"), Said("more", "yes"))
    assert "turn 2 of" in invoke("rate", "good", session_id).output
    done = invoke("rate", "bad", session_id[:12], "--turn", "1", "--json")
    assert json.loads(done.output) == {"session_id": session_id, "turn": 1, "rating": "bad"}
    assert signals(home, clock) == [["bad"], ["good"]]


@pytest.mark.slow
def test_the_chat_takes_good_bad_and_retry(home: Path, tmp_path: Path, clock: FixedClock) -> None:
    with PracticeServer() as server:
        tty = Tty(["chat", *flags(server)], tmp_path)
        tty.wait_for("›")
        tty.type("/good\r", "no turn yet")
        tty.type("hello\r", "1 step")
        tty.type("/bad\r", "turn 1 is noted as bad")
        tty.type("/retry\r", "1 step")
        tty.type("/good\r", "turn 2 is noted as good")
        tty.leave("/quit\r")
        tty.close()
    assert signals(home, clock) == [["bad", "retry"], ["good"]]
