"""A turn that is cancelled at each of its durable writes in turn: the transcript is whole every time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.agent.rig import calls, rig
from whet.agent.loop import run_turn
from whet.clock import SystemClock
from whet.contract.messages import Message
from whet.store.database import StateDatabase
from whet.store.transcript import Transcript
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

pytestmark = pytest.mark.slow


class CancellingDatabase(StateDatabase):
    """Cancels the turn while its n-th write waits behind another one's."""

    turn: asyncio.Task[Any] | None = None
    at = 0
    count = 0

    async def append(self, work: Callable[[apsw.Connection], Any], after: Any = None, scope: str = "") -> Any:
        self.count += 1
        if self.count == self.at and self.turn is not None:
            begun, go_on = threading.Event(), threading.Event()

            def slow(connection: apsw.Connection) -> None:
                begun.set()
                assert go_on.wait(30)

            self.submit(slow)
            assert begun.wait(30)
            self.turn.cancel()
            # Only when the cancelled task has run may the write be done.
            asyncio.get_running_loop().call_later(0.01, go_on.set)
        return await super().append(work, after, scope)


def script() -> list[ScriptedReply]:
    return [
        calls(("put", '{"what":"a"}'), ("look", '{"at":"x"}'), ("look", '{"at":"y"}'), text="First."),
        calls(("put", '{"what":"b"}')),
        ScriptedReply("done"),
    ]


async def cancelled_at(folder: Path, server: PracticeServer, at: int) -> bool:
    """Cancel at write `at`, go on, and check; gives whether the turn was still there to be cancelled."""
    server.install([*script(), *[ScriptedReply("on again")] * 4])
    database = CancellingDatabase.open(folder / "state.db", SystemClock())
    assert isinstance(database, CancellingDatabase)
    async with rig(folder, server=server, database=database) as r:
        database.count, database.at = 0, at
        incoming = Message("user", "go")
        r.session.steer("typed meanwhile")
        database.turn = asyncio.create_task(run_turn(r.session, incoming, r.events.append))
        (outcome,) = await asyncio.gather(database.turn, return_exceptions=True)
        lived = not isinstance(outcome, BaseException)
        database.at = 0
        await r.session.log.drain()
        open_turns = "SELECT count(*) FROM turns WHERE ended = ''"
        assert await database.read(lambda db: db.execute(open_turns).fetchone()) == (0,), f"write {at}"
        server.install([ScriptedReply("on again")])
        end = await r.turn("and now?")
        assert (end.reason, end.text) == ("answered", "on again"), (at, end)
        live = r.session.log.messages
        texts = [message.text for message in live if message.role == "user"]
        assert texts[0] == "go" and sorted(texts[1:]) == ["and now?", "typed meanwhile"], (at, texts)
        stored = (await Transcript.open(database, r.session.id, SystemClock())).messages
        assert [(m.role, m.text, m.tool_call_id) for m in live] == [
            (m.role, m.text, m.tool_call_id) for m in stored
        ], at
        asked = [call.id for message in stored for call in message.tool_calls]
        assert [m.tool_call_id for m in stored if m.role == "tool"] == asked, f"write {at}: {stored}"
        trace = r.trace()
        assert len(trace) == len(set(trace)), f"write {at}: an effect came twice: {trace}"
        assert not server.requests[-1].refused
    return lived


def test_cancelled_at_every_write_the_transcript_is_whole(tmp_path):
    with PracticeServer() as server:
        at, lived = 0, False
        while not lived:
            at += 1
            folder = tmp_path / str(at)
            folder.mkdir()
            lived = asyncio.run(cancelled_at(folder, server, at))
    assert at > 10, "every write of the turn was a moment"
