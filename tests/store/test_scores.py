"""What a message weighs: term by term, by its neighbours, its length and its time, to the last digit."""

from __future__ import annotations

from datetime import UTC, datetime
from math import log, log2

import pytest

from tests.store.test_ranking import found, put
from tests.support import FixedClock
from whet.contract.messages import Message
from whet.store import bulk, index, query, ranking, rows, sessions
from whet.store.database import StateDatabase
from whet.store.time_words import TimeSpan

_AT_MS = int(datetime(2026, 11, 1, 10, tzinfo=UTC).timestamp() * 1000)
_DAY_MS = 86_400_000


def opened(folder) -> StateDatabase:
    return StateDatabase.open(folder / "state.db", FixedClock())


def scores(db: StateDatabase, text: str, limit: int = 20, span: TimeSpan | None = None) -> dict[str, float]:
    """Give the scores by place, the best first."""
    while db.write_now(index.index_new):
        pass
    rows = db.read_now(lambda c: ranking.Ranking(c, {}, span).find_best(query.parse_terms(text), limit))
    return {f"{row.session_id} {row.id & 0xFFFFF}": round(row.score, 9) for row in rows}


def weight(messages: int, count: float) -> float:
    return log(1 + (messages - count + 0.5) / (count + 0.5))


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Ten messages, which nothing else is like."""
    db = opened(tmp_path_factory.mktemp("small"))
    put(db, "near", "alpha", "bravo", "x", "carol", "y", "z", "alpha bravo")
    put(db, "long", "delta " + "word " * 799, "z", "delta")
    yield db
    db.close()


def test_a_term_counts_less_with_each_step_from_where_it_stands(small):
    alpha, carol = weight(10, 2), weight(10, 1)
    one, two = 2 * 5 / 15, 2 * 3 / 13
    assert scores(small, "alpha") == pytest.approx({"near 7": alpha, "near 1": alpha})
    assert scores(small, "alpha bravo") == pytest.approx(
        {"near 7": 2 * alpha * 1.25, "near 2": alpha * (1 + one), "near 1": alpha * (1 + one)}
    )
    assert scores(small, "bravo carol") == pytest.approx(
        {"near 4": carol + alpha * two, "near 2": alpha + carol * two, "near 7": alpha}
    )
    assert list(scores(small, "alpha carol")) == ["near 4", "near 7", "near 1"], "three steps are too far"


def test_a_long_message_weighs_less(small):
    delta = weight(10, 2)
    assert scores(small, "delta") == pytest.approx(
        {"long 3": delta * 26 / 23, "long 1": delta * 26 / 23 / (1 + 0.1 * log2(4_001 / 2_000))}
    )


def test_a_term_that_stands_twice_around_counts_once_more_but_never_double(tmp_path):
    db = opened(tmp_path)
    put(db, "s", "alpha", "alpha", "alpha", "alpha", "alpha", "x", "y")
    alpha = weight(7, 5)
    tenths = {"s 3": 26, "s 2": 23, "s 4": 23, "s 1": 18, "s 5": 18}
    assert scores(db, "alpha") == pytest.approx({at: 2 * alpha * n / (n + 10) for at, n in tenths.items()})
    db.close()


def test_a_time_weighs_three(tmp_path):
    db = opened(tmp_path)
    for name, day in (("a", 0), ("b", 1), ("c", 2)):
        messages = [bulk.PastMessage(Message("user", f"alpha {name}"), _AT_MS + day * _DAY_MS)]
        about = bulk.PastSession(sessions.NewSession(name), messages, _AT_MS + day * _DAY_MS)
        db.write_now(lambda c, about=about: bulk.store_session(c, "test", about, "2026-11-22"))
    alpha = weight(3, 3)
    midnight = _AT_MS - 10 * 3_600_000
    span = TimeSpan(midnight + _DAY_MS, midnight + 2 * _DAY_MS)
    expected = {"b 1": alpha + 3, "c 1": alpha, "a 1": alpha}
    assert scores(db, "alpha", span=span) == pytest.approx(expected)
    assert list(scores(db, "alpha", span=span)) == list(expected)
    assert list(scores(db, "alpha", 1, span)) == ["b 1"]
    assert scores(db, "nothing", span=span) == {"b 1": 0.0}
    assert scores(db, '"nothing"', span=span) == {} and scores(db, "nothing") == {}
    db.close()


_WORDS = ("alpha", "bravo", "carol", "delta")


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """Four words that are said more often than is read of each at first, and old messages where some meet."""
    db = opened(tmp_path_factory.mktemp("many"))
    gap = ["filler", "filler"]
    met = ("alpha bravo carol delta", "alpha carol", "bravo carol", "alpha delta", "carol rare", "delta rare")
    put(db, "old", *(text for pair in met for text in (pair, *gap)), at="2026-10-05")
    for number, word in enumerate(_WORDS):
        put(db, f"only-{word}", *([word, *gap] * (30 + 5 * number)))
    while db.write_now(index.index_new):
        pass
    yield db
    db.close()


@pytest.mark.fast_rows("-0")
@pytest.mark.parametrize("more", [3_000, 0])
@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("alpha bravo carol delta", ["old 1", "old 4"]),
        ("alpha bravo carol", ["old 1", "old 4", "old 7"]),
        ("carol delta", ["old 1"]),
        ("rare carol", ["old 13", "old 16"]),
        ("rare delta", ["old 16", "old 13"]),
        ("rare alpha", ["old 16", "old 13"]),
        ("alpha in october 2026", ["old 10", "old 4", "old 1"]),
        ("alpha bravo in october 2026", ["old 1"]),
    ],
)
def test_common_words_that_meet_long_ago_come_before_one_of_now(
    many, monkeypatch: pytest.MonkeyPatch, text: str, first: list[str], more: int
):
    monkeypatch.setattr(ranking, "FIRST_READ", 20)
    monkeypatch.setattr(ranking, "READ_ALL", more)  # 0: of each word the newest 20 alone are read
    assert found(many, text, len(first)) == first


def test_of_common_words_the_three_rarest_are_looked_for_in_pairs(many, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ranking, "FIRST_READ", 20)
    text = "alpha bravo carol delta"
    assert found(many, text, 4) == ["old 1", "old 4", "old 10", "old 7"]
    monkeypatch.setattr(ranking, "READ_ALL", 0)
    assert found(many, text, 3) == ["old 1", "old 4", "old 7"]
    assert found(many, text, 4)[3].startswith("only-alpha"), "old 10 has the most common of the four"


def test_one_common_word_gives_the_newest(many, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ranking, "FIRST_READ", 20)
    monkeypatch.setattr(ranking, "LOOK_AT_ONCE", 5)
    assert found(many, "alpha", 3) == ["only-alpha 88", "only-alpha 85", "only-alpha 82"]
    every = found(many, "alpha", 400)
    assert len(every) == 33 == len(set(every)) and every[-1] == "old 1"
    assert found(many, "alpha", 2, role="assistant") == []
    assert found(many, "alpha", 2, session_id="old") == ["old 10", "old 4"]


def test_what_may_not_be_shown_gives_way_to_what_may(many, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ranking, "FIRST_READ", 20)
    many.write_now(lambda c: sessions.set_private(c, "only-alpha", True))
    try:
        assert found(many, "alpha", 2) == ["old 10", "old 4"]
        assert found(many, "alpha", 1, include_private=True) == ["only-alpha 88"]
        assert found(many, "alpha delta", 2) == ["old 10", "old 1"]
    finally:
        many.write_now(lambda c: sessions.set_private(c, "only-alpha", False))


def test_the_beginning_of_a_word_stands_for_64_words(tmp_path):
    db = opened(tmp_path)
    put(db, "s", *(f"zeb{text}{two}k" for text in "bcdfghjk" for two in "bcdfghjkm"))
    every = found(db, "zeb*", 100)
    assert len(every) == 64 and set(every) == {f"s {number}" for number in range(1, 65)}
    db.close()


def test_where_the_newest_with_common_words_are_hidden_older_ones_with_one_of_them_are_given(
    tmp_path, monkeypatch: pytest.MonkeyPatch
):
    db = opened(tmp_path)
    put(db, "open", "alpha old", *["filler"] * 3, "bravo old", *["filler"] * 3, "alpha again")
    put(db, "hidden", *["alpha bravo", "filler", "filler", "alpha"] * 25, private=True)
    monkeypatch.setattr(ranking, "FIRST_READ", 20)
    monkeypatch.setattr(ranking, "READ_ALL", 0)
    assert found(db, "bravo alpha", 2) == ["open 5"]
    db.close()


def test_one_that_is_short_is_weighed_beside_long_ones_that_came_later(tmp_path):
    db = opened(tmp_path)
    put(db, "short", "alpha", at="2026-10-05")
    put(db, "long", *["alpha " + "word " * 800, "filler", "filler"] * 12)
    assert found(db, "alpha", 2)[0] == "short 1"
    db.close()


@pytest.mark.slow
def test_a_beat_stands_by_one_message_in_a_thousand_and_by_the_first_of_every_sixteenth_session(tmp_path):
    db = opened(tmp_path)
    for number in range(1, 34):
        put(db, f"s{number}", *["x"] * (2_048 if number == 2 else 2))
    while db.write_now(index.index_new):
        pass
    sql = "SELECT -rowid >> 1 FROM messages_fts WHERE rowid % 2 ORDER BY 1"
    beats = [divmod(id_, rows.SEQ_LIMIT) for (id_,) in db.read_now(lambda c: c.execute(sql).fetchall())]
    assert beats == [(2, 1_024), (2, 2_048), (16, 1), (32, 1)]
    db.close()


def test_where_a_time_is_named_twice_as_many_are_weighed(tmp_path):
    db = opened(tmp_path)
    put(db, "then", "alpha", at="2026-10-05")
    put(db, "now", *["alpha bravo"] * 150)
    assert found(db, "alpha bravo in october 2026", 1) == ["then 1"]
    db.close()
