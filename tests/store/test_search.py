from __future__ import annotations

import asyncio
from typing import Any

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.store.support import USAGE, asking, begin_session, finish, reply_and_end, talk, user
from tests.support import FixedClock
from whet.contract.errors import NotFound, StoreError
from whet.contract.messages import Message, ToolCall
from whet.store import forks, index, rows, search, sessions
from whet.store.database import StateDatabase
from whet.store.query import parse_terms
from whet.store.ranking import Ranking
from whet.store.transcript import Transcript


def found(db, query, limit=20, **scope):
    return [hit.session_id for hit in search.find_now(db, query, limit, **scope)]


def test_a_limit_of_nothing_finds_nothing(db, clock):
    asyncio.run(talk(db, clock, "s1", "the quick fox"))
    assert found(db, "fox", 1) == ["s1"]
    assert search.find_now(db, "fox", 0) == search.find_now(db, "fox", -1) == []


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    clock = FixedClock()
    db = StateDatabase.open(tmp_path_factory.mktemp("library") / "state.db", clock)
    texts = {
        "en": "The quick brown fox deployed the parser to production-server 42",
        "code": "see src/foo_bar.py then call parse_header() in HTTPServer",
        "fr": "Le café était fermé, déjà vu à Zürich",
        "zh": "我们今天修复了数据库的连接问题",
        "ja": "東京タワーへ行きました",
        "ko": "데이터베이스 연결 오류",
        "mix": "用GPT4模型来 debug 这个bug",
        "ru": "Привет, ёлка стоит",
        "hi": "हिन्दी में लिखा",
        "th": "สวัสดีชาวโลก",
        "order": "brown paper, quick lunch",
        "full": "ＡＢＣ１２３ fullwidth",
    }

    async def main():
        for id_, text in texts.items():
            clock.advance(1)
            await talk(db, clock, id_, text, title=f"about {id_}")

    asyncio.run(main())
    yield db
    db.close()


@pytest.mark.fast_rows("fox", "quick", "CAF", "u4e", "-expected4")
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("fox", ["en"]),
        ("FOX parser", ["en"]),
        ("brown quick", ["en", "order"]),
        ('"quick brown"', ["en"]),
        ('"brown quick"', []),
        ('"quick brown', ["en"]),
        ("production-server", ["en"]),
        ("server-production", []),
        ("foo_bar.py", ["code"]),
        ("foo_bar", ["code"]),
        ("bar.py", ["code"]),
        ("bar", ["code"]),
        ("parse_header", ["code"]),
        ("httpserver", ["code"]),
        ("cafe", ["fr"]),
        ("CAFÉ", ["fr"]),
        ("cafe\u0301", ["fr"]),
        ("zurich deja", ["fr"]),
        ("数据", ["zh"]),
        ("数据库", ["zh"]),
        ("数据库的连接", ["zh"]),
        ("据连", []),
        ("库", ["zh"]),
        ("题", ["zh"]),
        ("今天 问题", ["zh"]),
        ("東京", ["ja"]),
        ("タワー", ["ja"]),
        ("연결", ["ko"]),
        ("데이터베이스", ["ko"]),
        ("GPT4模型", ["mix"]),
        ("gpt4", ["mix"]),
        ("模型", ["mix"]),
        ("用gpt4", ["mix"]),
        ("这个bug", ["mix"]),
        ("елка", ["ru"]),
        ("हिन्दी", ["hi"]),
        ("ชาว", ["th"]),
        ("abc123", ["full"]),
        ("ＡＢＣ１２３", ["full"]),
        ("nothinglikethis", []),
        ("fox nothinglikethis", ["en"]),
        ("fox AND NOT parser", ["en"]),
        ("fox OR", ["en"]),
        ("body:fox", []),
        ("NEAR(fox, parser)", ["en"]),
        ("fox*", ["en"]),
        ("^fox", ["en"]),
        ("", []),
        ('  --- "" \' ( ', []),
        ("fox ---", ["en"]),
        ("fox\0parser", ["en"]),
        ("z\ud800 fox", ["en"]),
    ],
)
def test_what_finds_what(library, query, expected):
    assert sorted(found(library, query)) == sorted(expected)


def test_the_snippet_marks_the_match(library):
    def snippet(query):
        return search.find_now(library, query)[0].snippet

    assert "brown «fox» deployed" in snippet("fox")
    assert "src/«foo_bar.py» then" in snippet("foo_bar.py")
    assert "Le «café» était" in snippet("cafe")
    assert "«数据库»的" in snippet("数据库")
    hit = search.find_now(library, "fox")[0]
    assert (hit.seq, hit.role, hit.turn, hit.title) == (1, "user", 1, "about en")
    assert hit.when.startswith("2026-11-21T09:00:01") and hit.score > 0


