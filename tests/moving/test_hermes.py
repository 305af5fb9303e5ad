"""A Hermes Agent home moves in: every session found again, nothing twice, nothing written there."""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path
from typing import Any

import apsw
import pytest
from benchmarks.hermes_db import BEGAN_S, HermesDb, fill

from whet.clock import SystemClock
from whet.contract.errors import ConfigError
from whet.contract.messages import Message
from whet.moving.copies import open_copy
from whet.moving.hermes_sessions import HermesSessions
from whet.moving.importing import ImportCounts, import_sessions, preview_sessions
from whet.store import jobs, search, session_deletion, sessions
from whet.store.database import StateDatabase
from whet.store.transcript import Transcript

CLOCK = SystemClock()


@pytest.fixture
def database(tmp_path: Path) -> Any:
    opened = StateDatabase.open(tmp_path / "ours.db", CLOCK)
    yield opened
    opened.close()


def take(database: StateDatabase, path: Path) -> ImportCounts:
    with open_copy(path) as connection:
        past_sessions = HermesSessions(connection).sessions()
        return import_sessions(database, "hermes", past_sessions, CLOCK, lambda done, messages: None)


def live(database: StateDatabase, session_id: str) -> list[Any]:
    return asyncio.run(Transcript.open(database, session_id, CLOCK)).messages


def call(id_: str, name: str = "terminal", arguments: str = '{"command":"ls"}') -> tuple[str, str, str]:
    return id_, name, arguments


def result(id_: str, content: str, **more: Any) -> dict[str, Any]:
    return {"role": "tool", "call_id": id_, "tool": "terminal", "content": content, **more}


