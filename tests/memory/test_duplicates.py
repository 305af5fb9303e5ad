"""What is remembered already, in these words or nearly."""

from __future__ import annotations

import pytest

from whet.memory.duplicates import duplicate_of

KEPT = "Integration tests need redis, postgres and kafka running locally"


@pytest.mark.parametrize(
    ("text", "is_same"),
    [
        (KEPT + ".", True),
        ("pitfall: " + KEPT.upper(), True),
        ("integration tests need kafka, redis and postgres to be running locally", True),
        # Eight of ten words or more are the same thing; fewer are another.
        ("Integration tests need redis, postgres and kafka running", True),
        ("Integration tests need redis and postgres", False),
        ("Integration tests don't need redis, postgres and kafka running locally", False),
        ("Integration tests need redis, postgres and kafka running locally on 6379", False),
        ("the and of", False),
    ],
)
def test_the_same_again_is_found_and_a_difference_is_kept(text: str, is_same: bool) -> None:
    assert duplicate_of(text, ["Something else entirely", KEPT]) == (KEPT if is_same else "")


def test_a_text_of_literals_only_is_compared_by_them() -> None:
    assert duplicate_of("8443", ["8080", "8443."]) == "8443."
    assert duplicate_of("the of", ["the of"]) == ""
