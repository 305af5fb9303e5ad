"""A question as rows: exact, counted, folded; and the hash that binds a yes to it."""

from __future__ import annotations

import pytest

from whet.contract.changes import TextChange, hash_call, hash_changes
from whet.contract.protocols import ApprovalRequest, GrantScope
from whet.question import build_question, count_changed_lines, diff_rows, list_edits, parse_row
from whet.terminal.diff_view import diff_lines


def change(old: str | None, new: str | None, path: str = "a.py") -> TextChange:
    return TextChange(path, f"/w/{path}", old, new, "h" if old is not None else "")


def texts(old: str | None, new: str | None) -> list[str]:
    return [row.text for row in diff_rows(change(old, new))]


def asked(*changes: TextChange, **more: object) -> ApprovalRequest:
    return ApprovalRequest("s", "c", "patch", "patch a.py", ("why",), changes=changes, **more)  # type: ignore[arg-type]


def test_a_change_is_a_unified_diff_with_its_counts() -> None:
    old = "".join(f"line {n}\n" for n in range(20))
    assert texts(old, old.replace("line 10\n", "ten\nmore\n")) == [
        "a.py  (+2 −1)",
        "@@ -8,7 +8,8 @@",
        *[f" line {n}" for n in (7, 8, 9)],
        "-line 10",
        "+ten",
        "+more",
        *[f" line {n}" for n in (11, 12, 13)],
    ]
    assert texts(None, "a\nb") == [
        "a.py  (new file, +2 −0)",
        "@@ -0,0 +1,2 @@",
        "+a",
        "+b  (no newline at the end)",
    ]
    assert texts("a\n", None) == ["a.py  (deleted, +0 −1)", "@@ -1,1 +0,0 @@", "-a"]
    assert count_changed_lines([change("a\n", "b\nc\n"), change(None, "x\n")]) == (3, 1)


def test_nothing_hides_in_a_diff() -> None:
    shown = texts("ok\n", "ok \u202e\x1b[2J\r\n\tx\n")
    assert shown[-2:] == ["+ok <U+202E>\\e[2J\\r", "+→   x"] and shown[2] == "-ok"
    windows = build_question(asked(change("a\r\n", "b\r\n")))
    assert windows.notes[0].text == "\\r at the end of a line is a Windows line end"
    assert build_question(asked(change("a\n", "b\n"))).notes[0].text == "why"
    assert "�" not in "".join(texts("a", "a\n"))
    assert texts("a", "a\n")[-2:] == ["-a  (no newline at the end)", "+a"]


@pytest.mark.slow
def test_a_huge_change_is_whole_and_quick() -> None:
    old, new = ("".join(f"{word} {n}\n" for n in range(30_000)) for word in ("old", "new"))
    question = build_question(asked(change(old, new)))
    assert len(question.body) == 60_002 and question.fold_rows(40)[-1].text == "… 59,963 more lines"
    assert question.body[1].text == "@@ -1,30000 +1,30000 @@"
    assert list_edits([change(old, new)])[0].diff.splitlines()[-1].startswith("… ")


def test_a_question_says_what_where_why_and_what_a_yes_covers() -> None:
    scopes = (GrantScope("patch", ("a.py",)), GrantScope("patch", ("src/*",), always=False))
    question = build_question(asked(change("a\n", "b\n"), scopes=scopes, opening="write ~/.cargo"))
    assert question.title == "Whet wants to change a.py (+1 −1)"
    assert [row.text for row in question.notes] == [
        "why",
        "opens the sandbox for: write ~/.cargo",
        "1  for this session or always: patch(a.py)",
        "2  for this session: patch(src/*)",
    ]
    plain = build_question(ApprovalRequest("s", "c", "terminal", "make\ntest", (), folder="/w"))
    assert plain.to_text() == "make\ntest\nin /w" and plain.title == "Whet wants to run this command:"


def test_a_title_says_what_is_deleted_emptied_or_no_text() -> None:
    binary = TextChange("a.png", "/w/a.png", None, "x\n", "h", "replaces 8 bytes of binary data")
    old, gone, new = change("a\n", "b\n"), change("a\n", None), change(None, "a\n")
    titles = {
        (gone,): "delete a.py (1 line)",
        (gone, gone): "delete 2 files (+0 −2)",
        (old, new): "change 2 files (+2 −1)",
        (old, gone, new): "change 2 files and delete 1 file (+2 −2)",
        (new, new): "create 2 files (+2 −0)",
        (change("a\n", ""),): "change a.py (leaves it empty, +0 −1)",
        (change(None, ""),): "create a.py (0 lines)",
        (binary,): "change a.png (+1 −0, replaces 8 bytes of binary data)",
    }
    shown = {changes: build_question(asked(*changes)).title for changes in titles}
    assert shown == {changes: f"Whet wants to {title}" for changes, title in titles.items()}
    assert texts("a\n", "")[0] == "a.py  (leaves it empty, +0 −1)"


def test_the_hash_changes_with_all_that_would_happen() -> None:
    one = change("a\n", "b\n")
    hashes = {
        hash_call("patch", {"path": "a"}, "/w", [one]),
        hash_call("patch", {"path": "b"}, "/w", [one]),
        hash_call("other", {"path": "a"}, "/w", [one]),
        hash_call("patch", {"path": "a"}, "/x", [one]),
        hash_call("patch", {"path": "a"}, "/w", [change("a\n", "c\n")]),
        hash_call("patch", {"path": "a"}, "/w", []),
        hash_call("patch", {"path": "a"}, "/w", [TextChange("a.py", "/w/a.py", "a\n", "b\n", "other")]),
    }
    assert len(hashes) == 7 and hash_changes([]) == ""


def test_a_line_of_a_diff_knows_its_kind() -> None:
    kinds = [parse_row(line).kind for line in ("+a", "-a", " a", "@@ -1 +1 @@", "… 3 more lines", "")]
    assert kinds == ["added", "removed", "same", "hunk", "fold", "same"]


@pytest.mark.parametrize("count", [15, 16, 200, 3_000])
def test_a_diff_that_is_cut_twice_counts_every_line_that_is_not_shown(count: int) -> None:
    [edit] = list_edits([change(None, "".join(f"line {number}\n" for number in range(count)))])
    rows = diff_lines(edit.diff, 16)
    shown = sum(row.kind == "added" for row in rows)
    omitted = count - shown
    assert len(rows) <= 16
    folds = [row.text for row in rows if row.kind == "fold"]
    assert folds == ([f"… {omitted:,} more lines"] if omitted else [])
