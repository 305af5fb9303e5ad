from __future__ import annotations

import asyncio

import apsw
import pytest

from tests.store.support import ONLY_POSTGRES, ONLY_SQLITE, talk
from whet.app.helpers.turns import title_of
from whet.contract.errors import NotFound
from whet.store import api, index, pins, session_deletion, sessions, titles
from whet.store.database import StateDatabase
from whet.store.sessions import NewSession

pytestmark = pytest.mark.slow_rows("postgres")


def make(db, *news, now="2026-11-21T09:00:00.000Z"):
    for new in news:
        db.write_now(lambda c, new=new: sessions.create(c, new, now))


def ids(rows):
    return [row.id for row in rows]


def test_a_title_of_what_is_no_text_can_be_stored(db):
    make(db, NewSession(id="abc1", title=sessions.make_title("caf\ud83d now")))
    assert "now" in db.read_now(lambda c: sessions.get(c, "abc1")).title
    db.write_now(lambda c: sessions.rename(c, "abc1", "\udcff later"))
    assert "later" in db.read_now(lambda c: sessions.get(c, "abc1")).title


def test_no_title_shows_a_key_however_it_was_set(db):
    key = "sk-abcdefghijklmnopqrstuvwx"
    make(db, NewSession(id="abc1", title=f"use {key}"))
    titles_set = [db.read_now(lambda c: sessions.get(c, "abc1")).title]
    db.write_now(lambda c: sessions.rename(c, "abc1", f"with {key}"))
    titles_set.append(db.read_now(lambda c: sessions.get(c, "abc1")).title)
    titles_set.append(title_of(f"{'a' * 45} {key}\nand more"))
    assert titles_set == ["use [REDACTED]", "with [REDACTED]", f"{'a' * 45} [REDACTED]"]


def test_a_session_is_found_by_id_beginning_and_title(db):
    make(db, NewSession(id="abc1", title="Fix the build"), NewSession(id="abd2", title="50%_off"))

    def resolve(name):
        return db.read_now(lambda c: sessions.resolve_id(c, name))

    assert resolve("abc1") == resolve("abc") == resolve("fix the BUILD") == "abc1"
    assert resolve("50%_off") == "abd2"
    for name in ("zz", "%", "", "a_c"):
        with pytest.raises(NotFound) as caught:
            resolve(name)
        assert caught.value.hint
    with pytest.raises(NotFound, match="several") as caught:
        resolve("ab")
    assert "abc1 (Fix the build)" in caught.value.message and "abd2" in caught.value.message
    make(db, *(NewSession(id=f"x{n}") for n in range(5)))
    with pytest.raises(NotFound, match=r"fits several sessions: (x[0-4], ){4}x[0-4]$"):
        resolve("x")
    make(db, NewSession(id="x5"))
    with pytest.raises(NotFound, match=r"fits several sessions: (x[0-5], ){5}\.\.\.$"):
        resolve("x")


def test_pinned_sessions_are_listed_the_last_pinned_first_unless_archived(db):
    make(db, *(NewSession(id=id_) for id_ in ("a", "b", "c", "d")))
    for id_, at in (("c", "2026-11-21"), ("a", "2026-11-22"), ("d", "2026-11-23")):
        db.write_now(lambda c, id_=id_, at=at: pins.set_pin_time(c, id_, at))
    db.write_now(lambda c: sessions.set_archive_time(c, "d", "2026-11-24"))
    assert ids(db.read_now(lambda c: pins.list_pinned(c, 9))) == ["a", "c"]
    assert ids(db.read_now(lambda c: pins.list_pinned(c, 1))) == ["a"]
    db.write_now(lambda c: pins.set_pin_time(c, "a", ""))
    assert ids(db.read_now(lambda c: pins.list_pinned(c, 9))) == ["c"]


