"""What a chat is asked before a write: the diff; and a no with words."""

from __future__ import annotations

from pathlib import Path

from tests.gateway.test_telegram import world
from tests.writes import WRITES, prepare
from whet.practice.script import ScriptedReply


def test_every_question_about_a_write_carries_its_diff(tmp_path: Path) -> None:
    script = [*(ScriptedReply(tool_calls=(one,)) for one, _ in WRITES), ScriptedReply(text="All done.")]
    with world(tmp_path, script, mode="ask") as w:
        prepare(w.work)
        w.telegram.write("go")
        for at, (_, lines) in enumerate(WRITES):
            shown = "\n".join(w.telegram.wait_said(lines[-1]))
            assert all(line in shown for line in lines), shown
            if at == len(WRITES) - 1:
                w.telegram.write("/deny it is Friday")
            else:
                w.telegram.answer(w.telegram.press_at("Allow once"))
        w.telegram.wait_said("All done.")
        assert b"Their words: it is Friday" in w.model.requests[-1].body
        assert (w.work / "sums.py").read_text() == "gone = 1\n"
