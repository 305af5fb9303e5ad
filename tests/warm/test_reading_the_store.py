"""What is read out of stored sessions: error rates, outcomes, candidates and the examples made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import FixedClock
from tests.warm.stores import Did, Turn, open_store, read, sh, steps, store
from whet.store import calls, sessions, warm
from whet.store.database import StateDatabase
from whet.store.warm import ArmCounts, TemplateState, WarmStart
from whet.warm.label import label_all, label_soon
from whet.warm.mine import Group, MiningResult, MiningScope, ToolTally, mine
from whet.warm.proof import measure_uplift, rate_gap, update_verdict
from whet.warm.rates import Rates, measure


def bad(path: str = "gone") -> Did:
    return read(path, "no", "failed")


# Rates.


def with_outcomes(database: StateDatabase, clock: FixedClock, *outcomes: tuple[str, str]) -> None:
    """Store a session whose calls have these (tool, outcome)."""
    made = [Did(name, {}, "x") for name, _ in outcomes]
    id_ = store(database, clock, Turn("go", [made]))

    def judge(connection: Any) -> None:
        key = sessions.key_of(connection, id_)
        seqs = [row[0] for row in connection.execute("SELECT seq FROM tool_calls WHERE session = ?", (key,))]
        kept = [(seq, outcome, "") for seq, (_, outcome) in zip(sorted(seqs), outcomes, strict=True)]
        calls.store_outcomes(connection, key, 1, kept)

    database.write_now(judge)


def rates(database: StateDatabase) -> Rates:
    return database.read_now(measure)


def test_rates_by_tool_position_and_length_count_what_ran(database: StateDatabase, clock: FixedClock) -> None:
    failing = {0, 9, 10, 29, 30, 99, 100}
    many = [("read_file", "failed" if number in failing else "ok") for number in range(101)]
    with_outcomes(database, clock, *many)
    with_outcomes(database, clock, ("todo", "failed"), ("todo", "denied"), ("todo", "unknown"))
    with_outcomes(database, clock, *[("todo", "corrected")] * 9)
    with_outcomes(database, clock, *[("todo", "ok")] * 10)
    found = rates(database)
    assert (found.sessions, found.calls) == (4, 121)

    def shown(rows: tuple[Any, ...]) -> list[tuple[str, int, int]]:
        return [(row.label, row.calls, row.failed) for row in rows]

    assert shown(found.by_tool) == [("read_file", 101, 7), ("todo", 20, 1)]
    assert shown(found.by_position) == [
        ("1-10", 30, 3),
        ("11-30", 20, 2),
        ("31-100", 70, 2),
        ("over 100", 1, 1),
    ]
    assert shown(found.by_length) == [("under 10", 10, 1), ("10-29", 10, 0), ("100 and more", 101, 7)]
    assert found.by_tool[0].rate.estimate == pytest.approx(7 / 101)


@pytest.mark.slow
def test_the_lengths_begin_at_ten_thirty_and_a_hundred_calls(
    database: StateDatabase, clock: FixedClock
) -> None:
    for length in (9, 10, 29, 30, 99, 100):
        with_outcomes(database, clock, *[("todo", "ok")] * length)
    numbers = {row.label: row.calls for row in rates(database).by_length}
    assert numbers == {"under 10": 9, "10-29": 39, "30-99": 129, "100 and more": 100}


def test_an_empty_store_has_no_rates(database: StateDatabase) -> None:
    found = rates(database)
    assert (found.sessions, found.calls, found.by_tool, found.by_length, found.compared) == (0, 0, (), (), 0)


def test_the_halves_of_a_session_are_compared_tool_by_tool_weighted_by_calls(
    database: StateDatabase, clock: FixedClock
) -> None:
    later = [("todo", text) for text in ("ok", "ok", "failed", "failed", "failed")]
    earlier = [("read_file", text) for text in ("failed", "ok", "ok", "ok")]
    short = [("terminal", "failed"), ("terminal", "ok"), ("terminal", "ok")]
    with_outcomes(database, clock, *later, *earlier, *short)
    with_outcomes(database, clock, *short)
    found = rates(database)
    assert found.compared == 1
    # 5 calls of one tool: 0 of 2, then 2 of 2; 4 of the other: 1 of 2, then 0 of 2; 3 are too few to halve.
    assert found.within.estimate == pytest.approx((1.0 * 5 - 0.5 * 4) / 9)


@pytest.mark.parametrize(
    ("count", "outcomes", "verdict"),
    [
        (9, ("failed", "failed", "ok", "ok"), "No evidence either way: only 9 sessions"),
        (10, ("failed", "failed", "ok", "ok"), "Long sessions err less here"),
        (10, ("ok", "ok", "failed", "failed"), "Long sessions err more here"),
        (10, ("ok", "failed", "failed", "ok"), "No evidence that long sessions err less"),
    ],
)
def test_the_verdict_needs_ten_sessions_and_an_interval_off_zero(
    database: StateDatabase, clock: FixedClock, count: int, outcomes: tuple[str, ...], verdict: str
) -> None:
    for _ in range(count):
        with_outcomes(database, clock, *[("todo", outcome) for outcome in outcomes])
    found = rates(database)
    assert found.verdict.startswith(verdict) and found.compared == count
    if "Long" in verdict:
        assert f"(100.0 points, {count} sessions)" in found.verdict


# Outcomes that are kept.


def kept(database: StateDatabase, id_: str) -> list[tuple[str, str]]:
    return database.read_now(
        lambda db: [
            (row[0], row[1])
            for row in db.execute(
                "SELECT outcome, outcome_reason FROM tool_calls WHERE session = ? ORDER BY seq",
                (sessions.key_of(db, id_),),
            )
        ]
    )


def test_labelling_takes_what_has_no_outcome_or_everything_again(
    database: StateDatabase, clock: FixedClock
) -> None:
    first = store(database, clock, Turn("go", steps(read("a"), bad())), Turn("no, wrong", steps(read("b"))))
    store(database, clock, Turn("go", steps(read("c"))))
    told: list[tuple[int, int]] = []
    assert label_all(database, lambda done, total: told.append((done, total))) == (2, 4)
    assert told == [(2, 2)]
    assert kept(database, first) == [
        ("ok", "no error flag"),
        ("failed", "failed"),
        ("ok", "no error flag"),
    ]
    assert label_all(database, lambda done, total: told.append((done, total))) == (0, 0) and len(told) == 1
    database.write_now(lambda db: db.execute("UPDATE tool_calls SET outcome = ''") and None)
    assert label_all(database, lambda done, total: None, again=True) == (2, 4)
    assert [outcome for outcome, _ in kept(database, first)] == ["ok", "failed", "ok"]


@pytest.mark.slow
def test_many_sessions_are_labelled_in_batches_of_two_hundred(
    database: StateDatabase, clock: FixedClock
) -> None:
    for _ in range(201):
        store(database, clock, Turn("go"))
    told: list[tuple[int, int]] = []
    assert label_all(database, lambda done, total: told.append((done, total))) == (201, 0)
    assert told == [(200, 201), (201, 201)]


def test_a_turn_that_has_not_ended_is_judged_later(database: StateDatabase, clock: FixedClock) -> None:
    id_ = store(database, clock, Turn("go", steps(read("a"))), Turn("on", steps(read("b"))))

    def reopen(ended: str) -> None:
        database.write_now(
            lambda db: db.execute("UPDATE turns SET ended = ? WHERE number = 2", (ended,)) and None
        )

    reopen("")
    label_soon(database, id_, "now")
    database.write_now(lambda db: None)
    assert [outcome for outcome, _ in kept(database, id_)] == ["ok", ""]
    reopen("2026-11-21T09:00:00Z")
    label_soon(database, id_, "now")
    database.write_now(lambda db: None)
    assert [outcome for outcome, _ in kept(database, id_)] == ["ok", "ok"]
    label_soon(database, "no such session", "now")
    database.write_now(lambda db: None)


@pytest.mark.parametrize(("chosen_by", "is_measured"), [("auto", True), ("default", True), ("person", False)])
def test_a_session_that_lot_gave_a_template_measures_it(
    database: StateDatabase, clock: FixedClock, chosen_by: str, is_measured: bool
) -> None:
    id_ = store(database, clock, Turn("go", steps(read("a"))))
    start = WarmStart("t", "hash", "warm", chosen_by, 1)
    database.write_now(lambda db: warm.record_start(db, id_, start, "2026-11-21T09:00:00Z"))
    label_soon(database, id_, "2026-11-21T10:00:00Z")
    database.write_now(lambda db: None)
    state = database.read_now(warm.list_states).get("hash")
    assert (state.last_win if state else "") == ("2026-11-21T09:00:00Z" if is_measured else "")


def test_labelling_soon_after_the_store_was_closed_is_no_error(tmp_path: Path, clock: FixedClock) -> None:
    opened = open_store(tmp_path, clock)
    opened.close()
    label_soon(opened, "s", "now")


# Proof.


def used(
    database: StateDatabase, clock: FixedClock, arm: str, failed: int, sessions_: int, at: str = "1"
) -> None:
    for _ in range(sessions_):
        with_outcomes(database, clock, *[("todo", "failed" if n < failed else "ok") for n in range(10)])
        (id_,) = database.read_now(
            lambda db: db.execute("SELECT id FROM sessions ORDER BY key DESC LIMIT 1").fetchall()
        )[0]
        database.write_now(
            lambda db, id_=id_: warm.record_start(db, id_, WarmStart("t", "hash", arm, "auto", 1), at)
        )


def cold(database: StateDatabase, clock: FixedClock, failed: int, sessions_: int) -> None:
    for _ in range(sessions_):
        with_outcomes(database, clock, *[("todo", "failed" if n < failed else "ok") for n in range(10)])


@pytest.mark.slow
def test_eight_sessions_of_each_arm_are_needed(database: StateDatabase, clock: FixedClock) -> None:
    used(database, clock, "warm", 0, 7, "2026-01-01")
    used(database, clock, "held_out", 8, 8)
    uplift = database.read_now(lambda db: measure_uplift(db, "hash"))
    assert (uplift.verdict, uplift.warm_sessions, uplift.held_out_sessions) == ("too few", 7, 8)
    assert uplift.last_win == "2026-01-01" and uplift.interval.estimate == pytest.approx(0.8)
    used(database, clock, "warm", 0, 1, "2026-02-01")
    uplift = database.read_now(lambda db: measure_uplift(db, "hash"))
    assert (uplift.verdict, uplift.last_win) == ("helps", "2026-02-01")


@pytest.mark.slow
def test_what_hurts_is_switched_off_once_and_stays_so(database: StateDatabase, clock: FixedClock) -> None:
    used(database, clock, "warm", 8, 8)
    used(database, clock, "held_out", 0, 8)
    uplift = database.write_now(lambda db: update_verdict(db, "hash", "t", "now"))
    state = database.read_now(warm.list_states)["hash"]
    assert uplift.verdict == "hurts" and uplift.last_win == state.last_win == ""
    assert state.off_reason == "first calls failed more often with it (8 sessions)"


def test_harm_is_found_within_ten_uses_although_one_in_ten_sessions_is_held_out(
    database: StateDatabase, clock: FixedClock
) -> None:
    cold(database, clock, 1, 20)
    used(database, clock, "held_out", 0, 1)
    used(database, clock, "warm", 8, 5)
    uplift = database.write_now(lambda db: update_verdict(db, "hash", "t", "now"))
    assert (uplift.verdict, uplift.warm_sessions) == ("hurts", 5)
    assert "5 sessions" in database.read_now(warm.list_states)["hash"].off_reason


def test_a_template_whose_calls_fail_as_often_as_cold_ones_stays_on(
    database: StateDatabase, clock: FixedClock
) -> None:
    cold(database, clock, 5, 20)
    used(database, clock, "warm", 6, 10)
    assert database.write_now(lambda db: update_verdict(db, "hash", "t", "now")).verdict == "too few"
    assert database.read_now(warm.list_states) == {}


def test_a_template_that_was_switched_off_stays_off(database: StateDatabase, clock: FixedClock) -> None:
    off = TemplateState("it did harm", "2026-01-01")
    database.write_now(lambda db: warm.set_state(db, "hash", "t", off, "now"))
    used(database, clock, "warm", 0, 1, "2026-03-01")
    database.write_now(lambda db: update_verdict(db, "hash", "t", "later"))
    assert database.read_now(warm.list_states)["hash"] == TemplateState("it did harm", "2026-03-01")
    used(database, clock, "warm", 0, 1, "2025-03-01")
    database.write_now(lambda db: update_verdict(db, "hash", "t", "later"))
    assert database.read_now(warm.list_states)["hash"].last_win == "2026-03-01"


@pytest.mark.slow
def test_no_difference_is_no_evidence_and_changes_nothing(database: StateDatabase, clock: FixedClock) -> None:
    for arm in ("warm", "held_out"):
        used(database, clock, arm, 3, 8)
    uplift = database.write_now(lambda db: update_verdict(db, "hash", "t", "now"))
    assert uplift.verdict == "no evidence" and uplift.last_win == ""
    assert database.read_now(warm.list_states) == {}


def test_the_interval_over_sessions_is_asked_for_where_there_are_enough() -> None:
    def arm(failed: list[int]) -> list[ArmCounts]:
        return [ArmCounts("x", count, 10, "") for count in failed]

    uneven = [10, 10, 10, 0, 10, 0, 10, 10]
    few, many = rate_gap(arm(uneven[:7]), arm([0] * 8)), rate_gap(arm(uneven), arm([0] * 8))
    assert many.estimate == pytest.approx(60 / 80)
    assert few.high - few.low < 0.3 < many.high - many.low, "sessions differ more than calls"
    assert rate_gap(arm([5] * 8), arm([4] * 8)).spans_zero


# Mining.


def mined(database: StateDatabase, **scope: Any) -> MiningResult:
    chosen = MiningScope(**{"min_messages": 1, **scope})
    return database.read_now(lambda db: mine(db, chosen, lambda done, total: None))


def test_a_tool_fails_enough_from_five_calls_and_its_rate_on() -> None:
    assert ToolTally(5, 1).fails(0.2) and not ToolTally(5, 1).fails(0.21) and not ToolTally(4, 4).fails(0.2)
    assert ToolTally(4, 1).error_rate == 0.25 and ToolTally().error_rate == 0.0
    mining_result = MiningResult(
        tools={"b": ToolTally(10, 5), "a": ToolTally(20, 10), "c": ToolTally(10, 9), "d": ToolTally(50, 1)}
    )
    assert mining_result.failing_tools() == [("c", 0.9), ("a", 0.5), ("b", 0.5), ("d", 0.02)]
    assert mining_result.failing_tools(0.03) == mining_result.failing_tools()[:3]


def test_a_group_is_worth_its_sessions_its_age_and_its_repairs() -> None:
    group = Group("t", "s")
    for session, at in ((1, 5), (1, 9), (2, 7)):
        group.count(session, at, False)
    assert (group.calls, group.sessions, group.repairs, group.last_ms) == (3, 2, 0, 9)
    assert group.score(9) == pytest.approx(1.585, abs=0.001) == group.score(0)
    assert group.score(9 + 90 * 86_400_000) == pytest.approx(1.585 / 2, abs=0.001)
    group.count(3, 9, True)
    assert group.score(9) == pytest.approx(2 * 3) and group.repairs == 1
    weak = Group("t", "a", sessions=1, last_ms=9)
    mining_result = MiningResult(
        groups={"a": weak, "s": group, "b": Group("t", "b", 1, last_ms=9), "x": Group("u", "x", 9)},
        newest_ms=9,
    )
    assert [one.shape for one in mining_result.rank_groups("t")] == ["s", "a", "b"]


def test_of_too_many_groups_the_better_half_stays() -> None:
    mining_result = MiningResult(
        groups={str(n): Group("todo", str(n), sessions=(n * 7) % 10) for n in range(10)}
    )
    best = [group.shape for group in mining_result.rank_groups("todo")]
    mining_result.thin_out()
    assert list(mining_result.groups) == best[:5]
    assert [group.sessions for group in mining_result.groups.values()] == [9, 8, 7, 6, 5]


def test_mining_counts_what_ran_and_keeps_what_may_be_shown(
    database: StateDatabase, clock: FixedClock
) -> None:
    turn = Turn(
        "look   at\nit " + "x" * 400,
        steps(
            bad("a/b.txt"),
            read("c/b.txt"),
            Did("read_file", {"path": "d"}, "denied", "denied"),
            read("e1.md", " \n"),
            read("e2.md", "odd bytes"),
            Did("read_file", {}, "x"),
            read("x" * 2_000),
            Did("terminal", {"command": "grep x y"}, "", "exit", 1),
            sh("cat asked.txt", decided_by="person"),
            Did("todo", {"items": [1]}),
        ),
    )
    store(database, clock, turn)
    # An older version stored such a text.
    database.write_now(
        lambda db: db.execute("UPDATE messages SET content = replace(content, 'odd ', char(0))")
    )
    mining_result = mined(database)
    assert {name: (tally.calls, tally.failed) for name, tally in mining_result.tools.items()} == {
        "read_file": (6, 1),
        "terminal": (2, 0),
        "todo": (1, 0),
    }
    (group,) = mining_result.groups.values()
    (candidate,) = mining_result.sample
    assert group.repairs == 0, "one session proves no mend"
    assert mining_result.newest_ms == candidate.at_ms == clock.unix_ms()
    assert candidate.arguments == {"path": "c/b.txt"}
    assert candidate.hint == ("look at it " + "x" * 400)[:160]
    assert (candidate.repairs, candidate.repairs_why) == ('{"path":"a/b.txt"}', "failed")
    assert (mining_result.sessions, mining_result.messages) == (1, candidate.session.messages)


def test_mining_tells_how_far_it_is_and_reads_the_newest(database: StateDatabase, clock: FixedClock) -> None:
    ids = [
        store(database, clock, Turn(f"go {n}", steps(read(f"{n}.txt"))), workspace=f"/p{n}") for n in range(3)
    ]
    told: list[tuple[int, int]] = []
    database.read_now(lambda db: mine(db, MiningScope(min_messages=1), lambda *seen: told.append(seen)))
    each = told[0][0]
    assert told == [(each, 3 * each), (2 * each, 3 * each), (3 * each, 3 * each)]
    assert {candidate.session.id for candidate in mined(database, max_sessions=2).sample} == set(ids[1:])
    assert {candidate.session.id for candidate in mined(database, project="/p0").sample} == {ids[0]}
    assert mined(database, min_messages=each + 1).sessions == 0
    assert mined(database, source="elsewhere").sessions == 0


def test_a_call_is_shown_with_what_was_asked_for_in_its_own_turn(
    database: StateDatabase, clock: FixedClock
) -> None:
    turns = [Turn(f"ask {n}", [[read(f"dir{n}/file.txt")], "faster", [sh("ls")]]) for n in range(4)]
    store(database, clock, *turns)
    hints = {
        candidate.arguments["path"]: candidate.hint
        for candidate in mined(database).sample
        if candidate.name == "read_file"
    }
    assert hints == {f"dir{n}/file.txt": f"ask {n}" for n in range(4)}


@pytest.mark.slow
def test_of_a_shape_five_candidates_are_kept_and_of_all_three_hundred(
    database: StateDatabase, clock: FixedClock
) -> None:
    store(database, clock, Turn("go", [[read(f"f{n}.txt") for n in range(310)]]))
    mining_result = mined(database)
    (group,) = mining_result.groups.values()
    assert (group.calls, len(group.candidates), len(mining_result.sample)) == (310, 5, 300)
    assert mining_result.sample == sorted(mining_result.sample, key=lambda candidate: candidate.order)
    assert group.candidates == mining_result.sample[:5]


# Composing.
