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
from whet.store import rows, search
from whet.store.query import terms
from whet.store.team import TeamDatabase
from whet.store.team_postings import TeamPostingReader

COUNT = 12_000


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
    ("expression", "share"),
    [
        ('"apple"', 0.5),
        ('"apple pear"', 0.1),
        ('("apple" OR "pear")', 0.7),
        ('("apple" OR "pear") AND "pear"', 0.14),
        ('"apple" AND "quince"', 0.005),
        ('("pear" AND "apple" OR "quince")', 0.11),
        ('"ap" *', 0.5),
        ('"qu" *', 0.01),
        ('""', 1.0),
    ],
)
def test_how_much_of_a_store_an_expression_may_stand_in(expression: str, share: float) -> None:
    found = _Shares(expression, {"appl": 0.5, "pear": 0.2}, 0.01).either()
    assert found == pytest.approx(share)


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
