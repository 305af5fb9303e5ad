"""What the editor is asked before a write: its diff, the scopes, and nothing for a wrong call."""

from __future__ import annotations

from pathlib import Path

import pytest
from acp import text_block
from acp.schema import PermissionOption

from tests.app.helper_runs import helper, mind, shell, steps
from tests.asked import blind, in_editor
from tests.editors.rig import ABLE, Desk, does, editing, pick
from tests.writes import prepare
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer


@pytest.mark.slow
def test_every_question_about_a_write_shows_all_of_it(desk: Desk) -> None:
    assert blind(in_editor(desk)) == []
    assert "does not answer" not in desk.editor.thoughts()


async def test_scopes_are_offered_by_name_and_a_wrong_call_is_not_asked_about(desk: Desk) -> None:
    prepare(desk.work)
    (desk.work / "src").mkdir(exist_ok=True)
    script = [
        does("patch", path="sums.py", old_string="nowhere", new_string="x"),
        does("write_file", path="src/a.py", content="1\n"),
        does("write_file", path="src/b.py", content="2\n"),
        ScriptedReply("Done."),
    ]
    desk.server.install(script)

    def folder(options: list[PermissionOption]) -> str:
        names = {option.name: option.option_id for option in options}
        this = "create, change or delete src/a.py (covers no shell commands) (take back: whet approvals)"
        assert f"Allow, and never ask again in this folder to {this}" in names
        wider = "create, change or delete any file below src/ (covers no shell commands)"
        return names[f"Allow, and don't ask again in this session to {wider}"]

    desk.editor.answer = folder
    await desk.ask(await desk.session(), "go")
    assert len(desk.editor.asked) == 1 and (desk.work / "src" / "b.py").read_text() == "2\n"


async def test_what_an_editors_diff_does_not_show_is_written_out(desk: Desk) -> None:
    hidden = "run('\u202e\u2066x\u2069 ok')\u200b\n"
    desk.server.install([does("write_file", path="a.py", content=hidden), ScriptedReply("Done.")])
    desk.editor.answer = pick("reject_once")
    await desk.ask(await desk.session(), "go")
    assert "+run('<U+202E><U+2066>x<U+2069> ok')<U+200B>" in str(desk.editor.asked[0][0].content)


async def test_the_scope_of_a_lasting_yes_is_named_whole(desk: Desk) -> None:
    command = f"echo {'a ' * 1_500}; rm -r the-end"
    desk.server.install([does("terminal", command=command), ScriptedReply("Done.")])
    offered: list[PermissionOption] = []

    def answer(options: list[PermissionOption]) -> str:
        offered.extend(options)
        return next(option.option_id for option in options if option.kind == "reject_once")

    desk.editor.answer = answer
    await desk.ask(await desk.session(), "go")
    assert all("not shown" not in option.name for option in offered) and offered
    assert "the-end" in str(desk.editor.asked[0][0].content)


def test_a_turn_is_shown_and_taken_back(desk: Desk) -> None:
    kept = desk.work / "kept.txt"
    kept.write_text("whole\n")
    desk.server.install([does("terminal", command="echo spoiled > kept.txt"), ScriptedReply("Done.")])
    desk.editor.answer = pick("allow_once")

    async def story() -> tuple[str, str, str]:
        session = await desk.session()
        await desk.ask(session, "go")
        await desk.ask(session, "/diff 1")
        shown = desk.editor.text()
        await desk.ask(session, "/rewind 1 files")
        restored = kept.read_text()
        await desk.ask(session, "/rewind undo")
        return shown, restored, kept.read_text()

    shown, restored, again = desk.run(story())
    assert "-whole" in shown and "+spoiled" in shown
    assert (restored, again) == ("whole\n", "spoiled\n")


@pytest.mark.parametrize("offered", ["change", "because"])
async def test_a_call_is_changed_or_denied_with_words_where_the_editor_has_forms(
    desk: Desk, offered: str
) -> None:
    desk.server.install([does("terminal", command="touch one"), ScriptedReply("Done.")])
    picks = iter([offered, "once"])
    desk.editor.answer = lambda options: next(picks)
    written = {"change": "touch other", "because": "not today"}[offered]
    desk.editor.filled = lambda mode: written
    await desk.ask(await desk.session(), "go")
    (form,) = desk.editor.forms
    assert (desk.work / "other").exists() == (offered == "change") and not (desk.work / "one").exists()
    assert form[1].requested_schema.properties["answer"].default == (
        "touch one" if offered == "change" else None
    )
    assert len(desk.editor.asked) == (2 if offered == "change" else 1)
    assert offered == "change" or "Their words: not today" in str(desk.server.requests[-1].body)


async def test_a_form_that_nobody_fills_in_is_no_answer(desk: Desk) -> None:
    desk.server.install([does("terminal", command="touch one"), ScriptedReply("Done.")])
    picks = iter(["because", "change", "no"])
    desk.editor.answer = lambda options: next(picks)
    await desk.ask(await desk.session(), "go")
    assert len(desk.editor.forms) == 2 and len(desk.editor.asked) == 3
    assert not (desk.work / "one").exists()


@pytest.mark.slow
async def test_the_editor_is_asked_for_a_helper_that_works_on_after_its_parents_turn(tmp_path: Path) -> None:
    work = tmp_path / "work"
    waits = "while [ ! -e go ]; do sleep 0.05; done"
    task = helper(steps([shell(waits)], [shell("touch made")], answer="Made."), background=True)
    with PracticeServer(responder=mind) as server:
        async with editing(tmp_path / "home", server, work, able=ABLE) as (editor, connection, _):
            editor.answer = pick("allow_once")
            session = await connection.new_session(cwd=str(work), mcp_servers=[])
            blocks = [text_block(steps([task]))]
            await connection.prompt(session_id=session.session_id, prompt=blocks)
            (work / "go").touch()
            await editor.until(lambda: any("touch made" in str(call) for call, _ in editor.asked))
