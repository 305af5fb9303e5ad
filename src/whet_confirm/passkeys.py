"""Passkeys of approvers (WebAuthn): the authenticator signs the request's digest together with the verdict.

The signed data is stored with the vote in the audit log, so a check years later needs only the person's
public key and does not have to trust this service or its database. `webauthn` is an extra, imported when a
passkey is first used.
"""

# ruff: noqa: PLC0415 - webauthn takes a third of a second to import, and most services have no passkey

from __future__ import annotations

import hashlib
import json
from typing import Any
from urllib.parse import urlsplit

import apsw
import msgspec

from whet.contract.errors import ConfigError, NotFound
from whet.contract.texts import from_json
from whet.sqlite.checked import checked_select
from whet_confirm.keys import base64url, unbase64
from whet_confirm.ledger import Tx

MAX_PROOF_CHARS = 8_000
_RP_NAME = "Whet confirmations"


class PasskeyOrigin(msgspec.Struct, frozen=True):
    """The page in the browser: the origin that is signed, and the host name that the passkey belongs to."""

    origin: str

    @property
    def host(self) -> str:
        """The host name without the port, or an empty string if the origin is invalid."""
        try:
            return (urlsplit(self.origin).hostname or "").lower()
        except ValueError:
            return ""

    @property
    def port(self) -> int:
        """The port, including the scheme's default, or 0 if the port is invalid."""
        try:
            parts = urlsplit(self.origin)
            return parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError:
            return 0


class PasskeyProof(msgspec.Struct, frozen=True):
    """An authenticator's signature for a vote, with all fields as base64url.

    The signature covers `authenticator_data` and the hash of `client_data`; `credential` is the passkey's id.
    """

    credential: str
    client_data: str
    authenticator_data: str
    signature: str


class _Response(msgspec.Struct, frozen=True, rename="camel"):
    client_data_JSON: str = msgspec.field(name="clientDataJSON")
    authenticator_data: str
    signature: str


class _Vote(msgspec.Struct, frozen=True):
    proof: PasskeyProof | None = None


class _Assertion(msgspec.Struct, frozen=True):
    id: str
    response: _Response


def import_webauthn() -> None:
    """Import webauthn. Raises ConfigError if it is not installed."""
    try:
        import webauthn as webauthn
    except ImportError as error:
        from whet.extras import install_command

        raise ConfigError("passkeys need the package webauthn", hint=install_command("passkeys")) from error


def vote_challenge(verdict: str, digest: str) -> bytes:
    """Return the bytes to sign for a vote: the verdict and the digest (of id, content and deadline)."""
    return f"whet-vote/1 {verdict} {digest}".encode()


def enrolment_challenge(csrf: str) -> bytes:
    """Return the challenge for a new passkey. Only one logged-in browser knows it."""
    return hashlib.sha256(f"whet-passkey/1 {csrf}".encode()).digest()


def enrolment_options(name: str, csrf: str, site: PasskeyOrigin, enrolled_ids: list[str]) -> dict[str, Any]:
    """Return the options that the browser needs to create a passkey."""
    from webauthn import generate_registration_options, options_to_json
    from webauthn.helpers.structs import (
        AuthenticatorSelectionCriteria,
        PublicKeyCredentialDescriptor,
        UserVerificationRequirement,
    )

    options = generate_registration_options(
        rp_id=site.host,
        rp_name=_RP_NAME,
        user_name=name,
        user_id=hashlib.sha256(name.encode()).digest(),
        challenge=enrolment_challenge(csrf),
        authenticator_selection=AuthenticatorSelectionCriteria(
            user_verification=UserVerificationRequirement.REQUIRED
        ),
        exclude_credentials=[
            PublicKeyCredentialDescriptor(id=unbase64(passkey_id)) for passkey_id in enrolled_ids
        ],
    )
    return json.loads(options_to_json(options))


def enrol(tx: Tx, name: str, text: str, csrf: str, site: PasskeyOrigin) -> str:
    """Store a new passkey, or return the problem. `text` is the browser's registration response as JSON."""
    from webauthn import verify_registration_response
    from webauthn.helpers.exceptions import WebAuthnException

    try:
        registration = verify_registration_response(
            credential=text,
            expected_challenge=enrolment_challenge(csrf),
            expected_rp_id=site.host,
            expected_origin=site.origin,
            require_user_verification=True,
        )
    except (WebAuthnException, ValueError, KeyError, TypeError) as error:
        return f"the passkey was not accepted: {error}"
    id_, key = base64url(registration.credential_id), base64url(registration.credential_public_key)
    if tx.connection.execute("SELECT 1 FROM passkeys WHERE id = ?", (id_,)).fetchone():
        return "this passkey is already registered"
    tx.connection.execute(
        "INSERT INTO passkeys VALUES (?, ?, ?, ?, ?, ?, NULL)",
        (id_, name, key, site.host, registration.sign_count, tx.now_s),
    )
    data: dict[str, object] = {"name": name, "passkey": id_, "public_key": key, "host": site.host}
    tx.record("passkey_enrolled", principal=name, data=data)
    return ""


