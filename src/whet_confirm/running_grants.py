"""Grants: with an approval, a person may let later requests of its kind pass for a while.

A grant is a whitelist entry with limits: the same action of the same principal, in this session, for an hour,
at this host, or a number of times, as far as the rule allows. It never covers high-risk actions or commands
that Whet reads as dangerous. Each use is a request in the log; any approver can stop a grant.
"""

from __future__ import annotations

import re
from typing import Literal

import apsw
import msgspec

from whet_confirm import requests
from whet_confirm.address_hosts import has_same_host, shared_host
from whet_confirm.ledger import Tx
from whet_confirm.names import action_key
from whet_confirm.records import ApprovalPlan, ConfirmRequest
from whet_confirm.risk import RiskReading

GrantKind = Literal["session", "hour", "host", "times"]
GRANT_KINDS: tuple[GrantKind, ...] = ("session", "hour", "host", "times")
_HOUR_S = 3600.0
_COUNT = re.compile("[0-9]{1,6}")
_DEFAULT_PLAN = ApprovalPlan()


class GrantOffer(msgspec.Struct, frozen=True):
    """A grant that an approver may give with an approval. `text` says what it covers."""

    kind: GrantKind
    text: str
    seconds: float
    uses: int = 0
    host: str = ""

    @property
    def label(self) -> str:
        """A word or two for a button."""
        by_kind = {"session": "this session", "host": "this host", "times": f"{self.uses} times"}
        return by_kind.get(self.kind, _format_duration(self.seconds))


class RunningGrant(msgspec.Struct, frozen=True):
    """The limits of a whitelist entry that was granted with an approval."""

    entry_id: int
    request_id: str
    kind: GrantKind
    host: str
    max_uses: int
    uses: int


def asks_one_person(plan: ApprovalPlan) -> bool:
    """Return whether a plan requires nothing but one plain approval."""
    one_approval = msgspec.structs.replace(
        _DEFAULT_PLAN,
        rule=plan.rule,
        escalate_to=plan.escalate_to,
        escalate_after=plan.escalate_after,
        grants=plan.grants,
        grant_max_s=plan.grant_max_s,
        grant_max_uses=plan.grant_max_uses,
    )
    return plan == one_approval


def list_offers(request: ConfirmRequest, reading: RiskReading | None = None) -> tuple[GrantOffer, ...]:
    """Return the grants that may be given with an approval of `request`."""
    plan = request.plan
    is_alarming = reading is not None and reading.is_alarming
    if not plan.grants or request.is_high_risk or is_alarming or not asks_one_person(plan):
        return ()
    offers = (_offer(kind, request) for kind in GRANT_KINDS if kind in plan.grants)
    return tuple(offer for offer in offers if offer is not None)


def _offer(kind: GrantKind, request: ConfirmRequest) -> GrantOffer | None:
    longest_s, uses = request.plan.grant_max_s, request.plan.grant_max_uses
    if kind == "session":
        text = f"in this session, at most {_format_duration(longest_s)}"
        return GrantOffer(kind, text, longest_s) if request.session_key else None
    if kind == "hour":
        seconds = min(_HOUR_S, longest_s)
        return GrantOffer(kind, f"for {_format_duration(seconds)}", seconds)
    if kind == "host":
        host = shared_host(requests.decode_details(request.details_json))
        return (
            GrantOffer(kind, f"at {host} for {_format_duration(longest_s)}", longest_s, host=host)
            if host
            else None
        )
    return _offer_uses(uses, longest_s)


def _offer_uses(uses: int, longest_s: float) -> GrantOffer:
    times = "once more" if uses == 1 else f"{uses} more times"
    return GrantOffer("times", f"{times} within {_format_duration(longest_s)}", longest_s, uses)


def pick_offer(request: ConfirmRequest, text: str, reading: RiskReading | None = None) -> GrantOffer | None:
    """Return the offer that a text names (its kind, or `times:N` for fewer uses), or None."""
    kind, colon, number = text.partition(":")
    offer = next((offer for offer in list_offers(request, reading) if offer.kind == kind), None)
    if offer is None or not colon:
        return offer
    if kind != "times" or not _COUNT.fullmatch(number) or not 1 <= int(number) <= offer.uses:
        return None
    return _offer_uses(int(number), offer.seconds)


def add(tx: Tx, request: ConfirmRequest, offer: GrantOffer, by: str) -> int:
    """Store the grant that `by` gave with the approval of `request`, and return its number."""
    db, until_s = tx.connection, tx.now_s + offer.seconds
    session_key = request.session_key if offer.kind == "session" else ""
    db.execute(
        "INSERT INTO whitelist (action_key, principal, session_key, created_by, created_at, expires_at)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (action_key(request.action), request.principal, session_key, by, tx.now_s, until_s),
    )
    entry_id = db.last_insert_rowid()
    limits = (entry_id, request.id, offer.kind, offer.host, offer.uses, 0)
    db.execute("INSERT INTO whitelist_limits VALUES (?, ?, ?, ?, ?, ?)", limits)
    data: dict[str, object] = {"id": entry_id, "for": offer.text, "until": until_s}
    tx.record("granted", request.id, by, request.principal, data)
    return entry_id


def covers(tx: Tx, grant: RunningGrant, request: ConfirmRequest, reading: RiskReading | None) -> bool:
    """Return whether a grant lets a request pass whose action, principal and session already match.

    A grant for a host requires that the details equal the approved ones, except behind that host.
    """
    if grant.kind not in request.plan.grants or (reading is not None and reading.is_alarming):
        return False  # the policy no longer allows it, or a person must read the command
    if grant.max_uses and grant.uses >= grant.max_uses:
        return False
    if not grant.host:
        return True
    approved = requests.find(tx.connection, grant.request_id, tx.now_s)
    if approved is None:
        return False
    approved_details = requests.decode_details(approved.details_json)
    return has_same_host(approved_details, requests.decode_details(request.details_json), grant.host)


def count_use(tx: Tx, grant: RunningGrant) -> str:
    """Count one use and describe it for the record."""
    tx.connection.execute("UPDATE whitelist_limits SET uses = uses + 1 WHERE entry_id = ?", (grant.entry_id,))
    number = f"{grant.uses + 1} of {grant.max_uses}" if grant.max_uses else f"{grant.uses + 1}"
    return f"grant {grant.entry_id} lets it pass, use {number}"


def find_running_grant(db: apsw.Connection, request_id: str, now_s: float) -> int:
    """Return the number of the running grant that was given with a request, or 0."""
    row = db.execute(
        "SELECT w.id FROM whitelist_limits l JOIN whitelist w ON w.id = l.entry_id"
        " WHERE l.request_id = ? AND w.revoked_at IS NULL AND w.expires_at > ?"
        " AND (l.max_uses = 0 OR l.uses < l.max_uses)",
        (request_id, now_s),
    ).fetchone()
    return int(row[0]) if row else 0


def _format_duration(seconds: float) -> str:
    if seconds >= 3600:
        hours = seconds / 3600
        return f"{hours:g} hour{'' if hours == 1 else 's'}"
    minutes = seconds / 60
    return f"{minutes:g} minute{'' if minutes == 1 else 's'}"
