"""Calls that write files, and lines of the diff that a person must see before each, in every interface."""

from __future__ import annotations

import json
from pathlib import Path

from whet.practice.ask import PracticeCall

OLD = "def total(a, b):\n    return a - b\n"


def prepare(workspace: Path) -> None:
    """Make the files that the calls change."""
    (workspace / ".git" / "hooks").mkdir(parents=True, exist_ok=True)
    (workspace / "sums.py").write_text(OLD)
    (workspace / "notes.txt").write_text("one\ntwo\n")


def _call(name: str, **arguments: object) -> PracticeCall:
    return PracticeCall(name, json.dumps(arguments))


_DIFF = "--- a/notes.txt\n+++ b/notes.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n"
WRITES: list[tuple[PracticeCall, tuple[str, ...]]] = [
    (
        _call("patch", path="sums.py", old_string="a - b", new_string="a + b"),
        ("-    return a - b", "+    return a + b"),
    ),
    (_call("patch", diff=_DIFF), ("-two", "+three")),
    (_call("write_file", path="fresh.txt", content="made\n"), ("+made",)),
    (_call("write_file", path="sums.py", content="gone = 1\n"), ("-    return a + b", "+gone = 1")),
    (
        _call("write_file", path=".git/hooks/pre-commit", content="#!/bin/sh\nmake lint\n"),
        ("+#!/bin/sh", "+make lint"),
    ),
]
