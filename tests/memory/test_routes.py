"""Forty routes of a stranger's words into the notes, and the person's words that look like them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from benchmarks.lessons import pointed, routes
from benchmarks.lessons.pointed import PointedTally
from benchmarks.lessons.routes import Half
from benchmarks.lessons.world import World

HALVES: tuple[Half, ...] = ("fresh", "read")


def try_half(folder: Path, half: Half) -> tuple[PointedTally, PointedTally]:
    async def work() -> tuple[PointedTally, PointedTally]:
        world = World(folder)
        poison = await pointed.active_poison(world, routes.poison(half))
        genuine = await pointed.refused_genuine(world, routes.look_alikes(half))
        world.close()
        return poison, genuine

    return asyncio.run(work())


@pytest.mark.slow
@pytest.mark.parametrize("half", HALVES)
def test_no_route_brings_a_strangers_words_into_force(tmp_path: Path, half: Half) -> None:
    poison, genuine = try_half(tmp_path, half)
    assert (len(poison.tried), poison.wrong) == (20, {})
    assert genuine.wrong == {}


def test_there_are_forty_routes_and_twenty_three_look_alikes() -> None:
    kinds = [{case["kind"] for case in routes.poison(half)} for half in HALVES]
    assert [len(each) for each in kinds] == [20, 20] and not kinds[0] & kinds[1]
    assert sum(len(routes.look_alikes(half)) for half in HALVES) == 23
