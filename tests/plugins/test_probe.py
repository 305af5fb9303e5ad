"""Plugins that hang or kill their process are found out without harm."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugins.rig import TOOL, write
from whet.config.paths import Home
from whet.plugins.probe import look


def test_one_that_kills_its_process_does_not_hide_the_others(home: Path) -> None:
    write(home, "kills", "import os\nprint('last words', flush=True)\nos._exit(7)\n")
    write(home, "good", TOOL.format(name="good"))
    kills, good = look(Home(home), ["kills", "good"])
    assert not kills.is_loaded and "ended with code 7 while loading. last words" in kills.problems[0]
    assert good.is_loaded and good.has == {"tools": ["good"]} and good.problems == []


@pytest.mark.slow
def test_one_that_hangs_is_given_up_on(home: Path) -> None:
    write(home, "hangs", "import threading\nthreading.Event().wait()\n")
    (hangs,) = look(Home(home), ["hangs"], limit_s=1.0)
    assert not hangs.is_loaded and hangs.problems == ["loading did not end in 1 s"]


def test_one_that_a_signal_ends_is_told_by_its_number(home: Path) -> None:
    write(home, "hangs_up", "import os, signal\nos.kill(os.getpid(), signal.SIGHUP)\n")
    (hangs_up,) = look(Home(home), ["hangs_up"])
    assert not hangs_up.is_loaded and "ended with signal 1 while loading" in hangs_up.problems[0]


def test_hooks_and_memories_are_tried_with_real_arguments(home: Path) -> None:
    code = """
        class Wrong:
            name = "wrong"
            def initialize(self, session_id, wants, more): pass

        def register(ctx):
            ctx.register_hook("post_tool_call", lambda tool_data: None)
            ctx.register_memory_provider(Wrong())
    """
    write(home, "tried", code)
    (one,) = look(Home(home), ["tried"])
    assert one.is_loaded
    assert any("hook post_tool_call fails" in line and "tool_data" in line for line in one.problems)
    assert any("wrong failed in initialize" in line for line in one.problems)
