"""Lines become choices, and an interface without a person answers nothing."""

from __future__ import annotations

import asyncio

from whet.cli.person import resolve_choice
from whet.contract.protocols import ApprovalRequest, NobodyPresent


def test_a_number_picks_a_choice() -> None:
    assert resolve_choice("2", ["a", "b"]) == "b"
    assert resolve_choice("3", ["a", "b"]) == "3"
    assert resolve_choice("my own", ["a"]) == "my own"


def test_nobody_answers_nothing() -> None:
    request = ApprovalRequest("s", "c", "terminal", "rm -rf x", ("deletes",))
    assert asyncio.run(NobodyPresent().approve(request)) is None
    assert asyncio.run(NobodyPresent().clarify("which?", ["a"])) is None
