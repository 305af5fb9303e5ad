"""What is short is not looked at for secrets: no shape of a key fits into it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from whet import log

_parser: Any = vars(re)["_parser"]  # what `re` itself reads a pattern with


def test_no_shape_but_two_is_shorter_than_the_words_that_are_passed_over() -> None:
    [(_, (_, branches))] = _parser.parse(log.SHAPES).data
    shortest = sorted(branch.getwidth()[0] for branch in branches)
    assert shortest[0] == 3, "a password in an address, which is found by its ://"
    assert shortest[1] == log.MIN_KEY_CHARS


@pytest.mark.parametrize(
    "secret", ["xoxb-0123456789", "xapp-0123456789", "https://a:b@c", "-----BEGIN PRIVATE KEY----- a b"]
)
def test_the_shortest_keys_are_masked(secret: str) -> None:
    masked = log.mask(f"it is\n{secret}\tthere")
    assert log.MASK in masked and not masked.startswith(f"it is\n{secret}")


def test_short_words_stay_as_they_are() -> None:
    assert log.mask("a key of fourteen: xoxb-012345678") == "a key of fourteen: xoxb-012345678"
