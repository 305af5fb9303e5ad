"""Backspace, Delete and the arrows take what a person sees as one character."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import chatting
from whet_lab.practice.script import ScriptedReply


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
