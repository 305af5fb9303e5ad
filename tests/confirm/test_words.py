"""What people are told of a request, on its page and in messages: every line, and where it is left out."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from whet.contract.channels import MessageCard
from whet_confirm.notify.chat import build_card
from whet_confirm.notify.deliveries import LOG, NotifyDelivery
from whet_confirm.notify.notice import AGENT_MARK, HIDDEN, RequestNotice, agent_lines
from whet_confirm.notify.notice_text import build_notice, clock_time
from whet_confirm.notify.presses import format_reply
from whet_confirm.policy import ConfirmPolicy
from whet_confirm.records import (
    BY_TIMEOUT,
    ApprovalNeed,
    ApprovalPlan,
    AuditEvent,
    Caller,
    ConfirmRequest,
    RequestOutcome,
    Vote,
)
from whet_confirm.risk import RiskReading
from whet_confirm.sight import UNASSESSED, Assessment
from whet_confirm.web.view import (
    Viewer,
    build_request_card,
    build_request_detail,
    describe_event,
    find_barrier,
    format_duration,
    format_moment,
    unseen_parts,
)

AT = 1_795_680_000.0  # 2026-11-26 08:00:00 UTC
APPROVED = "Approved by ann at 2026-11-26 08:01:00 UTC."
FOR_BEN = ApprovalPlan(approvers=("ben",))
TWO = ApprovalPlan("two", ((ApprovalNeed(2, "ops"),),), approvers=())


def asked(**more: Any) -> ConfirmRequest:
    request = ConfirmRequest(
        seq=1, id="r1", action="deploy", description="to production", details_json='{"path":"a"}',
        requester="bot", session_key="s1", principal="agent", status="pending", created_at=AT,
        expires_at=AT + 600, timeout_seconds=600, resolved_at=None, resolved_by="", reason="", digest="d1",
        plan=ApprovalPlan("usual"), policy_version="1",
    )  # fmt: skip
    return msgspec.structs.replace(request, **more)


def ended(status: str = "approved", **more: Any) -> ConfirmRequest:
    return asked(status=status, resolved_at=AT + 60, **{"resolved_by": "ann", **more})


def test_times_and_spans_are_written_for_people():
    assert format_moment(None) == "" and format_moment(AT) == "2026-11-26 08:00:00 UTC"
    assert clock_time(AT + 5) == "08:00:05 UTC on 26 Nov"
    spans = {0: "0:00", 65.9: "1:05", 3_599: "59:59", 3_600: "1 h 00 min", 172_799: "47 h 59 min"}
    assert {seconds: format_duration(seconds) for seconds in spans} == spans
    assert (format_duration(172_800), format_duration(400_000)) == ("2 d", "4 d")


def test_a_request_stands_in_a_list_with_its_times():
    assert build_request_card(asked(action="a" * 200, requester="b\nc"), AT + 100) == {
        "id": "r1", "action": "a" * 76 + "\n[... cut, 200 characters in all]", "requester": "b⏎c",
        "principal": "agent", "summary": "to production", "status": "pending", "status_word": "Pending",
        "is_pending": True, "is_high_risk": False, "risk_word": "", "missing": "", "created_s": AT,
        "expires_s": AT + 600, "timeout_s": 600.0, "left_s": 500.0, "resolved": "", "resolved_by": "",
        "created": "2026-11-26 08:00:00 UTC",
    }  # fmt: skip
    long = build_request_card(asked(requester="r" * 200, principal="p" * 200, description="d" * 200), AT)
    assert {name: len(long[name].split("\n")[0]) for name in ("requester", "principal", "summary")} == {
        "requester": 16,
        "principal": 16,
        "summary": 116,
    }
    over = build_request_card(ended("expired", resolved_by=BY_TIMEOUT, expires_at=AT + 0.5), AT + 700)
    assert (over["left_s"], over["timeout_s"], over["resolved_by"]) == (0.0, 1.0, "")
    assert (over["status_word"], over["resolved"]) == ("Expired", "2026-11-26 08:01:00 UTC")
    assert build_request_card(ended(), AT)["resolved_by"] == "ann"


def viewer(role: Any = "approve", name: str = "ann", **more: Any) -> Viewer:
    policy = more.pop("policy", ConfirmPolicy(groups={"ops": ("ann", "ben")}))
    is_open = more.pop("is_open", False)
    return Viewer(Caller(name, role, "t", is_open), policy, AT + 100, **more)


@pytest.mark.parametrize(
    ("request_", "who", "why"),
    [
        (asked(), viewer(), ""),
        (ended(), viewer(), "It is over."),
        (asked(), viewer("audit"), "You are signed in as ann, who may look but not decide."),
        (asked(), viewer("admin"), ""),
        (asked(), viewer(name="Agent"), "You asked for this yourself, so somebody else must decide."),
        (asked(), viewer(name="agent", is_open=True), ""),
        (asked(plan=TWO), viewer(), ""),
        (asked(plan=TWO), viewer(name="cat"), "This one is for others to decide: 2 of ops."),
        (asked(plan=FOR_BEN), viewer(), "This one is for others to decide: 1 of anyone."),
    ],
)
def test_who_may_not_decide_is_told_why(request_, who, why):
    assert find_barrier(request_, who) == why


def page(request: ConfirmRequest, who: Viewer, votes: list[Vote] | None = None) -> dict[str, Any]:
    deliveries = [
        NotifyDelivery(1, 1, "submitted", "r1", "chat", "queued", 2, AT, "x\u202e", "", AT),
        NotifyDelivery(2, 1, "submitted", "r1", LOG, "sent", 1, AT, "", "", AT),
        NotifyDelivery(3, 1, "submitted", "r1", "mail", "odd", 1, AT, "", "", AT),
    ]
    return build_request_detail(request, who, Assessment(tuple(votes or ())), deliveries, [])


def test_a_requests_page_says_what_it_needs_and_what_this_person_did():
    plan = msgspec.structs.replace(TWO, min_review_s=30.0, needs_factor=True)
    votes = [Vote("r1", "ben", "deny", AT, "no\u202e"), Vote("r1", "ann", "approve", AT)]
    fields = page(asked(plan=plan, accepts_edits=True), viewer(viewed_at_s=AT + 90), votes)
    assert (fields["rule"], fields["needs"], fields["is_quorum"]) == ("two", "2 of ops", True)
    assert (fields["my_vote"], fields["min_review_s"], fields["review_left_s"]) == ("approve", 30.0, 20.0)
    assert (fields["needs_code"], fields["needs_passkey"], fields["accepts_edits"]) == (True, False, True)
    at = "2026-11-26 08:00:00 UTC"
    assert fields["votes"] == [
        {"name": "ben", "verdict": "denied", "at": at, "reason": "no<U+202E>"},
        {"name": "ann", "verdict": "approved", "at": at, "reason": ""},
    ]
    assert [(*row.values(),) for row in fields["deliveries"]] == [
        ("chat", "submitted", at, "queued", "being sent", "x<U+202E>", 2),
        (LOG, "submitted", at, "dead", "no channel reached a person; only the log has it", "", 1),
        ("mail", "submitted", at, "odd", "odd", "", 1),
    ]
    assert (fields["unseen"], fields["edits"], fields["warning"], fields["barrier"]) == ([], (), "", "")
    assert json.loads(fields["edit_text"]) == {"path": "a"} == json.loads(fields["json_text"])
    plain = page(asked(), viewer(name="cat"))
    assert (plain["is_quorum"], plain["my_vote"], plain["review_left_s"]) == (False, "", 0.0)
    fresh = page(asked(plan=plan), viewer())
    assert fresh["review_left_s"] == 30.0
    over = page(ended(plan=plan), viewer(viewed_at_s=AT))
    assert (over["needs_code"], over["needs_passkey"], over["review_left_s"]) == (False, False, 0.0)


def test_what_is_hidden_is_named_until_this_person_has_had_it_shown():
    request = asked(details_json='{"password":"x","path":"a"}')
    assert unseen_parts(request, ConfirmPolicy()) == ["the value of password"]
    fields = page(request, viewer())
    assert fields["unseen"] == ["the value of password"] and fields["edit_text"] == ""
    assert [(row.name, row.text) for row in fields["rows"]] == [("path", "a"), ("password", "[REDACTED]")]
    shown = page(request, viewer(revealed="d1"))
    assert shown["unseen"] == [] and ("password", "x") in [(row.name, row.text) for row in shown["rows"]]
    other = page(request, viewer(revealed="d0"))
    assert other["unseen"] == ["the value of password"]


def test_an_edit_is_shown_as_a_change_of_the_whole_document():
    edited = asked(original_json='{"path":"b"}', edited_by="ben")
    fields = page(edited, viewer())
    changed = [(edit.kind, edit.text) for edit in fields["edits"] if edit.kind in ("added", "removed")]
    assert changed == [("removed", '  "path": "b"'), ("added", '  "path": "a"')]
    assert fields["edited_by"] == "ben"
    assert page(asked(original_json='{"path":"a"}'), viewer())["edits"] == ()


@pytest.mark.parametrize(
    ("request_", "outcome", "execution"),
    [
        (asked(), "", ""),
        (ended(), APPROVED, "Approval not used yet"),
        (
            ended("auto_approved", resolved_by="whitelist:2"),
            "Allowed by rule (whitelist:2) at 2026-11-26 08:01:00 UTC.",
            "Approval not used yet",
        ),
        (ended("denied"), "Denied by ann at 2026-11-26 08:01:00 UTC.", ""),
        (ended("expired"), "Expired at 2026-11-26 08:01:00 UTC: nobody decided, which is a denial.", ""),
        (
            ended(consumed_at=AT + 70, consumed_by="bot"),
            APPROVED,
            "Approval used by bot at 2026-11-26 08:01:10 UTC",
        ),
        (
            ended(consumed_at=AT + 70, executed_at=AT + 80, execution="failed", execution_note="so\u202e"),
            APPROVED,
            "Reported as failed at 2026-11-26 08:01:20 UTC: so<U+202E>",
        ),
        (
            ended(executed_at=AT + 80, execution="done"),
            APPROVED,
            "Reported as done at 2026-11-26 08:01:20 UTC",
        ),
    ],
)
def test_how_a_request_ended_and_what_became_of_its_approval(request_, outcome, execution):
    fields = page(request_, viewer())
    assert (fields["outcome"], fields["execution"]) == (outcome, execution)


def test_an_event_is_a_line_with_what_it_says():
    def line(kind: str, data: str) -> tuple[str, str]:
        event = describe_event(AuditEvent(1, AT, kind, "r1", "ann", "agent", data, b""))
        assert event["at"] == "2026-11-26 08:00:00 UTC"
        return event["word"], event["who"]

    word = "decided (approve, so<U+202E>)"
    assert line("decided", '{"verdict":"approve","reason":"so\u202e"}') == (word, "ann")
    assert line("brand_new", '{"why":"","other":1}') == ("brand new", "ann")
    assert line("submitted", "{}") == ("submitted", "ann")


# Messages.


def notice(request: ConfirmRequest, assessment: Assessment = UNASSESSED, **more: Any) -> RequestNotice:
    return build_notice(request, assessment, link="https://x.example/r1", **more)


def test_a_request_that_waits_is_told_whole_and_may_be_approved_there():
    assert notice(asked(), Assessment(risk=RiskReading("dangerous", ("it deletes",)))) == RequestNotice(
        request_id="r1", digest="d1", state="pending", headline="Approval needed", action="deploy",
        requester="bot", principal="agent", description="to production", details='{\n  "path": "a"\n}',
        is_high_risk=False, expires_s=AT + 600, deadline="08:10:00 UTC on 26 Nov",
        link="https://x.example/r1", risk=RiskReading("dangerous", ("it deletes",)).line, is_alarming=True,
    )  # fmt: skip
    assert notice(asked(details_json="{}")).details == ""


@pytest.mark.parametrize(
    ("request_", "kind", "headline"),
    [
        (asked(), "submitted", "Approval needed"),
        (asked(), "escalated", "Still unanswered: approval needed"),
        (asked(), "amended", "Changed: approval needed"),
        (ended(), "escalated", "Approved"),
        (ended("auto_approved"), "amended", "Approved"),
        (ended("denied"), "decided", "Denied"),
        (ended("expired"), "expired", "Expired: denied by silence"),
        (ended("cancelled"), "cancelled", "Cancelled by the requester"),
    ],
)
def test_a_message_is_headed_by_what_happened(request_, kind, headline):
    assert notice(request_, kind=kind).headline == headline


@pytest.mark.parametrize(
    ("more", "cut", "may"),
    [
        ({}, False, True),
        ({"action": "a" * 150}, False, True),
        ({"action": "a" * 151}, True, False),
        ({"requester": "a" * 81}, True, False),
        ({"description": "a" * 701}, True, False),
        ({"principal": "a" * 81}, False, True),
        ({"details_json": json.dumps({"a": "x" * 1_501})}, True, False),
        ({"details_json": '{"token":"x"}'}, False, False),
        ({"plan": ApprovalPlan(needs_web=True)}, False, False),
        ({"plan": ApprovalPlan(needs_factor=True)}, False, False),
        ({"plan": ApprovalPlan(needs_passkey=True)}, False, False),
    ],
)
def test_what_a_message_does_not_show_whole_is_not_approved_there(more, cut, may):
    request_notice = notice(asked(**more))
    assert (request_notice.was_cut, request_notice.may_approve) == (cut, may)
    assert request_notice.is_hidden is ("token" in request_notice.details)


def test_details_that_no_message_holds_are_counted():
    size = 20 * 1_500
    just, over = (asked(details_json=json.dumps({"a": "x" * (size - 9 + more)})) for more in (0, 1))
    assert len(just.details_json) == size and notice(just).details.startswith("{")
    assert notice(over).details == f"[{size + 1:,} characters: see the page]"
    assert notice(over).was_cut and not notice(over).may_approve and not notice(over).is_hidden


@pytest.mark.parametrize(
    ("request_", "outcome"),
    [
        (asked(), ""),
        (ended(reason="so"), "Approved by ann at 08:01:00 UTC on 26 Nov; reason: so."),
        (ended("auto_approved", resolved_by="system:rule"), "Auto approved at 08:01:00 UTC on 26 Nov."),
        (asked(status="cancelled"), "Cancelled."),
    ],
)
def test_a_message_ends_with_who_decided(request_, outcome):
    assert notice(request_).outcome == outcome


def test_a_message_says_who_has_voted_while_more_are_needed():
    votes = Vote("r1", "ann", "approve", AT), Vote("r1", "ben", "deny", AT)
    text = "Takes 2 of ops. So far: ann approved, ben denied. Missing: 1 of ops."
    assert notice(asked(plan=TWO), Assessment(votes, "1 of ops")).progress == text
    assert notice(asked(plan=TWO)).progress == "Takes 2 of ops. So far: nobody."
    assert notice(asked()).progress == "" == notice(ended(plan=TWO), Assessment(votes)).progress
    hiding = notice(asked(action="de\u0440loy"))
    assert hiding.warning.startswith("Look closely: ") and notice(ended(action="de\u0440loy")).warning == ""


@pytest.mark.parametrize(
    ("link", "public"),
    [
        ("https://x.example/r", True),
        ("http://localhost:1/r", False),
        ("http://127.0.0.1/r", False),
        ("http://[::1]/r", False),
        ("", False),
        ("x.example", False),
    ],
)
def test_a_link_that_works_elsewhere_is_public(link, public):
    assert build_notice(asked(), link=link).has_public_link is public
    assert agent_lines("a\nb") == "| a\n| b" and agent_lines("a", "> ") == "> a"


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (
            RequestOutcome("decided", "m", ended(reason="so")),
            "deploy was approved by ann at 08:01:00 UTC on 26 Nov: so",
        ),
        (RequestOutcome("decided", "m", asked(status="cancelled")), "deploy was cancelled."),
        (
            RequestOutcome("late", "m", ended("expired")),
            "Too late. deploy expired at 08:01:00 UTC on 26 Nov without a decision, which is a denial.",
        ),
        (
            RequestOutcome("already_decided", "m", ended("auto_approved")),
            "Too late. deploy was auto approved by ann at 08:01:00 UTC on 26 Nov.",
        ),
        (RequestOutcome("voted", "one more is needed", asked()), "Your vote was one more is needed."),
        (RequestOutcome("own_request", "you asked"), "Not decided: you asked."),
        (RequestOutcome("decided", "it is gone"), "Not decided: it is gone."),
        (RequestOutcome("late", "it is gone"), "Not decided: it is gone."),
    ],
)
def test_a_press_is_answered_with_what_came_of_it(outcome, said):
    assert format_reply(outcome) == said
    long = ended(action="a" * 200, resolved_by="b" * 200, reason="c" * 200)
    assert len(format_reply(RequestOutcome("decided", "m", long))) <= 190


def test_a_message_is_a_card_in_parts():
    dangerous = RiskReading("dangerous", ("it deletes",))
    request_notice = notice(asked(digest="0123456789abcdef"), Assessment(risk=dangerous))
    card = build_card(request_notice)
    assert card == MessageCard(
        title="Approval needed", subject="deploy", tone="open", alarm="DANGEROUS",
        deadline="Decide before {}; silence is a denial.", at="08:10:00 UTC on 26 Nov", at_s=AT + 600,
        lines=(dangerous.line, "Token: agent"), ids=(("request", "r1"), ("digest", "0123456789ab")),
        mark=AGENT_MARK, quoted=("bot: to production", '{\n  "path": "a"\n}'),
    )  # fmt: skip
    assert build_card(request_notice, has_buttons=False).address == "Page: https://x.example/r1"
    here = build_notice(asked(principal="", is_high_risk=True), link="http://127.0.0.1:6080/r/r1")
    assert build_card(here).address == "Page (on that machine): http://127.0.0.1:6080/r/r1"
    assert (build_card(here).alarm, build_card(here).lines) == ("HIGH RISK", ("Token: none (open mode)",))
    assert build_card(build_notice(asked(), link=""), has_buttons=False).address == ""
    cut = msgspec.structs.replace(request_notice, was_cut=True, is_hidden=True)
    assert build_card(cut).warning == "Too long for a message: read it whole on the page to approve it."
    assert build_card(msgspec.structs.replace(request_notice, is_hidden=True)).warning == HIDDEN
    over = build_card(notice(ended("denied")))
    assert (over.tone, over.alarm, over.deadline, over.warning) == ("bad", "", "", "")
    assert build_card(notice(ended())).tone == "good"
    assert build_card(notice(ended("cancelled"))).tone == "plain"
