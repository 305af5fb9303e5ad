"""SIGKILL before, inside and after every durable write of a turn; then the session is opened and goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agent.rig import calls
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

ROOT = Path(__file__).parents[2]


def script() -> list[ScriptedReply]:
    """Stateless in effect: what is answered depends on what the transcript shows."""
    answered = [ScriptedReply("I will check.", when="Interrupted:"), ScriptedReply("Done.", when="put b")]
    first = calls(("put", '{"what":"a"}'), ("look", '{"at":"x"}'), ("look", '{"at":"y"}'))
    second = calls(("put", '{"what":"b"}'), ("look", '{"at":"z"}'))
    replies: list[ScriptedReply] = []
    for reply, when in (
        (answered[0], answered[0].when),
        (answered[1], "put b"),
        (second, "put a"),
        (first, ""),
    ):
        replies += [ScriptedReply(reply.text, tool_calls=reply.tool_calls, when=when)] * 200
    return replies


@pytest.mark.slow
def test_killed_at_every_write_nothing_is_lost_or_run_twice(tmp_path: Path) -> None:
    with PracticeServer(script=script()) as server:
        done = subprocess.run(
            [sys.executable, "-m", "tests.crash.driver", str(tmp_path), server.base_url],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=250,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    points = [json.loads(line) for line in done.stdout.splitlines()]
    killed = [point for point in points if not point["lived"]]
    assert len(killed) >= 3 * 12, "every write of the turn was a point"
    interrupted = 0
    for point in points:
        where = f"killed {point['when']} write {point['at']}: {point}"
        rows = point["rows"]
        assert [row for row in rows if row[0] == "user"] in ([["user", "go", [], ""]], []), where
        if not rows:
            assert (point["when"], point["at"]) in (("before", 1), ("inside", 1)), where
            assert point["reason"] == "nothing to resume", where
            continue
        asked = [call for row in rows for call in row[2]]
        answered = [row[3] for row in rows if row[0] == "tool"]
        assert answered == asked, f"each call has one result, in order; {where}"
        puts = [line for line in point["trace"] if line.startswith("put")]
        assert len(puts) == len(set(puts)), f"a side effect ran twice; {where}"
        assert point["turns"] == [1, 1] and point["jobs"] == [1], where
        assert rows[-1][1] in ("Done.", "I will check."), where
        interrupted += rows[-1][1] == "I will check."
    assert interrupted >= 4, "some kills fell between a side effect's start and its result"
