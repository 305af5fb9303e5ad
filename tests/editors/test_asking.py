"""What the editor is asked before a write: its diff, the scopes, and nothing for a wrong call."""

from __future__ import annotations

from acp.schema import FileEditToolCallContent, PermissionOption

from tests.editors.rig import Desk, does, pick
from tests.writes import WRITES, prepare
from whet.practice.script import ScriptedReply


def test_every_question_about_a_write_carries_its_diff(desk: Desk) -> None:
    prepare(desk.work)
    desk.server.install([*(ScriptedReply(tool_calls=(one,)) for one, _ in WRITES), ScriptedReply("Done.")])
    desk.editor.answer = pick("allow_once")

    async def story() -> None:
        await desk.ask(await desk.session(), "go")

    desk.run(story())
    assert len(desk.editor.asked) == len(WRITES)
    for (call, _), (_, lines) in zip(desk.editor.asked, WRITES, strict=True):
        (edit,) = [block for block in call.content or () if isinstance(block, FileEditToolCallContent)]
        assert all(line[1:] in edit.new_text for line in lines if line.startswith("+"))
        assert all(line[1:] in (edit.old_text or "") for line in lines if line.startswith("-"))


def test_scopes_are_offered_by_name_and_a_wrong_call_is_not_asked_about(desk: Desk) -> None:
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
        assert "Always allow write_file(src/a.py)" in names
        return names["Allow in this session: write_file(src/*)"]

    desk.editor.answer = folder

    async def story() -> None:
        await desk.ask(await desk.session(), "go")

    desk.run(story())
    assert len(desk.editor.asked) == 1 and (desk.work / "src" / "b.py").read_text() == "2\n"