def test_what_is_noted_of_a_session_is_read_again_and_of_none_refused(db):
    make(db, NewSession(id="abc1"))
    notes = [
        lambda c, id_: sessions.set_planning(c, id_, True),
        lambda c, id_: sessions.choose_model(c, id_, "p2", "m2", chosen=True),
        lambda c, id_: sessions.set_archive_time(c, id_, "2026-11-22"),
        lambda c, id_: pins.set_pin_time(c, id_, "2026-11-22"),
        lambda c, id_: sessions.rename(c, id_, "Other"),
        lambda c, id_: sessions.end_session(c, id_, "completed", "2026-11-23"),
    ]
    for note in notes:
        db.write_now(lambda c, note=note: note(c, "abc1"))
        with pytest.raises(NotFound, match="there is no session absent"):
            db.write_now(lambda c, note=note: note(c, "absent"))
    row = db.read_now(lambda c: sessions.get(c, "abc1"))
    assert (row.provider, row.model, row.title) == ("p2", "m2", "Other")
    assert db.read_now(lambda db: sessions.list_sessions(db, 9)) == [], "it was put aside"
    assert (row.ended, row.end_reason) == ("2026-11-23", "completed")
    assert db.read_now(lambda c: sessions.is_planning(c, "abc1")) is True
    db.write_now(lambda c: sessions.set_planning(c, "abc1", False))
    assert db.read_now(lambda c: sessions.is_planning(c, "abc1")) is False


async def test_the_list_is_newest_first_and_filtered(db, clock):
    for n in range(5):
        clock.advance(60)
        await talk(db, clock, f"s{n}", "hi", source="api" if n % 2 else "cli", workspace=f"/w{n}")
    await talk(db, clock, "kid", "hi", kind="child", parent_session_id="s0")

    def listed(limit=9, **filters):
        return ids(db.read_now(lambda c: sessions.list_sessions(c, limit, **filters)))

    assert listed() == ["s4", "s3", "s2", "s1", "s0"]
    assert listed(limit=2, offset=1) == ["s3", "s2"]
    assert listed(source="api") == ["s3", "s1"]
    assert listed(kinds=("child",)) == ["kid"]
    assert listed(kinds=(), parent_session_id="s0") == ["kid"]
    db.write_now(lambda c: sessions.rename(c, "s2", "Deploy 100% done"))
    assert listed(query="s2 deploy") == listed(query="deploy s2") == ["s2"] == listed(query="ploy dep")
    assert listed(query='"ploy dep"') == listed(query="deploy zebra") == []
    assert listed(query="100%") == listed(query="deploy") == ["s2"]
    third = db.read_now(lambda c: sessions.get(c, "s3"))
    assert listed(before=third.last_active) == ["s2", "s1", "s0"]
    assert db.read_now(lambda c: sessions.find_latest(c, source="api")).id == "s3"
    assert db.read_now(lambda c: sessions.find_latest(c, workspace="/w0")).id == "s0"
    assert db.read_now(lambda c: sessions.find_latest(c, workspace="/none")) is None
    assert db.read_now(sessions.count_chats) == 5


def test_the_prefix_is_kept_to_the_byte_and_stored_once(db):
    prompt, tools = "You are…\r\n  {x}", '[ {"name" : "a"} ]'
    make(db, *(NewSession(id=f"s{n}", system_prompt=prompt, tools_json=tools) for n in range(3)))
    assert db.read_now(lambda c: sessions.read_prefix(c, "s2")) == (prompt, tools)
    assert db.read_now(lambda c: c.execute("SELECT count(*) FROM frozen_texts").fetchone()) == (2,)
    with pytest.raises(NotFound):
        db.read_now(lambda c: sessions.read_prefix(c, "none"))


def test_children_share_conversation_and_privacy(db):
    make(
        db,
        NewSession(id="top", private=True),
        NewSession(id="mid", parent_session_id="top", kind="child"),
        NewSession(id="low", parent_session_id="mid", kind="child"),
    )
    low = db.read_now(lambda c: sessions.get(c, "low"))
    assert low.conversation_id == "top" and low.private
    db.write_now(lambda c: sessions.set_private(c, "top", False))
    assert not db.read_now(lambda c: sessions.get(c, "low")).private
    with pytest.raises(NotFound):
        make(db, NewSession(id="x", parent_session_id="nobody"))


