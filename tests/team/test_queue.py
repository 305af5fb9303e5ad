"""Which turns a worker takes: people in turn, a reserve, pauses after lost workers, and turns set aside."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.late import Late
from tests.support import wait_until
from whet.contract.errors import NotFound, QueueFull
from whet.postgres.connection import PostgresConnection, connect
from whet.serve.wire import as_api_error
from whet.sqlite.lane import ScopedWrite
from whet.store import sessions
from whet.store.team import TeamDatabase
from whet.team import aside, orders, queue
from whet.team.queue import AskedTurn, DatabaseQueue, TakenTurn, TurnOptions, read_result

if TYPE_CHECKING:
    import psycopg
else:
    psycopg = Late("psycopg")

_ANY_WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted"
_NOW = "2026-11-21T09:00:00.000Z"
_SESSIONS = """
INSERT INTO sessions SELECT (jsonb_populate_record(s, jsonb_build_object('key', key + n, 'id', 's' || n))).*
FROM sessions s, generate_series(1, CAST(? AS bigint) - 1) AS n
"""
_TURNS = """
INSERT INTO team_turns (id, session, body, is_next)
SELECT 't' || n, 's' || n % CAST(?1 AS bigint), 'x', CASE WHEN n <= CAST(?1 AS bigint) THEN 1 ELSE 0 END
FROM generate_series(1, 10000) AS n
"""


class Team:
    """A team's queue, used as the servers and workers do."""

    def __init__(self, database: TeamDatabase) -> None:
        self.database = database
        self.queue = DatabaseQueue(database)

    def add_session(self, session_id: str, person: str = "") -> None:
        new = sessions.NewSession(session_id, source="api", profile=person)
        self.database.write_now(lambda db: sessions.create(db, new, _NOW))

    def ask(self, turn_id: str, session_id: str, *, is_interactive: bool = False) -> None:
        turn = AskedTurn(turn_id, session_id, "x", TurnOptions(may_clarify=is_interactive))
        self.database.write_now(lambda db: self.queue.ask(db, turn))

    def take(self, most: int = 1, reserved: int = 0) -> list[TakenTurn]:
        return self.queue.take("worker", most, reserved=reserved)

    def take_ids(self, most: int = 1, reserved: int = 0) -> list[str]:
        return sorted(turn.id for turn in self.take(most, reserved))

    def end(self, turn: TakenTurn) -> None:
        self.database.write_now(lambda db: self.queue.end(db, turn, "answered", ""))
        self.run("UPDATE team_turns SET told = 1 WHERE id = ?", turn.id)

    def lose_worker(self, seconds: float = 100.0) -> None:
        """Let all leases have run out so long ago."""
        self.run(
            "UPDATE team_turns SET lease_until = now() - ? * interval '1 s' WHERE state = 'running'", seconds
        )

    def tidy(self) -> None:
        self.database.write_now(aside.set_lost_aside)

    def run(self, sql: str, *values: str | float) -> None:
        self.database.write_now(lambda db: db.execute(sql, values))

    def events(self) -> list[dict[str, object]]:
        rows = self.database.read_now(
            lambda db: db.execute("SELECT body FROM team_events ORDER BY id").fetchall()
        )
        return [json.loads(body) for (body,) in rows]


@pytest.fixture
def team(url: str) -> Iterator[Team]:
    database = TeamDatabase.open_url(url, lease_s=20.0)
    yield Team(database)
    database.close()


@pytest.mark.slow
def test_people_are_served_in_turn_and_each_in_their_order(team):
    for number in range(6):
        team.add_session(f"a{number}", "ann")
        team.ask(f"ann{number}", f"a{number}")
    for number in range(2):
        team.add_session(f"b{number}", "bob")
        team.ask(f"bob{number}", f"b{number}")
    assert team.take_ids(2) == ["ann0", "bob0"]
    assert team.take_ids(1) == ["ann1"], "both run one, and hers is older"
    assert team.take_ids(1) == ["bob1"], "he runs fewer"
    assert team.take_ids(9) == ["ann2", "ann3", "ann4", "ann5"]


