"""What the API, warm starts, reports and importers keep, as rows."""

from __future__ import annotations

import pytest

from tests.store.support import USAGE, asking, finish, new_log, on, result, talk, user
from whet.contract.tools import ToolOutput
from whet.store import api, costs, counts, imported_items, learned, sessions, warm
from whet.store.warm import ArmCounts, TemplateState, WarmStart

pytestmark = pytest.mark.slow_rows("postgres")


def listed(db, limit, **more):
    return on(db, sessions.list_sessions, limit, token="ann", **more)


async def test_a_clients_conversation_is_a_session(db, clock):
    log = await talk(db, clock, "s1", "one", "two")
    for id_ in ("s2", "s3"):
        clock.advance(1)
        await new_log(db, clock, id_)
    on(db, api.set_owner, "s1", "ann", "k")
    on(db, api.set_owner, "s1", "bob", "other")
    on(db, api.set_owner, "s2", "ann")
    on(db, api.set_instructions, "s1", "h")
    assert on(db, api.find_owner, "s1") == api.SessionOwner("ann", "k", "h")
    assert on(db, api.find_owner, "s2") == api.SessionOwner("ann", "", "")
    assert on(db, api.find_owner, "s3") is None
    assert on(db, api.find_session, "ann", "k") == "s1"
    assert on(db, api.find_session, "ann", "") == "" == on(db, api.find_session, "bob", "k")
    begun = listed(db, 9)
    assert [row.id for row in begun] == ["s2", "s1"]
    assert [row.id for row in listed(db, 1)] == ["s2"]
    assert [row.id for row in listed(db, 9, before=begun[0].last_active)] == ["s1"]
    on(db, api.mark_as_helper, "s2")
    assert [row.id for row in listed(db, 9)] == ["s1"]
    on(db, api.store_response, "r0", "s3")
    on(db, api.store_response, "r2", "s1")
    assert on(db, api.find_response, "r2") == ("s1", True) and on(db, api.find_response, "x") is None
    assert on(db, api.find_response, "r0") == ("s3", True)
    assert on(db, api.list_user_texts, "s1") == ["one", "two"]
    await log.undo_last_turn()
    assert on(db, api.list_user_texts, "s1") == ["one"]
    assert on(db, api.find_response, "r2") == ("s1", False)


@pytest.mark.slow
async def test_a_tokens_sessions_are_searched_before_the_list_is_cut(db, clock):
    for number in range(30):
        clock.advance(1)
        await new_log(db, clock, f"s{number:02}")
        on(db, sessions.rename, f"s{number:02}", "Tea" if number in (1, 2) else "Fix build")
        on(db, api.set_owner, f"s{number:02}", "bob" if number == 2 else "ann")

    def found(limit, **more):
        return [row.id for row in listed(db, limit, **more)]

    assert found(3, query="tea") == ["s01"] == found(3, query="S01") and found(3, query="ea_") == []
    assert found(2, query="build") == ["s29", "s28"]
    on(db, sessions.set_archive_time, "s29", "2026-11-24T00:00:00Z")
    assert found(2) == ["s28", "s27"] and found(9, query="s29") == ["s29"]  # as the owner's list


def test_warm_starts_and_what_came_of_their_templates(db):
    for id_ in ("s1", "s2", "s3"):
        on(db, sessions.create, sessions.NewSession(id=id_), "now")
    first = WarmStart("web", "h", "warm", "auto", 3)
    on(db, warm.record_start, "s1", first, "t1")
    on(db, warm.record_start, "s2", WarmStart("web", "h", "held_out", "default", 0), "t2")
    on(db, warm.record_start, "s3", WarmStart("web", "h", "warm", "name", 3), "t3")
    assert on(db, warm.read_start, "s1") == first and on(db, warm.read_start, "s9") is None
    state = TemplateState("it hurts", "never")
    on(db, warm.set_state, "h", "web", state, "now")
    assert on(db, warm.list_states) == {"h": state}
    outcomes = {"s1": ["ok", "failed", "denied", "ok"], "s2": ["failed", "failed"], "s3": ["ok"]}
    for id_, texts in outcomes.items():
        key = db.read_now(lambda c, id_=id_: sessions.key_of(c, id_))
        for seq, outcome in enumerate(texts, 1):
            values = (key, seq, 0, 1, 1, "c", "terminal", outcome)
            columns = "session, seq, position, turn, step, call_id, name, outcome"
            sql = f"INSERT INTO tool_calls ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
            db.write_now(lambda c, sql=sql, values=values: c.execute(sql, values))
    held, warmed = ArmCounts("held_out", 2, 2, "t2"), ArmCounts("warm", 1, 3, "t1")
    assert on(db, warm.list_first_calls, "h", 9) == [held, warmed], "one asked for by name is left out"
    assert on(db, warm.list_first_calls, "h", 1) == [
        ArmCounts("held_out", 1, 1, "t2"),
        ArmCounts("warm", 0, 1, "t1"),
    ]
    assert on(db, warm.list_first_calls, "h", 9, 1) == [held] and on(db, warm.list_first_calls, "x", 9) == []
    on(db, sessions.set_private, "s1", True)
    assert on(db, warm.list_first_calls, "h", 9) == [held]
    assert on(db, warm.find_hidden_sources, ["s1", "s2", "s9"]) == ({"s1"}, {"s9"})