@ONLY_SQLITE
async def test_delete_takes_children_text_and_index_with_it(tmp_path, db, clock):
    await talk(db, clock, "goes", "xyzzysecretphrase here", system_prompt="only here")
    await talk(db, clock, "stays", "ordinary words")
    await talk(db, clock, "kid", "child words", kind="child", parent_session_id="goes")
    while db.write_now(index.index_new):
        pass
    assert db.write_now(lambda c: session_deletion.delete_session(c, "goes")) == 2
    left = db.read_now(
        lambda c: [
            c.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in ("sessions", "turns", "messages", "messages_fts", "claims", "frozen_texts")
        ]
    )
    assert left == [1, 1, 2, 2, 0, 1]
    with pytest.raises(NotFound):
        db.write_now(lambda c: session_deletion.delete_session(c, "goes"))
    db.close()
    assert b"xyzzysecretphrase here" not in (tmp_path / "state.db").read_bytes()


def test_stats_sum_up(db, clock):
    assert db.read_now(sessions.read_stats).sessions == 0
    asyncio.run(talk(db, clock, "s1", "a", "b"))
    stats = db.read_now(sessions.read_stats)
    assert (stats.sessions, stats.turns, stats.messages, stats.usage.total_tokens) == (1, 2, 4, 30)
    assert stats.usage.cost_usd == 1.0 and stats.size_bytes > 0
    assert (stats.private, stats.tool_calls, stats.failed_calls) == (0, 0, 0)
    db.write_now(lambda c: c.execute("UPDATE sessions SET tool_calls = 3, private = 1"))
    stats = db.read_now(sessions.read_stats)
    assert (stats.private, stats.tool_calls) == (1, 3)


@pytest.mark.slow
@ONLY_SQLITE
@pytest.mark.parametrize("query", ["", "s", "zq", "q", "\u96e8"])
def test_ten_thousand_sessions_are_listed_at_once(db, query, monkeypatch):
    monkeypatch.setattr(titles, "NEWEST", 50)

    def fill(connection):
        sessions.create(connection, NewSession(id="seed"), "2026-01-01T00:00:00.000Z")
        columns = [row[1] for row in connection.execute("PRAGMA table_info(sessions)") if row[1] != "key"]
        rest = ", ".join(c for c in columns if c not in ("id", "last_active"))
        connection.execute(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)"
            f" INSERT INTO sessions (id, last_active, {rest})"
            f" SELECT printf('s%05d', i), printf('2026-%05d', (i * 7919) % 10000), {rest} FROM n, sessions"
        )
        connection.execute(
            "UPDATE sessions SET title = 'Zq q\u96e8', last_active = '2025' WHERE id = 's00007'"
        )

    db.write_now(fill)
    steps = []

    def counted(connection):
        connection.set_progress_handler(lambda: bool(steps.append(1)), 10)
        try:
            return sessions.list_sessions(connection, 50, query=query)
        finally:
            connection.set_progress_handler(None, 10)

    rows = db.read_now(counted)
    assert len(rows) == (50 if query in ("", "s") else 1)
    assert len(steps) < 1_000  # of ten each: less than one for every session
    assert [row.last_active for row in rows] == sorted((row.last_active for row in rows), reverse=True)


@pytest.mark.slow
@ONLY_POSTGRES
@pytest.mark.parametrize("query", ["z", "zq", "zqx", "s00007"])
def test_a_team_reads_no_title_that_the_index_does_not_name(db, query):
    def fill(connection):
        sessions.create(connection, NewSession(id="seed", title="Tea and words"), "2026-01-01T00:00:00.000Z")
        columns = "title, conversation_id, parent_session_id, kind, source, provider, model, workspace"
        columns += ", private, started, last_active, system_text, tools_text, indexed_seq"
        connection.execute(
            f"INSERT INTO sessions (id, {columns})"
            f" SELECT 's' || lpad(i::text, 5, '0'), {columns} FROM sessions, generate_series(1, 10000) AS i"
        )
        connection.execute("UPDATE sessions SET title = 'Zqx' WHERE id = 's00007'")
        connection.execute("ANALYZE sessions")

    def plan(connection):
        condition = titles.build_index_condition(connection, query)
        assert condition is not None
        sql, values = condition
        return [row[0] for row in connection.execute(f"EXPLAIN SELECT id FROM sessions WHERE {sql}", values)]

    db.write_now(fill)
    assert ids(db.read_now(lambda c: sessions.list_sessions(c, 9, query=query))) == ["s00007"]
    lines = "\n".join(db.read_now(plan))
    assert "sessions_by_title" in lines and "Seq Scan" not in lines


