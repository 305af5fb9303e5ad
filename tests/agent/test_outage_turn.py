"""An outage between the steps of a turn: the same turn ends by itself, and no call runs twice."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.agent.rig import calls, rig
from tests.providers.machine import Machine
from whet.contract.events import Notice, Retry, TurnEnd
from whet.providers.fallback import FallbackLink
from whet_lab.practice.script import Fault, ScriptedReply, html_page, server_error


@pytest.mark.fast_rows("180.0")
@pytest.mark.parametrize(("outage_s", "patience_s"), [(30.0, 300.0), (180.0, 300.0), (890.0, 900.0)])
async def test_the_turn_ends_and_nothing_runs_twice(tmp_path: Path, outage_s: float, patience_s: float):
    machine = Machine()
    # At these waits each answer of a server that is down takes five seconds of the outage.
    down = [server_error(503), html_page(502), ScriptedReply(fault=Fault(drop=True))]
    tries = [down[n % 3] for n in range(int(outage_s / 5) + 1)]
    script = [
        calls(("put", '{"what":"a"}')),
        *tries,
        calls(("put", '{"what":"b"}')),
        ScriptedReply("half", pieces=4, fault=Fault(cut_after=2)),
        *tries[:5],
        ScriptedReply("both are put"),
    ]
    async with rig(tmp_path, script, backoff=machine.backoff(patience_s)) as at:
        end = await at.turn("put a and b")
        assert isinstance(end, TurnEnd) and (end.reason, end.text) == ("answered", "both are put")
        assert at.trace() == ["put a", "put b"] and end.steps == 3
        assert machine.now_s >= outage_s and len(at.seen(Retry)) > len(tries)
        assert [m.role for m in at.session.log.messages] == [
            "user",
            "assistant",
            "tool",
            "assistant",
            "tool",
            "assistant",
        ]


async def test_the_end_of_patience_ends_the_turn_and_keeps_what_was_done(tmp_path: Path):
    script = [calls(("put", '{"what":"a"}')), *[server_error(503)] * 200]
    async with rig(tmp_path, script, backoff=Machine().backoff(300.0)) as at:
        end = await at.turn("put a")
        assert end.reason == "failed" and "HTTP 503" in end.error and at.trace() == ["put a"]


async def test_which_model_answers_from_now_on_is_told(tmp_path: Path):
    script = [ScriptedReply(fault=Fault(status=401, message="bad key")), ScriptedReply("here")]
    async with rig(tmp_path, script) as at:
        link = FallbackLink(at.session.link, at.session.link)
        at.session = msgspec.structs.replace(at.session, link=link)
        assert (await at.turn("go")).text == "here"
        (notice,) = at.seen(Notice)
        assert notice.text.endswith("answers from now on")  # type: ignore[union-attr]
