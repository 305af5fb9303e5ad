"""Workers are killed in the middle of turns; every turn is answered once, and every call has one result."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import msgspec
import pytest

from tests.support import output_of, wait_until
from tests.team.processes import LEASE_S, environment, start, worker
from whet.clock import SystemClock
from whet.sqlite.lane import ScopedWrite
from whet.store import sessions
from whet.store.sessions import NewSession
from whet.store.team import TeamDatabase
from whet.store.transcript import Transcript
from whet.team import aside, orders
from whet.team.queue import AskedTurn, DatabaseQueue, read_result
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply, terminal_reply
from whet_lab.practice.server import PracticeServer


def ask(db: TeamDatabase, queue: DatabaseQueue, text: str, session_id: str = "") -> tuple[str, str]:
    clock = SystemClock()
    turn_id, wanted = clock.new_id(), session_id or clock.new_id()

    def work(connection):
        if not session_id:
            sessions.insert(connection, NewSession(wanted, source="team"), "2026-11-21T09:00:00.000Z")
        queue.ask(connection, AskedTurn(turn_id, wanted, text))

    db.write_now(ScopedWrite(wanted, work))
    return turn_id, wanted


@contextmanager
def opened(url: str) -> Iterator[tuple[TeamDatabase, DatabaseQueue]]:
    with closing(TeamDatabase.open_url(url, lease_s=LEASE_S)) as db:
        yield db, DatabaseQueue(db)


def has_ended(queue: DatabaseQueue, turn_id: str) -> bool:
    turn = read_result(queue.database, turn_id)
    return turn is not None and turn.reason != ""


def are_done(db: TeamDatabase, queue: DatabaseQueue, turn_ids: Iterable[str]) -> bool:
    """Return whether all turns have ended; those that were set aside are released."""
    if not all(has_ended(queue, turn_id) for turn_id in turn_ids):
        return False
    set_aside = db.read_now(aside.list_aside)
    for turn in set_aside:
        db.write_now(lambda connection, turn=turn: aside.release_turn(connection, turn.id))
    return not set_aside


def transcript(db: TeamDatabase, session_id: str) -> Transcript:
    return asyncio.run(Transcript.open(db, session_id, SystemClock()))


@pytest.mark.slow
def test_a_turn_of_a_killed_worker_is_answered_by_another_and_its_call_is_not_run_again(url, tmp_path):
    marks = tmp_path / "marks.txt"
    command = msgspec.json.encode({"command": f"echo once >> {marks}; sleep 60"}).decode()
    script = [ScriptedReply(tool_calls=(PracticeCall("terminal", command),)), ScriptedReply("the answer")]
    with PracticeServer(script=script) as server, opened(url) as (db, queue), ExitStack() as stack:
        given = environment(url, tmp_path / "home", server, "practice")
        first = stack.enter_context(worker(given, tmp_path))
        turn_id, session_id = ask(db, queue, "do it")
        wait_until(marks.exists, 60)
        stack.enter_context(worker(given, tmp_path))
        first.kill()
        wait_until(lambda: has_ended(queue, turn_id), 60)
        ended = read_result(queue.database, turn_id)
        messages = transcript(db, session_id).messages
    assert ended is not None
    assert (ended.reason, ended.error, ended.attempts, ended.turn) == ("answered", "", 2, 1)
    assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert "unknown" in messages[2].text and messages[3].text == "the answer"
    assert marks.read_text() == "once\n"


@pytest.mark.slow
def test_words_said_to_a_turn_of_a_killed_worker_come_before_its_old_calls(url, tmp_path):
    marks = tmp_path / "marks.txt"
    asked = tuple(
        PracticeCall("terminal", msgspec.json.encode({"command": command}).decode())
        for command in (f"echo first >> {marks}; sleep 60", f"echo drop >> {marks}", f"echo push >> {marks}")
    )
    script = [ScriptedReply(tool_calls=asked), ScriptedReply("stopped")]
    with PracticeServer(script=script) as server, opened(url) as (db, queue), ExitStack() as stack:
        given = environment(url, tmp_path / "home", server, "practice")
        first = stack.enter_context(worker(given, tmp_path))
        turn_id, session_id = ask(db, queue, "do it")
        wait_until(lambda: marks.exists() and marks.read_text(), 60)
        first.kill()
        assert db.write_now(lambda db: orders.send_message(db, session_id, "Stop! Do nothing more"))
        stack.enter_context(worker(given, tmp_path))
        wait_until(lambda: has_ended(queue, turn_id), 60)
        ended = read_result(queue.database, turn_id)
        messages = transcript(db, session_id).messages
    assert ended is not None and (ended.reason, ended.error) == ("answered", "")
    assert "".join(message.role[0] for message in messages) == "uatttua"
    assert messages[3].text.startswith("Not run") and messages[5].text == "Stop! Do nothing more"
    assert marks.read_text() == "first\n"


@pytest.mark.slow
def test_turns_of_one_session_are_answered_in_their_order_by_whoever_is_there(url, tmp_path):
    with PracticeServer() as server, opened(url) as (db, queue), ExitStack() as stack:
        given = environment(url, tmp_path / "home", server, "practice-echo")
        turn_id, session_id = ask(db, queue, "0")
        asked = [turn_id, *(ask(db, queue, str(number), session_id)[0] for number in range(1, 6))]
        for _ in range(2):
            stack.enter_context(worker(given, tmp_path))
        wait_until(lambda: all(has_ended(queue, text) for text in asked), 60)
        texts = [message.text for message in transcript(db, session_id).messages if message.role == "user"]
    assert texts == [str(number) for number in range(6)]


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_kills_lose_double_and_reorder_nothing(url, tmp_path):
    """Three workers, forty sessions of two turns with four calls each; one worker at random is killed and
    replaced, over and over, until every turn has ended."""
    dice, kills = random.Random(19), 0
    with PracticeServer() as server, opened(url) as (db, queue), ExitStack() as stack:
        given = environment(url, tmp_path / "home", server, "practice-steps-4")
        asked: list[str] = []
        texts: list[str] = []
        for _ in range(40):
            turn_id, session_id = ask(db, queue, "read README.md")
            texts.append(session_id)
            asked += [turn_id, ask(db, queue, "and again", session_id)[0]]
        (tmp_path / "README.md").write_text("text\n")
        there = [stack.enter_context(worker(given, tmp_path)) for _ in range(3)]
        until = time.monotonic() + 600
        while not are_done(db, queue, asked):
            assert time.monotonic() < until, "the turns never ended"
            time.sleep(dice.uniform(0.1, 0.6))
            there.pop(dice.randrange(3)).kill()
            kills += 1
            there.append(stack.enter_context(worker(given, tmp_path)))
        print(f"{kills} kills")
        for session_id in texts:
            roles = [message.role for message in transcript(db, session_id).messages]
            assert roles == (["user", *["assistant", "tool"] * 4, "assistant"] * 2), session_id
        for text in asked:
            ended = read_result(queue.database, text)
            assert ended is not None and ended.reason == "answered", ended


@pytest.mark.slow
def test_who_asks_a_team_without_a_worker_reads_how_to_help_and_then_the_answer(url, tmp_path):
    with PracticeServer() as server, ExitStack() as stack:
        given = environment(url, tmp_path / "home", server, "practice-echo")
        asking = stack.enter_context(start(["team", "ask", "hello"], given, tmp_path))
        stack.callback(asking.kill)
        assert output_of(asking).readline() == (
            "no worker runs this turn or another one (place 1 of the queue);"
            " start one that can: whet worker --turns 8\n"
        )
        hurried = start(["team", "ask", "at once", "--timeout", "0"], given, tmp_path)
        assert "no answer within 0 s: no worker runs" in hurried.communicate(timeout=60)[0]
        stack.enter_context(worker(given, tmp_path))
        assert output_of(asking).readline() == "hello\n"


@pytest.mark.slow
def test_a_turn_waits_for_a_worker_that_has_its_workspace(url, tmp_path):
    """A folder that is on one machine only: others leave its turns alone, and say why."""
    there = tmp_path / "there"
    with PracticeServer() as server, opened(url) as (db, queue), ExitStack() as stack:
        given = environment(url, tmp_path / "home", server, "practice-echo")
        turn_id, session_id = ask(db, queue, "hello")
        db.write_now(
            lambda c: c.execute("UPDATE sessions SET workspace = ? WHERE id = ?", (str(there), session_id))
        )
        process = stack.enter_context(worker(given, tmp_path))
        lines = iter(output_of(process).readline, "")  # the first may warn of the role's rights
        text = next((line for line in lines if "left: " in line), "")
        assert f"left: the workspace {there} is not on worker" in text
        wait_until(lambda: str(there) in str(db.read_now(lambda c: orders.describe_wait(c, turn_id))))
        other, _ = ask(db, queue, "goes on")
        wait_until(lambda: has_ended(queue, other), 60)
        assert not has_ended(queue, turn_id)
        there.mkdir()
        wait_until(lambda: has_ended(queue, turn_id), 60)
        turn = read_result(queue.database, turn_id)
    assert turn is not None and (turn.reason, turn.attempts, turn.error) == ("answered", 1, "")


@pytest.mark.slow
def test_a_worker_without_the_tool_that_a_call_names_says_so_to_the_model(url, tmp_path):
    script = [ScriptedReply(tool_calls=(PracticeCall("browser_open", "{}"),)), ScriptedReply("then without")]
    with PracticeServer(script=script) as server, opened(url) as (db, queue), ExitStack() as stack:
        given = environment(url, tmp_path / "home", server, "practice")
        stack.enter_context(worker(given, tmp_path))
        turn_id, session_id = ask(db, queue, "look at the page")
        wait_until(lambda: has_ended(queue, turn_id), 60)
        messages = transcript(db, session_id).messages
    assert (
        messages[2].text.startswith("There is no tool named browser_open.")
        and messages[3].text == "then without"
    )


@pytest.mark.slow
def test_a_turn_that_stops_three_workers_is_set_aside_and_released(url, tmp_path):
    """Its person reads so at once, and the next message of the session is answered."""
    marks = tmp_path / "marks.txt"
    call = terminal_reply(f"echo x >> {marks}; sleep 60")
    script = [call, call, call, ScriptedReply("next"), ScriptedReply("released")]
    with PracticeServer(script=script) as server, opened(url) as (db, queue), ExitStack() as stack:
        given = environment(url, tmp_path / "home", server, "practice")
        turn_id, session_id = ask(db, queue, "poison")
        for count in (1, 2, 3):
            with worker(given, tmp_path):
                wait_until(lambda count=count: marks.exists() and marks.read_text() == "x\n" * count, 60)
        stack.enter_context(worker(given, tmp_path))
        wait_until(lambda: has_ended(queue, turn_id), 60)
        ended = read_result(queue.database, turn_id)
        next_id, _ = ask(db, queue, "go on", session_id)
        wait_until(lambda: has_ended(queue, next_id), 60)
        listed = run_whet(given, tmp_path, "team", "aside")
        released = run_whet(given, tmp_path, "team", "release", turn_id)
        wait_until(lambda: has_ended(queue, turn_id), 60)
        again = read_result(queue.database, turn_id)
    assert ended is not None and (ended.reason, ended.attempts) == ("failed", 3)
    assert ended.error == "set aside, because 3 workers stopped while they ran this turn"
    assert listed.startswith(turn_id) and f"session {session_id}: poison" in listed
    assert released == "released 1 turn\n"
    assert again is not None and again.attempts == 4


def run_whet(given: dict[str, str], folder: Path, *arguments: str) -> str:
    process = start([*arguments], given, folder)
    text = process.communicate(timeout=60)[0]
    assert process.returncode == 0, text
    return text
