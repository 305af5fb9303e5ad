"""What the page marks in code and diffs: the same as the terminal, and never a character of the text lost."""

from __future__ import annotations

import random

import pytest

from whet.question import Row, parse_row
from whet.serve.board.marked import CodeRun, mark_code, mark_file, mark_rows

DIFF = """--- a/price.py
+++ b/price.py
@@ -7,2 +7,2 @@
 def f():
-    return int(1 / 2)
+    return (1 / 2)
@@ -20,1 +20,1 @@
-a
+b"""


def test_a_unified_diff_has_line_numbers_code_and_changed_words() -> None:
    rows = [
        Row("file", line) if line[:4] in ("--- ", "+++ ") else parse_row(line) for line in DIFF.split("\n")
    ]
    marked = mark_rows(rows)
    assert [(row.kind, row.number, row.sign) for row in marked] == [
        ("file", 0, ""),
        ("file", 0, ""),
        ("same", 7, ""),
        ("removed", 8, "-"),
        ("added", 8, "+"),
        ("hunk", 0, ""),
        ("removed", 20, "-"),
        ("added", 20, "+"),
    ]
    assert CodeRun("return", "keyword") in marked[3].runs
    assert any(run.text == "int" and run.is_changed for run in marked[3].runs)
    assert "".join(run.text for run in marked[4].runs) == "    return (1 / 2)"


@pytest.mark.slow
def test_no_character_is_lost() -> None:
    rng = random.Random(7)
    for _ in range(200):
        text = "".join(rng.choices("def f(x): # 'a' \"b\" 1\n\t<>&é😀", k=rng.randrange(1, 80)))
        assert "".join(run.text for run in mark_code(text, "python")) == text
        lines = mark_file(text, "a.py")
        assert "\n".join("".join(run.text for run in line) for line in lines) == text
        rows = [Row("added", f"+{line}") for line in text.split("\n")]
        shown = ["".join(run.text for run in row.runs) for row in mark_rows(rows, "a.py")]
        assert shown == text.split("\n")


def test_code_of_an_unknown_language_and_very_long_code_stay_plain() -> None:
    assert mark_code("return 1", "nonesuch") == (CodeRun("return 1"),) == mark_code("return 1", "")
    assert mark_code("", "python") == ()
    long = "x = 1\n" * 20_000
    assert mark_code(long, "python") == (CodeRun(long),)
