"""Unified diffs apply exactly when they are exact, and sensibly when they are not."""

from __future__ import annotations

import difflib
import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.support import each
from whet.contract.errors import BadInput
from whet.tools.diffs import apply, find_named_files, parse

TRAPS = ["a", "b", "c", "", " ", "\tx", "-- y", "++ z", "@@ -1 +1 @@", "\\ No", "p\u2028q", "r\x0cs", "```"]
TEXTS = st.tuples(st.lists(st.sampled_from(TRAPS), max_size=14), st.booleans()).map(
    lambda pair: "\n".join(pair[0]) + ("\n" if pair[1] and pair[0] else "")
)
PLAIN = st.lists(st.sampled_from(["a", "b", "c", "", "\tx"]), max_size=9).map(
    lambda lines: "".join(f"{line}\n" for line in [*lines, "end"])
)


def rows(text: str) -> list[str]:
    parts = text.split("\n")
    return [part + "\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def make_diff(old: str, new: str, context: int = 3) -> str:
    out: list[str] = []
    for row in difflib.unified_diff(rows(old), rows(new), "a/f", "b/f", n=context):
        out.append(row if row.endswith("\n") else row + "\n\\ No newline at end of file\n")
    return "".join(out)


def patched(old: str, diff: str) -> str:
    (patch,) = parse(diff)
    return apply(old, patch.hunks)[0]


@pytest.mark.slow
@settings(deadline=None)
@given(TEXTS, TEXTS, st.integers(0, 3))
def test_an_exact_diff_gives_the_expected_file(old: str, new: str, context: int) -> None:
    assume(old != new)
    diff = make_diff(old, new, context)
    (patch,) = parse(diff)
    text, notes = apply(old, patch.hunks)
    assert text == new and notes == []


@pytest.mark.slow
@settings(deadline=None)
@given(TEXTS, TEXTS)
def test_and_the_reverse_diff_gives_the_old_one_back(old: str, new: str) -> None:
    assume(old != new)
    assert patched(patched(old, make_diff(old, new)), make_diff(new, old)) == old


@pytest.mark.slow
@settings(deadline=None)
@given(TEXTS, TEXTS)
def test_crlf_is_kept_whether_the_diff_has_it_or_not(old: str, new: str) -> None:
    assume(old != new and "\n" in old and "\n" in new)
    old_crlf, new_crlf = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
    assert patched(old_crlf, make_diff(old, new)) == new_crlf
    assert patched(old_crlf, make_diff(old_crlf, new_crlf)) == new_crlf


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(st.sampled_from(["a\r", "b", "c\r", "d"]), min_size=1, max_size=8), st.data())
def test_mixed_endings_follow_an_exact_diff(lines: list[str], data: st.DataObject) -> None:
    position = data.draw(st.integers(0, len(lines) - 1))
    old = "".join(f"{n}{line}\n" for n, line in enumerate(lines))
    changed = [*lines[:position], "new\r", "new", *lines[position + 1 :]]
    new = "".join(f"{n}{line}\n" for n, line in enumerate(changed))
    assume("\r\n" in old)
    assert patched(old, make_diff(old, new)) == new


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(0, 29))
def test_line_numbers_may_be_off(shift: int, changed: int) -> None:
    lines = [f"line {n}\n" for n in range(30)]
    old = "".join(lines)
    new = "".join([*lines[:changed], "changed\n", *lines[changed + 1 :]])
    (patch,) = parse(make_diff(old, new))
    above = "".join(f"above {n}\n" for n in range(shift))
    text, notes = apply(above + old, patch.hunks)
    assert text == above + new
    assert len(notes) == 1 and "found at line" in notes[0]


@pytest.mark.slow
@settings(deadline=None)
@given(PLAIN, PLAIN, st.integers(-2, 4))
def test_wrong_counts_are_forgiven(old: str, new: str, error: int) -> None:
    assume(old != new)
    diff = make_diff(old, new, 20)
    wrong = re.sub(r"(?m)^(@@ -\d+,)(\d+)", lambda m: f"{m[1]}{max(0, int(m[2]) + error)}", diff)
    assert patched(old, wrong) == new


def test_removed_and_added_lines_may_look_like_a_file_header() -> None:
    first, second = parse(
        "--- f\n+++ f\n@@ -2 +2,2 @@\n--- y\n+++ z\n+++ w\n\\ No newline\n"
        "--- g\n+++ g\n@@ -2 +1,0 @@\n--- y\n@@ -4,0 +4 @@\n+++ z\n"
    )
    assert apply("a\n-- y\n", first.hunks) == ("a\n++ z\n++ w", [])
    assert apply("a\n-- y\nb\nc\n", second.hunks) == ("a\nb\nc\n++ z\n", [])


