"""/goal in a chat: a worker pursues it, and the chat hears how it ended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.gateway.test_telegram import world
from whet.practice.ask import PracticeCall
from whet.practice.script import ScriptedReply


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the worker outlives us
def test_a_chat_hears_once_how_its_goal_ended(tmp_path: Path) -> None:
    make = PracticeCall("write_file", json.dumps({"path": "reached.txt", "content": "yes\n"}))
    script = [ScriptedReply(tool_calls=(make,)), ScriptedReply("I am done.")]
    with world(tmp_path, script) as w:
        with (w.gateway.home / "config.yaml").open("a") as settings:  # its folder lies in the home here
            settings.write("sandbox:\n  mode: off\n")
        w.telegram.write("/goal write it down --verify 'grep -q yes reached.txt'")
        w.telegram.wait_said("goal achieved: write it down")
        w.telegram.write("/goal")
        shown = w.telegram.wait_said("1 rounds, 2 steps")
        ends = [text for text in shown if "goal achieved" in text]
        assert len(ends) == 2, "the end, and what was asked for"
        assert (w.work / "reached.txt").read_text() == "yes\n"
        w.telegram.write("/goal x --steps many")
        w.telegram.wait_said("--steps takes a number")
