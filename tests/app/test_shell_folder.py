"""A `cd` holds for the session's next commands: they are judged, shown and run in that folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.rewind.running import ANSWER, Consenting, Running, running, shell
from whet.contract.events import ToolStarted
from whet.rewind.rewinding import Point
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply


def results(r: Running) -> list[str]:
    return [message.text for message in r.session.log.messages if message.role == "tool"]


@pytest.mark.slow
async def test_the_next_command_is_judged_shown_and_run_where_cd_led(tmp_path: Path) -> None:
    both = [PracticeCall("terminal", json.dumps({"command": text})) for text in ("cd a/b", "touch here")]
    script = [
        ScriptedReply(tool_calls=tuple(both)),
        shell("touch there", workdir="a"),
        shell("touch top", workdir="."),
        shell("cd ..; pwd"),
        ANSWER,
        shell("touch last"),
        ANSWER,
    ]
    person = Consenting()
    async with running(tmp_path, script, person=person) as r:
        work = r.app.services.workspace
        (work / "a" / "b").mkdir(parents=True)
        await r.turn()
        assert results(r)[0] == "[no output, exit 0]\n[the next command begins in a/b]"
        assert results(r)[-1] == f"{work}/a\n[the next command begins in a]"
        await r.turn()
        for made in ("a/b/here", "a/there", "top", "a/last"):
            assert (work / made).exists(), made
        shown = [json.loads(event.arguments) for event in r.events if isinstance(event, ToolStarted)]
        assert [one.get("workdir", "") for one in shown] == ["", "a/b", "a", ".", "a/b", "a"]
        asked = {str(request.arguments["command"]): request for request in person.requests}
        assert asked["touch here"].folder == str(work / "a" / "b")
        assert asked["touch here"].arguments == {"command": "touch here", "workdir": "a/b"}
        notes = [message.note for message in r.session.log.messages if message.role == "user"]
        assert ["commands in a;" in note for note in notes] == [False, True]
        # What the model wrote stays as it wrote it.
        arguments = [call.arguments for m in r.session.log.messages for call in m.tool_calls]
        assert json.loads(arguments[1]) == {"command": "touch here"}


@pytest.mark.slow
async def test_a_rewind_takes_the_folder_back_too(tmp_path: Path) -> None:
    script = [shell("cd a"), ANSWER, shell("cd b"), shell("cd c"), ANSWER]
    script += [shell("pwd"), ANSWER, shell("pwd"), ANSWER]
    async with running(tmp_path, script) as r:
        deep = r.app.services.workspace / "a" / "b" / "c"
        deep.mkdir(parents=True)
        await r.turn()
        await r.turn()
        await r.rewinding.rewind(Point(2, 2), "conversation", force=False)
        await r.turn()
        assert results(r)[-1] == str(deep.parent)
        await r.rewinding.rewind(Point(2), "conversation", force=False)
        await r.turn()
        assert results(r)[-1] == str(deep.parent.parent)


@pytest.mark.slow
async def test_a_session_goes_on_in_its_folder_and_says_where_that_is_gone(tmp_path: Path) -> None:
    async with running(tmp_path, [shell("mkdir a && cd a"), ANSWER]) as r:
        await r.turn()
        session_id = r.session.id
    async with running(tmp_path, [shell("pwd"), ANSWER], session_id=session_id) as r:
        await r.turn()
        assert results(r)[-1] == str(r.app.services.workspace / "a")
    shutil.rmtree(tmp_path / "work" / "a")
    script = [shell("rm -rf *"), shell("pwd"), ANSWER]
    async with running(tmp_path, script, session_id=session_id) as r:
        (r.app.services.workspace / "kept").touch()
        await r.turn()
        gone, then = results(r)[-2:]
        assert gone.startswith("Nothing was run: the folder that the last command ended in is gone.")
        assert then == str(r.app.services.workspace)
        assert (r.app.services.workspace / "kept").exists()
