"""Keys and lines become answers; whatever is unclear is a no."""

from __future__ import annotations

import asyncio

import pytest

from whet.cli.person import answer_of, chosen
from whet.contract.protocols import ApprovalRequest, NobodyPresent


def asked(grant: str = "") -> ApprovalRequest:
    return ApprovalRequest("s", "c", "terminal", "rm -rf x", ("deletes",), grant)


@pytest.mark.parametrize(
    ("key", "answer"), [("o", "once"), ("S", "session"), ("n", "no"), ("", None), ("y", None)]
)
def test_a_key_is_an_answer_or_nothing(key: str, answer: str | None) -> None:
    assert answer_of(key, asked()) == answer


def test_always_needs_something_to_allow() -> None:
    assert answer_of("a", asked()) is None
    assert answer_of("a", asked("terminal(ls *)")) == "always"


def test_a_number_picks_a_choice() -> None:
    assert chosen("2", ["a", "b"]) == "b"
    assert chosen("3", ["a", "b"]) == "3"
    assert chosen("my own", ["a"]) == "my own"


def test_nobody_answers_nothing() -> None:
    assert asyncio.run(NobodyPresent().approve(asked())) is None
    assert asyncio.run(NobodyPresent().clarify("which?", ["a"])) is None
