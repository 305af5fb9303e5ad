"""What a program printed over takes no room, however the output is cut into pieces."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from whet.tools.kept_output import KeptOutput
from whet.tools.output import strip_terminal_control

_PIECES = st.lists(st.sampled_from([b"a", b"bc", b"\r", b"\n", b"\r\n", b"\rx", b"\0", b"\n\r"]), max_size=12)


@settings(max_examples=200, deadline=None)
@given(_PIECES, st.booleans())
def test_what_is_shown_is_the_same_with_and_without_what_was_printed_over(
    pieces: list[bytes], reads_often: bool
) -> None:
    output, read, offset = KeptOutput(1_000), b"", 0
    for piece in pieces:
        output.append(piece)
        if reads_often:
            read += output.since(offset)[0]
            offset = output.total_bytes
    read += output.since(offset)[0]
    shown = strip_terminal_control(read.decode())
    assert shown == strip_terminal_control(b"".join(pieces).decode())
    assert output.since(0)[1] == 0


def test_a_line_between_two_long_progress_bars_is_kept() -> None:
    bar = [f"\r[{step:>4}/4000]{'#' * 40}".encode() for step in range(4_000)]
    output = KeptOutput(10_000)
    for piece in [*bar, b"\nERROR: in the middle\n", *bar, b"\nthe end\n"]:
        output.append(piece)
    head, lost, tail = output.since(0)
    assert (b"ERROR: in the middle" in head + tail, lost) == (True, 0)
