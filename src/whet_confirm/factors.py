"""Second factors of approvers: time-based one-time codes (TOTP, RFC 6238: SHA-1, 30 s, six digits).

A code is valid for one decision: the transaction that counts the vote uses up its time step and all
earlier ones. Wrong codes are counted too; from the fifth on, each makes its person wait longer. The secret is
encrypted with a key derived from the service's signing key, so a copy of the database can't produce codes.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from base64 import b32encode
from urllib.parse import quote

import apsw
import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from whet.contract.errors import NotFound
from whet_confirm.keys import SigningKey
from whet_confirm.ledger import Tx

STEP_S = 30
_DRIFT_STEPS = 1
_SECRET_BYTES, _NONCE_BYTES = 20, 12
_FREE_TRIES, _MAX_WAIT_S = 5, 3600.0


class Enrolment(msgspec.Struct, frozen=True):
    """The secret for a person's authenticator app, shown once: as text to type in and as a link."""

    secret: str
    uri: str


class CodeCheck(msgspec.Struct, frozen=True):
    """The result of checking a code. `problem` is empty if the code was right."""

    problem: str = ""
    retry_after_s: float = 0.0


def code_at(secret: bytes, step: int) -> str:
    """Return the six digits for a time step (RFC 4226's truncation of RFC 6238's counter)."""
    mac = hmac.new(secret, step.to_bytes(8, "big"), hashlib.sha1).digest()
    offset = mac[-1] & 15
    number = int.from_bytes(mac[offset : offset + 4], "big") & 0x7FFFFFFF
    return f"{number % 1_000_000:06d}"


def enrol(tx: Tx, name: str, *, by: str) -> Enrolment:
    """Create a second factor for a principal, replacing any earlier one."""
    secret = os.urandom(_SECRET_BYTES)
    sealed = _seal(tx.key, name, secret)
    tx.connection.execute(
        "INSERT OR REPLACE INTO second_factors VALUES (?, ?, ?, 0, 0, 0)", (name, sealed, tx.now_s)
    )
    tx.record("factor_enrolled", principal=by, data={"name": name})
    text = b32encode(secret).decode().rstrip("=")
    label = quote(f"whet confirm:{name}")
    return Enrolment(text, f"otpauth://totp/{label}?secret={text}&issuer=whet%20confirm")


def remove(tx: Tx, name: str, *, by: str) -> None:
    """Remove a principal's second factor. Raises NotFound."""
    tx.connection.execute("DELETE FROM second_factors WHERE name = ?", (name,))
    if not tx.connection.changes():
        raise NotFound(f"{name} has no second factor", hint="whet confirm token list")
    tx.record("factor_removed", principal=by, data={"name": name})


def enrolled_names(db: apsw.Connection) -> set[str]:
    """Return the principals that have a second factor."""
    return {str(row[0]) for row in db.execute("SELECT name FROM second_factors")}


def use_code(tx: Tx, name: str, code: str, request_id: str) -> CodeCheck:
    """Consume a person's code. On success `problem` is empty.

    A wrong or reused code is counted; a missing factor, a missing code or a running delay is not.
    """
    row = tx.connection.execute(
        "SELECT sealed, last_step, failures, failed_at FROM second_factors WHERE name = ?", (name,)
    ).fetchone()
    if row is None:
        return CodeCheck(f"{name} has no second factor yet: whet confirm token enrol --name {name}")
    sealed, last_step, failures, failed_at = row
    wait_s = failed_at + pause_s(failures) - tx.now_s
    if wait_s > 0:
        return CodeCheck(f"too many wrong codes: wait {wait_s:.0f} s", wait_s)
    if not code:
        return CodeCheck("enter the six digits of your second factor, too")
    step = _find_step(_unseal(tx.key, name, sealed), "".join(code.split()), tx.now_s)
    if step is not None and step > last_step:
        tx.connection.execute(
            "UPDATE second_factors SET last_step = ?, failures = 0 WHERE name = ?", (step, name)
        )
        return CodeCheck()
    why = "wrong" if step is None else "used before"
    tx.connection.execute(
        "UPDATE second_factors SET failures = ?, failed_at = ? WHERE name = ?", (failures + 1, tx.now_s, name)
    )
    tx.record("factor_failed", request_id, name, data={"why": why})
    message = "this code is wrong" if step is None else "this code was used before: wait for the next one"
    return CodeCheck(message, pause_s(failures + 1))


def pause_s(failures: int) -> float:
    """Return how long a person must wait after that many wrong codes in a row."""
    if failures < _FREE_TRIES:
        return 0.0
    return min(60 * 2 ** (failures - _FREE_TRIES), _MAX_WAIT_S)


def _find_step(secret: bytes, code: str, now_s: float) -> int | None:
    """Return the newest step that a code belongs to, within one step of clock drift, or None."""
    current = int(now_s) // STEP_S
    match = None
    for step in range(current - _DRIFT_STEPS, current + _DRIFT_STEPS + 1):
        if hmac.compare_digest(code_at(secret, step).encode(), code.encode()):
            match = step
    return match


def _cipher(key: SigningKey) -> AESGCM:
    # A signature is as secret as its key and deterministic, so it yields a separate encryption key.
    return AESGCM(hashlib.sha256(key.sign(b"whet-factors/1")).digest())


def _seal(key: SigningKey, name: str, secret: bytes) -> bytes:
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + _cipher(key).encrypt(nonce, secret, name.encode())


def _unseal(key: SigningKey, name: str, sealed: bytes) -> bytes:
    try:
        return _cipher(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], name.encode())
    except InvalidTag:
        # Encrypted with another signing key: no code is accepted until the person enrols again.
        return os.urandom(_SECRET_BYTES)