@pytest.mark.slow
def test_the_reserve_is_for_turns_that_a_person_waits_for(team):
    for name in ("s1", "s2", "s3", "s4"):
        team.add_session(name)
    team.ask("t1", "s1")
    team.ask("t2", "s2")
    team.ask("t3", "s3")
    team.ask("t4", "s4", is_interactive=True)
    assert team.take_ids(2, reserved=2) == ["t4"]
    assert team.take_ids(2, reserved=1) == ["t1"]
    assert team.take_ids(2) == ["t2", "t3"]


@pytest.mark.slow
def test_turns_of_one_session_are_taken_one_after_the_other(team):
    team.add_session("s1")
    for number in range(3):
        team.ask(f"t{number}", "s1")
    for number in range(3):
        (turn,) = team.take(5)
        assert turn.id == f"t{number}" and team.take(5) == []
        team.end(turn)


@pytest.mark.slow
def test_a_turn_that_an_older_worker_did_not_mark_is_taken(team):
    team.add_session("s1")
    team.run("INSERT INTO team_turns (id, session, body) VALUES ('t1', 's1', 'x'), ('t2', 's1', 'x')")
    assert team.take() == []
    team.tidy()
    (turn,) = team.take(5)
    assert turn.id == "t1"


@pytest.mark.slow
def test_a_turn_is_set_aside_after_three_lost_workers_and_released(team):
    team.add_session("s1")
    team.ask("poison", "s1")
    team.ask("next", "s1")
    for attempt in (1, 2, 3):
        (turn,) = team.take()
        assert (turn.id, turn.attempts) == ("poison", attempt)
        team.lose_worker()
    assert team.take() == []
    team.tidy()
    ended = read_result(team.database, "poison")
    assert ended is not None and ended.reason == "failed" and "3 workers stopped" in ended.error
    (event,) = team.events()
    assert event["type"] == "turn_end" and event["error"] == ended.error
    assert "whet team release poison" in str(event["hint"])
    (listed,) = team.database.read_now(aside.list_aside)
    assert (listed.id, listed.session_id, listed.attempts) == ("poison", "s1", 3)
    (other,) = team.take(5)
    assert other.id == "next", "the session goes on without it"
    team.database.write_now(lambda db: aside.release_turn(db, "poison"))
    assert team.take() == [], "another turn of its session runs"
    team.end(other)
    (again,) = team.take()
    assert (again.id, again.attempts) == ("poison", 4)
    with pytest.raises(NotFound):
        team.database.write_now(lambda db: aside.release_turn(db, "poison"))


@pytest.mark.slow
def test_messages_to_a_turn_that_is_set_aside_become_a_turn(team):
    team.add_session("s1")
    team.ask("poison", "s1")
    for _ in range(3):
        team.take()
        team.lose_worker()
    team.database.write_now(lambda db: orders.send_message(db, "s1", "and then?"))
    team.tidy()
    (turn,) = team.take()
    assert turn.text == "and then?"


@pytest.mark.slow
def test_a_turn_that_living_workers_left_is_not_set_aside(team):
    """As after a full disk, or while another process has the session."""
    team.add_session("s1")
    team.ask("t1", "s1")
    team.run("INSERT INTO team_processes VALUES ('nonce', now() + interval '1 hour')")
    for attempt in range(1, 6):
        (turn,) = team.queue.take("host 1 born nonce token", 1)
        assert turn.attempts == attempt
        team.lose_worker()
        team.tidy()
    (turn,) = team.take()
    for _ in range(4):
        team.database.write_now(lambda db, turn=turn: team.queue.leave(db, turn))
        team.lose_worker()
        team.tidy()
        (turn,) = team.take()


@pytest.mark.slow
@pytest.mark.parametrize(("lost", "too_early_s", "late_enough_s"), [(1, -1.0, 5.1), (2, 19.0, 25.1)])
def test_pauses_grow_with_each_lost_worker(team, lost, too_early_s, late_enough_s):
    """With a lease of 20 s: at most 5 s after the first, 20 to 25 s after the second."""
    team.add_session("s1")
    team.ask("t1", "s1")
    for _ in range(lost):
        team.lose_worker()
        team.take()
    team.lose_worker(too_early_s)
    assert team.take() == []
    team.lose_worker(late_enough_s)
    assert len(team.take()) == 1