def test_long_texts_give_short_snippets(db, clock):
    asyncio.run(talk(db, clock, "s1", "filler\n" * 500 + "the needle is here\n" + "more " * 500))
    snippet = search.find_now(db, "needle")[0].snippet
    assert "the «needle» is" in snippet and len(snippet) < 300 and "\n" not in snippet
    assert snippet.startswith("…") and snippet.endswith("…")


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(), max_size=60) | st.text('"*()-:^+{}\\ aAND\0日 ', max_size=40))
def test_no_query_raises(library, query):
    library.read_now(lambda c: search.search(c, query))


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text("ab1 _-.日本語데이éЖ", min_size=1, max_size=20))
def test_a_text_is_found_by_itself(db, clock, text):
    id_ = clock.new_id()
    clock.new_id()
    asyncio.run(talk(db, clock, id_, text))
    if any(c.isalnum() for c in text):
        assert id_ in found(db, f'"{text}"', 1000)


async def test_private_reviews_and_undone_are_hidden_unless_named(db, clock):
    await talk(db, clock, "open", "zebra one")
    await talk(db, clock, "hidden", "zebra two", private=True)
    await talk(db, clock, "review", "zebra three", kind="review")
    log = await talk(db, clock, "undone", "zebra four")
    await log.undo_last_turn()
    assert found(db, "zebra") == ["open"]
    assert sorted(found(db, "zebra", include_private=True)) == ["hidden", "open"]
    for id_ in ("hidden", "review", "undone"):
        assert found(db, "zebra", session_id=id_) == [id_]
    db.write_now(lambda c: sessions.set_private(c, "hidden", False))
    assert sorted(found(db, "zebra")) == ["hidden", "open"]
    with pytest.raises(NotFound):
        found(db, "zebra", session_id="none")


async def test_role_and_time_restrict(db, clock):
    log, turn = await begin_session(db, clock, "tiger question")
    await log.append_reply(turn, Message("assistant", "tiger answer"), USAGE, "m")
    await log.end_turn(turn, "answered", "")
    clock.advance(86400)
    await talk(db, clock, "s2", "tiger again")
    assert [h.seq for h in search.find_now(db, "tiger", role="assistant")] == [2]
    assert found(db, "tiger", since="2026-11-22") == ["s2"]
    assert len(found(db, "tiger")) == 3 and len(found(db, "tiger", 1)) == 1
    with pytest.raises(StoreError, match="not a date"):
        found(db, "tiger", since="yesterday")


async def test_calls_and_results_are_found(db, clock):
    log, turn = await begin_session(db, clock, "x")
    call = ToolCall("c1", "terminal", '{"command": "grep\\nneedleone \\u00fcber"}')
    await log.append_reply(turn, Message(role="assistant", tool_calls=(call,)), USAGE, "m")
    await finish(log, turn, log.open_calls(turn)[0], "needletwo")
    await log.end_turn(turn, "budget", "")
    for query, seq in (("needleone", 2), ("uber", 2), ("terminal", 2), ("needletwo", 3)):
        assert [hit.seq for hit in search.find_now(db, query)] == [seq]


@pytest.mark.parametrize("depth", [600, 5_000])
async def test_arguments_nested_without_measure_do_not_stop_the_index(db, clock, depth):
    deep = '{"text": "needleone\\n", "x": ' + "[" * depth + "]" * depth + "}"
    log, turn = await begin_session(db, clock, "x")
    call = ToolCall("c1", "terminal", deep)
    await log.append_reply(turn, Message(role="assistant", tool_calls=(call,)), USAGE, "m")
    await finish(log, turn, log.open_calls(turn)[0], "needletwo")
    await log.end_turn(turn, "budget", "")
    for query, seq in (("needleone", 2), ("needletwo", 3)):
        assert [hit.seq for hit in search.find_now(db, query)] == [seq]


async def test_a_running_turn_is_indexed_without_leaving_gaps(db, clock):
    log, turn = await begin_session(db, clock, "alpha")
    await log.append_reply(turn, asking("a", "b"), USAGE, "m")
    first, second = log.open_calls(turn)
    await finish(log, turn, second, "second result")
    assert [h.seq for h in await search.find(db, "alpha")] == [1]
    await finish(log, turn, first, "first result")
    await reply_and_end(log, turn, "omega")
    assert sorted(h.seq for h in await search.find(db, "result")) == [3, 4]
    assert [h.seq for h in await search.find(db, "omega")] == [5]
    assert db.read_now(lambda c: c.execute("SELECT count(*) FROM sessions WHERE dirty").fetchone()) == (0,)


