"""An answer's Markdown, block by block: what ends what, how deep it stands, and what stays text."""

from __future__ import annotations

import pytest

from tests.support import each
from whet.serve.board.prose import ProseBlock, TextRun, split_blocks, split_runs


def text(*lines: str) -> ProseBlock:
    return ProseBlock("text", (TextRun("\n".join(lines)),))


def item(mark: str, words: str, level: int = 0) -> ProseBlock:
    return ProseBlock("item", split_runs(words), mark=mark, level=level)


def code(words: str, mark: str = "") -> ProseBlock:
    return ProseBlock("code", text=words, mark=mark)


def quote(words: str) -> ProseBlock:
    return ProseBlock("quote", split_runs(words))


def heading(words: str, level: int) -> ProseBlock:
    return ProseBlock("heading", split_runs(words), level=level)


def table(*rows: str) -> ProseBlock:
    return ProseBlock("table", rows=tuple(tuple(split_runs(cell) for cell in row.split("|")) for row in rows))


RULE = ProseBlock("rule")
URL = "https://b.example/c_(d)"
REST = TextRun("аnk.example/)")


@each(
    ("markdown", "made"),
    [
        ("", []),
        ("a\nb\n\n\nc", [text("a", "b"), text("c")]),
        ("a\n# b\nc", [text("a"), heading("b", 1), text("c")]),
        ("###### b ##", [heading("b", 6)]),
        ("####### b", [text("####### b")]),
        ("#b", [text("#b")]),
        ("a\n---\nb", [text("a"), RULE, text("b")]),
        ("   * * *", [RULE]),
        ("    ---", [text("    ---")]),
        ("--", [text("--")]),
        ("```py\na\n```\nb", [code("a", "py"), text("b")]),
        ("```\na\n\nb", [code("a\n\nb")]),
        ("```", [code("")]),
        ("````\n```\n````", [code("```")]),
        ("~~~\na\n~~~~\nb", [code("a"), text("b")]),
        ("```\na\n``` x\n```", [code("a\n``` x")]),
        ("   ```\na\n```", [code("a")]),
        ("- a\n- b", [item("•", "a"), item("•", "b")]),
        ("- a\n  b\n c", [item("•", "a\nb"), text(" c")]),
        ("- a\n  - b\n    c\n- d", [item("•", "a"), item("•", "b\nc", 1), item("•", "d")]),
        ("1. a\n12) b", [item("1.", "a"), item("12)", "b")]),
        ("12345. a", [text("12345. a")]),
        (" " * 8 + "- a", [item("•", "a", 4)]),
        (" " * 12 + "+ a", [item("•", "a", 4)]),
        ("-a", [text("-a")]),
        ("> a\n>b\nc", [quote("a\nb"), text("c")]),
        (">  a", [quote(" a")]),
        ("|a|b|\n|-|-|\n|1|2|\nend", [table("a|b", "1|2"), text("end")]),
        ("a|b\n:-:|--\n1", [table("a|b"), text("1")]),
        ("a|b\nno rule", [text("a|b", "no rule")]),
        ("a|b", [text("a|b")]),
        ("ab\n-|-", [text("ab", "-|-")]),
        ("a\n\n  \nb", [text("a"), text("b")]),
    ],
)
def test_markdown_is_cut_into_blocks(markdown: str, made: list[ProseBlock]) -> None:
    assert split_blocks(markdown) == made


def test_a_row_has_twelve_cells_at_most_and_a_very_long_answer_is_one_text() -> None:
    row = "|".join(map(str, range(13)))
    (block,) = split_blocks(f"{row}\n-|-")
    assert [len(cells) for cells in block.rows] == [12]
    lines = "a\n\n" * 20_000
    assert split_blocks(lines + "b") == [ProseBlock("text", (TextRun(lines + "b"),))]
    assert len(split_blocks(lines)) == 20_000


@pytest.mark.parametrize(
    ("words", "made"),
    [
        ("", ()),
        ("a", (TextRun("a"),)),
        ("a `b` c", (TextRun("a "), TextRun("b", "code"), TextRun(" c"))),
        ("`` a ``", (TextRun("a", "code"),)),
        ("**a**b", (TextRun("a", "strong"), TextRun("b"))),
        ("**a\nb**", (TextRun("**a\nb**"),)),
        ("`a` **b**", (TextRun("a", "code"), TextRun(" "), TextRun("b", "strong"))),
        ("[a](https://b.example/c)", (TextRun("a", "link", "https://b.example/c"),)),
        ("(see https://b.example/c_(d)).", (TextRun("(see "), TextRun(URL, "link", URL), TextRun(")."))),
        ("[a](javascript:x) [b](//c) [d](data:x)", (TextRun("[a](javascript:x) [b](//c) [d](data:x)"),)),
        ("https://user:word@b.example/", (TextRun("https://user:word@b.example/"),)),
        ("[a](https://bаnk.example/)", (TextRun("[a]("), TextRun("https://b", "link", "https://b"), REST)),
        ("https:///x and https://[", (TextRun("https:///x and https://["),)),
        ("`https://b.example`", (TextRun("https://b.example", "code"),)),
    ],
)
def test_a_line_is_cut_into_runs(words: str, made: tuple[TextRun, ...]) -> None:
    assert split_runs(words) == made