def test_lines_are_put_in_where_the_numbers_say() -> None:
    text, diff = "a\nb\nc\n", "--- f\n+++ f\n@@ -{},0 +1 @@\n+x\n@@ -{},0 +1 @@\n+y\n"
    assert patched(text, diff.format(1, 3)) == "a\nx\nb\nc\ny\n"
    assert patched(text, diff.format(0, 0)) == "x\ny\na\nb\nc\n"
    assert patched("", "@@\n+x\n".join(["--- f\n+++ f\n", ""])) == "x\n"
    for first, second, reason in (
        (1, 4, "the file has 3 lines"),
        (2, 1, "hunk 1 ends at line 2"),
        (1, 0, ""),
    ):
        with pytest.raises(BadInput, match=f"hunk 2 adds after line {second}, but {reason}"):
            patched(text, diff.format(first, second))
    after_b = "--- f\n+++ f\n@@ -1,2 +1,3 @@\n+new\n a\n b\n@@ -2,0 +4 @@\n+x\n"
    assert patched(text, after_b) == "new\na\nb\nx\nc\n"


def test_what_was_forgiven_is_told_once() -> None:
    lines = "".join(f"line {n}\n" for n in range(1, 10))
    (patch,) = parse(
        "--- f\n+++ f\n@@ -2 +2 @@\n-line 3\n+three\n@@ -5,2 +4 @@\n-line 6\n-line 7 \n@@\n-“9”\n+nine\n"
    )
    text, notes = apply(lines.replace("line 9", '  "9"'), patch.hunks)
    assert text == "line 1\nline 2\nthree\nline 4\nline 5\nline 8\n  nine\n"
    assert notes == [
        "hunk 1 found at line 3, not 2",
        "hunk 2: trailing whitespace ignored",
        "hunk 3: indentation, quotes and dashes ignored",
    ]


def test_a_hunk_without_numbers_needs_one_place() -> None:
    diff = "--- a/f\n+++ b/f\n@@ def f @@\n a\n-b\n+c\n"
    assert patched("x\na\nb\n", diff) == "x\na\nc\n"
    with pytest.raises(BadInput, match="fits 2 places, at lines 1, 3"):
        patched("a\nb\na\nb\n", diff)


def test_several_files_new_and_deleted_ones_and_names() -> None:
    diff = (
        "Here it is:\n"
        "diff --git a/x b/x\nindex 1..2 100644\n--- a/x\t2026-01-01\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"
        "--- /dev/null\n+++ b/new name.txt\n@@ -0,0 +1 @@\n+n\n"
        "--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-g\n"
        '--- "a/caf\\303\\251"\n+++ "b/caf\\303\\251"\n@@ -1 +1 @@\n-a\n+b\n'
        "--- plain/f\n+++ plain/f\n@@ -1 +1 @@\n-a\n+b\n"
    )
    names = [("x", "x"), ("", "new name.txt"), ("gone", ""), ("café", "café"), ("plain/f", "plain/f")]
    assert [(patch.old, patch.new) for patch in parse(diff)] == names


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("a/x", "a/x", ("a/x", "a/x")),
        ("b/x", "b/x", ("b/x", "b/x")),
        ("/dev/null", "b/x", ("", "x")),
        ("/dev/null", "x", ("", "x")),
        ("a/x", "/dev/null", ("x", "")),
        ("x", "/dev/null", ("x", "")),
        ("x y.txt\tyesterday\r", "x y.txt \t\r", ("x y.txt", "x y.txt")),
        ('"a/t\\tq\\"s\\\\n\\n"', '"b/t\\tq\\"s\\\\n\\n" ', ('t\tq"s\\n\n', 't\tq"s\\n\n')),
        ('"half', '"half', ('"half', '"half')),
        ('"\\377\\x"', '"\\377\\x"', ("\udcffx", "\udcffx")),
    ],
)
def test_names_are_read_as_git_writes_them(old: str, new: str, names: tuple[str, str]) -> None:
    (patch,) = parse(f"--- {old}\n+++ {new}\n@@ -1 +1 @@\n-a\n+b\n")
    assert (patch.old, patch.new) == names