def test_the_next_session_of_a_folder_starts_with_what_was_asked_for(db):
    for folder, template in (("/a", "web"), ("/b", "web"), ("/c", "ops"), ("/a", "db")):
        on(db, learned.set_next, folder, template, "now")
    assert [on(db, learned.read_next, folder) for folder in ("/a", "/b", "/c", "/d")] == [
        "db",
        "web",
        "ops",
        "",
    ]
    on(db, learned.forget_next, "/c")
    on(db, learned.forget_next, "", "web")
    assert [on(db, learned.read_next, folder) for folder in ("/a", "/b", "/c")] == ["db", "", ""]


async def test_what_turns_cost_is_summed_by_what_one_asks_for(db, clock):
    await talk(db, clock, "s1", "one", "two", model="m1", source="cli")
    clock.advance(24 * 3600)
    log = await new_log(db, clock, "s2", model="m2", source="api")
    turn = await log.begin_turn(user("x"))
    await log.append_reply(turn, asking("a", "b", "c"), USAGE, "m2")
    first, second, _ = log.open_calls(turn)
    await log.store_call_start(turn, first, "rule")
    await finish(log, turn, first)
    denied = ToolOutput("no", "denied")
    await log.store_call_result(turn, second, result(second), output=denied, duration_s=0.0)
    assert db.read_now(counts.count_unfinished_calls) == 1
    await log.end_turn(turn, "answered", "")
    by_day = db.read_now(lambda c: costs.sum_spending(c, "day", ""))
    assert [(one.label, one.turns) for one in by_day] == [("2026-11-21", 2), ("2026-11-22", 1)]
    one, two = db.read_now(lambda c: costs.sum_spending(c, "model", ""))
    assert (one.label, one.prompt_tokens, one.output_tokens) == ("m1", 20, 10)
    assert (one.cost_usd, one.unpriced) == (1.0, 0)
    assert (one.usage.prompt_tokens, one.usage.cost_usd, one.cache_hit_ratio) == (20, 1.0, 0.0)
    assert two.label == "m2" and one.usage.output_tokens == 10
    assert [one.label for one in db.read_now(lambda c: costs.sum_spending(c, "source", "2026-11-22"))] == [
        "api"
    ]
    assert db.read_now(lambda c: costs.count_decisions(c, "")) == [
        costs.DecisionCount("", 2, 1),
        costs.DecisionCount("rule", 1, 0),
    ]
    assert db.read_now(lambda c: costs.count_decisions(c, "2027")) == []
    assert db.read_now(counts.count_calls) == {"": 2, "denied": 1} and db.read_now(counts.count_steps) == 3
    assert db.read_now(lambda c: counts.count_messages(c, "s1")) == 4
    assert db.read_now(lambda c: counts.read_largest_prompt(c, "s1")) == 10
    assert db.read_now(lambda c: counts.count_live_messages(c, "s1")) == 4
    db.write_now(lambda c: c.execute("UPDATE turns SET usage = json_set(usage, '$.cost_usd', NULL)"))
    assert db.read_now(lambda c: costs.sum_spending(c, "kind", ""))[0].unpriced == 3
    with_cache = costs.Spending("x", 1, 100, 25, 1, 0.0, 0)
    assert with_cache.cache_hit_ratio == 0.25 and with_cache.usage.cache_read_tokens == 25
    assert costs.Spending("x", 1, 0, 0, 1, 0.0, 0).cache_hit_ratio == 0.0


def test_what_came_once_is_remembered(db):
    for _ in range(2):
        on(db, imported_items.record_name, "hermes", "mcp", "files", "now")
    assert on(db, imported_items.list_names, "hermes", "mcp") == {"files"}
    assert on(db, imported_items.list_names, "hermes", "chats") == set()
