"""A person who is not the owner works in a folder of their own, as in any workspace."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.rig import calls
from tests.gateway.test_telegram import BEN, world
from whet_lab.practice.script import ScriptedReply


@pytest.mark.slow
@pytest.mark.unconfined
def test_a_guest_writes_searches_and_runs_commands_without_asking_the_owner(tmp_path: Path) -> None:
    script = [
        calls(("write_file", '{"path": "notes.md", "content": "needle\\n"}')),
        calls(("search_files", '{"pattern": "needle"}')),
        calls(("terminal", '{"command": "python3 -c \'print(6 * 7)\'"}')),
        calls(("terminal", '{"command": "echo hi > b.txt && cat b.txt"}')),
        ScriptedReply("All done."),
    ]
    with world(tmp_path, script, BEN) as w:
        w.telegram.write("go", chat=8)
        texts = w.telegram.wait_said("All done.", chat=8)
        body = w.model.requests[-1].body.decode().partition('"role":"user"')[2]
        assert "notes.md" in body and "42" in body and "denied" not in body.lower(), body[-3000:]
        folder = w.gateway.home / "people" / "ben" / "work"
        assert (folder / "notes.md").read_text() == "needle\n" and (folder / "b.txt").read_text() == "hi\n"
        assert not any("may I" in text.lower() for text in [*texts, *w.telegram.said()])


@pytest.mark.slow
@pytest.mark.unconfined
def test_a_guest_gets_at_no_other_part_of_the_home(tmp_path: Path) -> None:
    script = [
        calls(("write_file", '{"path": "../../../config.yaml", "content": "x"}')),
        calls(("terminal", '{"command": "cat ../../../.env"}')),
        ScriptedReply("All done."),
    ]
    with world(tmp_path, script, BEN) as w:
        (w.gateway.home / ".env").write_text("KEY=hidden-value\n")
        w.telegram.ask("go", "needs somebody's permission", 8)
        w.telegram.wait_said("All done.", chat=8)
        body = w.model.requests[-1].body.decode()
        assert "is outside the workspace" in body and "hidden-value" not in body, body[-3000:]
        assert "stream_after_s" in (w.gateway.home / "config.yaml").read_text()


@pytest.mark.slow
@pytest.mark.unconfined
def test_a_guest_has_no_background_processes_of_the_owner(tmp_path: Path) -> None:
    script = [
        calls(("terminal", '{"command": "echo SECRET; sleep 60", "background": true}')),
        ScriptedReply("Started."),
        calls(("process", '{"action": "list"}')),
        calls(("process", '{"action": "poll", "id": "p1"}')),
        ScriptedReply("All done."),
    ]
    with world(tmp_path, script, BEN) as w:
        w.telegram.write("start it")
        w.telegram.wait_said("Started.")
        assert "as p1" in w.model.requests[-1].body.decode()
        w.telegram.write("show it", chat=8)
        w.telegram.wait_said("All done.", chat=8)
        body = w.model.requests[-1].body.decode()
        assert "no background processes" in body and "no background process 'p1'" in body, body[-3000:]
        assert "SECRET" not in body
