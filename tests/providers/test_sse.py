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
EVENTS = [(b"ping", b"{}"), (b"", b"one\ntwo\n"), (b"", "café 日".encode()), (b"", b" spaced")]


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_cuts_change_nothing(cuts: list[int]):
    parser = SseParser()
    events = []
    offsets = [0, *sorted(cuts), len(STREAM)]
    for start, end in pairwise(offsets):
        events += parser.feed(STREAM[start:end])
    assert events + parser.finish() == EVENTS


def test_a_last_event_without_its_empty_line_counts():
    parser = SseParser()
    assert parser.feed(b"data: [DONE]") == []
    assert parser.finish() == [(b"", b"[DONE]")]
    assert parser.has_events


def test_a_byte_order_mark_counts_at_the_beginning_only():
    marked = b"\xef\xbb\xbfdata: a\n\n"
    parser = SseParser()
    assert parser.feed(marked) == [(b"", b"a")]
    assert parser.feed(marked) == [] and parser.feed(b"data: b\n\n") == [(b"", b"b")]


@pytest.mark.parametrize(("begins", "ends", "words"), [(b"", b"", "a line"), (b"data: ", b"\n", "an event")])
def test_a_line_and_an_event_without_end_are_stopped(begins: bytes, ends: bytes, words: str):
    parser = SseParser()
    block = begins + b"x" * (16 * 1024 * 1024) + ends
    for _ in range(3):
        assert parser.feed(block) == []
    with pytest.raises(WireError, match=f"{words} without end"):
        for _ in range(2):
            parser.feed(block)


@pytest.mark.parametrize(
    ("lines", "last_id", "retry_ms"),
    [
        (b"id:7\nretry:5\n\n", "7", 5),
        (b"id: 7 \nretry: 5 \n\n", "7", 5),
        (b"id: 7\n\nid: 8\n", "7", None),
        (b"id: 7\n\nid\nretry: soon\nretry\nx: 9\n\n", "7", None),
        (b"id:\xff\nretry: 12345678901\n\n", "\ufffd", 123456789),
    ],
)
def test_a_streams_place_and_the_pause_it_asks_for_are_kept(lines: bytes, last_id: str, retry_ms: int | None):
    parser = SseParser()
    assert parser.feed(lines) == [] and not parser.has_events
    assert (parser.last_id, parser.retry_ms) == (last_id, retry_ms)
