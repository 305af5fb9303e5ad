"""Past sessions of other programs: stored whole, grown when they grew, left alone when they changed here."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from tests.store.support import USAGE, answer, asking, user
from whet.contract.errors import NotFound
from whet.contract.messages import Message, Usage
from whet.store import bulk, sessions
from whet.store.bulk import PastMessage, PastSession
from whet.store.sessions import NewSession
from whet.store.transcript import Transcript

pytestmark = pytest.mark.slow_rows("postgres")

MS = 1_700_000_000_000


def result(id_, text, **more):
    message = Message("tool", text, tool_call_id=id_, tool_name="t")
    return PastMessage(message, MS + 3000, **more)


SAID = (
    PastMessage(user("first"), MS),
    PastMessage(asking("a", "b"), MS + 1000, USAGE, "m"),
    result("call_0", "one"),
    result("call_1", "two", error_kind="exit", exit_code=2),
    PastMessage(answer("done"), MS + 4000, USAGE, "m"),
    PastMessage(user("second"), MS + 9000),
)


def past(messages=SAID, id_="f1", **more):
    return PastSession(NewSession(id=id_, source="hermes"), messages, MS, **more)


def put(db, session, origin="hermes"):
    return db.write_now(lambda c: bulk.store_session(c, origin, session, "2026-01-01"))


def stored(db, clock, id_="f1"):
    return asyncio.run(Transcript.open(db, id_, clock))


def fields(message):
    return msgspec.structs.astuple(message)


def rows(db, sql):
    return db.read_now(lambda c: c.execute(sql).fetchall())


def test_a_session_is_stored_whole_and_once(db, clock):
    session = past(ended_ms=MS + 20_000, end_reason="done")
    assert put(db, session) == "new" and put(db, session) == "same"
    assert db.read_now(lambda c: bulk.is_known(c, "hermes", "f1"))
    assert not db.read_now(lambda c: bulk.is_known(c, "codex", "f1"))
    log = stored(db, clock)
    assert [fields(m) for m in log.messages] == [fields(message.message) for message in SAID]
    row = log.session
    assert (row.turns, row.messages, row.tool_calls, row.usage) == (2, 6, 2, USAGE + USAGE)
    assert (row.started, row.ended, row.end_reason) == (
        "2023-11-14T22:13:20.000Z",
        "2023-11-14T22:13:40.000Z",
        "done",
    )
    assert row.last_active == row.ended
    calls = rows(
        db,
        "SELECT seq, position, turn, step, call_id, started, finished, error_kind, exit_code"
        " FROM tool_calls ORDER BY seq",
    )
    assert calls == [
        (3, 0, 1, 1, "call_0", MS + 1000, MS + 3000, "", None),
        (4, 1, 1, 1, "call_1", MS + 1000, MS + 3000, "exit", 2),
    ]
    turns = rows(db, "SELECT number, id, started, ended, steps, usage, reason FROM turns ORDER BY number")
    assert [(row[:2], row[4], row[6]) for row in turns] == [
        ((1, "import-1"), 2, "answered"),
        ((2, "import-2"), 0, "answered"),
    ]
    assert turns[0][2:4] == ("2023-11-14T22:13:20.000Z", "2023-11-14T22:13:24.000Z")
    assert msgspec.json.decode(turns[0][5], type=Usage) == USAGE + USAGE
    assert rows(db, "SELECT count(*) FROM compactions") == [(0,)]


def test_what_was_added_there_is_added_here(db, clock):
    assert put(db, past(SAID[:5])) == "new"
    assert put(db, past(SAID[:1], "f2")) == "new"
    assert put(db, past()) == "grown" and put(db, past()) == "same"
    log = stored(db, clock)
    assert [m.text for m in log.messages] == ["first", "", "one", "two", "done", "second"]
    assert (log.session.turns, log.session.messages, log.live.next_seq) == (2, 6, 7)
    assert put(db, past(SAID[:5])) == "changed", "it has become shorter"


def test_what_differs_is_left_as_it_is(db, clock):
    put(db, past())
    other = (*SAID[:5], PastMessage(user("another"), MS))
    assert put(db, past(other)) == "changed"
    assert put(db, past((*other, PastMessage(answer("x"), MS)))) == "changed"
    assert stored(db, clock).messages[-1].text == "second"


def test_one_that_went_on_here_is_left(db, clock):
    put(db, past(SAID[:5]))

    async def go_on():
        log = await Transcript.open(db, "f1", clock)
        await log.end_turn(await log.begin_turn(user("mine")), "answered", "")

    asyncio.run(go_on())
    assert put(db, past()) == "changed" and stored(db, clock).messages[-1].text == "mine"


def test_a_result_that_was_missing_comes_in_its_place(db, clock):
    missing = result("call_1", "nothing", error_kind="interrupted")
    put(db, past((*SAID[:3], missing)))
    assert put(db, past(SAID[:4])) == "grown"
    assert [m.text for m in stored(db, clock).messages] == ["first", "", "one", "two"]
    assert rows(db, "SELECT count(*) FROM sessions") == [(1,)]


def test_an_id_that_is_taken_gets_its_origin_and_children_find_their_parents(db, clock):
    db.write_now(lambda c: sessions.create(c, NewSession(id="f1"), "now"))
    assert put(db, past()) == "new"
    child = PastSession(NewSession(id="f2", parent_session_id="f1", kind="child"), SAID[:1], 0)
    assert put(db, child) == "new"
    row = stored(db, clock, "f2").session
    assert (row.parent_session_id, row.started) == ("hermes-f1", "2026-01-01")
    orphan = PastSession(NewSession(id="f3", parent_session_id="gone"), (), 0)
    assert put(db, orphan) == "new" and stored(db, clock, "f3").session.parent_session_id == ""


def test_only_what_its_model_still_saw_is_live(db, clock):
    put(db, past(live=(0, 4, 5)))
    assert [m.text for m in stored(db, clock).messages] == ["first", "done", "second"]
    kept = rows(db, "SELECT turn, after_seq, engine, tokens_before, tokens_after, at FROM compactions")
    assert kept == [(2, 6, "import", 0, 0, "2023-11-14T22:13:29.000Z")]


def test_an_answer_without_usage_makes_the_price_unknown(db, clock):
    put(db, past((SAID[0], PastMessage(answer("x"), MS))))
    assert stored(db, clock).session.usage.cost_usd is None


def test_a_session_can_begin_with_what_was_said_elsewhere(db, clock):
    db.write_now(lambda c: sessions.create(c, NewSession(id="s1"), "now"))
    db.write_now(lambda c: bulk.prepend_messages(c, "s1", SAID[:5]))
    assert len(stored(db, clock, "s1").messages) == 5
    with pytest.raises(NotFound):
        db.write_now(lambda c: bulk.prepend_messages(c, "s9", SAID))
