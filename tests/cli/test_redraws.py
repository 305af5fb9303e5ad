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
        self._redraws = Redraws(lambda: self.times_ms.append(round((loop.now_s - 1_000.0) * 1_000)))

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
    assert drawn.times_ms == [0, 500]


def test_a_stream_is_drawn_once_in_each_gap_and_to_its_end(loop: SetLoop) -> None:
    drawn = Drawn(loop)
    for _ in range(12):  # a token each 10 ms
        drawn.request()
        loop.advance(0.01)
    loop.advance(GAP_S)
    assert drawn.times_ms == [0, 50, 100, 170]
    loop.advance(GAP_S)
    assert len(drawn.times_ms) == 4


def test_a_question_is_drawn_at_once_and_takes_the_waiting_redraw_along(loop: SetLoop) -> None:
    drawn = Drawn(loop)
    drawn.request()
    drawn.request()
    loop.advance(0.02)
    drawn.request(at_once=True)
    assert drawn.times_ms == [0, 20]
    loop.advance(0.04)
    assert drawn.times_ms == [0, 20]
    drawn.request()
    loop.advance(0.01)
    assert drawn.times_ms == [0, 20, 70]