def test_the_files_of_a_call_are_those_of_its_path_and_its_diff() -> None:
    diff = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-g\n"
    assert find_named_files({"path": "p", "diff": diff}) == ["p", "x", "gone"]
    assert find_named_files({"diff": diff}) == ["x", "gone"]
    assert find_named_files({"path": "p"}) == ["p"] and find_named_files({}) == [""]


def test_an_envelope_without_its_last_line_is_whole() -> None:
    (patch,) = parse("*** Begin Patch\n*** Update File: f\n@@\n-a\n+b")
    assert (patch.old, patch.new, apply("a\n", patch.hunks)) == ("f", "f", ("b\n", []))


@pytest.mark.parametrize("below", ["@@ def f", "@@def f", "@@ def f @@"])
def test_a_hunk_of_an_envelope_is_looked_for_below_the_line_that_it_names(below: str) -> None:
    assert patched("a\ndef f\na\n", f"*** Begin Patch\n*** Update File: f\n{below}\n-a\n+b\n") == (
        "a\ndef f\nb\n"
    )


def test_a_bare_hunk_takes_the_path() -> None:
    assert parse("@@ -1 +1 @@\n-a\n+b\n", "f.txt")[0].new == "f.txt"
    with pytest.raises(BadInput, match="hunk of no file"):
        parse("@@ -1 +1 @@\n-a\n+b\n")


@each(
    ("diff", "words"),
    [
        ("", "no hunk"),
        ("--- a/f\n+++ b/f\n", "no hunk"),
        ("--- f\n+++ f\n@@ -1 +1 @@\n-one\n+1\n--- a/g\n+++ b/g\n", "no hunk"),
        ("*** Begin Patch\n*** Update File: f\n", "changes nothing"),
        ("rename from a\nrename to b\n", "renames"),
        ("--- a/f\n+++ b/g\n@@ -1 +1 @@\n-a\n+b\n", "renames 'f' to 'g'"),
        ("copy from a\ncopy to b\n", "copies"),
        ("GIT binary patch\n", "binary"),
        ("Binary files a and b differ\n", "binary"),
        ("--- a/f\n+++ b/f\n--- a/g\n+++ b/g\n@@ -1 +1 @@\n-one\n+1\n", "no hunk"),
        ("--- f\n+++ f\n@@ -1 +1 @@\nxa\n+b\n", "line 4 of the diff starts with 'x'"),
        ("--- f\n+++ f\n@@ -1 +1 @@\n a\n", "changes nothing"),
        ("--- f\n+++ f\n@@\n@@\n-one\n+1\n", "the hunk at line 3 of the diff changes nothing"),
        ("--- f\n+++ f\n@@\n\n", "the hunk at line 3 of the diff changes nothing"),
        ("--- f\n+++ f\n@@ -1,2 +1,1 @@\n nope\n-zzz\n", "hunk 1 does not fit the file"),
        ("--- f\n+++ f\n@@ -1,2 +1,1 @@\n one\n-too\n", 'nearest is lines 1-2: line 2 has "two", you'),
        ("--- f\n+++ f\n@@ -9,0 +10,1 @@\n+x\n", "adds after line 9, but the file has 2 lines"),
        ("--- f\n+++ f\n@@\n+x\n", "neither line numbers nor lines"),
        ("--- f\n+++ f\n@@ -1 +1 @@\n\\ No newline\n-one\n+1\n", r"line 4 of the diff starts with '\\'"),
    ],
)
def test_refusals_say_where(diff: str, words: str) -> None:
    with pytest.raises(BadInput, match=re.escape(words)):
        patched("one\ntwo\n", diff)


@each(
    ("diff", "words"),
    [
        (
            "@@ -1,2 +1,2 @@\n-one\n+ONE\n two\n@@ -2,2 +2,2 @@\n two\n-three\n+THREE\n",
            "lines 2-3, and it must begin at line 3",
        ),
        (
            "@@ -1,3 +1,2 @@\n one\n-two\n three\n@@ -2,2 +2,2 @@\n-  two\n+TWO\n three\n",
            "lines 2-3, and it must begin at line 4",
        ),
        ("@@ -3 +3 @@\n-three\n+3\n@@ -1 +1 @@\n-one\n+1\n", "lines 1-1, and it must begin at line 4"),
    ],
)
def test_a_hunk_that_fits_only_lines_above_its_place_names_them(diff: str, words: str) -> None:
    with pytest.raises(BadInput, match=f"hunk 2 does not fit after hunk 1: its lines are {words} or later"):
        patched("one\ntwo\nthree\n", f"--- f\n+++ f\n{diff}")
    envelope = "*** Begin Patch\n*** Update File: f\n@@ three\n-two\n+2\n*** End Patch\n"
    with pytest.raises(
        BadInput, match="fit below 'three': its lines are lines 2-2, and it must begin at line 3"
    ):
        patched("one\ntwo\nthree\n", envelope)