@pytest.mark.slow
def test_a_turn_is_not_taken_over_while_another_process_holds_its_session(team):
    """Only the lease of the turn ran out: its worker goes on, and taking it could only fail."""
    team.add_session("s1")
    team.ask("t1", "s1")
    team.take()
    team.lose_worker()
    team.run(
        "INSERT INTO claims (session, token, host, pid, born, renewed, lease_until)"
        " SELECT key, 't', 'h', 1, 'n', '', now() + interval '1 hour' FROM sessions"
    )
    assert team.take() == []
    team.run("DELETE FROM claims")
    assert len(team.take()) == 1


@pytest.mark.slow
def test_a_person_with_too_many_waiting_turns_is_refused_and_others_are_not(team, monkeypatch):
    monkeypatch.setattr(queue, "MAX_WAITING", 2)
    for session_id, person in (("a", "ann"), ("other", "ann"), ("b", "bob")):
        team.add_session(session_id, person)
    team.ask("t1", "a")
    team.ask("t2", "other")
    with pytest.raises(QueueFull, match="2 turns of yours wait already") as caught:
        team.ask("t3", "a")
    refused = as_api_error(caught.value)
    assert (refused.status, refused.code) == (429, "queue_full")
    team.ask("t4", "b")
    places = [
        team.database.read_now(lambda db, turn=turn: orders.describe_wait(db, turn)) for turn in ("t2", "t4")
    ]
    assert places == [
        "no worker runs this turn or another one (place 3 of the queue)",
        "no worker runs this turn or another one (place 2 of the queue)",
    ]


@pytest.mark.slow
def test_leases_are_renewed_on_a_thread_and_wait_for_no_lock(team, url):
    """A turn whose transaction waits for a slow disk or replica kept the leases of all others from being
    renewed, and so did a busy event loop."""
    for name in ("s1", "s2"):
        team.add_session(name)
        team.ask(f"turn of {name}", name)
    held, other = sorted(team.take(2), key=lambda turn: turn.id)
    team.lose_worker()
    renewed = threading.Event()

    def renew(connection: PostgresConnection) -> None:
        team.queue.keep(connection, [held, other])
        renewed.set()

    busy = TeamDatabase.open_url(url, lease_s=0.3)
    with psycopg.connect(url) as holder:
        holder.execute("SELECT 1 FROM team_turns WHERE id = 'turn of s1' FOR UPDATE")
        busy.keeper.renewals.append(renew)
        busy.keep_claims()
        assert renewed.wait(20)  # this thread does nothing meanwhile, as a busy event loop
    busy.close()
    sql = "SELECT id FROM team_turns WHERE lease_until > now() - interval '50 s'"
    assert team.database.read_now(lambda db: db.execute(sql).fetchall())[0] == ("turn of s2",)


@pytest.mark.slow
@pytest.mark.parametrize("session_count", [3, 10_000])
def test_taking_reads_few_of_ten_thousand_waiting_turns(team, session_count):
    team.add_session("s0")
    team.run(_SESSIONS, session_count)
    team.run(_TURNS, session_count)

    def rows_read(db) -> float:
        taken = db.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {queue.TAKE}", ("w", 1, "[]", 0)).fetchone()
        return _count_rows(taken[0][0]["Plan"])

    assert team.database.write_now(rows_read) < 200


def _count_rows(plan: dict) -> float:
    own = (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"]
    return own + sum(_count_rows(part) for part in plan.get("Plans", ()))


def test_a_turn_that_is_queued_while_another_one_ends_is_the_next(url: str, team: Team) -> None:
    team.add_session("a")
    team.ask("first", "a")
    (taken,) = team.take()
    later = AskedTurn("later", "a", "x")
    with closing(connect(url)) as raw, psycopg.connect(url, autocommit=True) as admin:
        worker = PostgresConnection(raw, {})
        worker.begin()
        rows = team.queue.end(worker, taken, "answered", "")  # pyright: ignore[reportArgumentType] as a work's
        assert rows.fetchall() == [("answered", "", 1)]
        queueing = team.database.submit(ScopedWrite("a", lambda db: team.queue.ask(db, later)))
        wait_until(lambda: admin.execute(_ANY_WAITING).fetchone() == (1,))
        worker.end()
        queueing.result()
        assert admin.execute(
            "SELECT id FROM team_turns WHERE is_next = 1 AND state = 'waiting'"
        ).fetchall() == [("later",)]
