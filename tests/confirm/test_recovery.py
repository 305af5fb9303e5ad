"""What is stored of a start, of who is away and of what passes by itself, row by row."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from tests.confirm.people import Desk
from whet.contract.errors import NotFound
from whet_confirm import recovery, stand_ins, tokens, whitelist
from whet_confirm.export import OtlpLogs
from whet_confirm.http import routes
from whet_confirm.ledger import Tx
from whet_confirm.policy import ConfirmPolicy, ConfirmRule
from whet_confirm.records import ApprovalPlan, AuditEvent
from whet_confirm.watermark import LogMark, Watermark, last_mark
from whet_confirm.whitelist import WhitelistRequest

T = TypeVar("T")
NOW_S = 2_000_000_000.0
EVENT = AuditEvent(3, 1.0, "decided", "", "", "", "{}", b"\x0a")


def change(desk: Desk, work: Callable[[Tx], T], now_s: float = NOW_S) -> T:
    return desk.service.database.write_now(lambda db: work(Tx(db, now_s, desk.service.key)))


def events(desk: Desk, kind: str) -> list[dict[str, Any]]:
    sql = "SELECT data FROM events WHERE kind = ? ORDER BY id"
    return [json.loads(data) for (data,) in rows(desk, sql, kind)]


def rows(desk: Desk, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    return desk.service.database.read_now(lambda db: db.execute(sql, values).fetchall())


# Starts.


def test_a_start_says_once_that_there_is_a_seal_and_each_time_why_a_state_was_taken(desk):
    assert len(events(desk, "sealed")) == 1
    assert rows(desk, "SELECT value FROM facts WHERE name = 'sealed'") == [("1",)]
    change(desk, lambda tx: recovery.record_state(tx, "", "because"))
    assert len(events(desk, "sealed")) == 1 and events(desk, "state_accepted") == []
    change(desk, lambda tx: recovery.record_state(tx, "it is older", " restored "))
    assert events(desk, "state_accepted") == [{"problem": "it is older", "why": "restored"}]
    change(desk, lambda tx: tx.connection.execute("DELETE FROM facts WHERE name = 'sealed'"))
    for _ in range(2):
        change(desk, lambda tx: recovery.record_state(tx, "", ""))
    assert len(events(desk, "sealed")) == 2


def test_a_log_falls_short_of_what_was_seen_of_it(desk):
    ((size, head),) = rows(desk, "SELECT id, hash FROM events ORDER BY id DESC LIMIT 1")

    def found(*marks: LogMark) -> str:
        return desk.service.database.read_now(lambda db: recovery.find_rollback(db, marks))

    assert found() == "" == found(LogMark(size, head.hex())) == found(LogMark(0, "x"))
    assert found(LogMark(size, head.hex()), LogMark(size + 1, "x")) == (
        f"the database is older than it was: its log ends at event {size}, but event {size + 1}"
        " was there before"
    )
    assert found(LogMark(size, "00")) == (
        f"the database has another history: event {size} is not the one that was there before"
    )


def test_a_log_goes_on_from_its_newest_event_unless_that_is_an_hour_ahead(desk):
    newest_s = desk.service.database.read_now(recovery.newest_time)

    def start(wall_s: float) -> tuple[float, float]:
        return recovery.start_time(desk.service.database, lambda: wall_s)

    assert start(newest_s + 5) == (newest_s, 0.0) == start(newest_s - 3_600)
    assert start(newest_s - 3_601) == (0.0, 3_601.0)


def test_a_clock_that_was_ahead_leaves_nothing_that_lasts_longer_than_it_was_meant_to(desk):
    token = "INSERT INTO tokens (id, name, role, hash, created_at, expires_at)"
    token += " VALUES (?, ?, 'submit', ?, ?, ?)"
    spans = (NOW_S + 10, NOW_S + 110), (NOW_S, NOW_S + 100), (NOW_S + 10, None)
    for number, (at, until) in enumerate(spans):
        values = (f"t{number}", f"n{number}", f"h{number}".encode(), at, until)
        change(desk, lambda tx, values=values: tx.connection.execute(token, values))
    change(desk, lambda tx: recovery.correct_clock(tx, 7_200.12345))
    assert events(desk, "clock_corrected") == [{"ahead_s": 7_200.123}]
    found = rows(desk, "SELECT created_at, expires_at FROM tokens WHERE id LIKE 't_' ORDER BY id")
    assert found == [(NOW_S, NOW_S + 100), (NOW_S, NOW_S + 100), (NOW_S + 10, None)]


# How far the log was seen to go.


def open_files() -> list[str]:
    return [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]


def test_a_mark_is_of_one_database_and_says_the_newest_event(tmp_path):
    path, mark = tmp_path / "latest.json", Watermark(tmp_path / "latest.json", tmp_path / "c.db")
    assert mark.read() is None
    mark.write(AuditEvent(30_000, 1.0, "x", "", "", "", "{}", b"\xff" * 32))
    mark.write(EVENT)
    assert mark.read() == LogMark(3, "0a", str(tmp_path / "c.db"))
    assert len(path.read_bytes()) == 512 and path.stat().st_mode & 0o777 == 0o600
    assert str(path) in open_files()
    mark.close()
    mark.close()
    assert str(path) not in open_files()
    assert Watermark(path, tmp_path / "other.db").read() is None
    path.write_text("no json")
    assert Watermark(path, tmp_path / "c.db").read() is None


def test_the_newest_checkpoint_of_a_file_is_its_last_line(tmp_path):
    path = tmp_path / "seen.jsonl"
    assert last_mark(path) is None
    path.write_text('{"size": 1, "head": "a"}\n{"size": 2, "head": "b", "more": 1}\n\n')
    assert last_mark(path) == LogMark(2, "b", str(path))
    path.write_text("\n \n")
    assert last_mark(path) is None
    path.write_text("no json\n")
    assert last_mark(path) is None


# Who is away.


def test_who_is_away_names_somebody_who_may_decide_until_a_time(desk):
    for name in ("ann", "ben", "cat"):
        desk.token(name)
    until = NOW_S + 100

    def away(giver: str, name: str, until_s: float = until) -> stand_ins.Delegation:
        return change(desk, lambda tx: stand_ins.delegate(tx, giver, name, until_s, ("Kim",)))

    for giver, name, until_s, text in (
        ("ann", "nobody" * 20, until, f"nobody who may decide is called {('nobody' * 20)[:60]!r}"),
        ("ann", "Ann", until, "somebody else must stand in for you"),
        ("ann", "ben", NOW_S, "until must be a time from now on, at most 90 days ahead"),
        ("ann", "ben", NOW_S + 90 * 86_400 + 1, "until must be a time from now on, at most 90 days ahead"),
    ):
        with pytest.raises(ValueError, match=r"\w") as caught:
            away(giver, name, until_s)
        assert str(caught.value) == text
    first = away("ann", "BEN", NOW_S + 90 * 86_400)
    assert (first.giver, first.stand_in, first.created_by, first.created_at) == ("ann", "ben", "ann", NOW_S)
    with pytest.raises(ValueError, match=r"^ann is away, and you stand in for them$"):
        away("ben", "ann")
    second = away("ann", "kim")
    assert second.stand_in == "Kim"
    third = away("cat", "ben")
    database = desk.service.database
    assert database.read_now(lambda db: stand_ins.list_active(db, NOW_S)) == [second, third]
    assert database.read_now(lambda db: stand_ins.list_active(db, until)) == []
    assert database.read_now(lambda db: stand_ins.stand_ins_by_key(db, NOW_S)) == {"ann": "Kim", "cat": "ben"}
    here = database.read_now(lambda db: stand_ins.stand_ins_by_key(db, NOW_S, except_for="KIM"))
    assert here == {"ann": "Kim", "cat": "ben"}
    mine = database.read_now(lambda db: stand_ins.stand_ins_by_key(db, NOW_S, except_for="Ann"))
    assert mine == {"ann": "", "cat": "ben"}, "nobody's stand-in decides on what that person asked for"
    assert database.read_now(lambda db: stand_ins.find_givers(db, "BEN", NOW_S)) == ["cat"]
    assert events(desk, "delegated") == [
        {"id": delegation.id, "stand_in": delegation.stand_in, "until": delegation.until}
        for delegation in (first, second, third)
    ]
    assert events(desk, "delegation_ended") == [{"id": first.id}]
    for number, by, is_admin in ((third.id, "ann", False), (99, "root", True)):
        with pytest.raises(NotFound, match=f"there is no delegation {number} of yours in force"):
            change(desk, lambda tx, n=number, b=by, a=is_admin: stand_ins.end(tx, n, b, is_admin=a))
    change(desk, lambda tx: stand_ins.end(tx, third.id, "Cat", is_admin=False))
    change(desk, lambda tx: stand_ins.end(tx, second.id, "root", is_admin=True))
    assert [event["id"] for event in events(desk, "delegation_ended")] == [first.id, third.id, second.id]


def test_groups_are_seated_with_members_of_other_systems_and_those_who_stand_in(desk):
    desk.token("ben")
    rule = ConfirmRule("r", "ask", (), (), (), (), (), None, frozenset(), "", ApprovalPlan(), None, 60)
    policy = ConfirmPolicy(rules=(rule,), groups={"ops": ("ann", "slack:S1"), "sec": ("oidc:sec",)})

    def seated(
        confirm_policy: ConfirmPolicy = policy, asked_by: str = "", now_s: float = NOW_S
    ) -> dict[str, Any]:
        database = desk.service.database
        return database.read_now(
            lambda db: stand_ins.apply_stand_ins(db, confirm_policy, now_s, asked_by)
        ).groups

    assert seated() == {"ops": ("ann",), "sec": ()}
    assert seated(ConfirmPolicy(groups=policy.groups)) == policy.groups
    change(desk, lambda tx: stand_ins.set_members(tx, "slack:S1", ["cat", "ann", "cat"], NOW_S + 100))
    change(desk, lambda tx: stand_ins.set_groups(tx, "eve", ["oidc:sec", "oidc:other"], NOW_S + 100))
    assert seated() == {"ops": ("ann", "cat"), "sec": ("eve",)}
    change(desk, lambda tx: stand_ins.delegate(tx, "ann", "ben", NOW_S + 50))
    assert seated() == {"ops": ("ben", "cat"), "sec": ("eve",)}
    assert seated(asked_by="ann") == {"ops": ("cat",), "sec": ("eve",)}
    assert seated(now_s=NOW_S + 60)["ops"] == ("ann", "cat") and seated(now_s=NOW_S + 100)["sec"] == ()
    for names in (["cat", "ann"], ["dan"]):
        change(desk, lambda tx, names=names: stand_ins.set_members(tx, "slack:S1", names, NOW_S + 200))
    assert events(desk, "members_changed") == [
        {"group": "slack:S1", "members": ["ann", "cat"]},
        {"group": "slack:S1", "members": ["dan"]},
    ]
    for groups in (["oidc:other", "oidc:sec"], []):
        change(desk, lambda tx, groups=groups: stand_ins.set_groups(tx, "eve", groups, NOW_S + 200))
    assert events(desk, "groups_changed") == [{"groups": ["oidc:other", "oidc:sec"]}, {"groups": []}]
    assert seated()["sec"] == ()


# What passes by itself.


def test_an_entry_is_listed_until_it_is_taken_back_and_after(desk):
    wanted = [WhitelistRequest(" Read ", "*", "s1", seconds) for seconds in (1, 86_400)]
    entries = [
        change(desk, lambda tx, request=whitelist_request: whitelist.add(tx, request, "root"))
        for whitelist_request in wanted
    ]
    assert {(entry.action, entry.principal, entry.session_key) for entry in entries} == {("read", "*", "s1")}
    assert [entry.expires_at for entry in entries] == [NOW_S + 1, NOW_S + 86_400]
    change(desk, lambda tx: whitelist.remove(tx, entries[0].id, "root"))
    with pytest.raises(NotFound, match=f"there is no grant or whitelist entry {entries[0].id} in force"):
        change(desk, lambda tx: whitelist.remove(tx, entries[0].id, "root"))
    found = desk.service.database.read_now(lambda db: whitelist.list_entries(db, NOW_S))
    assert [
        (item.id, item.created_by, item.created_at, item.revoked_at, item.is_running) for item in found
    ] == [(entries[1].id, "root", NOW_S, None, True), (entries[0].id, "root", NOW_S, NOW_S, False)]
    assert [event["expires_at"] for event in events(desk, "whitelist_added")] == [NOW_S + 1, NOW_S + 86_400]
    assert events(desk, "whitelist_removed") == [{"id": entries[0].id}]


# Beside.


async def test_a_collector_that_is_not_there_is_an_error_of_the_system():
    logs = OtlpLogs("http://127.0.0.1:1/v1/logs", {})
    with pytest.raises(OSError, match=r"^ConnectError: "):
        await logs.send([EVENT])
    await logs.aclose()


def test_the_document_names_how_each_call_is_answered_and_may_be_refused():
    data = json.loads(routes.read_document())
    assert data["info"]["title"] == "Whet confirmation service"
    any_call = {"400", "401", "403", "405", "408", "413", "429", "431", "503"}
    answers: dict[str, list[str]] = {}
    for path, calls in data["paths"].items():
        for method, call in calls.items():
            assert any_call <= call["responses"].keys()
            answers[f"{method.upper()} {path}"] = [
                response for response in call["responses"] if response not in any_call
            ]
    text, decided = "/confirm/{id}", ["200", "202", "404", "409", "425"]
    settled, missing = ["200", "404", "409", "425"], ["200", "404"]
    assert {call: sorted(texts) for call, texts in answers.items() if texts != ["200"]} == {
        "POST /confirm": ["200", "202", "422"], f"GET {text}": missing, f"POST {text}/approve": decided,
        f"POST {text}/deny": decided, f"POST {text}/cancel": settled, f"POST {text}/amend": settled,
        f"POST {text}/consume": settled, f"POST {text}/report": settled,
        f"GET {text}/grant": ["200", "404", "409"], f"GET {text}/deliveries": missing,
        "POST /whitelist": ["201"], "DELETE /whitelist/{entry}": missing, "POST /delegations": ["201"],
        "DELETE /delegations/{number}": missing, "POST /callbacks/{number}/retry": missing,
    }  # fmt: skip


def test_a_token_that_is_replaced_ends_at_once_or_after_a_while(desk):
    def ends(number: str) -> list[tuple[Any, ...]]:
        return rows(desk, "SELECT revoked_at, expires_at FROM tokens WHERE id = ?", number)

    first, _ = change(desk, lambda tx: tokens.create(tx, "ann", "approve", by="test"))
    second, _ = change(desk, lambda tx: tokens.rotate(tx, first, by="test"))
    assert (ends(first), ends(second)) == ([(NOW_S, None)], [(None, None)])
    assert events(desk, "token_revoked") == [{"token": first}] and events(desk, "token_expires") == []
    change(desk, lambda tx: tokens.rotate(tx, second, by="test", overlap_s=0.5))
    assert ends(second) == [(None, NOW_S + 0.5)]
    assert events(desk, "token_expires") == [{"token": second, "at": NOW_S + 0.5}]
    with pytest.raises(NotFound, match="there is no token 'none' in use"):
        change(desk, lambda tx: tokens.rotate(tx, "none", by="test"))


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (("\u200b", "bot", "", 60), "action and principal are required (principal * is anybody)"),
        (("read", "", "", 60), "action and principal are required (principal * is anybody)"),
        (("Wipe-Database", "*", "", 60), "Wipe-Database is a high-risk action: it always needs a person"),
        (("read", "*", "", 0.5), "the time must be from 1 second to 24 hours"),
        (("read", "*", "", 86_401), "the time must be from 1 second to 24 hours"),
    ],
)
def test_what_may_not_pass_by_itself(desk, wanted, said):
    with pytest.raises(ValueError, match=r"\w") as caught:
        change(desk, lambda tx: whitelist.add(tx, WhitelistRequest(*wanted), "root"))
    assert str(caught.value) == said
