"""Search in a team's database: what a large store is read by, and how often the server is asked."""

from __future__ import annotations

import apsw
import msgspec
import psycopg
import pytest

from tests.store.support import talk
from tests.support import FixedClock
from whet.postgres.connection import connect
from whet.store import rows, search, sessions
from whet.store.index import profile_mark
from whet.store.query import parse_terms
from whet.store.team import TeamDatabase
from whet.store.team_postings import (
    IdLookup,
    IdWindow,
    NewestIds,
    TeamPostingReader,
    format_both,
    format_either,
)
from whet.store.team_words import evaluate, format_vector, parse_leaf, to_tsquery

COUNT, NEWEST = 12_000, 4_000
LOWEST = (COUNT - NEWEST + 2) << rows.SEQ_BITS


@pytest.fixture
def large(db: TeamDatabase, url: str) -> TeamDatabase:
    """Twelve thousand messages: every one says apple, each second one pear, the oldest one plum and fig.
    Quill stands in the last that is read with the newest, quilt in the one right before it."""
    with connect(url) as admin:
        words = (
            f"CASE WHEN n = 1 THEN 'appl:1 plum:2 fig:3' WHEN n = {COUNT - NEWEST + 1} THEN 'quill:1'"
            " WHEN n % 2 = 0 THEN 'appl:1 pear:2' ELSE 'appl:1' END"
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
        admin.execute(f"INSERT INTO message_words SELECT {LOWEST} - 1, 'quilt:1'::tsvector".encode())
        admin.execute("ANALYZE message_words")
    return db


def test_rare_words_are_found_however_old_and_common_ones_among_the_newest(large: TeamDatabase) -> None:
    def look(connection: apsw.Connection) -> None:
        reader = TeamPostingReader(connection, 0, (1 << 63) - 1, [])
        apple, pear, plum, absent = reader.read_terms(parse_terms('apple pear plum "pear apple"'), 3_000)
        assert not reader.read_terms(parse_terms("apple"), COUNT)[0].is_whole, (
            "it was read among the newest alone"
        )
        assert plum.is_whole and len(plum.ids) == 1 and plum.ids[0] >> rows.SEQ_BITS == 2
        assert not apple.is_whole and len(apple.ids) == 3_000
        assert [id_ >> rows.SEQ_BITS for id_ in apple.ids] == [*range(COUNT + 1, COUNT - 2_999, -1)]
        assert not pear.is_whole and abs(pear.count - COUNT / 2) < COUNT / 20
        assert plum.weight > pear.weight > apple.weight
        assert reader.newest('"fig"', 1) == plum.ids
        assert reader.newest('"quil" *', 9) == [LOWEST, LOWEST - 1], "a beginning may be common"
        assert absent.ids == [] and reader.newest('"plum fig"', 10) == plum.ids
        mode = connection.execute("SELECT current_setting('plan_cache_mode')").fetchone()
        assert mode == ("force_custom_plan",), "a plan for all words reads the whole store for a rare one"

    large.read_now(look)


def test_how_common_a_word_is_is_what_the_server_counted(large: TeamDatabase) -> None:
    def shares(connection: apsw.Connection) -> list[float]:
        reader = TeamPostingReader(connection, 0, (1 << 63) - 1, [])
        return [
            reader.read_share(text)
            for text in ('"apple"', '"pear"', '"apple pear"', '"pe" *', '"zz" *', '""')
        ]

    unknown = 2_000 / COUNT
    some = [1.0, 0.5, 0.5, 0.5 + 10 * unknown, 10 * unknown, 0.0]
    assert large.read_now(shares) == pytest.approx(some, abs=0.02)


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
    assert to_tsquery(expression) == meant


def test_what_hardly_stands_in_the_newest_rows_is_found_below_them(large: TeamDatabase, url: str) -> None:
    """Every fiftieth of the older half says quince, with apple, which stands everywhere; two say quince
    alone: the last that is read with the newest, and the one before it."""
    with connect(url) as admin:
        text = f"(id >> {rows.SEQ_BITS}) % 50 = 3 AND id >> {rows.SEQ_BITS} < {COUNT // 2}"
        admin.execute(f"UPDATE message_words SET words = 'appl:1 quinc:2' WHERE {text}".encode())
        alone = f"id BETWEEN {LOWEST} - 1 AND {LOWEST}"
        admin.execute(f"UPDATE message_words SET words = 'quinc:1' WHERE {alone}".encode())
        admin.execute("ANALYZE message_words")

    def look(connection: apsw.Connection) -> None:
        reader = TeamPostingReader(connection, 0, (1 << 63) - 1, [])
        wanted = connection.execute(
            "SELECT id FROM message_words WHERE words @@ CAST('quinc' AS tsquery) ORDER BY id DESC"
        ).fetchall()
        ids = [row[0] for row in wanted]
        quince, both = reader.read_terms(parse_terms('quince "apple quince"'), 300)
        assert len(ids) > 100 and quince.ids == ids and both.ids == ids[2:]
        assert reader.newest('"apple" AND "quince"', 300) == ids[2:]

    large.read_now(look)


@pytest.mark.slow
def test_a_word_common_long_ago_is_found_below_the_newest_rows(large: TeamDatabase, url: str) -> None:
    """The older half says quince: as many as are looked for among the newest, where nobody says it now."""
    with connect(url) as admin:
        text = f"id >> {rows.SEQ_BITS} < {COUNT // 2 + 2}"
        admin.execute(f"UPDATE message_words SET words = 'appl:1 quinc:2' WHERE {text}".encode())
        admin.execute("ANALYZE message_words")

    def look(connection: apsw.Connection) -> None:
        reader = TeamPostingReader(connection, 0, (1 << 63) - 1, [])
        (quince,) = reader.read_terms(parse_terms("quince"), 400)
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
            new = sessions.NewSession(f"x{number}", profile="ann" if number < 60 else "bob")
            sessions.create(connection, new, "2026-11-21T09:00:00.000Z")

    db.write_now(put)
    ids = f"(key << {rows.SEQ_BITS}) + n"
    mark = f"CASE profile WHEN 'ann' THEN '{profile_mark('ann')}' ELSE '{profile_mark('bob')}' END"
    with connect(url) as admin:
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
        (apple,) = reader.read_terms(parse_terms("apple"), 300)
        last = connection.execute("SELECT max(key) FROM sessions WHERE profile = 'ann'").fetchone()
        assert last is not None and len(apple.ids) >= 300
        assert apple.ids[0] == (last[0] << rows.SEQ_BITS) + 100

    db.read_now(look)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "most"), [("zebra", 5), ("zebra stripes", 5), ('"black stripes" zebra', 7)]
)
async def test_a_search_asks_the_server_a_few_times(
    db: TeamDatabase, clock: FixedClock, monkeypatch: pytest.MonkeyPatch, query: str, most: int
) -> None:
    for number in range(12):
        await talk(db, clock, f"s{number}", f"zebra {number}", "with black stripes")
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

    db.read_now(look)  # the first read of several statements begins again in a transaction
    asked.clear()
    db.read_now(look)
    assert len(asked) <= most, asked


