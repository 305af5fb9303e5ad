"""Rendered answers keep to the width, to NO_COLOR and to what a terminal can do."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.cli.test_blocks import ANSWER, cut
from whet.terminal.render import Painter
from whet.terminal.wording import count_columns

_STYLE = re.compile(r"\x1b\[[0-9;]*m")
COLOUR = {"TERM": "xterm-256color"}


def rendered(environ: dict[str, str], width: int, text: str = ANSWER) -> str:
    painter = Painter(environ)
    return "".join(painter.block(block, width) for block in cut(text, 11))


@pytest.mark.fast_rows("-30", "-80")
@pytest.mark.parametrize("width", [30, 40, 80, 120])
@pytest.mark.parametrize(
    "extra", ["", "日本語の文章も正しく折り返されるべきです。これは長い文なので。\n" * 3]
)
def test_no_line_is_wider_than_the_terminal(width: int, extra: str) -> None:
    for line in rendered(COLOUR, width, ANSWER + "\n" + extra + "word " * 60).split("\n"):
        bare = _STYLE.sub("", line)
        assert count_columns(bare) <= width
        assert bare == bare.rstrip(), "trailing blanks break when the window shrinks"


def test_colours_follow_the_environment() -> None:
    assert "\x1b[36m" in rendered(COLOUR, 80)
    without = rendered(COLOUR | {"NO_COLOR": "1"}, 80)
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", without)
    assert "\x1b" not in rendered({"TERM": "dumb"}, 80)
    assert "\x1b" not in rendered({}, 80)


def test_words_survive_and_markup_goes() -> None:
    text = rendered({"TERM": "dumb"}, 60, "Use **bold** and `code` in [the page](http://x.y/z).\n\n# End\n")
    assert text == "\nUse bold and code in the page (http://x.y/z).\n\nEnd\n"


def test_items_stand_together_and_blocks_apart() -> None:
    lines = rendered({"TERM": "dumb"}, 60, "Intro\n\n- a\n- b\n\nOutro\n").split("\n")
    assert lines == ["", "Intro", "", " • a", " • b", "", "Outro", ""]


def test_escape_sequences_of_an_answer_do_not_reach_the_terminal() -> None:
    assert "\x1b]" not in rendered(COLOUR, 60, "a\x1b]0;owned\x07b \x1b[2Jc\n")


@pytest.mark.parametrize(
    ("row", "cells"),
    [
        ("| IRS rule | fits `x|y` and more |", "IRS rule  fits x|y and more"),
        (r"| IRS rule | fits `x\|y` and more |", "IRS rule  fits x|y and more"),
        ("a | b | c | d", "a         b | c | d"),
        ("| `a | b` |", "`a        b`"),
        ("| a | b |", "a         b"),
        ("| `a | b` | c | d |", "a | b     c | d"),
    ],
)
def test_a_table_loses_no_text(row: str, cells: str) -> None:
    table = f"| rule     | what                    |\n|---|---|\n{row}\n| xxxxxxxx | end |\n"
    assert cells in rendered({"TERM": "dumb"}, 60, table)


def test_what_looks_like_a_table_in_a_fence_stays() -> None:
    assert "| a | `b|c` |" in rendered({"TERM": "dumb"}, 60, "```\n| a |\n|---|\n| a | `b|c` |\n```\n")


def test_markdown_can_be_switched_off() -> None:
    painter = Painter(COLOUR, markdown=False)
    (block,) = cut("**as it is**", 5)
    assert painter.block(block, 40) == "\n**as it is**\n"
    assert painter.line("x", "dim") == "\x1b[2mx\x1b[0m"
    assert Painter({"TERM": "dumb"}).line("x", "dim") == "x"


def test_a_styled_line_has_its_attributes_on_each_row_and_no_colour_where_none_is_wanted() -> None:
    painter, plain = Painter({"TERM": "xterm"}), Painter({"TERM": "xterm", "NO_COLOR": "1"})
    assert painter.line("a\n\nb", "dim red") == "\x1b[2;31ma\x1b[0m\n\n\x1b[2;31mb\x1b[0m"
    assert plain.line("a", "dim red") == "\x1b[2ma\x1b[0m" and plain.line("a", "yellow") == "a"
    assert painter.line("a", "dim italic") == "\x1b[2;3ma\x1b[0m" and painter.line("a", "unknown") == "a"


@pytest.mark.slow
def test_a_chat_draws_its_first_prompt_before_it_imports_what_only_an_answer_needs() -> None:
    code = (
        "import sys; import whet.cli.interactive.repl; from whet.terminal.render import Painter;"
        "Painter().line('x', 'dim'); print([name for name in sys.argv[1:] if name in sys.modules])"
    )
    late = ["rich", "whet.memory.service", "whet.memory.changes"]
    done = subprocess.run([sys.executable, "-c", code, *late], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
