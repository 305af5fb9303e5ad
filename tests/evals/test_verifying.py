"""What judges a task is held as the agent was: it runs what the agent wrote."""

from __future__ import annotations

import asyncio

import pytest

from tests.sandbox.engines import ENGINES
from whet.config.paths import Home
from whet.config.permission_settings import SandboxSettings
from whet_lab.evals.own_tasks import OwnTask
from whet_lab.evals.task_folder import verify


@pytest.mark.slow
@pytest.mark.parametrize("case", ENGINES[:1], ids=str)
def test_a_verifier_reaches_nothing_outside_its_folder(case, tmp_path):
    case.engine()
    place, outside = tmp_path / "task", tmp_path / "outside"
    place.mkdir()
    outside.mkdir()
    task = OwnTask(name="a", prompt="x", verify=f"touch here && touch {outside}/there")
    settings = SandboxSettings(mode="auto")
    content, _ = asyncio.run(verify(task, place, settings, Home(tmp_path / "home")))
    assert not content and (place / "here").exists() and not (outside / "there").exists()
    own = OwnTask(name="a", prompt="x", verify="test -e here")
    assert asyncio.run(verify(own, place, settings, Home(tmp_path / "home")))[0]
