"""Judge stored requests again under a newer policy, and end the running grants that it does not allow."""

from __future__ import annotations

from typing import Any

import msgspec

from whet.contract.errors import StoreCorrupt
from whet_confirm import requests, whitelist
from whet_confirm.ledger import Tx
from whet_confirm.names import action_key
from whet_confirm.policy import ConfirmPolicy, Facts, PolicyJudgement
from whet_confirm.records import ConfirmRequest
from whet_confirm.running_grants import list_offers

_REASON = "the policy does not allow it any more"
_RUNNING = (
    "SELECT w.id, l.request_id, l.kind FROM whitelist w JOIN whitelist_limits l ON l.entry_id = w.id"
    " WHERE w.revoked_at IS NULL AND w.expires_at > ? ORDER BY w.id"
)


def judge_again(
    request: ConfirmRequest, details: dict[str, Any], policy: ConfirmPolicy, now_s: float
) -> PolicyJudgement:
    """Judge a stored request with these details as if it were submitted at `now_s`."""
    facts = Facts(
        action_key=action_key(request.action),
        principal=request.principal,
        requester=request.requester,
        session_key=request.session_key,
        details=details,
        is_high_risk=request.is_high_risk,
        now_s=now_s,
        action=request.action,
    )
    return policy.judge(facts)


def end_disallowed_grants(tx: Tx, policy: ConfirmPolicy, by: str) -> None:
    """Revoke the running grants that the policy would not allow with an approval of their request.

    A rule's hours do not end a grant: it is judged at the time of its request. A grant whose request can't be
    read is revoked.
    """
    for entry_id, request_id, kind in tx.connection.execute(_RUNNING, (tx.now_s,)).fetchall():
        try:
            request = requests.find(tx.connection, request_id, tx.now_s)
            is_allowed = request is not None and _allows_grant(request, kind, policy)
        except StoreCorrupt:
            is_allowed = False
        if not is_allowed:
            whitelist.remove(tx, entry_id, by, _REASON)


def _allows_grant(request: ConfirmRequest, kind: str, policy: ConfirmPolicy) -> bool:
    details = requests.decode_details(request.details_json)
    judgement = judge_again(request, details, policy, request.created_at)
    planned = msgspec.structs.replace(request, plan=judgement.plan)
    return judgement.effect == "ask" and any(offer.kind == kind for offer in list_offers(planned))
