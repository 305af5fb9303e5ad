"""A short "no" with another value is the newer half of the statement; a "no" without one takes it back."""

from __future__ import annotations

import pytest
from benchmarks.lessons.world import Run, Say, Step, User

from tests.memory.evidence import verdict
from whet.memory.requests import GateVerdict

LATER: list[Step] = [Say("ok"), User("Now build it."), Run("terminal", "make", "built"), Say("ok")]


@pytest.mark.parametrize(
    ("said", "reply"),
    [
        ("La réunion est le mardi.", "non, plutôt le mercredi"),
        ("Wir liefern am Montag.", "nein, am Freitag"),
        ("The demo is on Tuesday.", "no, on Thursday"),
    ],
)
def test_the_newest_words_are_kept_with_the_statement_that_they_change(said: str, reply: str) -> None:
    given = verdict([User(said), Say("Noted."), User(reply), *LATER], said, said)
    assert isinstance(given, GateVerdict), given
    assert given.text.index(said) < given.text.index(reply)


@pytest.mark.parametrize("reply", ["no", "No, forget it.", "nein"])
def test_a_mere_no_takes_the_statement_back(reply: str) -> None:
    said = "The demo is on Tuesday."
    assert "took that back" in str(verdict([User(said), Say("Noted."), User(reply), *LATER], said, said))
