"""A model that gives no summary: what stands in for it, how long it rests, and what is asked for again."""

from __future__ import annotations

import copy

import pytest

from tests.context.talk import BODY, Model, assert_valid, engine, full, summary_of
from tests.support import FixedClock
from whet.context import rows as chat
from whet.context import summary
from whet.contract.errors import (
    AuthRejected,
    BadRequest,
    ContextOverflow,
    ModelRefused,
    Unavailable,
    WireError,
)

ABORTS = [
    (TimeoutError("passed 90 s"), 60),
    (AuthRejected("the key was refused (401)"), 600),
    (Unavailable("the server failed (500)"), 60),
    (WireError("the stream ended early"), 30),
    ("", 60),
    ("<think>I should write a summary.</think>", 60),
    ("<!DOCTYPE html><html><body>502 Bad Gateway</body></html>", 30),
]


@pytest.mark.fast_rows("''", "DOCTYPE", "AuthRejected")
@pytest.mark.parametrize(("answer", "wait_s"), ABORTS, ids=[repr(answer)[:30] for answer, _ in ABORTS])
def test_16_17_where_no_model_gives_a_summary_code_writes_it_and_the_model_rests(
    answer: str | Exception, wait_s: float
):
    clock = FixedClock()
    model = Model(answer)
    compressor, talk = engine(model, clock=clock), full()
    before = copy.deepcopy(talk.rows)
    rows = compressor.compress(talk.rows, 7_000)
    assert talk.rows == before
    assert "## 4. Completed actions" in summary_of(rows) and "ran make unit" in summary_of(rows)
    assert '- The person: "Now go on with the unit after number' in summary_of(rows)
    assert '- The assistant: "Unit' in summary_of(rows)
    body = summary.parse(next(row for row in rows if summary.is_summary(row))).body
    assert "- terminal command=make unit" in body, "beside the trail, in the order of what was said"
    assert_valid(rows)
    assert "no model could write" in compressor.get_status()["last_error"]
    asked = len(model.asked)
    assert asked <= 2  # one retry
    clock.advance(wait_s - 1)
    again = full()
    again.rows = [*rows, *again.rows]
    rows = compressor.compress(again.rows, 7_000)
    assert rows is not again.rows and len(model.asked) == asked
    clock.advance(2)
    model.answers = [BODY]
    again.rows = [*rows, *full().rows]
    assert compressor.compress(again.rows, 7_000) is not again.rows
    assert compressor.get_status()["last_error"] == ""
    assert "Update this earlier summary" in model.asked[-1]  # what code wrote is there to be made better


def test_timeouts_in_a_row_wait_longer_and_a_person_can_force_it():
    clock = FixedClock()
    model = Model(TimeoutError())
    compressor, talk = engine(model, clock=clock), full()
    for wait_s in (60, 300, 900, 900):
        compressor.compress(talk.rows, 7_000)
        assert compressor.get_status()["cool_down_s"] == wait_s
        clock.advance(wait_s + 1)
    compressor.compress(talk.rows, 7_000)
    model.answers = [BODY]
    assert compressor.compress(talk.rows, 7_000, force=True) is not talk.rows


def test_another_window_or_a_reset_ends_a_rest_and_begins_the_waits_again():
    clock = FixedClock()
    compressor, talk = engine(Model(TimeoutError()), clock=clock), full(32_000)
    for start_over in (lambda: compressor.update_model("m", 9_000), compressor.on_session_reset):
        for wait_s in (60, 300):
            compressor.compress(talk.rows, 40_000)
            assert compressor.get_status()["cool_down_s"] == wait_s
            clock.advance(wait_s)
        compressor.compress(talk.rows, 40_000)
        start_over()
        assert compressor.get_status()["cool_down_s"] == 0 and compressor.should_compress(40_000)


def test_a_rest_ends_at_its_second():
    clock = FixedClock()
    compressor, talk = engine(Model(WireError("cut")), clock=clock), full()
    compressor.compress(talk.rows, 7_000)
    clock.advance(29)
    assert compressor.get_status()["cool_down_s"] == 1
    clock.advance(1)
    assert compressor.get_status()["cool_down_s"] == 0


def test_one_retry_is_enough_for_a_failure_that_passes():
    model = Model(WireError("cut"), BODY)
    compressor, talk = engine(model), full()
    assert compressor.compress(talk.rows) is not talk.rows
    assert len(model.asked) == 2


@pytest.mark.parametrize("error", [ModelRefused("declined"), BadRequest("400"), ContextOverflow("too long")])
def test_where_asking_again_can_not_help_code_writes_the_summary(error: Exception):
    compressor, talk = engine(Model(error)), full()
    rows = compressor.compress(talk.rows)
    text = summary_of(rows)
    assert "## 4. Completed actions" in text
    assert "[#" in text
    assert "no model could write" in compressor.get_status()["last_error"]
    assert_valid(rows)
    compressor.compress(full().rows)
    assert not compressor.is_exhausted  # it can go on like that


UNUSABLE = [
    "I'm sorry, but I can't help with summarising this conversation.",
    "## 2. Goal",
    "## 2. Goal\nShip the orders service [#1].\n## 4. Completed actions\n1. Built it with terminal [#",
    "# Plan\n## 1. Read\nRead the files.\n## 2. Write\nWrite the files.",
]


@pytest.mark.parametrize("answer", UNUSABLE, ids=[answer[:24] for answer in UNUSABLE])
def test_an_answer_without_the_parts_of_a_summary_is_refused_and_the_former_one_stays(answer: str):
    compressor, talk = engine(Model()), full()
    talk.rows = compressor.compress(talk.rows)
    talk.work(30)
    compressor = engine(Model(answer))
    text = summary_of(compressor.compress(talk.rows, force=True))
    assert "Ship the orders service" in text and "Built it with terminal" in text
    assert "not the parts of a summary" in compressor.get_status()["last_error"]


def test_a_model_that_leaves_out_what_never_ends_does_not_remove_it():
    compressor, talk = engine(Model(BODY + "\n## 13. Critical values\nPort 8443 [#4].")), full()
    talk.rows = compressor.compress(talk.rows)
    talk.work(30)
    rows = engine(Model("## 2. Goal\nStill the same [#1].\n## 6. In progress\nUnit 9 [#9].")).compress(
        talk.rows, force=True
    )
    text = summary_of(rows)
    assert "Still the same" in text and "Unit 9" in text and "Port 8443" in text


def test_twelve_of_twelve_compactions_succeed_without_any_model():
    compressor, talk = engine(Model(Unavailable("down"))), full()
    for _ in range(12):
        assert compressor.should_compress(9_000) or not compressor.is_exhausted
        rows = compressor.compress(talk.rows, 9_000)
        assert chat.estimate(rows) < 6_000
        assert_valid(rows)
        talk.rows = rows
        talk.work(20)
