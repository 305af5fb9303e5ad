"""Tests that are coroutines run in a loop of their own, with what their fixtures open in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.conftest import pytest_pyfunc_call
from tests.support import InLoop, each


def test_a_coroutine_runs_with_its_fixtures_and_what_it_raises_fails_the_test() -> None:
    steps: list[Any] = []

    @asynccontextmanager
    async def open_room() -> AsyncGenerator[str]:
        steps.append(asyncio.get_running_loop())
        yield "room"
        steps.append("closed")

    async def enter(room: str, number: int) -> None:
        await asyncio.sleep(0)
        steps.append((room, number, asyncio.get_running_loop() is steps[0]))
        if number == 2:
            raise ValueError("no room")

    def run(number: int) -> bool | None:
        arguments = {"room": InLoop(open_room()), "number": number, "other": None}
        return pytest_pyfunc_call(cast("Any", SimpleNamespace(obj=enter, funcargs=arguments)))

    assert run(1) is True and steps[1:] == [("room", 1, True), "closed"]
    steps.clear()
    with pytest.raises(ValueError, match="no room"):
        run(2)
    assert steps[1:] == [("room", 2, True)]


def test_a_plain_test_is_left_to_pytest() -> None:
    item = SimpleNamespace(obj=lambda: None, funcargs={})
    assert pytest_pyfunc_call(cast("Any", item)) is None


def test_each_row_of_a_coroutine_runs() -> None:
    @each("number", [1, 2, 3])
    async def run(number: int) -> None:
        await asyncio.sleep(0)
        assert number == 2

    with pytest.raises(BaseExceptionGroup, match="2 of 3 rows failed"):
        run()