@pytest.mark.slow
def test_an_everywhere_word_gives_the_newest(db, clock):
    def fill(connection):
        sessions.create(connection, sessions.NewSession(id="big"), "2026-01-01T00:00:00.000Z")
        key = sessions.key_of(connection, "big")
        connection.execute(
            "INSERT INTO turns (session, number, id, started, ended) VALUES (?, 1, 't', 'x', 'x')", (key,)
        )
        connection.executemany(
            "INSERT INTO messages (id, turn, role, at, content) VALUES (?, 1, 0, ?, ?)",
            (
                (key << 22 | n, n * 1000, f"the word number{n} {'rare' if n % 1000 == 7 else ''}")
                for n in range(1, 6001)
            ),
        )
        connection.execute("UPDATE sessions SET dirty = 1")

    db.write_now(fill)
    hits = search.find_now(db, "the", 5)
    assert [hit.seq for hit in hits] == [6000, 5999, 5998, 5997, 5996] and hits[0].score == 0
    assert {hit.seq % 1000 for hit in search.find_now(db, "the rare")} == {7}
    assert search.find_now(db, "the missing", 3)[0].seq == 6000
    assert {hit.seq % 1000 for hit in search.find_now(db, "missing the rare")} == {7}
    assert [hit.seq for hit in search.find_now(db, "number42")] == [42]


def test_around_gives_the_neighbours(db, clock):
    asyncio.run(talk(db, clock, "s1", "one", "two", "three"))
    asyncio.run(talk(db, clock, "s2", "of the one beside it"))

    def around(seq: int, before: int, after: int) -> list[tuple[int, str]]:
        messages = db.read_now(lambda c: search.read_messages_around(c, "s1", seq, before, after))
        return [(seq, message.text) for seq, message in messages]

    assert around(3, 1, 2) == [(2, "ok"), (3, "two"), (4, "ok"), (5, "three")]
    assert around(1, 9, 0) == [(1, "one")] and around(6, 0, 9) == [(6, "ok")]
    assert around(9, 2, 9) == [(5, "three"), (6, "ok")]
    with pytest.raises(NotFound):
        db.read_now(lambda c: search.read_messages_around(c, "nope", 1, 1, 1))


@pytest.mark.slow
def test_what_is_indexed_after_a_turn_is_searched_without_catching_up(db, clock):
    async def talk_and_wait() -> None:
        await talk(db, clock, "s1", "walrus")
        async with asyncio.timeout(60):
            while not db.read_now(lambda c: search.search(c, "walrus")):
                await asyncio.sleep(0.01)

    asyncio.run(talk_and_wait())
    assert db.read_now(lambda c: search.search(c, "walrus"))[0].session_id == "s1"


def test_what_waits_to_be_indexed_is_indexed_at_the_close(tmp_path, clock):
    for word in ("walrus", "otter"):  # each in a loop of its own, which ends before the moment has passed
        database = StateDatabase.open(tmp_path / "state.db", clock)
        asyncio.run(talk(database, clock, word, word))
        database.close()
    database = StateDatabase.open(tmp_path / "state.db", clock)
    found = [database.read_now(lambda c, word=word: search.search(c, word)) for word in ("walrus", "otter")]
    database.close()
    assert [hits[0].session_id for hits in found] == ["walrus", "otter"]


@pytest.mark.slow
def test_a_write_for_later_is_done_once_however_often_it_is_asked_for(db):
    done: list[int] = []

    def work(connection: apsw.Connection) -> bool:
        done.append(len(done))
        return len(done) == 2  # then there is more, once

    async def ask() -> None:
        for _ in range(5):
            db.submit_later(work)
        while not done:
            await asyncio.sleep(0.01)
        db.submit_later(work)
        async with asyncio.timeout(60):
            while len(done) < 3:
                await asyncio.sleep(0.01)

    asyncio.run(ask())
    db.submit(lambda c: None).result(60)
    assert done == [0, 1, 2]


@pytest.mark.fast_rows("sqlite", "postgres-token")
@pytest.mark.parametrize("word", ["proj", "token", "build", "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH"])
def test_a_snippet_shows_no_part_of_a_secret_however_it_was_found(db, clock, word):
    secret = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH"
    text = f"{'so much ' * 900}use the token {secret} for the build {'and more ' * 900}"
    asyncio.run(talk(db, clock, "s1", text))
    [hit] = search.find_now(db, word)
    shown = hit.snippet.replace(search.MARK_OPEN, "").replace(search.MARK_CLOSE, "")
    assert "[REDACTED]" in shown
    assert "proj" not in shown and "abcdefgh" not in shown and len(shown) < 300