def user(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": text, **more}


def answer(text: str = "", *calls: tuple[str, str, str], **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, "calls": calls, **more}


@pytest.mark.slow
def test_each_message_is_found_again_and_a_second_run_adds_nothing(
    tmp_path: Path, database: StateDatabase
) -> None:
    path = tmp_path / "state.db"
    total = fill(path, 40, 20)
    first = take(database, path)
    assert (first.new, first.messages) == (40, total)
    assert take(database, path) == ImportCounts(same=40, messages=total)
    stored = database.read_now(sessions.read_stats)
    assert (stored.sessions, stored.messages) == (40, total)
    with open_copy(path) as theirs:
        rows = theirs.execute("SELECT session_id, content FROM messages WHERE role = 'user'").fetchall()
    for session_id, content in rows:
        text = f'"{content}"'
        hits = database.read_now(
            lambda db, text=text, at=session_id: search.search(db, text, 5, session_id=at)
        )
        assert hits, (session_id, content)


def test_the_source_stays_byte_for_byte(tmp_path: Path, database: StateDatabase) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    hermes_db = HermesDb(folder / "state.db", wal=True)
    hermes_db.session("a", [user("hello"), answer("hi")])
    before = {path.name: hashlib.sha256(path.read_bytes()).digest() for path in folder.iterdir()}
    assert "state.db-wal" in before  # its writer is still running
    assert take(database, folder / "state.db").new == 1
    after = {path.name: hashlib.sha256(path.read_bytes()).digest() for path in folder.iterdir()}
    assert after == before
    hermes_db.close()


def test_calls_keep_their_results_and_how_they_ended(tmp_path: Path, database: StateDatabase) -> None:
    hermes_db = HermesDb(tmp_path / "state.db")
    rows = [
        result("early", "before its call"),
        user("go"),
        answer("", call("a"), call("b"), call("early"), call("none")),
        result("b", '{"output": "x", "exit_code": 2, "error": null}'),
        result("a", '{"output": "x", "exit_code": 0, "error": null}'),
        result("a", "a second one"),
        result("nobody", "of no call"),
        answer("done"),
    ]
    hermes_db.session("s", rows)
    hermes_db.close()
    take(database, tmp_path / "state.db")
    found = live(database, "s")
    assert [m.role for m in found] == ["user", "assistant", "tool", "tool", "tool", "tool", "assistant"]
    assert [m.tool_call_id for m in found[2:6]] == ["a", "b", "early", "none"]
    assert found[5].text == "No result of this call was recorded."
    kinds = database.read_now(
        lambda db: db.execute("SELECT call_id, error_kind, exit_code FROM tool_calls ORDER BY seq").fetchall()
    )
    assert kinds == [("a", "", 0), ("b", "exit", 2), ("early", "", None), ("none", "interrupted", None)]


@pytest.mark.parametrize(
    ("columns", "cost"),
    [
        ({"estimated_cost_usd": 0.0, "cost_status": "unknown"}, None),
        ({"estimated_cost_usd": 0.0}, None),
        ({"estimated_cost_usd": 0.0, "cost_status": "included"}, 0.0),
        ({"estimated_cost_usd": 0.25, "cost_status": "estimated"}, 0.25),
        ({"estimated_cost_usd": 0.25, "actual_cost_usd": 0.5, "cost_status": "actual"}, 0.5),
    ],
)
def test_a_price_that_was_not_known_there_is_not_nothing_here(
    tmp_path: Path, database: StateDatabase, columns: dict[str, Any], cost: float | None
) -> None:
    hermes_db = HermesDb(tmp_path / "state.db")
    hermes_db.session("s", [user("go"), answer("done")], input_tokens=9, **columns)
    hermes_db.close()
    take(database, tmp_path / "state.db")
    row = database.read_now(lambda db: sessions.get(db, "s"))
    assert row.usage.cost_usd == cost


def test_a_session_that_grew_gets_the_new_messages_only(tmp_path: Path, database: StateDatabase) -> None:
    path = tmp_path / "state.db"
    hermes_db = HermesDb(path)
    hermes_db.session("s", [user("one"), answer("1")])
    take(database, path)
    hermes_db.db.execute(
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s', 'user', 'two', ?)",
        (BEGAN_S + 9,),
    )
    assert take(database, path).grown == 1
    assert [m.text for m in live(database, "s")] == ["one", "1", "two"]
    hermes_db.db.execute("UPDATE messages SET content = 'other' WHERE content = 'one'")
    assert take(database, path).changed == 1
    assert [m.text for m in live(database, "s")] == ["one", "1", "two"]
    hermes_db.close()


def test_calls_that_were_running_get_their_results_with_the_next_run(
    tmp_path: Path, database: StateDatabase
) -> None:
    path = tmp_path / "state.db"
    hermes_db = HermesDb(path)
    hermes_db.session("s", [user("go"), answer("", call("a"), call("b")), result("b", "of b")])
    hermes_db.session("kid", [user("x")], parent_session_id="s", started_at=BEGAN_S + 1)
    assert take(database, path).new == 2
    assert [m.text for m in live(database, "s")][2:] == ["No result of this call was recorded.", "of b"]
    added = (
        "INSERT INTO messages (session_id, role, content, tool_call_id, timestamp) VALUES ('s', ?, ?, ?, ?)"
    )
    hermes_db.db.execute(added, ("tool", "zebra of a", "a", BEGAN_S + 9))
    assert take(database, path).grown == 1
    assert [m.text for m in live(database, "s")] == ["go", "", "zebra of a", "of b"]
    hermes_db.db.execute(added, ("assistant", "done", None, BEGAN_S + 10))
    assert take(database, path) == ImportCounts(grown=1, same=1, messages=6)
    assert [m.text for m in live(database, "s")] == ["go", "", "zebra of a", "of b", "done"]
    assert len(database.read_now(lambda db: search.search(db, "zebra"))) == 1
    assert not database.read_now(lambda db: search.search(db, "recorded"))
    assert database.read_now(lambda db: sessions.get(db, "kid")).parent_session_id == "s"
    assert database.read_now(sessions.read_stats).messages == 6
    hermes_db.close()


def test_a_session_that_went_on_here_is_left_alone(tmp_path: Path, database: StateDatabase) -> None:
    path = tmp_path / "state.db"
    hermes_db = HermesDb(path)
    hermes_db.session("s", [user("one"), answer("1")])
    take(database, path)

    async def go_on() -> None:
        log = await Transcript.open(database, "s", CLOCK)
        turn = await log.begin_turn(Message("user", "here"))
        await log.end_turn(turn, "cancelled", "", jobs.queue_nothing)

    asyncio.run(go_on())
    hermes_db.session("other", [user("x")])
    hermes_db.db.execute(
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s', 'user', 'two', ?)",
        (BEGAN_S + 9,),
    )
    carried = take(database, path)
    assert (carried.new, carried.changed) == (1, 1)
    assert [m.text for m in live(database, "s")] == ["one", "1", "here"]
    hermes_db.close()


def test_what_was_summarised_away_is_kept_and_the_view_is_the_same(
    tmp_path: Path, database: StateDatabase
) -> None:
    hermes_db = HermesDb(tmp_path / "state.db")
    gone = {"active": 0, "compacted": 1}
    rows = [
        user("first", **gone),
        answer("", call("a"), **gone),
        result("a", "ok", **gone),
        answer("middle", **gone),
        user("rewound", active=0),
        user("last", **gone),
        user("first"),
        answer("a summary of the middle"),
        user("last"),
        answer("and on"),
    ]
    hermes_db.session("s", rows)
    hermes_db.close()
    take(database, tmp_path / "state.db")
    assert [m.text for m in live(database, "s")] == ["first", "a summary of the middle", "last", "and on"]
    stored = database.read_now(lambda db: search.read_span(db, "s", 1, 99))
    assert [m.text for _, m in stored].count("first") == 1
    assert "rewound" not in [m.text for _, m in stored]
    assert "middle" in [m.text for _, m in stored]


def test_lineage_follows_compactions_and_helpers(tmp_path: Path, database: StateDatabase) -> None:
    hermes_db = HermesDb(tmp_path / "state.db")
    hermes_db.session("helper", [user("x")], parent_session_id="root", started_at=BEGAN_S - 5)
    hermes_db.session("root", [user("x")], end_reason="compression")
    hermes_db.session("next", [user("x")], parent_session_id="root", started_at=BEGAN_S + 5)
    hermes_db.session("sub", [user("x")], parent_session_id="next", started_at=BEGAN_S + 6)
    hermes_db.session("lost", [user("x")], parent_session_id="never stored")
    hermes_db.session("empty", [])
    hermes_db.session("circle-a", [user("x")], parent_session_id="circle-b")
    hermes_db.session("circle-b", [user("x")], parent_session_id="circle-a")
    hermes_db.close()
    assert take(database, tmp_path / "state.db").new == 7
    rows = {row.id: row for row in database.read_now(lambda db: sessions.list_sessions(db, 50, kinds=()))}
    assert rows["next"].conversation_id == rows["root"].conversation_id == "root"
    assert (rows["next"].kind, rows["next"].parent_session_id) == ("chat", "root")
    assert (rows["sub"].kind, rows["sub"].parent_session_id) == ("child", "next")
    assert rows["lost"].parent_session_id == ""


def test_rubbish_in_rows_is_read_as_far_as_it_goes(tmp_path: Path, database: StateDatabase) -> None:
    hermes_db = HermesDb(tmp_path / "state.db")
    image = '{"type":"image_url","image_url":{"url":"data:image/jpg;base64,iVBORw0KGgo="}}'
    parts = f'\0json:[{{"type":"text","text":"look"}},{image}]'
    rows = [
        {"role": "system", "content": "you are"},
        user(parts),
        {"role": "assistant", "content": "", "raw_calls": "{not json"},
        {
            "role": "assistant",
            "content": None,
            "raw_calls": '[{"function": {"name": "x", "arguments": {"a": 1}}}]',
        },
        user("\0json:[broken"),
        user("\ud800 lone".encode("utf-8", "replace").decode()),
        {"role": "odd", "content": "x"},
    ]
    hermes_db.session("s", rows)
    hermes_db.db.execute("UPDATE messages SET timestamp = 'yesterday' WHERE id = 2")
    hermes_db.close()
    take(database, tmp_path / "state.db")
    found = live(database, "s")
    assert found[0].text == "look"
    assert found[0].content[1].media_type == "image/png"
    assert found[1].tool_calls[0].arguments == '{"a":1}'
    assert [m.role for m in found] == ["user", "assistant", "tool", "user", "user"]


@pytest.mark.parametrize(
    "what", ["text", "empty", "a folder", "a pipe", "other tables", "missing", "half a file"]
)
def test_a_file_that_is_not_theirs_is_refused_in_a_line(tmp_path: Path, what: str) -> None:
    path = tmp_path / "state.db"
    if what == "text":
        path.write_text("hello " * 1000)
    elif what == "empty":
        path.touch()
    elif what == "a folder":
        path.mkdir()
    elif what == "a pipe":
        os.mkfifo(path)
    elif what == "other tables":
        apsw.Connection(str(path)).execute("CREATE TABLE x (y)")
    elif what == "half a file":
        fill(path, 40, 20)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ConfigError), open_copy(path) as connection:
        for _ in HermesSessions(connection).sessions():
            pass


