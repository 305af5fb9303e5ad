"""Goals as rows, and what the turns and the calls of their sessions may spend."""

from __future__ import annotations

import msgspec
import pytest

from tests.store.support import ONLY_SQLITE, USAGE, answer, new_log, on, user
from whet.contract.delegation import HelperWish
from whet.contract.errors import BudgetReached, NotFound, StoreBusy
from whet.store import digests, goals, helper_rows, jobs, schedules, sessions, wallet
from whet.store.goals import GoalRow
from whet.store.schedules import Firing, Schedule
from whet.store.wallet import Cap, PlannedCall

pytestmark = pytest.mark.slow_rows("postgres")


def goal(id_: str, session: str, begun: str, **fields) -> GoalRow:
    return GoalRow(id_, session, "text", "make", {"a": "h"}, 1.5, 7, "running", 2, begun=begun, **fields)


def test_a_goal_is_kept_whole_and_found_by_the_beginning_of_its_id(db):
    goal_row, two = goal("ab1", "s1", "1", said="so", stalled=3, mark="m"), goal("ab2", "s2", "2", note="n")
    for row in (goal_row, two):
        on(db, goals.add, row)
    with pytest.raises(StoreBusy):
        on(db, goals.add, goal("ab3", "s1", "3"))
    assert on(db, goals.get, "ab1") == goal_row and on(db, goals.get, "ab2") == two == on(db, goals.get, "")
    on(db, goals.add, goal("ab", "s3", "3"))
    on(db, goals.add, goal("ab4", "s4", "4"))
    on(db, goals.add, goal("xyz", "s5", "0"))
    assert on(db, goals.get, "ab").id == "ab", "a whole id is meant before what begins so"
    assert on(db, goals.get, "x").id == "xyz" and on(db, goals.get, "").id == "ab4"
    for unclear in ("a", "zz", "%2", "_b2"):
        with pytest.raises(NotFound):
            on(db, goals.get, unclear)
    assert [row.id for row in on(db, goals.list_goals)] == ["ab4", "ab", "ab2", "ab1", "xyz"]
    assert [row.id for row in on(db, goals.list_goals, 1)] == ["ab4"]
    assert on(db, goals.find_last_goal, "s1") == goal_row and on(db, goals.find_last_goal, "s9") is None
    assert on(db, goals.end_goal, "ab1", "achieved", "done", "9")
    on(db, goals.add, goal("ac", "s1", "4"))
    assert on(db, goals.find_last_goal, "s1").id == "ac", "the last one"


def test_a_round_is_asked_and_judged_once_and_only_while_the_goal_is_open(db):
    row = goal("g", "s1", "1")
    on(db, goals.add, row)
    on(db, goals.note_round_message, row)
    with pytest.raises(StoreBusy):
        on(db, goals.note_round_message, row)
    changed = {"said": "red", "stalled": 1, "mark": "m2", "note": "why", "guarded": {"b": "h2"}}
    judged = msgspec.structs.replace(row, round=1, state="paused", **changed)
    assert on(db, goals.store_judgement, judged) and not on(db, goals.store_judgement, judged)
    assert on(db, goals.get, "g") == msgspec.structs.replace(judged, asked=1)
    on(db, goals.note_round_message, judged)
    assert on(db, goals.get, "g").state == "running", "asking goes on with a paused one"
    on(db, goals.store_guarded_hashes, "g", {"c": "h3"})
    assert on(db, goals.get, "g").guarded == {"c": "h3"}
    assert on(db, goals.end_goal, "g", "paused", "waits", "8") and on(db, goals.get, "g").ended == ""
    assert on(db, goals.end_goal, "g", "stuck", "no way", "9")
    over = on(db, goals.get, "g")
    assert (over.state, over.note, over.ended) == ("stuck", "no way", "9")
    assert not on(db, goals.end_goal, "g", "cancelled", "", "9")
    late = msgspec.structs.replace(over, round=2)
    assert not on(db, goals.store_judgement, late)
    with pytest.raises(StoreBusy):
        on(db, goals.note_round_message, msgspec.structs.replace(over, round=2))


async def test_a_goals_steps_are_those_of_its_turns(db, clock):
    log = await new_log(db, clock)
    for steps in (3, 1, 2):
        turn = await log.begin_turn(user("x"))
        for _ in range(steps):
            await log.append_reply(turn, answer("ok"), USAGE, "m")
        await log.end_turn(turn, "answered", "")
    key = log.live.key
    assert [on(db, goals.count_steps, key, first) for first in (1, 2, 3, 4)] == [6, 3, 2, 0]


