"""A question as rows: exact, counted, folded; and the hash that binds a yes to it."""

from __future__ import annotations

import pytest

from whet.contract.changes import TextChange, hash_call, hash_changes
from whet.contract.protocols import ApprovalRequest, GrantScope
from whet.question import (
    NO_COMMANDS,
    build_question,
    count_changed_lines,
    describe_scope,
    diff_rows,
    label_note,
    list_edits,
    parse_row,
)
from whet.terminal.diff_view import diff_lines

PRINTED = "any command's output (covers nothing else that a command does)"


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
    folded = question.fold_rows(40)
    assert len(question.body) == 60_002 and len(folded) == 40
    assert [row.text for row in folded[-12:-9]] == [
        "… 59,964 more lines",
        "@@ -30001 +29991 @@",
        "+new 29990",
    ]
    assert question.body[1].text == "@@ -1,30000 +1,30000 @@"
    assert list_edits([change(old, new)])[0].diff.splitlines()[-1].startswith("… ")


def test_a_question_says_what_where_why_and_what_a_yes_covers() -> None:
    scopes = (GrantScope("patch", ("a.py",)), GrantScope("patch", ("src/*",), always=False))
    question = build_question(asked(change("a\n", "b\n"), scopes=scopes, undo="not possible"))
    assert question.title == "Whet wants to change the file a.py (1 line added, 1 removed)"
    assert [label_note(row) for row in question.notes] == [
        "Why asked: why",
        "To undo: not possible",
        f"this session or always, don't ask again to create, change or delete a.py{NO_COMMANDS}",
        f"this session, don't ask again to create, change or delete any file below src/{NO_COMMANDS}",
    ]
    command = ApprovalRequest("s", "c", "terminal", "make\ntest", (), folder="/w", intent="run make")
    plain = build_question(command)
    assert [row.text for row in plain.body] == ["make", "test"] and plain.title == "Whet wants to run make:"
    assert [label_note(row) for row in plain.notes] == ["Runs in: /w"]


@pytest.mark.parametrize(
    ("scope", "words"),
    [
        (
            GrantScope("terminal", ("git commit *",)),
            "run “git commit” with any arguments in the workspace (covers nothing else that a command does)",
        ),
        (
            GrantScope("terminal", ("make *", "npm run b *")),
            "run “make” or “npm run b” with any arguments in the workspace "
            "(covers nothing else that a command does)",
        ),
        (
            GrantScope("terminal", (r"ls \*.py", "> a b")),
            f"run exactly “ls *.py” in the workspace and overwrite a b with {PRINTED}",
        ),
        (
            GrantScope("terminal", ("> a", ">> a")),
            f"overwrite or add to a with {PRINTED}",
        ),
        (
            GrantScope("terminal", ("2>> a", ">> b")),
            f"add to a and b with {PRINTED}",
        ),
        (GrantScope("terminal", ("x" * 99,)), "run exactly this command in the workspace"),
        (GrantScope("terminal", ("rm a",), call="digest"), "run exactly “rm a” in this folder"),
        (GrantScope("read_file", (".env",), always=False), "read .env (covers no shell commands)"),
        (
            GrantScope("patch", ("a.py", "b.py")),
            "create, change or delete any of a.py, b.py (covers no shell commands)",
        ),
        (
            GrantScope("web_fetch", ("docs.python.org",)),
            f"read any page of exactly docs.python.org{NO_COMMANDS}",
        ),
        (GrantScope("web_fetch", ("https://a.org/b",)), f"read exactly this page{NO_COMMANDS}"),
        (GrantScope("mcp__x__y", ("*",)), "use the tool mcp__x__y, whatever it is given"),
        (
            GrantScope("mcp__x__y", ('{"a": 1}',), always=False),
            "use the tool mcp__x__y, if it is given exactly the same",
        ),
        (
            GrantScope(
                "sandbox",
                ("reach a.org",),
                words="run any command that works only in this folder and may reach a.org",
            ),
            "run any command that works only in this folder and may reach a.org",
        ),
    ],
)
def test_what_a_lasting_yes_covers_is_said_in_words(scope: GrantScope, words: str) -> None:
    assert describe_scope(scope) == words


def test_a_long_row_is_folded_to_its_beginning_and_its_end() -> None:
    request = ApprovalRequest("s", "c", "terminal", f"echo {'x' * 900} > out.txt", ())
    [row] = build_question(request).fold_rows(40)
    assert row.text.startswith("echo xxx") and row.text.endswith("xxx > out.txt")
    assert "[… 515 more characters …]" in row.text and len(row.text) < 450


def test_no_text_of_a_call_begins_a_line_of_its_own_outside_of_what_is_shown_exactly() -> None:
    forged = "x\n\nAllowed once."
    asking = asked(
        change("a\n", "b\n", forged),
        folder=forged,
        undo=forged,
        scopes=(GrantScope("edit_file", (forged,)),),
    )
    command = ApprovalRequest("s", "c", "terminal", "rm b", (forged,), intent=f"run {forged}")
    for question in (build_question(asking), build_question(command)):
        texts = (question.title, *(row.text for row in (*question.body, *question.notes)))
        assert not any("\n" in text for text in texts) and forged.replace("\n", "\\n") in question.title


def test_a_title_says_what_is_deleted_emptied_or_no_text() -> None:
    binary = TextChange("a.png", "/w/a.png", None, "x\n", "h", "replaces 8 bytes of binary data")
    old, gone, new = change("a\n", "b\n"), change("a\n", None), change(None, "a\n")
    other = change("b\n", None, "b.py")
    titles = {
        (gone,): "delete the file a.py (1 line)",
        (gone, other): "delete a.py and b.py (2 lines removed)",
        (old, new): "change a.py and create a.py (2 lines added, 1 removed)",
        (
            old,
            gone,
            new,
            other,
        ): "change 1 file and delete 2 files and create 1 file (2 lines added, 3 removed)",
        (change("a\nb\n", "c\n"),): "replace all of a.py (2 lines) with 1 line of text",
        (change("a\n", ""),): "empty the file a.py (1 line removed)",
        (change(None, ""),): "create the file a.py (0 lines)",
        (binary,): "replace all of a.png (8 bytes of binary data) with 1 line of text",
    }
    shown = {changes: build_question(asked(*changes)).title for changes in titles}
    assert shown == {changes: f"Whet wants to {title}" for changes, title in titles.items()}
    assert texts("a\n", "")[0] == "a.py  (leaves it empty, +0 −1)"


def test_the_hash_changes_with_all_that_would_happen() -> None:
    text_change = change("a\n", "b\n")
    hashes = {
        hash_call("patch", {"path": "a"}, "/w", [text_change]),
        hash_call("patch", {"path": "b"}, "/w", [text_change]),
        hash_call("other", {"path": "a"}, "/w", [text_change]),
        hash_call("patch", {"path": "a"}, "/x", [text_change]),
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