def remove(tx: Tx, name: str, *, by: str) -> int:
    """Revoke all passkeys of a principal and return their number. Their old signatures can still be checked.

    Raises NotFound if there are none.
    """
    tx.connection.execute(
        "UPDATE passkeys SET revoked_at = ? WHERE name = ? AND revoked_at IS NULL", (tx.now_s, name)
    )
    count = tx.connection.changes()
    if not count:
        raise NotFound(f"{name} has no passkey", hint="whet confirm token list")
    tx.record("passkey_removed", principal=by, data={"name": name})
    return count


def passkey_ids(db: apsw.Connection, name: str) -> list[str]:
    """Return the ids of a principal's passkeys."""
    sql = "SELECT id FROM passkeys WHERE name = ? AND revoked_at IS NULL ORDER BY created_at"
    return [str(row[0]) for row in db.execute(sql, (name,))]


def verify_vote(
    tx: Tx, name: str, text: str, vote: tuple[str, str], site: tuple[str, PasskeyOrigin]
) -> tuple[PasskeyProof | None, str]:
    """Verify a passkey's signature over `vote` (verdict, digest), made at `site` (request id, page).

    `text` is the browser's assertion as JSON. Returns the proof in its stored form and an empty string,
    or None and the problem. A valid signature updates the passkey's signature count; one that fails
    verification is recorded in the audit log.
    """
    try:
        proof = _parse_proof(from_json(text, _Assertion))
    except (msgspec.DecodeError, ValueError):
        return None, "the browser sent no passkey signature"
    row = tx.connection.execute(
        "SELECT public_key, host, sign_count FROM passkeys WHERE id = ? AND name = ? AND revoked_at IS NULL",
        (proof.credential, name),
    ).fetchone()
    if row is None:
        return None, "this is not a passkey of yours"
    request_id, page = site  # the digest covers the id, so a signature is valid for one request only
    if _is_repetition(tx.connection, request_id, name, proof):
        return None, "this signature was used before"
    key, host, count = row
    problem, new_count = _verify(proof, vote, (key, host, count), page.origin)
    if problem:
        tx.record("passkey_failed", principal=name, data={"passkey": proof.credential, "why": problem[:200]})
        return None, problem
    tx.connection.execute("UPDATE passkeys SET sign_count = ? WHERE id = ?", (new_count, proof.credential))
    return proof, ""


def _parse_proof(assertion: _Assertion) -> PasskeyProof:
    """Decode the browser's assertion and normalise each base64url text. Raises ValueError."""
    response = assertion.response
    texts = (assertion.id, response.client_data_JSON, response.authenticator_data, response.signature)
    return PasskeyProof(*(base64url(unbase64(text)) for text in texts))


def _is_repetition(db: apsw.Connection, request_id: str, name: str, proof: PasskeyProof) -> bool:
    """Return whether a vote of this person on this request already used that signature."""
    where = (
        "request_id = ?1 AND request_id != '' AND kind = 'vote' AND principal = ?2"
        " AND instr(data, '\"proof\"')"
    )
    sql = checked_select("data", "events", where, "id")
    proofs = (from_json(row[0], _Vote).proof for row in db.execute(sql, (request_id, name)))
    return any(
        _replay_key(earlier.signature) == _replay_key(proof.signature)
        for earlier in proofs
        if earlier is not None
    )


def _replay_key(signature: str) -> bytes | int:
    """Return the part of a signature that stays the same if a second one is derived from it.

    Anyone can turn an ECDSA signature (r, s) into (r, -s), which is valid too.
    """
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

    raw = unbase64(signature)
    try:
        return decode_dss_signature(raw)[0]
    except ValueError:
        return raw


def signature_problem(proof: PasskeyProof, vote: tuple[str, str], key: str, host: str) -> str:
    """Return why a key's stored signature over `vote` (verdict, digest) is invalid, or an empty string."""
    try:
        origin = str(json.loads(unbase64(proof.client_data))["origin"])
    except (ValueError, KeyError, TypeError):
        return "its client data can't be read"
    if PasskeyOrigin(origin).host != host:
        return f"it was signed on {origin}, not on {host}"
    return _verify(proof, vote, (key, host, 0), origin)[0]


def _verify(
    proof: PasskeyProof, vote: tuple[str, str], passkey: tuple[str, str, int], origin: str
) -> tuple[str, int]:
    from webauthn import verify_authentication_response
    from webauthn.helpers.exceptions import WebAuthnException

    key, host, count = passkey
    try:
        verification = verify_authentication_response(
            credential={
                "id": proof.credential,
                "rawId": proof.credential,
                "type": "public-key",
                "response": {
                    "clientDataJSON": proof.client_data,
                    "authenticatorData": proof.authenticator_data,
                    "signature": proof.signature,
                },
            },
            expected_challenge=vote_challenge(*vote),
            expected_rp_id=host,
            expected_origin=origin,
            credential_public_key=unbase64(key),
            credential_current_sign_count=count,
            require_user_verification=True,
        )
    except (WebAuthnException, ValueError, KeyError, TypeError) as error:
        return f"the passkey's signature is not valid: {error}", 0
    return "", verification.new_sign_count