def sought(limit: int, most: float, *, work: float = 0.0, is_exact: bool = True) -> IdLookup:
    """What is looked for between the ids 1 and 1,000."""
    return IdLookup('"a"', "('a')", is_exact, limit, 1_000, work or most, most)


@pytest.mark.parametrize(
    ("one", "fetched", "low"),
    [
        (sought(100, 100), 600, 1),
        (sought(50, 100), 600, 1),
        (sought(100, 1_000), 600, 801),
        (sought(400, 1_000), 500, 501),
        (sought(1, 0), 600, 1),
        (sought(100, 10, work=1_000, is_exact=False), 600, 801),
        (sought(100, 10, work=200, is_exact=False), 600, 1),
        (sought(100, 200, work=2_000, is_exact=False), 60, 991),
    ],
)
def test_a_slice_reaches_as_far_as_gives_what_is_wanted_and_fetches_no_more_rows(
    one: IdLookup, fetched: float, low: int
) -> None:
    one.aim(1, fetched)
    assert one.low == low


def test_what_was_fetched_tells_how_much_there_is_below() -> None:
    lookup = sought(100, 1_000)
    lookup.low = 801
    assert lookup.take([801, 1_000, 900], 1) == 3.0
    assert (lookup.ids, lookup.top, lookup.wants) == ([1_000, 900, 801], 800, 97)
    assert lookup.most == lookup.work == 12.0 and lookup.count == 15.0
    assert lookup.result(1, 100) == NewestIds([1_000, 900, 801], False, 15.0)
    assert lookup.result(1, 2) == NewestIds([1_000, 900], False, 15.0)
    lookup.low = 1
    lookup.take([5], 1)
    assert lookup.result(1, 100) == NewestIds([1_000, 900, 801, 5], True, 4)
    assert lookup.result(1, 4) == NewestIds([1_000, 900, 801, 5], False, 4), "there may be a fifth"
    assert lookup.result(0, 100) == NewestIds([1_000, 900, 801, 5], False, 4), "one id was not read"


