"""Calls that write files, of every kind, and what a person must see before each, in every interface."""

from __future__ import annotations

import json
from pathlib import Path

from whet_lab.practice.ask import PracticeCall

OLD = "def total(a, b):\n    return a - b\n"
_MANY = "".join(f"row {number}\n" for number in range(1_500))
_LONG = "x" * 9_000 + "the end"


def prepare(workspace: Path) -> None:
    """Make the files that the calls change."""
    (workspace / ".git" / "hooks").mkdir(parents=True, exist_ok=True)
    texts = {"sums.py": OLD, "notes.txt": "one\ntwo\n", "gone.txt": "last words\n", "real.txt": "behind\n"}
    texts |= {"a.txt": "alpha\n", "b.txt": "beta\n", "empty.txt": "full\n", "end.txt": "no end"}
    for name, text in texts.items():
        (workspace / name).write_text(text)
    (workspace / "dos.txt").write_bytes(b"eins\r\nzwei\r\n")
    (workspace / "latin.txt").write_bytes("grün\n".encode("latin-1"))
    (workspace / "wide.txt").write_bytes("weit\n".encode("utf-16"))
    (workspace / "picture.bin").write_bytes(b"\x89PNG\0\1\2\3")
    (workspace / "link.txt").unlink(missing_ok=True)
    (workspace / "link.txt").symlink_to("real.txt")


def _call(name: str, **arguments: object) -> PracticeCall:
    return PracticeCall(name, json.dumps(arguments))


def _diff(*files: tuple[str, str, str]) -> PracticeCall:
    parts = [f"--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-{old}\n+{new}\n" for name, old, new in files]
    return _call("patch", diff="".join(parts))


_ENVELOPE = (
    "*** Begin Patch\n*** Update File: a.txt\n@@\n-aleph\n+ALPHA\n"
    "*** Add File: new.txt\n+fresh\n*** End Patch\n"
)
_HERE = f"cat > sent.txt <<'EOF'\n{_MANY}EOF\nprintf 'at the end' >> sent.txt"

# The lines of a diff: with a sign where it shows one. An editor is given the texts instead, without signs.
WRITES: dict[str, tuple[PracticeCall, tuple[str, ...]]] = {
    "a replacement": (
        _call("patch", path="sums.py", old_string="a - b", new_string="a + b"),
        ("-    return a - b", "+    return a + b"),
    ),
    "a diff": (_diff(("notes.txt", "one", "three")), ("-one", "+three")),
    "a diff of several files": (
        _diff(("a.txt", "alpha", "aleph"), ("b.txt", "beta", "beth")),
        ("-alpha", "+aleph", "-beta", "+beth"),
    ),
    "a Codex envelope": (
        PracticeCall("patch", json.dumps({"diff": _ENVELOPE})),
        ("-aleph", "+ALPHA", "+fresh"),
    ),
    "a deletion": (
        _call("patch", diff="--- a/gone.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-last words\n"),
        ("-last words", "delete the file gone.txt (1 line)"),
    ),
    "a new file": (_call("write_file", path="fresh.txt", content="made\n"), ("+made",)),
    "a whole file": (
        _call("write_file", path="sums.py", content="gone = 1\n"),
        ("-    return a + b", "+gone = 1"),
    ),
    "a hook of git": (
        _call("write_file", path=".git/hooks/pre-commit", content="#!/bin/sh\nmake lint\n"),
        ("+#!/bin/sh", "+make lint"),
    ),
    "a file emptied": (
        _call("write_file", path="empty.txt", content=""),
        ("-full", "empty the file empty.txt (1 line removed)"),
    ),
    "text in the place of a binary": (
        _call("write_file", path="picture.bin", content="just text\n"),
        ("+just text", "replace all of picture.bin (8 bytes of binary data) with 1 line of text"),
    ),
    "many lines": (_call("write_file", path="many.txt", content=_MANY), ("+row 0", "+row 1499")),
    "a very long line": (_call("write_file", path="long.txt", content=_LONG + "\n"), (f"+{_LONG}",)),
    "Latin-1": (
        _call("patch", path="latin.txt", old_string="grün", new_string="größer"),
        ("-grün", "+größer"),
    ),
    "UTF-16": (_call("patch", path="wide.txt", old_string="weit", new_string="breit"), ("-weit", "+breit")),
    "through a link": (
        _call("write_file", path="link.txt", content="new\n"),
        ("-behind", "+new", "the file real.txt through the link link.txt (1 line added, 1 removed)"),
    ),
    "CRLF": (_call("patch", path="dos.txt", old_string="zwei", new_string="drei"), ("-zwei\\r", "+drei\\r")),
    "CRLF in a rewrite": (_call("write_file", path="dos.txt", content="neu\n"), ("-eins\\r", "+neu\\r")),
    "no newline at the end": (
        _call("patch", path="end.txt", old_string="no end", new_string="some end"),
        ("-no end  (no newline at the end)", "+some end  (no newline at the end)"),
    ),
    "text that hides": (
        _call("write_file", path="odd.py", content="ok = 1 \u202e# \x1b[2J\n"),
        ("+ok = 1 <U+202E># \\e[2J",),
    ),
    "a command's own text": (
        _call("terminal", command=_HERE),
        ("cat > sent.txt <<'EOF'", "row 1499", "printf 'at the end' >> sent.txt"),
    ),
    "a command on one long line": (
        _call("terminal", command=f"echo {_LONG} > said.txt"),
        (f"echo {_LONG} > said.txt",),
    ),
}


def missing(shown: str, lines: tuple[str, ...]) -> list[str]:
    """Give the lines that a question did not show."""
    rows = "".join(shown.split())
    return [line for line in lines if "".join(line.split()) not in rows]
