"""/goal in a chat: a worker pursues it, and the chat hears how it ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.test_telegram import world
from whet_lab.practice.script import ScriptedReply


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the worker outlives us
def test_a_chat_hears_once_how_its_goal_ended(tmp_path: Path) -> None:
    with world(tmp_path, [ScriptedReply("I am done.")] * 4) as w:
        with (w.gateway.home / "config.yaml").open("a") as settings:  # its folder lies in the home here
            settings.write("sandbox:\n  mode: off\n")
        w.telegram.ask("/goal look around --verify 'test -d .'", "goal achieved: look around")
        w.telegram.write("/goal")
        shown = w.telegram.wait_said("1 round, 1 step")
        assert sum("goal achieved" in text for text in shown) >= 1
        w.telegram.ask("/goal x --steps many", "--steps takes a number")
        w.telegram.ask("/goal lost --verify false --steps 2", "goal budget: lost")