def test_a_calls_sums_are_those_of_the_session_it_works_for(db, clock):
    on(db, sessions.create, sessions.NewSession("root", profile="ann"), "t")
    on(db, sessions.create, sessions.NewSession("forked", parent_session_id="root"), "t")
    on(db, sessions.create, sessions.NewSession("h", parent_session_id="root", kind="child"), "t")
    on(db, sessions.create, sessions.NewSession("r", parent_session_id="h", kind="review"), "t")
    helper = helper_rows.HelperRow("h1", "root", 0, "c", HelperWish("do it"), "h")
    on(db, helper_rows.add, helper)
    plain = [("day", "D"), ("session", "root"), ("person", "D ann")]
    assert on(db, wallet.list_scopes, "h", "D") == plain == on(db, wallet.list_scopes, "r", "D")
    assert on(db, wallet.list_scopes, "forked", "D")[1] == ("session", "forked")
    assert on(db, wallet.list_scopes, "gone", "D") == [("day", "D"), ("session", "gone"), ("person", "D ")]
    assert on(db, wallet.list_scopes, "", "D") == [("day", "D"), ("person", "D ")]

    db.write_now(lambda c: c.execute("UPDATE helpers SET budget_usd = 0.5"))
    on(db, schedules.add, Schedule("sch", "n", "2026", "0 * * * *", "", "UTC", "x"), "2026", clock)
    job = on(db, jobs.lease, (schedules.KIND,), "w", 60, clock)
    on(db, schedules.begin_run, job, Firing("sch", "2026"), "t")
    on(db, schedules.set_run_session, job.id, "root")
    on(db, goals.add, goal("g", "root", "1"))
    scopes = on(db, wallet.list_scopes, "h", "D")
    assert scopes == [*plain[:2], ("helper", "h1"), plain[2], ("schedule", "D sch"), ("goal", "g")]
    assert on(db, wallet.list_scopes, "root", "D") == [*plain, ("schedule", "D sch"), ("goal", "g")]
    caps = [on(db, wallet.read_own_cap, scope) for scope in scopes]
    assert caps == [None, None, Cap(0.5, setting="budget_usd"), None, None, Cap(1.5, setting="--budget")]
    assert on(db, wallet.read_own_cap, ("goal", "none")) == Cap(setting="--budget")


def reserve(db, cap: Cap, near: float, usd: float | None, tokens: int, prompt: int = 0) -> tuple[str, ...]:
    asked = PlannedCall("s", "turn", "m", usd, tokens, "t", prompt)
    return on(db, wallet.reserve, asked, [("day", "D")], {"day": cap}, near).near


@ONLY_SQLITE
def test_a_cap_may_be_reached_but_not_passed(db):
    money, tokens = Cap(1.0, 0, "usd"), Cap(0.0, 1000, "tokens")
    with pytest.raises(BudgetReached, match=r"\$0.00 of \$1.00 is spent or reserved, .* cost \$1.01"):
        reserve(db, money, 9, 1.01, 0)
    with pytest.raises(BudgetReached, match=r"0 of 1,000 tokens are spent or reserved, .* take 1,001"):
        reserve(db, tokens, 9, None, 1001)
    reserve(db, money, 9, 0.1, 0)
    reserve(db, money, 9, 0.9, 0)
    assert reserve(db, money, 9, None, 50) == (), "what has no price is not held by a cap in money"
    reserve(db, tokens, 9, None, 950)
    with pytest.raises(BudgetReached) as refused:
        reserve(db, tokens, 9, None, 1)
    assert refused.value.hint == "tokens"
    assert on(db, wallet.read_spending, ("day", "D")) == (1.0, 1000)


