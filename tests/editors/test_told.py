"""An editor hears what was learned while nobody looked, once, and decides on it there."""

from __future__ import annotations

from tests import reviewed
from tests.editors.rig import Desk
from whet.clock import SystemClock
from whet.store.database import StateDatabase
from whet_lab.practice.script import ScriptedReply


async def test_an_editor_hears_once_what_was_learned(desk: Desk) -> None:
    desk.server.install([ScriptedReply("One."), ScriptedReply("Two."), ScriptedReply("Three.")])
    first = await desk.session()
    database = StateDatabase.open(desk.home / "state.db", SystemClock())
    rows = database.write_now(reviewed.leave)
    database.close()
    await desk.ask(first, "go")
    assert "Since you left: learned 1, refused 1, waiting for you 1 (/inbox)." in desk.editor.thoughts()
    await desk.ask(first, "/inbox")
    assert reviewed.REFUSED in desk.editor.text() and reviewed.WHY in desk.editor.text()
    await desk.ask(first, f"/inbox accept {rows['refused'].id}")
    assert reviewed.REFUSED in (desk.home / "memories" / "MEMORY.md").read_text()
    await desk.ask(first, f"/inbox reject {rows['quarantined'].id}")
    await desk.ask(first, "again")
    await desk.ask(await desk.session(), "and in another thread")
    assert desk.editor.thoughts().count("Since you left") == 1
