"""Tables that fit, ages, sizes, costs."""

from __future__ import annotations

import json
from datetime import timedelta
from operator import itemgetter

import pytest

from tests.support import FixedClock
from whet.clock import iso
from whet.contract.events import StepFinished
from whet.contract.messages import Usage
from whet.contract.texts import encode_output
from whet.terminal.output import Column, ProgressLine, age, cost, emit, emit_rows, size, table, wrap_text
from whet.terminal.wording import count_columns, printable_styled

SHAPE: list[Column[list[str]]] = [
    Column("id", itemgetter(0)),
    Column("when", itemgetter(1), rank=1),
    Column("cost", itemgetter(2), right=True, rank=2),
    Column("title", itemgetter(3), grows=True, least=10),
]
ROWS = [
    ["0123456789abcdef", "5 m ago", "$0.10", "A short one"],
    ["0123456789abcdeg", "now", "$12.00", "日本語のとても長いタイトルがここにあります、切られます"],
    ["0123456789abcdeh", "now", "?", "e\u0301 with\nlines\tand \x1b[31mcolour " + "long " * 40],
]


def test_what_a_command_prints_drives_no_terminal_and_keeps_its_colours(
    capsys: pytest.CaptureFixture[str],
) -> None:
    driving = "a\x1b[2J\x1b]0;PWN\x07\x1b]52;c;cHdu\x07\x9b2J\x1b[3A\rb"
    emit({}, driving, as_json=False)
    assert capsys.readouterr().out == "a2Jb\n"
    coloured = f"\x1b[1;33m{driving}\x1b[0m\x1b[K"
    assert printable_styled(coloured) == coloured.replace(driving, "a2Jb")
    emit_rows([["x"]], [Column("id", lambda _: driving)], {}, none="", as_json=False)
    emit_rows([], SHAPE, {}, none=driving, as_json=False)
    printed = capsys.readouterr().out
    assert not set(printed) & set("\x1b\x07\x9b\r")


@pytest.mark.parametrize("width", [20, 30, 40, 60, 80, 200])
def test_a_table_fits_its_width(width: int) -> None:
    lines = table(ROWS, SHAPE, width=width).splitlines()
    assert len(lines) == 4
    assert all(count_columns(line) <= max(width, 28) for line in lines)
    assert all(line.startswith(("id", "0123456789abcde")) for line in lines)


def test_columns_leave_by_rank_and_stay_aligned() -> None:
    wide = table(ROWS, SHAPE, width=80).splitlines()
    assert wide[0].split() == ["id", "when", "cost", "title"]
    assert wide[1].index("A short") == wide[0].index("title")
    assert wide[1][: wide[1].index("A short")].endswith(" $0.10  ")
    assert table(ROWS, SHAPE, width=40).splitlines()[0].split() == ["id", "when", "title"]
    assert table(ROWS, SHAPE, width=30).splitlines()[0].split() == ["id", "title"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "now"), (59, "now"), (-30, "now"), (60, "1 m ago"), (7200, "2 h ago"), (3 * 86400, "3 d ago")],
)
def test_ages(seconds: int, text: str, clock: FixedClock) -> None:
    assert age(iso(clock.now() - timedelta(seconds=seconds)), clock.now()) == text


def test_old_and_unreadable_times(clock: FixedClock) -> None:
    assert age("2024-02-03T12:00:00.000Z", clock.now()) == "2024-02-03"
    assert age("2026-11-21T08:00:00", clock.now()) == "1 h ago"
    assert age("", clock.now()) == "?"


def test_sizes_and_costs() -> None:
    assert [size(n) for n in (0, 999, 1500, 250_000, 3_400_000_000)] == [
        "0 B",
        "999 B",
        "1.5 KB",
        "250 KB",
        "3.4 GB",
    ]
    assert [cost(n) for n in (None, 0.0, 0.0123, 4.2)] == ["?", "$0.00", "$0.0123", "$4.20"]


def test_wrapping_counts_columns() -> None:
    text = wrap_text("日本語 日本語 日本語 abc", indent=2, width=16)
    assert text.splitlines() == ["  日本語 日本語", "  日本語 abc"]


def test_progress_is_silent_without_a_terminal(clock: FixedClock, capsys: pytest.CaptureFixture[str]) -> None:
    progress = ProgressLine("export", clock)
    clock.advance(5)
    progress.update("half")
    progress.finish()
    assert capsys.readouterr().err == ""


def test_text_for_a_pipe_is_not_wrapped_unless_columns_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert wrap_text("word " * 50, indent=2).count("\n") == 0
    monkeypatch.setenv("COLUMNS", "40")
    assert max(map(len, wrap_text("word " * 50, indent=2).splitlines())) <= 40


def test_amounts_of_money_are_printed_without_the_digits_of_floats(
    capsys: pytest.CaptureFixture[str],
) -> None:
    usage = Usage(cost_usd=0.0078 * 3)
    emit({"usage": usage, "rows": [{"today_usd": 0.1 + 0.2, "at": 1764511234.5671234}]}, "", as_json=True)
    row = json.loads(capsys.readouterr().out)
    assert (row["usage"]["cost_usd"], row["rows"]) == (0.0234, [{"today_usd": 0.3, "at": 1764511234.5671234}])
    assert usage.cost_usd == 0.023399999999999997
    unknown = encode_output(StepFinished(1, Usage(cost_usd=None)))
    assert json.loads(unknown)["usage"]["cost_usd"] is None
    assert b'"cost_usd":1.234567891e-7,' in encode_output(StepFinished(1, Usage(cost_usd=1.23456789123e-7)))
