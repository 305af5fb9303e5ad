"""What comes first: stems, windows, telling words, whose and when, identifiers, one's own question."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import apsw
import pytest

from tests.store.support import ONLY_SQLITE, begin_session, new_log, reply_and_end, talk, user
from tests.support import FixedClock
from whet.contract.messages import Message
from whet.store import bulk, index, ranking, rows, search, session_deletion, sessions
from whet.store.database import StateDatabase
from whet.store.postings import PostingReader

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
"""A Sunday."""


def put(db: StateDatabase, session_id: str, *texts: str, at: str = "2026-11-01", **fields: Any) -> None:
    at_ms = int(datetime.fromisoformat(f"{at}T10:00:00+00:00").timestamp() * 1000)
    messages = [bulk.PastMessage(Message("user", text), at_ms) for text in texts]
    about = sessions.NewSession(session_id, **fields)
    db.write_now(
        lambda c: bulk.store_session(c, "test", bulk.PastSession(about, messages, at_ms), "2026-11-22")
    )


def found(db: StateDatabase, query: str, limit: int = 20, **scope: Any) -> list[str]:
    options: dict[str, Any] = {"now": NOW, **scope}
    hits = search.find_now(db, query, limit, **options)
    return [f"{hit.session_id} {hit.seq}" for hit in hits]


@pytest.fixture(scope="module")
def code(tmp_path_factory):
    clock = FixedClock()
    db = StateDatabase.open(tmp_path_factory.mktemp("code") / "state.db", clock)
    put(
        db,
        "code",
        "we went camping in the mountains",
        "call foo_bar.baz with the price",
        "the ranking stands in src/whet/store/search.py",
        "it failed with E_CONN-42 again",
        "foo and bar and baz, src of whet, store or search, conn 42",
        "the naïve façade and the Ärzte",
        "數據庫遷移完成了",
        "a configuration of the configured",
        "Caroline's necklace",
    )
    yield db
    db.close()


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("camped", "code 1"),
        ("mountain", "code 1"),
        ("foo_bar.baz", "code 2"),
        ("bar.baz", "code 2"),
        ("FOO_BAR.baz()", "code 2"),
        ("src/whet/store/search.py", "code 3"),
        ("store/search.py", "code 3"),
        ("./src/whet/store", "code 3"),
        ("E_CONN-42", "code 4"),
        ("e_conn", "code 4"),
        ("facade naive", "code 6"),
        ("arzte", "code 6"),
        ("遷移", "code 7"),
        ("庫", "code 7"),
        ("config*", "code 8"),
        ("configurat*", "code 8"),
        ("what did Caroline wear?", "code 9"),
        ("what was it that failed?", "code 4"),
        ('"of the configured"', "code 8"),
        ("mountains camping nothinglikethis", "code 1"),
    ],
)
def test_what_comes_first(code, query, first):
    assert found(code, query)[:1] == [first]


@pytest.mark.parametrize(
    "query", ["foo_baz.bar", "src/whet/search.py", "E_CONN-43", '"configured the of"', "zzz*", "store/whet"]
)
def test_an_identifier_or_phrase_that_stands_nowhere_is_not_found_by_its_parts(code, query):
    assert found(code, query) == []


def test_stop_words_count_only_where_nothing_else_is_found(code):
    assert found(code, "the camping") == ["code 1"]
    assert found(code, "the of") != []


def test_a_window_with_all_words_beats_a_message_with_one(db):
    put(db, "talk", "where is the harbour office?", "ask the gateway team", "budget")
    put(db, "other", "gateway", "weather", "budget", "office", "harbour")
    assert found(db, "gateway harbour budget")[0] == "talk 2"


@pytest.mark.slow
def test_ten_words_of_one_message_come_first_though_one_is_absent(db):
    words = [f"word{chr(97 + n)}" for n in range(26)]
    for number in range(30):
        put(db, f"s{number}", " ".join(words[number % 7 :: 3]), " ".join(words[number % 5 :: 4]))
    put(db, "it", " ".join(words[:9]))
    assert found(db, f"{' '.join(words[:9])} nothinglikethis", 5)[0] == "it 1"


@ONLY_SQLITE  # fifteen thousand messages, each a commit
@pytest.mark.slow
def test_a_persons_messages_are_found_among_many(db):
    def many(start: int) -> list[str]:
        return [f"the data of the error number{n} " for n in range(start, start + 3_000)]

    put(db, "before", *many(0))
    put(db, "hers", *(f"the data of mine {n}" for n in range(100)), profile="alice", workspace="/a")
    for number in range(4):
        put(db, f"after{number}", *many(number * 3_000))
    for query in ("the", "data", "of", "mine", "the data", "data error"):
        hits = search.find_now(db, query, 200, profile="alice")
        assert len(hits) == 100, query
        assert {hit.session_id for hit in hits} == {"hers"}, query
    assert len(found(db, "data", 200, workspace="/a")) == 100
    assert len(found(db, "data", 200, profile="")) == 200
    assert found(db, "data", profile="bob") == []
    assert len(found(db, "number42", 20, profile="")) == 2


@ONLY_SQLITE
def test_what_is_compared_stops_at_a_beat_once_the_time_is_spent(db):
    put(db, "long", "new moon here", *["moon and new there"] * 2_200, "a new moon")
    while db.write_now(index.index_new):
        pass
    key = db.read_now(lambda c: sessions.key_of(c, "long"))
    ids = [key << rows.SEQ_BITS | seq for seq in (2_202, 1)]

    def bounded(match: str, spent_s: float) -> list[int]:
        def read(connection: apsw.Connection) -> list[int]:
            reader = PostingReader(connection, 0, 1 << 62, [])
            reader.spent_s = spent_s
            return reader.newest_in_time(match, 300)

        return db.read_now(read)

    everywhere = (
        '"new moon"',
        '("new" AND "moon" AND "new moon")',
        '("new moon" OR "nothing")',
        '"new moo" *',
    )
    assert [bounded(match, -1e9) for match in everywhere] == [ids] * 4
    assert [bounded(match, 1e9) for match in everywhere] == [ids[:1]] * 4
    assert bounded('"here" AND "there"', 1e9) == bounded('"nothing"', 1e9) == []
    db.write_now(lambda c: session_deletion.drop(c, key))
    assert db.read_now(lambda c: c.execute("SELECT count(*) FROM messages_fts").fetchone()) == (0,)


@pytest.mark.slow
@pytest.mark.parametrize("is_counted", [False, True])
def test_common_words_that_meet_in_an_old_message_are_found(db, is_counted):
    put(db, "old", "alpha beta gamma")
    put(db, "many", *("alpha beta one", "beta gamma two", "gamma alpha three", "filler", "filler") * 600)
    while db.write_now(index.index_new):
        pass
    if is_counted:  # as the server does by itself now and then
        db.write_now(lambda c: c.execute("ANALYZE"))
    assert found(db, "alpha beta gamma", 5)[0] == "old 1"
    assert len(found(db, "filler", 5)) == 5
    assert len(found(db, "filler", 5, profile="")) == 5
    assert found(db, "one three", 5) != []
    assert len(found(db, '"beta gamma"', 5, profile="")) == 5
    assert len(found(db, "fill*", 5, workspace="")) == 5


@pytest.mark.fast_rows("sqlite", "postgres-last week")
@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("report last week", "week 1"),
        ("report yesterday", "yesterday 1"),
        ("report on 2026-10-05", "october 1"),
        ("the report in May", "may 1"),
        ("report October 5, 2026", "october 1"),
        ("report 3 days ago", "days 1"),
        ("last week", "week 1"),
        ("report", "yesterday 1"),
    ],
)
def test_a_time_in_the_question_weighs(db, query, first):
    days = {"may": "2026-05-09", "october": "2026-10-05", "week": "2026-11-11", "days": "2026-11-19"}
    for name, at in {**days, "yesterday": "2026-11-21"}.items():
        put(db, name, "the report was sent", at=at)
    hits = found(db, query)
    assert hits[0] == first
    assert len(hits) == (1 if query == "last week" else 5)


async def test_what_is_asked_just_now_comes_last_and_lends_nothing_to_its_neighbours(db, clock):
    await talk(db, clock, "s0", "the deploy port of the harbour is 8123")
    log, turn = await begin_session(db, clock, "our deploy port is 9000")
    await reply_and_end(log, turn, "noted")
    turn = await log.begin_turn(user("which deploy port did we say? deploy port!"))
    mine = await search.find(db, "which deploy port", session_id="s1", asking="s1")
    all_ = await search.find(db, "which deploy port", asking="s1")
    await log.end_turn(turn, "answered", "")
    mine, all_ = [hit.seq for hit in mine], [(hit.session_id, hit.seq) for hit in all_]
    assert mine == [1, 3]
    assert set(all_[:2]) == {("s0", 1), ("s1", 1)} and all_[2] == ("s1", 3)


def test_a_day_begins_with_its_first_moment_and_ends_before_the_next(db):
    day_ms = int(datetime(2026, 11, 3, tzinfo=UTC).timestamp() * 1000)
    for name, at_ms in (("first", 0), ("before", -1), ("next", 86_400_000), ("last", 86_399_999)):
        past = [bulk.PastMessage(Message("user", "the report was sent"), day_ms + at_ms)]
        about = bulk.PastSession(sessions.NewSession(name), past, day_ms + at_ms)
        db.write_now(lambda c, about=about: bulk.store_session(c, "test", about, "2026-11-22"))
    assert found(db, "report 2026-11-03") == ["last 1", "first 1", "next 1", "before 1"]


async def test_what_others_say_just_now_comes_in_its_place(db, clock):
    await talk(db, clock, "old", "the deploy port, or the port of the deploy: a harbour word among many")
    mine, other = [await new_log(db, clock, id_) for id_ in ("s1", "s2")]
    open_ = [await log.begin_turn(user("deploy port")) for log in (mine, other)]
    hits = await search.find(db, "deploy port", asking="s1")
    for log, turn in zip((mine, other), open_, strict=True):
        await log.end_turn(turn, "answered", "")
    assert [hit.session_id for hit in hits] == ["s2", "old", "s1"]


def test_marks_of_others_cannot_be_typed(db):
    put(db, "hers", "a secret", profile="alice")
    put(db, "theirs", f"{index.profile_mark('alice')} a secret", profile="bob")
    assert found(db, index.profile_mark("alice")) == ["theirs 1"]
    assert found(db, "secret", profile="alice") == ["hers 1"]


def test_of_equal_weights_the_newer_one_comes_first():
    assert ranking.sort_by_weight({1: 0.5, 3: 0.5, 2: 1.0, 4: 0.2}) == [2, 3, 1, 4]


@pytest.mark.fast_rows("sqlite", "postgres-2026-11-01-")
@pytest.mark.parametrize(
    ("since", "seen"),
    [
        ("2026-11-01", ["b 1", "a 1"]),
        ("2026-11-01T10:00:00", ["b 1", "a 1"]),
        ("2026-11-01T12:00:00+02:00", ["b 1", "a 1"]),
        ("2026-11-01T10:00:00.001", ["b 1"]),
        ("2026-11-01T10:00:00-00:01", ["b 1"]),
        ("2026-11-03", []),
    ],
)
def test_what_was_said_since_a_moment_is_found(db, since, seen):
    put(db, "a", "tea", at="2026-11-01")
    put(db, "b", "tea", at="2026-11-02")
    assert found(db, "tea", since=since) == seen


@ONLY_SQLITE
@pytest.mark.parametrize("at_once", [1, 4, 400])
def test_what_may_be_shown_is_found_behind_all_that_may_not(db, monkeypatch, at_once):
    monkeypatch.setattr(ranking, "LOOK_AT_ONCE", at_once)
    monkeypatch.setattr(ranking, "ROWS_AT_ONCE", at_once)
    put(db, "seen", "alpha", "x", "y", "alpha", "x", "y", "alpha", "bravo")
    put(db, "hidden", *["alpha bravo"] * 9, private=True)
    assert found(db, "alpha bravo", 3) == ["seen 8", "seen 7", "seen 4"]
    assert found(db, "alpha bravo", 9) == ["seen 8", "seen 7", "seen 4", "seen 1"]
    assert found(db, "alpha", 2) == ["seen 7", "seen 4"]
    every = found(db, "alpha bravo", 30, include_private=True)
    assert len(every) == len(set(every)) == 13 and every[0].startswith("hidden")