def test_looking_stores_nothing(tmp_path: Path, database: StateDatabase) -> None:
    path = tmp_path / "state.db"
    fill(path, 3, 6)
    with open_copy(path) as connection:
        counts = preview_sessions(
            database, "hermes", HermesSessions(connection).sessions(), lambda done, messages: None
        )
    assert counts.new == 3
    assert database.read_now(sessions.read_stats).sessions == 0


def test_an_id_that_is_taken_here_gets_the_origin_before_it(tmp_path: Path, database: StateDatabase) -> None:
    database.write_now(
        lambda db: sessions.create(db, sessions.NewSession(id="s"), "2026-01-01T00:00:00.000Z")
    )
    hermes_db = HermesDb(tmp_path / "state.db")
    hermes_db.session("s", [user("theirs")])
    hermes_db.close()
    take(database, tmp_path / "state.db")
    assert [m.text for m in live(database, "hermes-s")] == ["theirs"]
    database.write_now(lambda db: session_deletion.delete_session(db, "hermes-s"))
    assert take(database, tmp_path / "state.db").new == 1  # deleted here: it may come again


_ODD = (b"\xff\x00", "no number", -1, 2**62, 1e300, float("inf"), '[{"id":5,"function":null}]')


@pytest.mark.fast_rows("1e+300", "no number", "function")
@pytest.mark.parametrize("odd", _ODD)
def test_odd_cells_cost_neither_the_session_nor_the_search(
    tmp_path: Path, database: StateDatabase, odd: bytes | str | int | float
) -> None:
    path = tmp_path / "state.db"
    hermes_db = HermesDb(path)
    hermes_db.session("odd", [user("one"), answer("first", call("a")), result("a", "gone")])
    hermes_db.session("good", [user("zebra"), answer("found")])
    for table, kept in (("sessions", {"id"}), ("messages", {"id", "session_id", "role", "content"})):
        key = "session_id" if table == "messages" else "id"
        for column in [row[1] for row in hermes_db.db.execute(f"PRAGMA table_info({table})")]:
            if column not in kept | {"active", "compacted", "parent_session_id"}:
                hermes_db.db.execute(f"UPDATE {table} SET {column} = ? WHERE {key} = 'odd'", (odd,))
    hermes_db.close()
    assert take(database, path).new == 2
    assert live(database, "odd")[0].text == "one"
    assert [hit.session_id for hit in database.read_now(lambda db: search.search(db, "zebra", 5))] == ["good"]


def test_text_that_is_no_utf_8_costs_nothing_else(tmp_path: Path, database: StateDatabase) -> None:
    path = tmp_path / "state.db"
    hermes_db = HermesDb(path)
    hermes_db.session("odd", [user("one"), answer("first")])
    hermes_db.session("good", [user("two"), answer("second")])
    latin = "caf\u00e9".encode("latin-1")
    hermes_db.db.execute(
        "UPDATE sessions SET title = CAST(? AS TEXT), end_reason = title WHERE id = 'odd'", (latin,)
    )
    hermes_db.db.execute("UPDATE messages SET content = CAST(? AS TEXT) WHERE content = 'one'", (latin,))
    hermes_db.db.execute("UPDATE schema_version SET version = 'x'")
    hermes_db.close()
    with open_copy(path) as connection:
        assert HermesSessions(connection).schema == 0
    assert take(database, path).new == 2
    assert [m.text for m in live(database, "odd")] == ["caf\ufffd", "first"]
