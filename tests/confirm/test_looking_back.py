"""What lists and pages show of what is and was: requests by state and words, the log, passkeys."""

from __future__ import annotations

import asyncio
import re
import sys
from html import unescape
from pathlib import Path

import pytest

from tests.confirm.people import AGENT, Desk
from tests.confirm.running import ManualClock, Running, field_of, touch
from whet_confirm import decide, submit
from whet_confirm.ledger import CHECKPOINT_EVERY, Tx
from whet_confirm.open import ServicePaths
from whet_confirm.records import Caller, ConfirmRequest
from whet_confirm.requests import RequestFilter, count_overdue
from whet_confirm.risk import RiskReadings
from whet_confirm.service import ConfirmService
from whet_confirm.submit import Submission
from whet_confirm.web.audit import QUICK_EVENTS, AuditWatch
from whet_confirm.web.audit_pages import search

pytestmark = pytest.mark.service(upkeep=False)

ANN = Caller("ann", "approve")


def ask(service: ConfirmService, *given: Submission, who: Caller = AGENT) -> list[ConfirmRequest]:
    """Submit all in one transaction."""
    policy, now_s = service.policy_file.policy, service.timeline.now_s()

    def write(tx: Tx) -> list[ConfirmRequest]:
        outcomes = (
            submit.store(
                tx, submit.judge_submission(submission, who, policy, now_s), 10_000, 10_000, RiskReadings()
            )
            for submission in given
        )
        return [outcome.request for outcome in outcomes if outcome.request is not None]

    return service.database.write_now(lambda db: write(Tx(db, now_s, service.key)))


