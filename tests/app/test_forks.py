"""A session forked from a turn goes on by itself, under the same prefix; nothing is counted twice or lost."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from tests.serve.conftest import Api
from tests.support import FixedClock
from whet.contract.errors import NotFound
from whet.store import costs, forks, replay, session_deletion, sessions
from whet.store.database import StateDatabase
from whet.store.export import iter_messages
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

pytestmark = pytest.mark.unconfined


@pytest.mark.slow
def test_a_fork_goes_on_from_its_turn_and_leaves_the_other_alone(tmp_path: Path) -> None:
    with PracticeServer() as model, closing(Api(tmp_path, model)) as api:
        _fork_and_go_on(api)


def _fork_and_go_on(api: Api) -> None:
    call = PracticeCall("terminal", json.dumps({"command": "true"}), "c1")
    api.say(*(ScriptedReply(tool_calls=(call,)), ScriptedReply("One.")), ScriptedReply("Two."))

    def run(session_id: str, text: str) -> None:
        end = api.call(api.hosted.submit(session_id, text, emit=lambda event: None))
        assert end is not None and end.reason == "answered"

    old = api.call(api.hosted.new_session(title="Work"))
    run(old, "first")
    run(old, "second")
    database = api.app.database
    spent = database.read_now(lambda db: costs.sum_spending(db, "day", "2000"))
    before = database.read_now(lambda db: [message.text for message in iter_messages(db, old)])
    row = database.write_now(lambda db: forks.fork(db, old, 1, "fork1", "2099-01-01T00:00:00.000Z"))
    assert (row.title, row.turns, row.messages, row.tool_calls) == ("Work (from turn 1)", 1, 4, 1)
    assert row.usage.total_tokens == 0
    assert database.read_now(lambda db: costs.sum_spending(db, "day", "2000")) == spent
    assert (
        sum(
            decision_count.calls
            for decision_count in database.read_now(lambda db: costs.count_decisions(db, "2000"))
        )
        == 1
    )
    assert _tree(database, old) == [(old, 0, "", 0), ("fork1", 1, old, 1)]
    assert [message.text for message in database.read_now(lambda db: list(iter_messages(db, "fork1")))][
        -1
    ] == "One."

    second = json.loads(api.model.requests[-1].body)["messages"]
    api.say(ScriptedReply("Another way."))
    run("fork1", "otherwise")
    third = json.loads(api.model.requests[-1].body)["messages"]
    assert third[:5] == second[:5]  # the prompt and the first turn are the same bytes
    assert "otherwise" in json.dumps(third[5:]) and "second" not in json.dumps(third)
    assert database.read_now(lambda db: [message.text for message in iter_messages(db, old)]) == before
    calls = database.read_now(lambda db: replay.list_entries(db, "fork1", 1, 9))
    assert [replay_entry.call.name for replay_entry in calls if replay_entry.call] == ["terminal"]

    def gone(db: apsw.Connection) -> int:
        session_deletion.delete_session(db, old)
        return len(list(iter_messages(db, "fork1")))

    database.write_now(lambda db: sessions.set_archive_time(db, "fork1", "2099-01-02T00:00:00.000Z"))
    assert "fork1" not in [
        session.id for session in database.read_now(lambda db: sessions.list_sessions(db, 9))
    ]
    listed = database.read_now(lambda db: sessions.list_sessions(db, 9, archived=True))
    assert [session_row.id for session_row in listed] == ["fork1"]
    for turn in (9, 3):
        with pytest.raises(NotFound, match="no turn"):
            database.write_now(lambda db, turn=turn: forks.fork(db, old, turn, "x", "2099"))  # type: ignore[misc]
    api.call(api.hosted.release(old))
    assert database.write_now(gone) == 6
    assert _tree(database, "fork1") == [("fork1", 0, old, 1)]  # what it goes on from is gone


def test_all_of_a_turn_is_copied_but_what_was_judged_of_it(tmp_path: Path) -> None:
    with closing(StateDatabase.open(tmp_path / "state.db", FixedClock())) as database:
        for table, copied in forks.COPIED.items():
            statement_rows = database.read_now(
                lambda db, table=table: list(db.execute(f"PRAGMA table_info({table})"))
            )  # type: ignore[misc]
            left = {row[1] for row in statement_rows} - set(copied.split(", "))
            assert left <= {"id", "session", "outcome", "outcome_reason", "pointed"}, table


def _tree(database: StateDatabase, session_id: str) -> list[tuple[str, int, str, int]]:
    family = database.read_now(lambda db: forks.list_family(db, session_id))
    return [(tree_row.row.id, tree_row.depth, tree_row.origin, tree_row.turn) for tree_row in family]
