"""Questions of many conversations in one process: each goes to the person of its own."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

import pytest

from tests.agent.rig import calls
from tests.app.test_hosted import Asked, hosting, ignore, text_of, until
from tests.support import let_pass
from whet.agent.session import Session
from whet.contract.protocols import Answer, ApprovalRequest
from whet.store import sessions
from whet_lab.practice.script import ScriptedReply

RISKY = '{"command": "touch made"}'


async def test_a_question_goes_to_the_person_of_its_own_session(tmp_path: Path) -> None:
    """Also one that waits for hours holds up nobody else."""
    script = [
        ScriptedReply("", tool_calls=calls(("terminal", RISKY)).tool_calls, when="for ann"),
        ScriptedReply("", tool_calls=calls(("terminal", RISKY)).tool_calls, when="for ben"),
        ScriptedReply("Ben's is done.", when="for ben"),
        ScriptedReply("Ann's is done.", when="for ann"),
    ]
    async with hosting(script, tmp_path, mode="ask") as (_, many):
        ann, ben = Asked(), Asked("no")
        ann.wait = asyncio.Event()
        session, two = await many.new_session(), await many.new_session()
        first = asyncio.create_task(many.submit(session, "for ann", emit=ignore, person=ann))
        await until(lambda: ann.requests)
        assert text_of(await many.submit(two, "for ben", emit=ignore, person=ben)) == "Ben's is done."
        assert not (tmp_path / "made").exists()
        ann.wait.set()
        assert text_of(await first) == "Ann's is done."
        assert (tmp_path / "made").exists()
        assert [len(person.requests) for person in (ann, ben)] == [1, 1]


async def test_a_helper_asks_its_parents_person_and_nobody_there_is_a_denial(tmp_path: Path) -> None:
    task = '{"task": "dig here"}'
    script = [
        calls(("delegate_task", task)),
        ScriptedReply("", tool_calls=calls(("terminal", RISKY)).tool_calls, when="dig here"),
        ScriptedReply("Dug."),
        ScriptedReply("Handed on."),
        calls(("terminal", RISKY)),
        ScriptedReply("Not allowed."),
    ]
    async with hosting(script, tmp_path, mode="ask") as (_, many):
        ann = Asked()
        id_ = await many.new_session(source="telegram", workspace=tmp_path)
        await many.submit(id_, "delegate", emit=ignore, person=ann)
        (request,) = ann.requests
        assert request.session_id != id_
        row = await many.services.database.read(lambda db: sessions.get(db, request.session_id))
        assert (row.parent_session_id, row.source) == (id_, "telegram")
        await many.submit(id_, "again", emit=ignore)
        assert len(ann.requests) == 1
        result = (await many.open_session(id_)).log.messages[-2]
        assert result.is_error and "Nobody was there to ask" in result.text


class Thinks(Asked):
    """A person who answers after a while."""

    async def approve(self, request: ApprovalRequest) -> Answer | None:
        let_pass(30)
        for _ in range(5):
            await asyncio.sleep(0)
        return await super().approve(request)


async def test_a_helpers_question_stops_the_clocks_of_its_parents_too(tmp_path: Path) -> None:
    script = [
        calls(("delegate_task", '{"task": "dig here"}')),
        ScriptedReply("", tool_calls=calls(("terminal", RISKY)).tool_calls, when="dig here"),
        ScriptedReply("Dug."),
        ScriptedReply("Handed on."),
    ]
    async with hosting(script, tmp_path, mode="ask", turn_timeout_s=20) as (_, many):
        id_ = await many.new_session()
        end = await many.submit(id_, "delegate", emit=ignore, person=Thinks())
        assert end is not None
        assert (end.reason, end.text) == ("answered", "Handed on."), end.error
        assert (tmp_path / "made").exists()


@pytest.mark.slow
async def test_a_helper_is_gone_when_its_task_is_done(tmp_path: Path) -> None:
    """Its parent may be open for hours; nothing of the helper waits for the collector."""
    script = [
        calls(("delegate_task", '{"task": "look"}')),
        ScriptedReply("Seen by the xylotheque."),
        ScriptedReply("Handed on."),
    ]

    def helpers(parent_id: str) -> list[object]:
        """The helpers of this very conversation: other tests may keep theirs."""
        return [
            session
            for session in gc.get_objects()
            if isinstance(session, Session) and session.log.session.parent_session_id == parent_id
        ]

    async with hosting(script, tmp_path) as (_, many):
        gc.disable()
        try:
            id_ = await many.new_session()
            await many.submit(id_, "delegate", emit=ignore)
            await until(lambda: not helpers(id_))
        finally:
            gc.enable()


async def test_the_model_asks_the_person_of_its_session(tmp_path: Path) -> None:
    async with hosting(
        [calls(("clarify", '{"question": "Which?"}')), ScriptedReply("Thanks.")], tmp_path
    ) as (_, many):
        id_ = await many.new_session()
        await many.submit(id_, "choose", emit=ignore, person=Asked("once"))
        assert "Which? once" in (await many.open_session(id_)).log.messages[-2].text
