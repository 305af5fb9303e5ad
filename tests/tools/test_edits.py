"""Replacing text: exact first, whitespace forgiven, the file's own ways kept, refusals that help."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.support import each
from whet.contract.errors import BadInput
from whet.tools.edits import format_numbers, nearest_note, reindent, replace

LINES = st.lists(st.sampled_from(["a", "b", "  c", "\td", "", " ", "x\u2028y", "f(1)"]), max_size=12)


def test_several_places_need_a_yes() -> None:
    assert replace("a = 1\nb = 2\n", "b", "c", every=False).lines == (2,)
    with pytest.raises(BadInput, match="there 2 times, at lines 1, 3"):
        replace("x\ny\nx\n", "x", "z", every=False)
    assert replace("x\ny\nx\n", "x", "z", every=True).text == "z\ny\nz\n"


_LINES = "one\r\ntwo\nthree\r\nfour\r\n"
_TRAILING, _INDENTED, _QUOTED = (
    "trailing whitespace ignored",
    "indentation ignored",
    "quotes and dashes ignored",
)


@pytest.mark.parametrize(
    ("text", "old", "new", "expected", "how"),
    [
        ("a = 1\nb = 2\n", "b = 2", "b = 3", "a = 1\nb = 3\n", ""),
        ("one  \ntwo\t\nthree\n", "one\ntwo\n", "1\n2\n", "1\n2\nthree\n", _TRAILING),
        # The file's own indentation is kept.
        (
            "class A:\n    def f(self):\n        return 1\n",
            "def f(self):\n    return 1\n",
            "def f(self):\n    if x:\n        return 2\n    return 1\n",
            "class A:\n    def f(self):\n        if x:\n            return 2\n        return 1\n",
            _INDENTED,
        ),
        (
            "\tif a:\n\t\tb()\n",
            "    if a:\n        b()",
            "    if a:\n        c()\n        if d:\n            e()",
            "\tif a:\n\t\tc()\n\t\tif d:\n\t\t\te()\n",
            _INDENTED,
        ),
        ("a:\n  b\n", "a:\n    b", "a:\n    b\n    c", "a:\n  b\n  c\n", _INDENTED),
        ("      deep\n", "    deep", "  up\n    deep", "    up\n      deep\n", _INDENTED),
        ("a\n  b", "a\n\tb\n", "a\n\tc\n", "a\n  c", _INDENTED),
        # A match within the indentation gives its further lines the whole of it.
        (
            "if x:\n        go()\n",
            "    go()",
            "    a()\n    b()",
            "if x:\n        a()\n        b()\n",
            _INDENTED,
        ),
        ("if x:\n        go()\n", "    go()", "    a()", "if x:\n        a()\n", ""),
        ("if x:\n        go()\n", "go()", "a()\nb()", "if x:\n        a()\nb()\n", ""),
        # The file's quotes and dashes stay where nothing changes.
        ("say “a”\n", 'say "a"', 'say "a" twice', "say “a” twice\n", _QUOTED),
        ("say “a” twice\n", 'say "a" twice', 'say "a"', "say “a”\n", _QUOTED),
        ("“a” – “b”\n", '"a" - "b"', '"a" - "c" - "b"', '“a” – “c" - "b”\n', _QUOTED),
        ("‘a’ “b”", "'a' \"b\"", "'x' \"b\"", "‘x’ “b”", _QUOTED),
        ("‘a’ “b”", "'a' \"b\"", "x", "x", _QUOTED),
        ("  ‘a’  \n  b\n", "'a'\nb", "'c'\nb", "  'c'\n  b\n", f"{_QUOTED}; {_INDENTED}"),
        # Line endings are kept, also mixed ones.
        (_LINES, "two\nthree", "2\n3", "one\r\n2\n3\r\nfour\r\n", ""),
        ("a\r\nb\n", "b", "c\nd", "a\r\nc\r\nd\n", ""),
        ("a\r\nb\nc\n", "b", "c\nd", "a\r\nc\nd\nc\n", ""),
        (_LINES, "four\r\n", "4\r\n", "one\r\ntwo\nthree\r\n4\r\n", ""),
    ],
)
def test_a_text_is_replaced_in_the_files_own_form(
    text: str, old: str, new: str, expected: str, how: str
) -> None:
    edit = replace(text, old, new, every=False)
    assert (edit.text, edit.how) == (expected, how)


@each(
    ("known", "line", "expected"),
    [
        ([("    a", "\ta")], "    b", "\tb"),
        ([("    a", "\ta")], "        b", "\t\tb"),
        ([("    a", "\ta")], "     b", "\t\tb"),
        ([("    a", "\ta")], "           b", "\t\t\tb"),
        ([("  a", "\ta")], "      b", "\t\t\tb"),
        ([("    a", "\t\ta")], "      b", "\t\t\tb"),
        ([("a", "\ta")], "    b", "\t\tb"),
        ([("a", "a"), ("  a", "\ta")], "    b", "\t\tb"),
        ([("\ta", "  a")], "\t\tb", "    b"),
        ([("a", "a"), ("\ta", "   a")], "\t\tb", "      b"),
        ([("a", "  a")], "\tb", "      b"),
        ([("a", "\ta")], "\tb", "\t\tb"),
        ([("a", " \ta")], "  b", " \t  b"),
        ([("a", "a")], "    b", "    b"),
        ([("a", "a"), ("  a", "    a"), ("    c", "        c")], "      b", "          b"),
        ([("  a", "    a"), ("  c", "      c")], "    b", "      b"),
        ([("    a", "      a")], "b", "  b"),
        ([("    a", "  a")], "b", "b"),
        ([("\ta", "\t\ta")], "b", "\tb"),
        ([("        a", "\t\ta")], "    b", "\tb"),
        ([("\ta", "a")], "  b", "  b"),
        ([(" ", ""), ("a", "  a")], "b", "  b"),
        ([("a", "  a")], " ", " "),
    ],
)
def test_new_lines_are_indented_as_the_lines_around_them(
    known: list[tuple[str, str]], line: str, expected: str
) -> None:
    assert reindent([line], known) == [expected]


def test_places_that_overlap_are_taken_once() -> None:
    edit = replace("  a\n  a\n  a\n  a\n  a\n", "a\na\n", "b\n", every=True)
    assert (edit.text, edit.lines) == ("  b\n  b\n  a\n", (1, 3))
    assert replace("aaaaa", "aa", "b", every=True).text == "bba"


def test_not_found_shows_the_nearest_lines_and_what_differs() -> None:
    text = "def first():\n    pass\n\ndef second(x):\n    return x\n"
    with pytest.raises(BadInput) as caught:
        replace(text, "def second(y):\n    return x\n", "z", every=False)
    assert "nearest is lines 4-5" in caught.value.message
    assert 'line 4 has "def second(x):", you gave "def second(y):"' in caught.value.message
    assert "line 5" not in caught.value.message
    with pytest.raises(BadInput, match="nearest is lines 1-1"):
        replace(text, "def firts():", "z", every=False)
    with pytest.raises(BadInput) as caught:
        replace(text, "nothing like it whatsoever", "z", every=False)
    assert caught.value.message == "old_string is not in the file"


NUMBERED = [f"line number {n}" for n in range(1, 30)]


@pytest.mark.parametrize(
    ("block", "note"),
    [
        (["line number 3", "x"], '3-4: line 4 has "line number 4", you gave "x"'),
        (["x", "line number 3"], '2-3: line 2 has "line number 2", you gave "x"'),
        (["x", "x", "line number 2"], '1-3: line 1 has "line number 1", you gave "x"; line 2 has '
         '"line number 2", you gave "x"; line 3 has "line number 3", you gave "line number 2"'),
        (["line number 29", "y"], '29-29: line 30 is past the end of the file, you gave "y"'),
        (["", "line numbre 20"], '19-20: line 19 has "line number 19", you gave ""; line 20 has '
         '"line number 20", you gave "line numbre 20"'),
        (["\tline number 5\r"], '5-5: line 5 has "line number 5", you gave "\\tline number 5\\r"'),
        (["line number 9", "line number 20", "line number 21"],
         '19-21: line 19 has "line number 19", you gave "line number 9"'),
        (["z" * 161, "line number 2"], f'1-2: line 1 has "line number 1", you gave "{"z" * 157}..."'),
        (["z" * 160, "line number 2"], f'1-2: line 1 has "line number 1", you gave "{"z" * 160}"'),
        (["?", "lime number 1"], '1-2: line 1 has "line number 1", you gave "?"; '
         'line 2 has "line number 2", you gave "lime number 1"'),
        (["ab"], ""),
        (["z"], ""),
    ],
)  # fmt: skip
def test_the_nearest_lines_are_shown_with_what_differs(block: list[str], note: str) -> None:
    assert nearest_note(NUMBERED, block) == (f"nearest is lines {note}" if note else "")


def test_six_lines_that_differ_are_shown() -> None:
    note = nearest_note(NUMBERED, ["line number 1", *("y" * 6)])
    assert note.count("you gave") == 6 and "differ" not in note
    note = nearest_note(NUMBERED, ["line number 1", *("y" * 8)])
    assert note.count("you gave") == 6 and note.endswith('you gave "y"; and 2 more lines differ')
    assert nearest_note([*["same line"] * 300, "x"], ["same line"]).startswith("nearest is lines 1-1")
    assert nearest_note(["c" + "ab" * 120], ["d" + "ab" * 120]).startswith("nearest is lines 1-1")
    text = ["x", "x", "a line", "ab", "ab", "y", "abc", "abc"]
    two_letters = nearest_note(text, ["ab", "ab", "a line"])
    assert two_letters.startswith("nearest is lines 1-3"), "they say little"
    assert nearest_note(text, ["abc", "abc", "a line"]).startswith("nearest is lines 7-8")


def test_ten_numbers_are_listed() -> None:
    assert format_numbers(range(3, 13)) == "3, 4, 5, 6, 7, 8, 9, 10, 11, 12"
    assert format_numbers(range(3, 14)) == "3, 4, 5, 6, 7, 8, 9, 10, 11, 12 and 1 more"


def test_a_change_made_before_is_recognised() -> None:
    with pytest.raises(BadInput, match="new_string is, at line 2") as caught:
        replace("a\nnew line\n", "old line", "new line", every=False)
    assert "already" in caught.value.hint


@pytest.mark.parametrize(("old", "new", "why"), [("", "x", "is empty"), ("a", "a", "are the same")])
def test_nothing_to_do_is_refused(old: str, new: str, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        replace("a\n", old, new, every=False)


def test_a_large_file_without_a_match_is_answered_soon() -> None:
    text = "".join(f"value_{n} = compute({n})\n" for n in range(100_000))
    with pytest.raises(BadInput, match="nearest"):
        replace(text, "value_x = compyte(17)", "z", every=False)


@pytest.mark.slow
@settings(deadline=None)
@given(LINES, LINES, LINES, st.sampled_from(["\n", "\r\n"]))
def test_there_and_back(before: list[str], old: list[str], after: list[str], ending: str) -> None:
    assume(before or after)
    marked = ["<<mark>>", *old, "<<end>>"]
    text = ending.join([*before, *marked, *after])
    edit = replace(text, "\n".join(marked), "<<gone>>", every=False)
    assert edit.text == ending.join([*before, "<<gone>>", *after])
    assert edit.lines == (len(before) + 1,)
    assert replace(edit.text, "<<gone>>", "\n".join(marked), every=False).text == text


@pytest.mark.slow
@settings(deadline=None)
@given(LINES.filter(any), st.data())
def test_looser_matches_never_touch_other_lines(lines: list[str], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(lines) - 1))
    end = data.draw(st.integers(start + 1, len(lines)))
    block = [line.strip() for line in lines[start:end]]
    text = "\n".join(lines)
    try:
        edit = replace(text, "\n".join(block), "NEW", every=False)
    except BadInput:
        return
    before, _, after = edit.text.partition("NEW")
    assert text.startswith(before.rstrip(" \t")) and text.endswith(after.lstrip(" \t"))
