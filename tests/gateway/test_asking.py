"""What a chat is asked before a write: the diff, all of it where somebody wants it; and a no with words."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.rig import calls
from tests.asked import blind, in_chat
from tests.gateway.test_telegram import world
from tests.writes import WRITES, prepare
from whet_lab.practice.script import ScriptedReply

pytestmark = pytest.mark.unconfined


@pytest.mark.slow
def test_every_question_about_a_write_shows_all_of_it(tmp_path: Path) -> None:
    assert blind(in_chat(tmp_path)) == []


@pytest.mark.slow
def test_a_long_question_is_shown_whole_by_a_command_and_denied_with_words(tmp_path: Path) -> None:
    call, lines = WRITES["many lines"]
    with world(tmp_path, [ScriptedReply(tool_calls=(call,)), ScriptedReply("All done.")], mode="ask") as w:
        prepare(w.work)
        w.telegram.write("go")
        shown = "".join(w.telegram.wait_said("more lines"))
        assert "row 10\n" in shown and lines[-1] in shown and "row 700\n" not in shown
        w.telegram.ask("/approve show", "row 700\n")
        w.telegram.ask("/deny it is Friday", "All done.")
        assert b"Their words: it is Friday" in w.model.requests[-1].body
        assert not (w.work / "many.txt").exists()


@pytest.mark.slow
def test_words_in_the_chat_decide_deny_with_a_reason_or_stop(tmp_path: Path) -> None:
    script = [
        calls(("terminal", '{"command": "touch first"}')),
        calls(("terminal", '{"command": "touch second"}')),
        calls(("terminal", '{"command": "touch third"}')),
        ScriptedReply("Never said."),
    ]
    with world(tmp_path, script, mode="ask") as w:
        w.telegram.ask("go", "touch first")
        w.telegram.write("yes")
        assert "Allowed once: touch first (asked by ann)" in "".join(w.telegram.wait_said("Allowed once"))
        w.telegram.wait_said("touch second")
        w.telegram.ask("abort that, use make", "Denied: touch second")
        w.telegram.wait_said("touch third")
        assert b"Their words: abort that, use make" in w.model.requests[-1].body
        w.telegram.ask("stop", "Stopp")
        assert [path.name for path in w.gateway.home.rglob("*") if path.name in NAMES] == ["first"]


NAMES = ("first", "second", "third")
