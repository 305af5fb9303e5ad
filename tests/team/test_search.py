"""Search in a team's database: what a large store is read by, and how often the server is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import apsw
import psycopg
import pytest

from tests.store.support import talk
from tests.support import FixedClock
from whet.postgres.connection import connect
from whet.store import rows, search, sessions
from whet.store.index import profile_mark
from whet.store.query import terms
from whet.store.sessions import NewSession
from whet.store.team import TeamDatabase
from whet.store.team_postings import TeamPostingReader
from whet.store.team_words import as_tsquery

COUNT, NEWEST = 12_000, 4_000


@pytest.fixture
def db(url: str) -> Iterator[TeamDatabase]:
    database = TeamDatabase.open_url(url)
    yield database
    database.close()


@pytest.fixture
def large(db: TeamDatabase, url: str) -> TeamDatabase:
    """Twelve thousand messages: every one says apple, each second one pear, the oldest one plum and fig."""
    with connect(url, timeout_s=10) as admin:
        words = (
            "CASE WHEN n = 1 THEN 'appl:1 plum:2 fig:3' WHEN n % 2 = 0 THEN 'appl:1 pear:2' ELSE 'appl:1' END"
        )
        ids = f"(1::bigint << {rows.SEQ_BITS}) + n * {1 << rows.SEQ_BITS}::bigint"
        admin.execute(
            f"INSERT INTO messages (id, turn, role, at, content)"
            f" SELECT {ids}, 1, 0, 0, 'x' FROM generate_series(1, {COUNT}) n".encode()
        )
        admin.execute(
            f"INSERT INTO message_words SELECT {ids}, ({words})::tsvector"
            f" FROM generate_series(1, {COUNT}) n".encode()
        )
        admin.execute("ANALYZE message_words")
    return db


def test_rare_words_are_found_however_old_and_common_ones_among_the_newest(large: TeamDatabase) -> None:
    def look(connection: apsw.Connection) -> None:
        reader = TeamPostingReader(connection, 0, (1 << 63) - 1, [])
        apple, pear, plum, absent = reader.of_each(terms('apple pear plum "pear apple"'), 3_000)
        assert not reader.of_each(terms("apple"), COUNT)[0].is_whole, "it was read among the newest alone"
        assert plum.is_whole and len(plum.ids) == 1 and plum.ids[0] >> rows.SEQ_BITS == 2
        assert not apple.is_whole and len(apple.ids) == 3_000
        assert not pear.is_whole and abs(pear.count - COUNT / 2) < COUNT / 20
        assert plum.weight > pear.weight > apple.weight
        assert absent.ids == [] and reader.newest('"plum fig"', 10) == plum.ids
        mode = connection.execute("SELECT current_setting('plan_cache_mode')").fetchone()
        assert mode == ("force_custom_plan",), "a plan for all words reads the whole store for a rare one"

    large.read_now(look)


@pytest.mark.parametrize(
    ("expression", "meant"),
    [
        ('"apple"', "('appl')"),
        ('"apple pear"', "('appl' <-> 'pear')"),
        ('("apple" OR "pear") AND "fig"', "((('appl') | ('pear')) & ('fig'))"),
        ('("a" AND "b" OR "c")', "((('a') & ('b')) | ('c'))"),
        ('"ap" *', "('ap':*)"),
        ('"it\'s OR so"', "('it' <-> 's' <-> 'or' <-> 'so')"),
        ('""', "'\ue00f'"),
    ],
)
def test_an_expression_in_the_words_of_the_server(expression: str, meant: str) -> None:
    assert as_tsquery(expression) == meant


@pytest.mark.slow
def test_what_hardly_stands_in_the_newest_rows_is_found_below_them(large: TeamDatabase, url: str) -> None:
    """Every fiftieth of the older half says quince, with apple, which stands everywhere; two say quince
    alone: the last that is read with the newest, and the one before it."""
    with connect(url, timeout_s=10) as admin:
        said = f"(id >> {rows.SEQ_BITS}) % 50 = 3 AND id >> {rows.SEQ_BITS} < {COUNT // 2}"
        admin.execute(f"UPDATE message_words SET words = 'appl:1 quinc:2' WHERE {said}".encode())
        lowest = f"SELECT min(id) FROM (SELECT id FROM message_words ORDER BY id DESC LIMIT {NEWEST}) AS read"
        admin.execute(f"UPDATE message_words SET words = 'quinc:1' WHERE id = ({lowest})".encode())
        admin.execute(f"INSERT INTO message_words SELECT ({lowest}) - 1, 'quinc:1'::tsvector".encode())
        admin.execute("ANALYZE message_words")

    def look(connection: apsw.Connection) -> None:
        reader = TeamPostingReader(connection, 0, (1 << 63) - 1, [])
        wanted = connection.execute(
            "SELECT id FROM message_words WHERE words @@ CAST('quinc' AS tsquery) ORDER BY id DESC"
        ).fetchall()
        ids = [row[0] for row in wanted]
        quince, both = reader.of_each(terms('quince "apple quince"'), 300)
        assert len(ids) > 100 and quince.ids == ids and both.ids == ids[2:]
        assert reader.newest('"apple" AND "quince"', 300) == ids[2:]

    large.read_now(look)


@pytest.mark.slow
def test_a_word_that_was_common_long_ago_is_found_below_the_newest_rows(
    large: TeamDatabase, url: str
) -> None:
    """The older half says quince: as many as are looked for among the newest, where nobody says it now."""
    with connect(url, timeout_s=10) as admin:
        said = f"id >> {rows.SEQ_BITS} < {COUNT // 2 + 2}"
        admin.execute(f"UPDATE message_words SET words = 'appl:1 quinc:2' WHERE {said}".encode())
        admin.execute("ANALYZE message_words")

    def look(connection: apsw.Connection) -> None:
        reader = TeamPostingReader(connection, 0, (1 << 63) - 1, [])
        (quince,) = reader.of_each(terms("quince"), 400)
        newest = (COUNT // 2 + 1) << rows.SEQ_BITS
        assert quince.ids[0] >= newest and quince.ids == sorted(quince.ids, reverse=True)
        assert len(quince.ids) == 400 and reader.newest('"quince"', 3) == quince.ids[:3]

    large.read_now(look)


@pytest.mark.slow
def test_a_person_s_newest_messages_are_read_however_many_others_wrote_since(
    db: TeamDatabase, clock: FixedClock, url: str
) -> None:
    """A fifth of the messages are ann's, all before the others': more than what goes by the index alone."""

    def put(connection: apsw.Connection) -> None:
        for number in range(300):
            new = NewSession(f"x{number}", profile="ann" if number < 60 else "bob")
            sessions.create(connection, new, "2026-11-21T09:00:00.000Z")

    db.write_now(put)
    ids = f"(key << {rows.SEQ_BITS}) + n"
    mark = f"CASE profile WHEN 'ann' THEN '{profile_mark('ann')}' ELSE '{profile_mark('bob')}' END"
    with connect(url, timeout_s=10) as admin:
        admin.execute(
            f"INSERT INTO message_words SELECT {ids}, ({mark} || ':1 appl:2')::tsvector"
            " FROM sessions, generate_series(1, 100) n".encode()
        )
        admin.execute(
            f"INSERT INTO messages (id, turn, role, at, content) SELECT {ids}, 1, 0, 0, 'x'"
            " FROM sessions, generate_series(1, 100) n".encode()
        )
        admin.execute("ANALYZE message_words")

    def look(connection: apsw.Connection) -> None:
        marks = [f'"{profile_mark("ann")}"']
        reader = TeamPostingReader(connection, 0, (1 << 63) - 1, marks, "ann")
        (apple,) = reader.of_each(terms("apple"), 300)
        last = connection.execute("SELECT max(key) FROM sessions WHERE profile = 'ann'").fetchone()
        assert last is not None and len(apple.ids) >= 300
        assert apple.ids[0] == (last[0] << rows.SEQ_BITS) + 100

    db.read_now(look)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "most"), [("zebra", 5), ("zebra stripes", 5), ('"black stripes" zebra', 7)]
)
def test_a_search_asks_the_server_a_few_times(
    db: TeamDatabase, clock: FixedClock, monkeypatch: pytest.MonkeyPatch, query: str, most: int
) -> None:
    async def fill() -> None:
        for number in range(12):
            await talk(db, clock, f"s{number}", f"zebra {number}", "with black stripes")

    asyncio.run(fill())
    assert len(search.find_now(db, query)) >= 10
    asked: list[str] = []

    def look(connection: apsw.Connection) -> None:
        plain = connection.execute

        def counted(sql: str, values: object = ()) -> psycopg.Cursor[object]:
            asked.append(sql)
            return plain(sql, values)  # type: ignore[arg-type, return-value]

        with monkeypatch.context() as patched:
            patched.setattr(connection, "execute", counted)
            search.search(connection, query, 10)

    db.read_now(look)
    assert len(asked) <= most, asked
