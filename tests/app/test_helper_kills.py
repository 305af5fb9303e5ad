"""The tree of helpers survives kill -9 at any write: none is lost, no result is doubled, no edit is."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.app.helper_runs import helper, mind, program, shell, steps
from whet.agent.loop import run_turn
from whet.clock import SystemClock
from whet.store import helper_rows, live
from whet.store.database import StateDatabase
from whet.store.helper_rows import HelperRow
from whet_lab.practice.server import PracticeServer

_ROOT = Path(__file__).parents[2]
Kill = tuple[int, str]


def _run(folder: Path, base_url: str, count: int, kill: Kill) -> int:
    """Run the program, killed at a write; gives its exit code, negative for a signal."""
    given = [str(folder), base_url, str(count), str(kill[0]), kill[1]]
    command = [sys.executable, "-m", "tests.app.helper_child", *given]
    ran = subprocess.run(command, cwd=_ROOT, check=False, capture_output=True, timeout=600, text=True)
    assert ran.returncode in (0, -signal.SIGKILL), ran.stderr[-2_000:]
    return ran.returncode


def survives(folder: Path, base_url: str, count: int, kills: Sequence[Kill]) -> int:
    """Kill a program with `count` helpers at these writes, one after the other, then have it end; gives how
    many kills there were."""
    work = folder / "work"
    work.mkdir(parents=True)
    subprocess.run(["git", "init", "-q"], cwd=work, check=True)
    killed = sum(_run(folder, base_url, count, kill) != 0 for kill in kills)
    assert _run(folder, base_url, count, (0, "")) == 0
    session = (folder / "session").read_text()
    database = StateDatabase.open(folder / "home" / "state.db", SystemClock())
    rows = database.read_now(lambda db: helper_rows.list_helpers(db, session))
    messages = database.read_now(lambda db: live.load(db, session)).messages
    database.close()
    assert [(row.number, row.state) for row in rows] == [(n + 1, "ended") for n in range(count)]
    counts = Counter(
        re.findall(r'^<helper name="(helper-\d+)"', "\n".join(m.text for m in messages), re.MULTILINE)
    )
    assert counts == {row.name: 1 for row in rows}
    failed = [(row.name, row.reason, row.error) for row in rows if row.reason != "answered"]
    assert not failed, failed
    assert {row.answer for row in rows} == {f"result {n}" for n in range(count)}
    for helper_row in rows:
        number = helper_row.answer.split()[1]
        log = work / f"log{number}.txt"
        lines = log.read_text().splitlines() if log.exists() else []
        assert lines in ([], [number]), (
            helper_row.name,
            lines,
        )  # a command that a kill cut off is not run again
        assert helper_row.merge is None or helper_row.merge.done
    return killed


@pytest.mark.slow
@pytest.mark.parametrize("kill", [(6, "inside"), (14, "after"), (30, "before")])
def test_helpers_go_on_where_a_kill_left_them(tmp_path: Path, kill: Kill) -> None:
    with PracticeServer(responder=mind) as server:
        assert survives(tmp_path, server.base_url, 3, [kill]) == 1


KILL = "kill -9 $(cat ../pid)"


def left_by_a_kill(folder: Path, base_url: str, text: str) -> str:
    """Run a turn in a program that one of its calls kills; gives the session's id."""
    command = [sys.executable, "-m", "tests.app.helper_parent", str(folder), base_url, text]
    ran = subprocess.run(command, cwd=_ROOT, check=False, capture_output=True, timeout=600, text=True)
    assert ran.returncode == -signal.SIGKILL, ran.stderr[-2_000:]
    return (folder / "session").read_text()


async def result_after(folder: Path, base_url: str, session_id: str) -> tuple[str, list[HelperRow]]:
    """Go on with a session; gives the first call's result and the session's helpers."""
    async with program(folder, base_url) as app:
        session = await app.open_session(session_id)
        assert (
            await run_turn(session, session.user_message("what happened?"), lambda _event: None)
        ).reason == "answered"
        result = next(message.text for message in session.log.messages if message.role == "tool")
        return result, await app.helpers.helpers_of(session_id)


@pytest.mark.slow
async def test_new_words_after_a_kill_come_with_what_the_helper_had_done(tmp_path: Path) -> None:
    write = ("write_file", {"path": "one.txt", "content": "1\n"})
    task = steps([write], [shell("exit 3"), shell(KILL)])
    with PracticeServer(responder=mind) as server:
        session_id = left_by_a_kill(tmp_path, server.base_url, steps([helper(task)]))
        text, [row] = await result_after(tmp_path, server.base_url, session_id)
    assert "its outcome is unknown" in text and f"[helper session {row.session}]" in text
    assert "The helper made 2 steps and 3 calls:" in text
    assert '- write_file {"path": "one.txt", "content": "1\\n"}: done' in text
    assert '- terminal {"command": "exit 3"}: exit 3' in text
    assert f'- terminal {{"command": "{KILL}"}}: was running, its outcome is unknown' in text
    assert "Files that it changed, as far as is recorded: one.txt +1 −0" in text
    assert (row.state, row.reason) == ("ended", "stopped"), "nobody runs it any more"


@pytest.mark.slow
async def test_new_words_after_a_kill_come_with_commands_whose_outcome_is_unknown(tmp_path: Path) -> None:
    task = steps([shell(KILL)])
    with PracticeServer(responder=mind) as server:
        session_id = left_by_a_kill(tmp_path, server.base_url, task)
        text, _ = await result_after(tmp_path, server.base_url, session_id)
    assert "its outcome is unknown" in text and "It was not run again" in text


@pytest.mark.soak
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("when", ["before", "inside", "after"])
def test_a_kill_at_each_write(tmp_path: Path, when: str) -> None:
    with PracticeServer(responder=mind) as server:
        at = 1
        while survives(tmp_path / str(at), server.base_url, 2, [(at, when)]):
            at += 1
        assert at > 30


@pytest.mark.soak
@pytest.mark.timeout(7_200)
def test_32_helpers_and_a_hundred_kills(tmp_path: Path) -> None:
    chance = random.Random(20)
    killed = 0
    with PracticeServer(responder=mind) as server:
        while killed < 100:
            kills = [
                (chance.randint(1, 120), chance.choice(("before", "inside", "after"))) for _ in range(10)
            ]
            killed += survives(tmp_path / str(killed), server.base_url, 32, kills)
