"""When the live area is redrawn, on an event loop whose time the test sets."""

from __future__ import annotations

import asyncio
from collections.abc import Generator

import pytest

from whet.terminal.redraws import GAP_S, Redraws


class SetLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock moves only when it is set."""

    now_s = 1_000.0

    def time(self) -> float:
        return self.now_s

    def advance(self, seconds: float) -> None:
        """Move the clock and run what is due then."""
        self.now_s += seconds
        for _ in range(3):
            self.run_until_complete(asyncio.sleep(0))


class Drawn:
    """The times of all redraws, and requests for more."""

    def __init__(self, loop: SetLoop) -> None:
        self.times_ms: list[int] = []
        self._loop = loop
        self._redraws = Redraws(self._draw)
        self.takes_s = 0.0

    def _draw(self) -> None:
        self.times_ms.append(round((self._loop.now_s - 1_000.0) * 1_000))
        self._loop.now_s += self.takes_s
        self._redraws.note_end()

    def request(self, *, at_once: bool = False) -> None:
        async def work() -> None:
            (self._redraws.draw_now if at_once else self._redraws.request)()

        self._loop.run_until_complete(work())


@pytest.fixture
def loop() -> Generator[SetLoop]:
    loop = SetLoop()
    yield loop
    loop.close()


def test_the_first_token_is_drawn_at_once(loop: SetLoop) -> None:
    drawn = Drawn(loop)
    drawn.request()
    assert drawn.times_ms == [0]
    loop.advance(10 * GAP_S)
    assert drawn.times_ms == [0]
    drawn.request()
    assert drawn.times_ms == [0, 80]


def test_a_stream_is_drawn_once_in_each_gap_and_to_its_end(loop: SetLoop) -> None:
    drawn = Drawn(loop)
    for _ in range(12):  # a token each 2 ms
        drawn.request()
        loop.advance(0.002)
    loop.advance(GAP_S)
    assert drawn.times_ms == [0, 8, 16, 24]
    loop.advance(GAP_S)
    assert len(drawn.times_ms) == 4


def test_a_question_is_drawn_at_once_and_takes_the_waiting_redraw_along(loop: SetLoop) -> None:
    drawn = Drawn(loop)
    drawn.request()
    drawn.request()
    loop.advance(0.004)
    drawn.request(at_once=True)
    assert drawn.times_ms == [0, 4]
    loop.advance(0.007)
    assert drawn.times_ms == [0, 4]
    drawn.request()
    loop.advance(0.001)
    assert drawn.times_ms == [0, 4, 12]


def test_a_slow_redraw_is_followed_by_a_pause_as_long(loop: SetLoop) -> None:
    drawn = Drawn(loop)
    drawn.takes_s = 0.04
    drawn.request()
    loop.advance(0.035)
    drawn.request()
    assert drawn.times_ms == [0]
    loop.advance(0.005)
    assert drawn.times_ms == [0, 80]