@pytest.mark.slow
def test_a_part_of_a_title_is_found_behind_thousands_of_newer_sessions(db, monkeypatch):
    monkeypatch.setattr(titles, "NEWEST", 20)
    now = "2026-11-21T09:00:00.000Z"

    def fill(connection):
        for number in range(200):
            title = f"Fix build {number}" if number % 50 else f'Tea \u6570\u636e\u5e93 "50%_off" {number}'
            sessions.create(connection, NewSession(id=f"abc{number:04}", title=title), now)

    db.write_now(fill)

    def found(query, limit=9, **more):
        return ids(db.read_now(lambda c: sessions.list_sessions(c, limit, query=query, **more)))

    old = ["abc0150", "abc0100", "abc0050", "abc0000"]
    for part in ("tea", '"50%_OFF"', "\u6570\u636e\u5e93", "\u6570", "Te", "\u5e93", '"', 'f"'):
        assert found(part) == old, part
    assert found("00") == ["abc0100"] and found("\u017f") == [] == found("q")
    assert found("tea", limit=2, offset=1) == old[1:3]
    assert found("ABC0000") == ["abc0000"] and found("bc0000") == [] == found("50%off")
    assert found("build 1", limit=3) == ["abc0199", "abc0198", "abc0197"]
    db.write_now(lambda c: sessions.rename(c, "abc0000", "Coffee"))
    db.write_now(lambda c: session_deletion.delete_session(c, "abc0050"))
    assert found("tea") == old[:2] and found("coff") == ["abc0000"]


def test_a_filter_that_few_sessions_match_lists_as_one_that_many_match(db: StateDatabase) -> None:
    def fill(it: apsw.Connection) -> None:
        for number in range(30):
            text = "/few" if number % 10 == 3 else "/many"
            at = f"2026-11-{1 + number % 7:02}T00:00:00.000Z"
            sessions.create(it, NewSession(f"s{number:02}", workspace=text, source="api"), at)
            api.set_owner(it, f"s{number:02}", "few" if text == "/few" else "many")

    db.write_now(fill)
    rows = db.read_now(lambda it: sessions.list_sessions(it, 50))
    few = [row.id for row in rows if row.workspace == "/few"]
    assert few == ["s13", "s03", "s23"]
    newest = rows[0].last_active
    older = [row.id for row in rows if row.id in few and row.last_active < newest]
    many_filters: list[sessions.SessionFilter] = [
        {"token": "few"},
        {"workspace": "/few"},
        {"workspace": "/few", "source": "api"},
    ]

    def check(it: apsw.Connection) -> None:
        for filters in many_filters:
            assert [row.id for row in sessions.list_sessions(it, 50, **filters)] == few
            assert [row.id for row in sessions.list_sessions(it, 1, offset=1, **filters)] == few[1:2]
            assert [row.id for row in sessions.list_sessions(it, 9, before=newest, **filters)] == older
        assert sessions.list_sessions(it, 50, token="few", workspace="/many") == []

    db.read_now(check)


def test_archived_sessions_are_found_by_title_and_marked(db):
    make(db, NewSession(id="abc1", title="gamma ray"), NewSession(id="abc2", title="gamma burst"))
    db.write_now(lambda c: sessions.set_archive_time(c, "abc1", "2026-11-24"))

    def found(**filters):
        rows = db.read_now(lambda c: sessions.list_sessions(c, 9, **filters))
        return {row.id: row.archived for row in rows}

    assert found() == {"abc2": False}
    assert found(query="gamma") == found(query="abc") == {"abc1": True, "abc2": False}
    assert found(query="gamma", archived=True) == found(archived=True) == {"abc1": True}