class Past(Desk):
    """A service with a clock for tests."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.clock = ManualClock()
        self.service.timeline = self.clock.timeline()

    def ask(self, *given: Submission, who: Caller = AGENT) -> list[ConfirmRequest]:
        return ask(self.service, *given, who=who)

    def found(self, query: str = "", limit: int = 50, **wanted: str | int) -> list[str]:
        now_s, asked = self.service.timeline.now_s(), RequestFilter(limit=limit, **wanted)  # type: ignore[arg-type]
        requests = self.service.database.read_now(lambda db: search(db, query, asked, now_s))
        listed = self.service.list(asked)
        assert query or [request.id for request in requests] == [request.id for request in listed]
        return [item.action for item in requests]


@pytest.fixture
def past(tmp_path):
    desk = Past(tmp_path)
    yield desk
    desk.close()


def test_requests_are_found_by_every_word_in_any_of_their_texts(past):
    past.ask(
        Submission("deploy", "Release the STOREFRONT", {"region": "Trondheim"}, requester="builder"),
        Submission("restart", "The storefront is slow", {"region": "Bergen"}),
        Submission("letter", "Write to Annika", {"address": "annika@example.org"}, requester="writer"),
    )
    for query, actions in {
        "storefront": ["restart", "deploy"],
        "STOREFRONT trondheim": ["deploy"],
        "storefront region": ["restart", "deploy"],
        "trondheim bergen": [],
        "builder": ["deploy"],
        "agent": ["letter", "restart", "deploy"],  # who submitted them
        " ": ["letter", "restart", "deploy"],
        "letter " * 7 + "annika nowhere": ["letter"],  # the first eight words count
        "letter " * 7 + "nowhere": [],
    }.items():
        assert past.found(query) == actions, query
    assert past.found("storefront", limit=1) == ["restart"]
    assert past.found("storefront", before_seq=2) == ["deploy"]


def test_a_search_goes_on_until_it_has_what_it_was_asked_for(past):
    past.ask(*(Submission("old", "needle" if number < 3 else "hay") for number in range(503)))
    assert past.found("needle", limit=2) == ["old"] * 2
    assert len(past.found("needle")) == 3 and past.found("no such word") == []


def test_requests_are_listed_by_what_they_are_now(past):
    named = (("a", 60), ("b", 600), ("c", 600))
    first, second, _ = past.ask(*(Submission(name, "d", timeout_s=seconds) for name, seconds in named))
    past.ask(Submission("d", "d", timeout_s=900), who=Caller("other", "submit"))
    asyncio.run(past.service.decide(decide.DecisionInput(second.id, "deny"), ANN))
    lists = {
        "": ["d", "c", "b", "a"],
        "pending": ["d", "c", "a"],
        "denied": ["b"],
        "expired": [],
        "approved": [],
    }
    assert {status: past.found(status=status) for status in lists} == lists
    assert past.found(status="pending", principal="agent") == ["c", "a"]
    assert past.found(principal="other") == ["d"] and past.found(before_seq=3) == ["b", "a"]
    assert past.found(limit=0) == [] and past.found(limit=3) == ["d", "c", "b"]
    past.clock.pass_by(59.9)
    assert past.service.count_pending() == 3
    past.clock.pass_by(0.1)
    assert past.found(status="pending") == ["d", "c"] and past.found(status="expired") == ["a"]
    assert past.service.database.read_now(lambda db: count_overdue(db, first.expires_at)) == 1


def test_the_log_is_read_from_any_number_on(past):
    past.ask(*(Submission(f"act{number}", "d") for number in range(3)))
    log = past.service.log
    everything = [event.id for event in log.history()]
    assert everything == [*range(1, log.state().size + 1)]
    assert [event.id for event in log.history(after_id=2)] == everything[2:]
    assert [event.id for event in log.history(limit=2)] == [1, 2]
    assert [event.kind for event in log.history(after_id=everything[-1])] == []


def test_time_goes_on_from_what_another_process_wrote(past):
    service, later_s = past.service, past.service.timeline.now_s() + 500.0
    others = ServicePaths(service.database.path, past.folder)
    size = service.log.state().size
    touch(others, "INSERT INTO events VALUES (?, ?, 'noted', '', '', '', '{}', x'00')", size + 1, later_s)
    assert service.timeline.now_s() < later_s
    service.log.catch_up(service.timeline)
    assert service.timeline.now_s() >= later_s and service.hub.last_id == size + 1


def test_the_log_is_signed_at_every_so_many_events(past):
    def record(count: int) -> list[int]:
        def write(tx: Tx) -> None:
            for _ in range(count):
                tx.record("noted")

        now_s, key = past.service.timeline.now_s(), past.service.key
        past.service.database.write_now(lambda db: write(Tx(db, now_s, key)))
        return [int(str(row["size"])) for row in past.service.log.checkpoints_after(0)]

    left = CHECKPOINT_EVERY - past.service.log.state().size
    assert record(left - 1) == []
    assert record(1) == [CHECKPOINT_EVERY]
    assert record(CHECKPOINT_EVERY) == [CHECKPOINT_EVERY, 2 * CHECKPOINT_EVERY]
    assert len(past.service.log.checkpoints_after(CHECKPOINT_EVERY)) == 1
    newest = past.service.log.newest_checkpoint()
    assert newest is not None and newest["size"] == 2 * CHECKPOINT_EVERY


def test_a_long_log_is_verified_when_somebody_asks(past):
    def look(last: int, *, is_asked: bool = False) -> bool | None:
        sql = "UPDATE events SET id = ? WHERE id = (SELECT max(id) FROM events)"
        past.service.database.write_now(lambda db: db.execute(sql, (last,)))
        verification = asyncio.run(AuditWatch(past.service).latest_check(is_asked=is_asked))
        return verification and verification.report.is_good

    assert look(past.service.log.state().size) is True
    assert look(QUICK_EVENTS) is False  # events are missing
    assert look(QUICK_EVENTS + 1) is None
    assert look(QUICK_EVENTS + 1, is_asked=True) is False


def test_the_page_of_the_log_says_what_was_checked_when(tmp_path):
    clock = ManualClock()
    clock.wall_s = 2_000_000_000.0  # 2033-05-18 03:33:20 UTC
    with Running(tmp_path, upkeep=False, clock=clock) as server:
        (request,) = ask(server.service, Submission("deploy", "d"))
        person = server.signed_in("alice")
        text = person.get("/log").text
        size = server.service.log.state().size
        assert f"Verified up to event {size}</b> at 2033-05-18 03:33:20 UTC" in text
        assert "1 record agree" in text and server.service.key.id in text and "none yet" in text
        touch(server.paths, "UPDATE requests SET action = 'wipe' WHERE id = ?", request.id)
        clock.pass_by(10.0)
        assert "Verified up to" in person.get("/log").text  # what was found ten seconds ago will do
        clock.pass_by(0.1)
        assert "The log does not verify" in person.get("/log").text
        form = {"csrf": field_of(text, "csrf")}
        server.change(lambda tx: [tx.record("noted") for _ in range(45)])
        text = person.post("/log", data=form).text
        size = server.service.log.state().size
        assert "The log does not verify" in text
        assert re.findall(r'class="number">(\d+)<', text) == [str(size - number) for number in range(40)]


def test_the_first_page_has_the_most_urgent_request_opened(server):
    person = server.signed_in("alice")
    assert 'name="digest"' not in person.get("/").text
    slow, urgent, _ = ask(
        server.service, *(Submission(f"act-{seconds}", "d", timeout_s=seconds) for seconds in (600, 60, 900))
    )
    home = person.get("/").text
    assert field_of(home, "digest") == urgent.digest
    seen = "SELECT request_id FROM views"
    assert server.rows(seen) == []  # it was not chosen
    assert field_of(person.get(f"/r/{slow.id}").text, "digest") == slow.digest
    assert server.rows(seen) == [(slow.id,)]
    assert person.get(f"/r/{'A' * 22}").status_code == 404 == person.get("/r/x").status_code
    form = {"csrf": field_of(home, "csrf"), "verdict": "deny", "digest": urgent.digest}
    assert person.post(f"/r/{'A' * 22}/decide", data=form).status_code == 404
    person.post(f"/r/{urgent.id}/decide", data=form)
    person.get(f"/r/{urgent.id}")
    assert server.rows(seen) == [(slow.id,)]  # what is decided takes no look


def test_the_history_is_read_in_pages_of_fifty(server):
    person = server.signed_in("alice")
    assert "No request was ever made" in person.get("/history").text
    requests = ask(server.service, *(Submission(f"act-{number}", "d") for number in range(51)))
    listed = lambda text: re.findall(r"<code>(act-\d+)</code>", text)  # noqa: E731
    names = [request.action for request in reversed(requests)]
    page = person.get("/history").text
    assert listed(page) == names[:50]
    (older,) = re.findall(r"before=(\d+)", page)
    rest = person.get("/history", params={"before": older}).text
    assert listed(rest) == names[50:] and "before=" not in rest
    assert "No older ones" in person.get("/history", params={"before": "1"}).text
    assert listed(person.get("/history", params={"before": "x"}).text) == names[:50]
    assert listed(person.get("/history", params={"q": "act-7", "status": "pending"}).text) == ["act-7"]
    assert "Nothing fits" in person.get("/history", params={"status": "denied"}).text
    assert listed(person.get("/history", params={"status": "odd"}).text) == names[:50]


def test_an_auditor_reads_the_log_and_its_newest_checkpoint(server):
    auditor = server.client("audit", "eve")
    assert auditor.get("/audit/checkpoint").json() == {"size": 0}
    ask(server.service, Submission("one", "d"), Submission("two", "d"))
    server.change(lambda tx: tx.checkpoint())
    mark, state = auditor.get("/audit/checkpoint").json(), server.service.log.state()
    assert (mark["size"], mark["head"], mark["at"]) == (state.size, state.head, state.checkpoint_at)
    assert mark["key_id"] == server.service.key.id and len(mark["signature"]) == 86
    events = auditor.get("/audit/events").json()
    assert events["count"] == state.size == len(events["events"])
    assert [event["id"] for event in events["events"]] == [*range(1, state.size + 1)]
    for text in ("", "0", "x", "-1", "1" * 19):
        assert auditor.get("/audit/events", params={"after": text}).json() == events
    assert auditor.get("/audit/events?after=2").json()["events"] == events["events"][2:]
    assert auditor.get("/confirm?status=odd").status_code == 400
    assert auditor.get("/callbacks").json() == {"callbacks": []}


def test_who_has_no_passkey_is_offered_one_and_nothing_else_is_kept(server):
    person = server.signed_in("alice")
    page = person.get("/passkeys").text
    assert "You have none yet" in page and 'data-options="{' in page and 'role="alert"' not in page
    kept = person.post("/passkeys", data={"csrf": field_of(page, "csrf"), "passkey": "{}"})
    assert kept.status_code == 403 and "Nothing was kept: " in kept.text
    assert 'data-options="{' in kept.text
    assert server.rows("SELECT count(*) FROM passkeys") == [(0,)]


def test_a_service_that_can_not_check_signatures_offers_no_passkey_and_says_why(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "webauthn", None)
    with Running(tmp_path, upkeep=False) as server:
        page = server.signed_in("alice").get("/passkeys").text
        assert "passkeys need the package webauthn: pip install" in unescape(page)
        assert 'data-options="{' not in page
