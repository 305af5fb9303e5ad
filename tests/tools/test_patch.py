"""`patch` on real files: all or nothing, the file's own form kept, and a short diff back."""

from __future__ import annotations

import os
import re

import pytest

from tests.tools.calls import Desk
from whet.contract.errors import BadInput, ToolDenied


def test_a_replacement_shows_a_short_diff(desk: Desk) -> None:
    (desk.workspace / "a.py").write_text("".join(f"line {n}\n" for n in range(1, 31)))
    text = desk.text("patch", path="a.py", old_string="line 20\n", new_string="twenty\nmore\n")
    assert text == (
        "patched a.py\n@@ -18,5 +18,6 @@\n line 18\n line 19\n-line 20\n+twenty\n+more\n line 21\n line 22"
    )
    assert (desk.workspace / "a.py").read_text().count("\n") == 31


def test_a_newline_that_comes_or_goes_at_the_end_is_shown(desk: Desk) -> None:
    (desk.workspace / "a").write_text("a\nb")
    assert desk.text("patch", path="a", old_string="b", new_string="c\n") == (
        "patched a\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n[a newline was added at the end]"
    )
    assert desk.text("patch", path="a", old_string="a\nc\n", new_string="a\nc") == (
        "patched a\n[a newline was removed at the end]"
    )


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ("a\n", "", ["b"]),
        ("b\n", "c", ["a", "c"]),
        ("a\nb\n", "c", ["c"]),
        ("\nb\n", "", ["a"]),
        ("a\nb\n", "", []),
    ],
)
def test_a_replacement_keeps_the_files_last_newline(
    desk: Desk, old: str, new: str, lines: list[str], end: str
) -> None:
    (desk.workspace / "a").write_bytes(f"a{end}b{end}".encode())
    desk.text("patch", path="a", old_string=old, new_string=new)
    assert (desk.workspace / "a").read_bytes().decode() == "".join(line + end for line in lines)


def test_replace_all_says_how_many(desk: Desk) -> None:
    (desk.workspace / "a").write_text("x\ny\nx\n")
    assert "patched a (2 places, at lines 1, 3)" in desk.text(
        "patch", path="a", old_string="x", new_string="z", replace_all=True
    )


def test_only_newlines_end_lines(desk: Desk) -> None:
    before = b"one\x0c\x1ctwo\r\n\xe2\x80\xa8two"
    (desk.workspace / "a").write_bytes(before)
    desk.call("patch", path="a", old_string="one", new_string="1")
    assert (desk.workspace / "a").read_bytes() == before.replace(b"one", b"1")


def test_a_diff_of_several_files(desk: Desk) -> None:
    (desk.workspace / "x").write_text("a\n")
    (desk.workspace / "gone").write_text("g\n")
    (desk.workspace / "x").chmod(0o755)
    diff = (
        "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n--- /dev/null\n+++ b/new/n\n@@ -0,0 +1 @@\n+n\n"
        "--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-g\n"
    )
    assert desk.text("patch", diff=diff) == "patched x\n@@ -1 +1 @@\n-a\n+b\ncreated new/n\ndeleted gone"
    assert (desk.workspace / "x").read_text() == "b\n"
    assert (desk.workspace / "x").stat().st_mode & 0o777 == 0o755
    assert (desk.workspace / "new/n").read_text() == "n\n"
    assert sorted(os.listdir(desk.workspace)) == ["new", "x"]


