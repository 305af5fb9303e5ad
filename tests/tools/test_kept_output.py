"""What a program printed over takes no room, however the output is cut into pieces."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.tools.kept_output import KeptOutput
from whet.tools.output import strip_terminal_control

_PIECES = st.lists(
    st.sampled_from(
        [
            *(b"a", b"bc", b"\r", b"\n", b"\r\n", b"\rx", b"\0", b"\n\r", b"\t", b"\b", b"\n" * 45),
            *(b"\x1b", b"[", b"2", b"A", b"K", b"\x1b[A", b"\x1b[3A", b"\x1b[2B", b"\x1b[5G", b"\x1b[2C"),
            *(b"\x1b[K", b"\x1b[1K", b"\x1b[2K", b"\x1b[J", b"\x1b[31m", b"\x1b]0;t\x07", b"\x1b[2E"),
            *("é".encode(), "漢".encode(), b"\xe6", b"\xbc", b"\xa2", "e\u0301".encode(), b"\xff"),
        ]
    ),
    max_size=14,
)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(st.lists(_PIECES, min_size=1, max_size=3))
def test_what_is_shown_is_the_same_with_and_without_what_was_printed_over(parts: list[list[bytes]]) -> None:
    output, offset = KeptOutput(1_000), 0
    for pieces in parts:
        for piece in pieces:
            output.append(piece)
        data, lost, _ = output.since(offset)
        offset = output.total_bytes
        whole = b"".join(pieces).decode("utf-8", "surrogateescape")
        assert strip_terminal_control(data.decode("utf-8", "surrogateescape")) == strip_terminal_control(
            whole
        )
        assert lost == 0


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("Wo\rWork\rWorking\nabc\b\b\bxyz", "Working\nxyz"),
        ("long text\rshort", "shorttext"),
        ("one\ntwo\x1b[1A\x1b[1Gup\x1b[1B\x1b[9Gend", "upe\ntwo     end"),
        ("a\n" * 50 + "\x1b[99A\x1b[2Ktop", "a\n" * 11 + "top\n" + "a\n" * 38),
        ("漢字\x1b[2Gx\x1b[5G!", " x字!"),
        ("a\tb\x1b[3Gx\x1b[1Gy", "y x     b"),
        ("abcdef\x1b[3G\x1b[1K", "   def"),
        ("A\x9b31mB\x9d0;title\x9cC\x85D\x9cE", "ABCDE"),
        ("A\x9b31mB\rb\x9d without an end, and text\x9b", "b without an end, and text"),
        ("x\x1b[999999999Cy", "x" + " " * 239 + "y"),
        ("x\x1b[1;5Hy\x1b[2J", "xy"),
    ],
)
def test_printed_text_is_what_a_terminal_shows_at_its_end(printed: str, shown: str) -> None:
    assert strip_terminal_control(printed) == shown


def test_a_line_between_two_long_progress_bars_is_kept() -> None:
    bar = [f"\r[{step:>4}/4000]{'#' * 40}".encode() for step in range(4_000)]
    output = KeptOutput(10_000)
    for piece in [*bar, b"\nERROR: in the middle\n", *bar, b"\nthe end\n"]:
        output.append(piece)
    head, lost, tail = output.since(0)
    assert (b"ERROR: in the middle" in head + tail, lost) == (True, 0)