def test_what_was_fetched_in_vain_is_counted_as_work() -> None:
    lookup = sought(100, 50, work=1_000, is_exact=False)
    lookup.low = 501
    assert lookup.take([None, 700, None, None], 1) == 12.0
    assert (lookup.ids, lookup.most, lookup.work, lookup.count, lookup.top) == ([700], 1.0, 4.0, 2.0, 500)


def test_an_expression_is_compared_once_for_each_of_its_words() -> None:
    assert sought(9, 30).comparisons == 30
    lookup = msgspec.structs.replace(sought(9, 30), key="(('a' <-> 'b') & ('c' | 'd'))")
    assert lookup.comparisons == 120


def test_parts_of_an_expression_meet_in_the_newest_rows() -> None:
    window = IdWindow(9, 1, {'"a"': frozenset({1, 2, 3}), '"b"': frozenset({2, 4}), '"c"': frozenset({3})})
    assert window.find_positions('"a" AND ("b" OR "c")') == {2, 3}
    assert window.find_positions('"a" AND "b" OR "c"') == {2, 3} and window.find_positions(
        '("a" OR "b") AND "c"'
    ) == {3}


def test_a_key_says_what_the_index_can_be_asked_for() -> None:
    def key(expression: str) -> str:
        return evaluate(expression, lambda leaf: "" if leaf == '"x"' else leaf, format_both, format_either)

    assert key('"a" AND "x"') == '"a"' == key('"x" AND "a"')
    assert key('"a" AND "b"') == '("a" & "b")' and key('"a" OR "b"') == '("a" | "b")'
    assert key('"a" OR "x"') == key('"x" OR "a"') == key('"x" AND "x"') == ""


def test_words_go_into_the_index_with_their_places_as_far_as_it_takes_them() -> None:
    assert format_vector(["b", "it's", "b"]) == "'b':1,3 'it''s':2"
    assert format_vector(["x" * 992, "x" * 993, "y"]) == f"'{'x' * 992}':1 'y':3"
    assert format_vector(["a"] * 300) == f"'a':{','.join(map(str, range(1, 256)))}"
    assert format_vector([*["a"] * 16_382, "b", "c", "d"]).endswith("'b':16383 'c':16383 'd':16383")
    long = [f"{n:0990}" for n in range(700)]
    assert len(format_vector(long).split()) == 598, "of 1,002 bytes each"
    assert parse_leaf('"two words"') == (["two", "word"], False) and parse_leaf('"begin" *') == (
        ["begin"],
        True,
    )
