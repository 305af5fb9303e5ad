"""Lines have the promised width, and foreign text can't act on the terminal."""

from __future__ import annotations

import pytest

from whet.contract.events import Compaction, Notice, Retry, ToolFinished, TurnEnd
from whet.contract.messages import Usage
from whet.terminal import wording


def test_printable_takes_out_what_a_terminal_would_act_on() -> None:
    evil = "a\x1b[31mred\x1b[0m \x1b]0;title\x07b\x1b]8;;http://x\x1b\\link\rover\x08\x9b1m\tc\nd"
    assert wording.printable(evil) == "ared blinkover1m\tc\nd"
    reordered = "a\u202etxt.exe\u202c \u2067b\u2069 c\u200bd\ufeff e\xadf\U000e0041"
    assert wording.printable(reordered) == "atxt.exe b cd ef"
    for script in (
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645\u200f!",
        "\U0001f468\u200d\U0001f469",
        "\u2764\ufe0f",
    ):
        assert wording.printable(script) == script


def test_exact_spells_hidden_characters_out() -> None:
    text = wording.exact("rm \u202e -rf\u200b \x1b[1m/\n\tnext")
    assert text == "rm <U+202E> -rf<U+200B> \\e[1m/\n\tnext"


def test_exact_marks_what_looks_like_something_else() -> None:
    assert wording.exact("cat /etc/p\u0430sswd; ls a\u115fb") == "cat /etc/p\u0430<U+0430>sswd; ls a<U+115F>b"
    assert wording.exact("\tпривет, мир: README.md") == "\tпривет, мир: README.md"


@pytest.mark.parametrize("width", [1, 5, 20, 40, 80])
def test_clip_keeps_to_the_width(width: int) -> None:
    for text in ("plain words " * 20, "日本語" * 30, "e\u0301" * 50, "a\n\tb   c", ""):
        line = wording.clip(text, width)
        assert wording.count_columns(line) <= width
        assert "\n" not in line
    assert wording.clip("short  text", 20) == "short text"
    assert wording.clip("日本語日本語", 8) == "日本語…"


def test_call_line_fits_and_names_the_tail() -> None:
    line = wording.call_line("terminal", "pytest -q " * 20, 40, mark="●", tail="1.2 s")
    assert wording.count_columns(line) <= 40
    assert line.startswith("● terminal  pytest")
    assert line.endswith("1.2 s")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.04, "0.0 s"), (1.24, "1.2 s"), (9.96, "10 s"), (59.4, "59 s"), (125, "2 m 05 s"), (3720, "1 h 02 m")],
)
def test_duration(seconds: float, said: str) -> None:
    assert wording.duration(seconds) == said


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0"), (999, "999"), (12_400, "12.4k"), (120_000, "120k"), (1_500_000, "1.5M")]
)
def test_count(number: int, said: str) -> None:
    assert wording.count(number) == said


def test_a_failure_shows_the_telling_line() -> None:
    def finished(preview: str, kind: str = "exit") -> ToolFinished:
        return ToolFinished("1", "terminal", 0.1, kind, 1, preview)

    assert wording.failure(finished("ok 1\nE   AssertionError: x\nlast")) == "E   AssertionError: x"
    assert wording.failure(finished("one\ntwo\n[exit 1]")) == "two"
    trace = "ERROR: test_a\nTraceback\nRuntimeError: no database\n\nFAILED (errors=1)\n[exit 1]"
    assert wording.failure(finished(trace)) == "RuntimeError: no database"
    assert wording.failure(finished("Denied.\nmore", "denied")) == "Denied."
    assert wording.failure(finished("", "")) == ""
    assert wording.outcome(finished("")) == "exit 1  0.1 s"
    assert wording.outcome(ToolFinished("1", "t", 0.2, "bad_input")) == "bad input  0.2 s"


def test_asides_footer_and_ending() -> None:
    assert wording.aside(Retry(2, 1.5, "503")) == "retry 2 in 1.5 s: 503"
    assert wording.aside(Notice("fallback\x1b[2J")) == "fallback"
    usage = Usage(prompt_tokens=1000, total_tokens=1200, cache_read_tokens=900, cost_usd=0.0123)
    end = TurnEnd("s", "t", "answered", "x", 3, usage, 8.25)
    assert wording.footer(end) == "3 steps · 1.2k tokens · 90% cached · $0.0123 · 8.2 s"
    assert wording.footer(end, 40) == "3 steps · 1.2k tokens · 90% cached\n$0.0123 · 8.2 s"
    assert wording.ending(end) == ""
    unpriced = TurnEnd("s", "t", "failed", "", 1, Usage(cost_usd=None), 1, error="no key")
    assert wording.footer(unpriced) == "1 step · 0 tokens · 1.0 s"
    assert wording.ending(unpriced) == "no key"


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        (9_000, 4_400, "context made smaller by x: 9.0k to 4.4k tokens, 9 to 1 message"),
        (4_449, 4_401, "context made smaller by x: 4,449 to 4,401 tokens, 9 to 1 message"),
        (4_400, 4_400, "context rewritten by x: 4,400 to 4,400 tokens, 9 to 1 message"),
    ],
)
def test_a_compaction_s_numbers_show_what_it_saved(before: int, after: int, line: str) -> None:
    assert wording.aside(Compaction("x", 9, 1, before, after)) == line
