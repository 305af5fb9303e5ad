"""Where a word stands: the newest messages first, how many there may be in all, and what that weighs."""

from __future__ import annotations

from collections.abc import Iterator
from math import log

import apsw
import pytest

from tests.store.test_ranking import found, put
from tests.support import FixedClock
from whet.store import index, rows, sessions
from whet.store.database import StateDatabase
from whet.store.postings import PostingReader, Postings
from whet.store.query import parse_terms


@pytest.fixture(scope="module")
def hundred(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StateDatabase]:
    """Two sessions of two hundred messages: each second one says alpha, one in fifty foo_bar or bar_baz."""
    db = StateDatabase.open(tmp_path_factory.mktemp("postings") / "state.db", FixedClock())
    for name in ("first", "second"):
        texts = ["alpha" if number % 2 == 0 else "other" for number in range(1, 201)]
        texts[9] = texts[59] = "foo_bar.baz alpha"
        texts[109], texts[159] = "foo_bar alpha", "bar_baz alpha"
        put(db, name, *texts)
    while db.write_now(index.index_new):
        pass
    yield db
    db.close()


def read(db: StateDatabase, typed: str, limit: int, *, session: str = "", more: int = 0) -> Postings:
    """Read the postings of one term; the ids are the messages' numbers in the second session."""

    def look(connection: apsw.Connection) -> Postings:
        first, last = rows.ids_of(sessions.key_of(connection, session)) if session else (0, 1 << 62)
        reader = PostingReader(connection, first, last, [])
        [got] = reader.read_terms(parse_terms(typed), limit)
        return reader.read_more(got, more) if more else got

    got = db.read_now(look)
    got.ids = [id_ & (rows.SEQ_LIMIT - 1) for id_ in got.ids]
    return got


def test_the_newest_are_read_and_what_they_cover_tells_how_many_there_are(hundred: StateDatabase) -> None:
    part = read(hundred, "alpha", 10, session="second")
    assert part.ids == list(range(200, 181, -2)) and not part.is_whole
    assert part.count == pytest.approx(10 * 200 / 19), "as in nineteen of two hundred"
    assert part.weight == pytest.approx(log(1 + (200 - part.count + 0.5) / (part.count + 0.5)))
    whole = read(hundred, "alpha", 101, session="second")
    assert len(whole.ids) == 100 == whole.count and whole.is_whole
    assert whole.weight == pytest.approx(log(2)), "it stands in half of them"
    full = read(hundred, "alpha", 100, session="second")
    assert len(full.ids) == 100 and not full.is_whole and full.count == pytest.approx(100 * 200 / 199)


def test_more_of_a_word_is_read_anew_but_not_of_what_was_read_by_its_parts(hundred: StateDatabase) -> None:
    assert read(hundred, "alpha", 10, more=20).ids == list(range(200, 161, -2))
    assert read(hundred, "foo_bar", 2, more=5).ids == [110, 60]
    assert read(hundred, "alph*", 2, more=5).ids == [200, 198]


def test_a_store_counts_what_is_in_its_index_and_a_session_its_own_messages(hundred: StateDatabase) -> None:
    def counted(connection: apsw.Connection) -> list[int]:
        key = sessions.key_of(connection, "first")
        inside = key << rows.SEQ_BITS | 11, key << rows.SEQ_BITS | 20
        bounds = [(0, 1 << 62), rows.ids_of(key), inside, (1 << 61, 1 << 62)]
        return [PostingReader(connection, *each, []).messages for each in bounds]

    assert hundred.read_now(counted) == [400, 200, 10, 1]


def test_an_identifier_stands_where_its_pairs_meet(hundred: StateDatabase) -> None:
    got = read(hundred, "foo_bar.baz", 9)
    assert got.ids == [60, 10, 60, 10] and got.is_whole and got.count == 4
    assert read(hundred, "foo_bar.baz", 3).ids == [60, 10, 60]
    assert read(hundred, "baz_foo", 9).ids == []


def test_a_beginning_finds_the_first_words_of_the_alphabet_that_begin_so(tmp_path) -> None:
    db = StateDatabase.open(tmp_path / "state.db", FixedClock())
    put(db, "s", *(f"zq{number:02}" for number in range(70)), "zqe", "zz")
    assert found(db, "zq*") == []
    hits = found(db, "zq0*", 100)
    assert sorted(hits) == sorted(f"s {number}" for number in range(1, 11))
    hits = found(db, "zqe*", 100)
    assert hits == ["s 71"]
    put(db, "many", *(f"qqq{number:02}" for number in range(70)))
    assert {int(hit.split()[1]) for hit in found(db, "qqq*", 100)} == set(range(1, 65))
    db.close()