@pytest.mark.parametrize(("more", "end"), [("", "[REDACTED]"), ("x", "…")])
def test_a_snippet_that_shows_the_text_to_its_end_says_of_no_more(db, clock, more, end):
    secret = "-----BEGIN PRIVATE KEY-----" + "A" * 1_966
    asyncio.run(talk(db, clock, "s1", f"needle {secret}{more}"))
    [hit] = search.find_now(db, "needle")
    assert hit.snippet.startswith("«needle» [REDACTED]") and hit.snippet.endswith(end)


@pytest.mark.parametrize(
    ("said", "title"),
    [
        ("<system-reminder>\nToday is Friday.\n</system-reminder>\nFix the build", "Fix the build"),
        ("<a x='1'>b</a> <environment_context>\n<cwd>/w</cwd>\n</environment_context>\n\nGo on", "Go on"),
        ("<div>is this right?</div>", "<div>is this right?</div>"),
        ("<b>never closed\nand more", "<b>never closed"),
        ("<pasted>one\ntwo</pasted>", "one"),
    ],
)
def test_a_title_is_of_the_persons_words_and_of_no_block_that_a_client_put_before_them(said, title):
    assert sessions.make_title(said) == title


def test_what_forks_have_copied_is_found_once_where_it_was_said(db, clock):
    asyncio.run(talk(db, clock, "s1", "the heron", "the bittern"))
    for name, origin in (("a", "s1"), ("b", "s1"), ("aa", "a")):
        db.write_now(lambda c, name=name, origin=origin: forks.fork(c, origin, 1, name, "2026-11-23"))
    assert found(db, "heron") == ["s1"]
    assert found(db, "heron", session_id="b") == ["b"]
    db.write_now(lambda c: sessions.set_private(c, "s1", True))
    assert sorted(found(db, "heron")) == ["a", "b"]
    assert found(db, "heron", include_private=True) == ["s1"]
    db.write_now(lambda c: c.execute("UPDATE sessions SET private = 0 WHERE id = 's1'"))
    db.write_now(lambda c: c.execute("UPDATE turns SET undone = '2026' WHERE session = 1 AND number = 1"))
    assert sorted(found(db, "heron")) == ["a", "b"]


def test_what_is_indexed_as_a_copy_alone_is_found_where_it_was_said_and_weighs_as_much(db, clock):
    """While an index is made anew, from the newest session on, the copies come first."""
    asyncio.run(talk(db, clock, "s1", "a heron and a bittern"))
    db.write_now(lambda c: forks.fork(c, "s1", 1, "copy", "2026-11-23"))
    asyncio.run(talk(db, clock, "other", "a heron"))
    assert found(db, "bittern") == ["s1"]
    db.write_now(lambda c: index.remove_messages(c, *rows.ids_of(sessions.key_of(c, "s1"))))
    assert found(db, "heron bittern") == ["s1", "other"]


class Counting:
    """A connection, for whoever asks of its own class, that counts how often messages are looked at."""

    __class__ = property(lambda self: type(self.connection))

    def __init__(self, connection):
        self.connection, self.looks = connection, 0

    def __getattr__(self, name):
        return getattr(self.connection, name)

    def execute(self, sql, *values):
        self.looks += "octet_length(m.content)" in sql
        return self.connection.execute(sql, *values)


@pytest.mark.slow
@pytest.mark.parametrize(("count", "looks"), [(20, 1), (40, 2)])
def test_forks_add_no_looks_at_rows_and_what_they_say_themselves_is_their_own(db, clock, count, looks):
    async def go_on(name: str) -> None:
        log = await Transcript.open(db, name, clock)
        turn = await log.begin_turn(user("a heron of its own"))
        await log.end_turn(turn, "answered", "")

    asyncio.run(talk(db, clock, "old", "a heron"))
    asyncio.run(talk(db, clock, "s1", *(f"the heron {n}" for n in range(12))))
    for n in range(count):  # every third one is a fork of a fork
        origin, turn = (f"f{n - 1}", 8) if n % 3 == 2 else ("s1", 12 - n % 3)
        db.write_now(lambda c, o=origin, t=turn, n=n: forks.fork(c, o, t, f"f{n}", "2026-11-23"))
    asyncio.run(go_on("f17"))
    assert sorted(found(db, "heron")) == ["f17", "old", *["s1"] * 12]
    assert len(found(db, "heron", session_id="f17")) == 9

    def ranked(connection):
        counting: Any = Counting(connection)
        return len(Ranking(counting, {}, None).find_best(parse_terms("heron"), 20)), counting.looks

    assert db.read_now(ranked) == (14, looks)
