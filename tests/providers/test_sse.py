"""Server-sent events, cut anywhere."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.contract.errors import WireError
from whet.providers.sse import SseParser

STREAM = (
    b"\xef\xbb\xbf: a comment\r\n"
    b"event: ping\r\ndata: {}\r\n\r\n"
    b"data: one\ndata:two\ndata\n\n"
    b"id: 7\nretry: 5\n\n"
    b"event: x\r\rdata: caf\xc3\xa9 \xe6\x97\xa5\r\r"
    b"data:  spaced\n\n"
)
EVENTS = [
    (b"ping", b"{}"),
    (b"", b"one\ntwo\n"),
    (b"", "café 日".encode()),
    (b"", b" spaced"),
]


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_cuts_change_nothing(cuts: list[int]):
    parser = SseParser()
    events = []
    offsets = [0, *sorted(cuts), len(STREAM)]
    for start, end in pairwise(offsets):
        events += parser.feed(STREAM[start:end])
    assert events + parser.finish() == EVENTS


def test_byte_by_byte():
    parser = SseParser()
    events = [event for byte in STREAM for event in parser.feed(bytes([byte]))]
    assert events + parser.finish() == EVENTS


def test_a_last_event_without_its_empty_line_counts():
    parser = SseParser()
    assert parser.feed(b"data: [DONE]") == []
    assert parser.finish() == [(b"", b"[DONE]")]
    assert parser.has_events


def test_a_line_without_end_is_stopped():
    parser = SseParser()
    block = b"x" * (16 * 1024 * 1024)
    with pytest.raises(WireError, match="without end"):
        for _ in range(5):
            parser.feed(block)
