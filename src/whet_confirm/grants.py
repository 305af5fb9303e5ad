"""Grants: a signed statement that exactly this action was approved, verified without asking the service.

A grant is a compact JWS (EdDSA). It names the approved action, the approvers and the time until which it
may be used. Only the service can ensure that it is used once (`consume`); an executor that stays offline
must remember the ids that it has run.
"""

from __future__ import annotations

import msgspec

from whet.contract.errors import WhetError
from whet.contract.texts import from_json
from whet_confirm.keys import PublicKey, SigningKey, base64url, unbase64
from whet_confirm.records import ConfirmRequest

ISSUER = "whet-confirm"
_CLOCK_SLACK_S, _LONGEST_S = 300.0, 31 * 86_400


class GrantClaims(msgspec.Struct, frozen=True):
    """The claims of a grant. Times are Unix seconds."""

    sub: str  # the request's id
    action: str
    digest: str
    approved_by: str
    iat: int
    exp: int
    iss: str = ISSUER


class GrantRefused(WhetError):
    """Raised for a grant that is not is_genuine, not for this action, or too old."""


def sign_grant(key: SigningKey, request: ConfirmRequest, valid_s: float) -> str:
    """Sign a grant for an approved request, valid until `valid_s` after the decision."""
    decided = request.resolved_at or request.created_at
    grant = GrantClaims(
        sub=request.id,
        action=request.action,
        digest=request.digest,
        approved_by=request.resolved_by,
        iat=int(decided),
        exp=int(decided + valid_s),
    )
    head = base64url(msgspec.json.encode({"alg": "EdDSA", "typ": "JWT", "kid": key.id}))
    body = base64url(msgspec.json.encode(grant))
    return f"{head}.{body}.{base64url(key.sign(f'{head}.{body}'.encode()))}"


def check_grant(text: str, key: PublicKey, *, digest: str, now_s: float) -> GrantClaims:
    """Verify that `text` is signed by `key`, made for `digest` and not too old, and return its claims.

    Raises GrantRefused. The executor must compute `digest` from the action that it is about to run
    (`canonical.request_digest`), never take it from the grant.
    """
    try:
        head, body, signature = text.split(".")
        header = from_json(unbase64(head), dict[str, str])
        is_genuine = header.get("alg") == "EdDSA" and key.is_valid_signature(
            f"{head}.{body}".encode(), unbase64(signature)
        )
        grant = from_json(unbase64(body), GrantClaims)
    except (ValueError, msgspec.DecodeError) as error:
        raise GrantRefused("this is not a grant") from error
    if not is_genuine or grant.iss != ISSUER:
        raise GrantRefused("the grant is not signed by this service's key")
    if grant.digest != digest:
        raise GrantRefused("the grant is for another action or other details")
    if grant.iat > now_s + _CLOCK_SLACK_S or grant.exp - grant.iat > _LONGEST_S:
        raise GrantRefused("the grant is from a clock that was wrong, or lasts longer than any may")
    if now_s >= grant.exp:
        raise GrantRefused("the grant is too old to be used")
    return grant