@ONLY_SQLITE
@pytest.mark.parametrize(
    ("cap", "spent", "call", "told"),
    [
        (Cap(10.0, 0, "set"), (7.99, 0), (0.01, 1, 1), ""),
        (Cap(10.0, 0, "set"), (8.0, 0), (0.01, 1, 1), "$8.00 of $10.00 is spent (set)"),
        (Cap(0.0, 1000, "set"), (None, 799), (None, 10, 10), ""),
        (Cap(0.0, 1000, "set"), (None, 800), (None, 10, 10), "800 of 1,000 tokens are spent (set)"),
        (Cap(10.0, 1000, "set"), (1.0, 800), (0.1, 10, 10), "$1.00 of $10.00 is spent (set)"),
        (Cap(0.0, 1000, "set"), (None, 100), (None, 500, 400), ""),
        (
            Cap(0.0, 1000, "set"),
            (None, 100),
            (None, 500, 401),
            "100 of 1,000 tokens are spent, the next call may have no room (set)",
        ),
        (Cap(10.0, 0, "set"), (2.0, 0), (5.0, 10, 6), ""),
        (
            Cap(10.0, 0, "set"),
            (2.0, 0),
            (5.0, 10, 7),
            "$2.00 of $10.00 is spent, the next call may have no room (set)",
        ),
        (Cap(10.0, 0, "set"), (5.0, 0), (4.0, 0, 9), ""),
        (Cap(10.0, 0, "set"), (None, 0), (None, 10, 10), ""),
    ],
)
def test_a_sum_is_near_its_cap_by_its_share_or_by_the_next_call(db, cap: Cap, spent, call, told: str):
    reserve(db, Cap(), 9, *spent)
    expected = (f"the day's cap is near: {told}",) if told else ()
    assert reserve(db, cap, 0.8, *call) == expected
    assert bool(reserve(db, cap, 0.0, 0.0, 0)) == (not told), "it is said once"


@ONLY_SQLITE
@pytest.mark.parametrize(
    ("usd", "tokens", "prompt", "shown", "left"),
    [
        (0.5, 100, 40, 10, (0.25, 50)),
        (0.5, 100, 40, 0, (0.2, 40)),
        (0.5, 100, 40, 90, (0.5, 100)),
        (0.5, 100, 40, 300, (0.7, 140)),
        (0.5, 0, 40, 10, (0.5, 0)),
        (None, 100, 40, 10, (0.0, 50)),
    ],
)
def test_a_cancelled_call_costs_what_was_sent_and_shown(db, usd, tokens, prompt, shown, left):
    asked = PlannedCall("s", "turn", "m", usd, tokens, "t", prompt)
    held = on(db, wallet.reserve, asked, [("day", "D")], {}, 0.8)
    assert on(db, wallet.read_open_reservations).count == 1
    on(db, wallet.settle_cancelled_call, held.id, asked, shown)
    assert on(db, wallet.read_spending, ("day", "D")) == left
    assert on(db, wallet.read_open_reservations).count == 0
    [row] = db.read_now(lambda c: c.execute("SELECT usd, tokens FROM wallet_calls").fetchall())
    assert row == (None if usd is None else left[0], left[1])


def test_a_price_that_becomes_known_is_added_and_one_that_is_lost_taken_off(db):
    scope = ("day", "D")
    known, unknown = (
        on(db, wallet.reserve, PlannedCall("s", "turn", "m", usd, 10, "t"), [scope], {}, 0.8)
        for usd in (0.5, None)
    )
    on(db, wallet.settle, unknown.id, 0.25, 30)
    assert on(db, wallet.read_spending, scope) == (0.75, 40)
    on(db, wallet.settle, known.id, None, 5)
    assert on(db, wallet.read_spending, scope) == (0.25, 35)
    on(db, wallet.settle, 99, 1.0, 1)
    assert on(db, wallet.read_spending, scope) == (0.25, 35) and on(
        db, wallet.read_spending, ("day", "E")
    ) == (0.0, 0)


def test_answers_wait_for_the_end_of_quiet_hours_in_one_job(db, clock):
    on(db, schedules.add, Schedule("sch", "News", "2026", "0 * * * *", "", "UTC", "x"), "2026", clock)
    for number, schedule in enumerate(("sch", "gone", "sch", "sch")):
        db.write_now(
            lambda c, values=(f"j{number}", schedule, str(9 - number), f"text {number}"): c.execute(
                "INSERT INTO schedule_runs"
                " (job, schedule, finished, text, due, by_hand, started, result, note)"
                " VALUES (?, ?, ?, ?, '', 0, '', 'answered', 'n')",
                values,
            )
        )
    for job, target in (("j0", "chat"), ("j1", "chat"), ("j2", "other")):
        on(db, digests.hold_answer, job, target, "2026-11-22T07:00:00", clock)
    due = [on(db, jobs.find_waiting, digests.KIND, target) for target in ("chat", "other")]
    assert [job.run_after for job in due] == ["2026-11-22T07:00:00"] * 2
    assert db.read_now(lambda c: c.execute("SELECT count(*) FROM jobs WHERE kind = 'digest'").fetchall()) == [
        (2,)
    ]
    assert on(db, digests.take_answers, "chat") == [
        digests.HeldAnswer("", "answered", "n", "text 1"),
        digests.HeldAnswer("News", "answered", "n", "text 0"),
    ]
    assert on(db, digests.take_answers, "chat") == [] and len(on(db, digests.take_answers, "other")) == 1
