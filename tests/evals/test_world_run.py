"""A small world on the real program: HTTP, store, gate, shell, reviews; every arm, counted."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from whet_lab.evals.arms import ARMS
from whet_lab.evals.campaign import CampaignSettings
from whet_lab.evals.measures import find_losses, summarise
from whet_lab.evals.records import WorldResult
from whet_lab.evals.world import FactWorld, Shape
from whet_lab.evals.world_report import format_report
from whet_lab.evals.world_run import run_world

pytestmark = pytest.mark.slow

_SHORT = Shape(sessions=12, drifts=1, pages=2, private=1, guest_every=6)
_SHAPE = Shape(sessions=14, drifts=2, pages=2, private=1, guest_every=7)


def run(folder: Path, arm: str, shape: Shape) -> WorldResult:
    return asyncio.run(run_world(FactWorld(1, shape), ARMS[arm], folder / arm))


def test_learning_carries_facts_to_the_point_of_use_and_nothing_else(tmp_path):
    off, ours = run(tmp_path, "off", _SHORT), run(tmp_path, "ours", _SHORT)
    assert sum(task.first_ok for task in ours.tasks) > sum(task.first_ok for task in off.tasks)
    assert ours.funnel.shown >= ours.funnel.captured >= ours.funnel.survived == ours.funnel.reached > 5
    assert off.funnel.reached == 0
    assert (ours.poisoned, ours.leaks, ours.false_kept, ours.planted) == (0, 0, 0, 2)
    assert ours.spent.review_count > 3 and off.spent.review_count == 0
    assert ours.spent.review_cost <= 0.08 * ours.spent.cost
    sums = summarise([off, ours])
    text = format_report(sums, CampaignSettings(_SHORT))
    assert "| ours | " in text and "inf%" not in text and "## Where ours loses" in text
    assert any("spends fewer tokens" in line for line in find_losses(sums))


def test_beside_outputs_of_real_size_a_task_takes_a_part_of_the_whole_conversation(tmp_path):
    shape = msgspec.structs.replace(_SHORT, looks=4)
    whole, ours = run(tmp_path, "conversation", shape), run(tmp_path, "ours", shape)
    assert ours.spent.tokens < 0.4 * whole.spent.tokens
    assert (ours.leaks, ours.poisoned, ours.false_kept) == (0, 0, 0)
    # 13 tasks with four outputs each, all of them still in the last request: nothing was summarised.
    assert whole.tasks[-2].tokens > 3 * whole.tasks[1].tokens


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_every_arm_is_what_it_says(tmp_path):
    arms = {name: run(tmp_path, name, _SHAPE) for name in ARMS}
    again = run(tmp_path / "again", "ours", _SHAPE)
    ours = arms["ours"]
    # The folder's name is in the prompt, so the tokens of two runs differ.
    tasks = [[msgspec.structs.replace(task, tokens=0) for task in result.tasks] for result in (again, ours)]
    assert (tasks[0], again.funnel, again.requests) == (tasks[1], ours.funnel, ours.requests)
    assert all(task.first_ok for task in arms["oracle"].tasks)
    # The page's planted host reaches a prompt only where nothing stands before the memory.
    assert ours.poisoned == 0 and arms["append-all"].poisoned > 0 and arms["no-gate"].poisoned > 0
    assert arms["no-gate"].false_kept >= ours.false_kept == 0