@pytest.mark.slow
@settings(deadline=None)
@given(st.text(max_size=200), TEXTS)
def test_no_text_breaks_the_reader(diff: str, text: str) -> None:
    for candidate in (diff, f"--- a\n+++ a\n@@ -1,2 +1,2 @@\n{diff}"):
        try:
            for patch in parse(candidate, "f"):
                apply(text, patch.hunks)
        except BadInput as error:
            assert error.message


_MARK = "\\ No newline at end of file\n"
_X = "x\n" * 10


@each(
    ("text", "hunk", "result"),
    [
        # A file without a newline at its end gets none by a diff, unless the diff marks it.
        ("a\nb\nc", "@@ -3,1 +3,1 @@\n-c\n+C\n", "a\nb\nC"),
        ("a\nb\nc", "@@ -1,3 +1,3 @@\n-a\n+A\n b\n c\n", "A\nb\nc"),
        ("a\nb", "@@ -2,1 +2,2 @@\n b\n+c\n", "a\nb\nc"),
        ("a\r\nb", "@@ -2,1 +2,2 @@\n b\n+c\n", "a\r\nb\r\nc"),
        ("a\nb", f"@@ -2,1 +2,1 @@\n-b\n{_MARK}+B\n", "a\nB\n"),
        ("a\nb\n", "@@ -2,1 +2,1 @@\n-b\n+B\n", "a\nB\n"),
        ("a\n", f"@@ -1 +1 @@\n-a\n+b\n{_MARK}", "b"),
        ("a\nc", "@@ -1 +1 @@\n-a\n+b\n", "b\nc"),
        ("a", f"@@ -1 +1 @@\n-a\n{_MARK}+b\n{_MARK}", "b"),
        ("a\r", f"@@ -1 +1 @@\n-a\r\n{_MARK}+b\r\n{_MARK}", "b\r"),  # then it is of the text
        # A diff that is all CRLF says nothing to a file without it; a file with both takes it as it stands.
        ("a\nb\n", "@@ -1,2 +1,3 @@\r\n a\r\n b\r\n+c\r\n", "a\nb\nc\n"),
        ("a\nb\n", "@@ -2 +2 @@\n-b\n+c\r\n", "a\nc\r\n"),
        ("a\r\nb\n", "@@ -1,2 +1,3 @@\r\n a\r\n b\r\n+c\r\n", "a\r\nb\nc\r\n"),
        # Lines that the counts leave out are of the hunk, and what follows a hunk of wrong counts is not.
        ("a\n-- x\n", "@@ -1,9 +1 @@\n a\n--- x", "a\n"),
        ("a\nb\n", "@@ -1 +1 @@\n-a\n+c\n-b\n+d\n", "c\nd\n"),
        ("a\nb\n", "@@ -1,2 +1,2 @@\n-a\n+c\n", "c\nb\n"),
        *(
            ("a\nb\n", f"@@ -1,7 +1,7 @@\n-a\n+c\n{tail}", "c\nb\n")
            for tail in ("\n", "\n\n", "\r\n\r\n", "```\nDone.\n", "diff --git a/g b/g\n")
        ),
        # The nearest of several places is taken.
        (f"{_X}mark\n{_X}mark\n", "@@ -20,1 +20,1 @@\n-mark\n+here\n", f"{_X}mark\n{_X}here\n"),
        (" x\n x\n", "@@ -1 +1 @@\n-x\n+y\n", " y\n x\n"),
        # Indentation may differ, and blank context lines may have lost their space.
        (
            "\tif a:\n\t\tb()\n",
            "@@ -1,2 +1,3 @@\n if a:\n-    b()\n+    c()\n+    d()\n",
            "\tif a:\n\t\tc()\n\t\td()\n",
        ),
        ("a\n\nb\n", "@@ -1,3 +1,3 @@\n a\n\n-b\n+c\n", "a\n\nc\n"),
        ("a\n\nb\n", "@@\r\n a\r\n\r\n-b\r\n+c\r\n", "a\n\nc\n"),
    ],
)
def test_a_hunk_gives_the_text_that_was_meant(text: str, hunk: str, result: str) -> None:
    assert patched(text, f"--- f\n+++ f\n{hunk}") == result
