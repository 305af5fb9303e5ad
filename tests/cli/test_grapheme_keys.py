"""Backspace, Delete and the arrows take what a person sees as one character."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from wcwidth import grapheme_boundary_before, iter_graphemes

from tests.cli.running import chatting
from whet_lab.practice.script import ScriptedReply

CHARACTERS = {
    "a letter": "b",
    "an accent": "e\u0301",
    "two accents": "o\u0302\u0323",
    "a wide letter": "日",
    "Devanagari": "कि",
    "a family": "👨\u200d👩\u200d👧",
    "a skin colour": "👍🏽",
    "a flag": "🇩🇪",
    "Scotland": "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f",
    "a heart": "❤\ufe0f",
    "a keycap": "1\ufe0f\u20e3",
}


@pytest.mark.parametrize("character", CHARACTERS.values(), ids=CHARACTERS)
@pytest.mark.parametrize("before", ["", "x", "🇫🇷", "👩", "e\u0301"])
@pytest.mark.parametrize("after", ["", "y", "🇮🇹", "日"])
def test_a_character_begins_and_ends_at_its_own_code_points(character: str, before: str, after: str) -> None:
    text, end = before + character + after, len(before) + len(character)
    assert grapheme_boundary_before(text, end) == len(before)
    assert next(iter_graphemes(text[len(before) :])) == character


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "sent"),
    [
        ("ab🇩🇪\x7fc", "abc"),
        ("ab👨\u200d👩\u200d👧\x7fc", "abc"),
        ("abe\u0301\x1b[D\x1b[3~c", "abc"),
        ("a👍🏽\x1b[Db", "ab👍🏽"),
        ("👍🏽a\x1b[D\x1b[D\x1b[Cb", "👍🏽ba"),
    ],
)
def test_keys_take_whole_characters(tmp_path: Path, keys: str, sent: str) -> None:
    with chatting(tmp_path, [ScriptedReply("All done.")]) as (server, tty):
        tty.type(keys)
        tty.type("\r")
        tty.wait_for("All done.")
    (user,) = [m for m in json.loads(server.requests[-1].body)["messages"] if m["role"] == "user"]
    assert user["content"].startswith(f"{sent}\n")