@pytest.mark.parametrize(
    ("last", "words"),
    [
        ("--- a/y\n+++ b/y\n@@ -1 +1 @@\n-nope\n+z\n", "y: hunk 1 does not fit"),
        ("--- a/absent\n+++ b/absent\n@@ -1 +1 @@\n-a\n+z\n", "absent does not exist"),
        ("--- /dev/null\n+++ b/y\n@@ -0,0 +1 @@\n+z\n", "y exists already"),
        ("--- a/y\n+++ /dev/null\n@@ -1 +0,0 @@\n-y\n", "y holds more than the diff deletes"),
        ("--- a/../out\n+++ b/../out\n@@ -1 +1 @@\n-a\n+z\n", "outside the workspace"),
        ("--- a/locked\n+++ b/locked\n@@ -1 +1 @@\n-l\n+z\n", "read-only"),
        ("--- a/folder\n+++ b/folder\n@@ -1 +1 @@\n-l\n+z\n", "is a folder"),
        ("--- /dev/null\n+++ b/x/below\n@@ -0,0 +1 @@\n+z\n", "x/below"),
    ],
)
def test_when_one_file_fails_no_file_changes(desk: Desk, last: str, words: str) -> None:
    for name, text in {"x": "a\n", "y": "y\nmore\n", "locked": "l\n"}.items():
        (desk.workspace / name).write_text(text)
    (desk.workspace / "locked").chmod(0o444)
    (desk.workspace / "folder").mkdir()
    (desk.workspace.parent / "out").write_text("a\n")
    first = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n--- /dev/null\n+++ b/fresh\n@@ -0,0 +1 @@\n+n\n"
    assert words in desk.error("patch", diff=first + last).message
    assert (desk.workspace / "x").read_text() == "a\n"
    assert (desk.workspace.parent / "out").read_text() == "a\n"
    assert sorted(os.listdir(desk.workspace)) == ["folder", "locked", "x", "y"]


def test_two_parts_of_a_diff_may_change_one_file(desk: Desk) -> None:
    (desk.workspace / "x").write_text("a\nb\n")
    part = "--- a/x\n+++ b/x\n@@ -{0} +{0} @@\n-{1}\n+{2}\n"
    desk.call("patch", diff=part.format(1, "a", "A") + part.format(2, "b", "B"))
    assert (desk.workspace / "x").read_text() == "A\nB\n"


def test_path_names_the_file_of_a_bare_or_misnamed_diff(desk: Desk) -> None:
    (desk.workspace / "x").write_text("a\n")
    desk.call("patch", path="x", diff="@@ -1 +1 @@\n-a\n+b\n")
    desk.call("patch", path="x", diff="--- old.txt\n+++ old.txt\n@@ -1 +1 @@\n-b\n+c\n")
    desk.call("patch", path=".", diff="--- x\n+++ x\n@@ -1 +1 @@\n-c\n+d\n")
    assert (desk.workspace / "x").read_text() == "d\n"


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"path": "x"},
        {"path": "x", "old_string": "a"},
        {"old_string": "a", "new_string": "b"},
        {"path": "x", "old_string": "a", "new_string": "b", "diff": "@@"},
    ],
)
def test_a_half_said_change_is_refused(desk: Desk, arguments: dict[str, str]) -> None:
    (desk.workspace / "x").write_text("a\n")
    assert isinstance(desk.error("patch", **arguments), BadInput)
    assert (desk.workspace / "x").read_text() == "a\n"


def test_binary_files_and_ways_out_are_refused(desk: Desk) -> None:
    (desk.workspace / "b").write_bytes(b"a\0b")
    (desk.workspace / "link").symlink_to(desk.workspace.parent / "out")
    (desk.workspace.parent / "out").write_text("a")
    assert "binary" in desk.error("patch", path="b", old_string="a", new_string="c").message
    assert isinstance(desk.error("patch", path="link", old_string="a", new_string="c"), ToolDenied)


@pytest.mark.parametrize(
    ("text", "report"),
    [
        ("x\n" * 300, r"\(300 places, at lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 290 more\)\n@@ -1,300"),
        # two lines around the change are counted
        ("0\n" * 9 + "x\n" * 299 + "1\n" * 9, r"\n\[303 lines became 303, from line 8\]$"),
        ("x\n1\n2\n3\n4\n5\nx", r"@@\n-x\n\+y\n 1\n(?s:.)*\n-x\n\+y$"),
        ("x\n" * 5_000, r"\n\[5,000 lines became 5,000, from line 1\]$"),
    ],
)
def test_a_large_change_is_summed_up(desk: Desk, text: str, report: str) -> None:
    (desk.workspace / "a").write_text(text)
    shown = desk.text("patch", path="a", old_string="x", new_string="y", replace_all=True)
    assert re.search(report, shown) and len(shown) < 3_200
