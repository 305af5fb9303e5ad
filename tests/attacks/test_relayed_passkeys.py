"""Passkey signatures that somebody relays, replays or makes for another purpose: none of them is a vote."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.confirm.running import Running
from tests.confirm.test_attacks import Authenticator, ask
from whet_confirm.decide import DecisionInput
from whet_confirm.keys import base64url
from whet_confirm.passkeys import vote_challenge

PAGE = "http://localhost:8766"
Made = dict[str, Any]
Make = Callable[[Authenticator, Authenticator, Made, Made], tuple[str, str]]
"""Makes an assertion and the page's origin from her key, bob's, a request and another one."""


def _changed(signed: str, change: Callable[[dict[str, Any]], object]) -> str:
    values = json.loads(signed)
    change(values)
    return json.dumps(values)


def _client_data(signed: str, **fields: object) -> str:
    """Change what the browser said, after it was signed."""

    def change(values: dict[str, Any]) -> None:
        text = values["response"]["clientDataJSON"]
        data = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        encoded = base64.urlsafe_b64encode(json.dumps(data | fields).encode()).rstrip(b"=")
        values["response"]["clientDataJSON"] = encoded.decode()

    return _changed(signed, change)


def _odd_rp(hers: Authenticator, digest: str, host: str) -> str:
    """Sign for another site with the same key, as a phishing page would have it."""
    own, hers.host = hers.host, host
    try:
        return hers.sign(digest)
    finally:
        hers.host = own


def _signed(**odd: Any) -> Make:
    """Have her key sign a vote on the request with these odd fields."""
    return lambda hers, _bobs, fields, _other: (hers.sign(fields["digest"], **odd), PAGE)


def _edited(change: Callable[[dict[str, Any]], object]) -> Make:
    """Change what was signed afterwards."""
    return lambda hers, _bobs, fields, _other: (_changed(hers.sign(fields["digest"]), change), PAGE)


ATTEMPTS: dict[str, Make] = {
    "for another request": lambda hers, _, made, other: (hers.sign(other["digest"]), PAGE),
    "a denial": _signed(verdict="deny"),
    "another verb": _signed(verdict="Approve"),
    "the digest cut": lambda hers, _, fields, other: (hers.sign(fields["digest"][:-1]), PAGE),
    "the digest in capitals": lambda hers, _, made, other: (hers.sign(made["digest"].upper()), PAGE),
    "relayed from another port": _signed(origin="http://localhost:1"),
    "relayed from another host": _signed(origin="http://evil.example:8766"),
    "relayed from a subdomain": _signed(origin="http://x.localhost:8766"),
    "relayed by https": _signed(origin="https://localhost:8766"),
    "an origin with a path": _signed(origin=f"{PAGE}/x"),
    "an origin with a user": _signed(origin="http://localhost:8766@evil.example"),
    "no origin": _signed(origin=""),
    "an origin of nothing": _signed(origin="null"),
    "signed for another site": lambda hers, _, made, other: (
        _odd_rp(hers, made["digest"], "evil.example"),
        PAGE,
    ),
    "signed for a parent of the site": lambda hers, _, made, other: (
        _odd_rp(hers, made["digest"], "host"),
        PAGE,
    ),
    "of an enrolment": _signed(type="webauthn.create"),
    "of a payment": _signed(type="payment.get"),
    "nobody was verified": _signed(flags=1),
    "nobody was there": _signed(flags=4),
    "no flags": _signed(flags=0),
    "the same count again": _signed(count=5),
    "a count that went back": _signed(count=4),
    "bob's": lambda _, bobs, made, other: (bobs.sign(made["digest"]), PAGE),
    "bob's in her name": lambda hers, bobs, made, other: (bobs.sign(made["digest"], id=hers.id), PAGE),
    "hers in bob's name": lambda hers, bobs, made, other: (hers.sign(made["digest"], id=bobs.id), PAGE),
    "the challenge changed later": lambda hers, _, made, other: (
        _client_data(
            hers.sign(other["digest"]), challenge=base64url(vote_challenge("approve", made["digest"]))
        ),
        PAGE,
    ),
    "the origin changed later": lambda hers, _, made, other: (
        _client_data(hers.sign(made["digest"], origin="http://evil.example"), origin=PAGE),
        PAGE,
    ),
    "nothing signed": _edited(lambda v: v["response"].update(signature="")),
    "a hash as signature": _edited(
        lambda v: v["response"].update(signature=hashlib.sha256(b"x").hexdigest())
    ),
    "no authenticator data": _edited(lambda v: v["response"].update(authenticatorData="")),
    "a list": lambda _hers, _bobs, _made, _other: ("[]", PAGE),
    "nested without end": lambda _hers, _bobs, _made, _other: ("[" * 7_000, PAGE),
}


@pytest.mark.slow  # for the import of webauthn
def test_no_relayed_signature_is_a_vote(tmp_path: Path) -> None:
    pytest.importorskip("webauthn")
    (tmp_path / "policy.toml").write_text('[[rules]]\neffect = "ask"\nrequire_passkey = true\n')
    effects: list[str] = []
    with Running(tmp_path, policy=tmp_path / "policy.toml", upkeep=False, rate=1000) as server:
        fields, other = ask(server), ask(server, action="restart")
        alice = server.service.authenticate(server.token("approve", "alice"))
        assert alice is not None
        hers, bobs = Authenticator(), Authenticator()
        hers.enrol(server, "alice")
        bobs.enrol(server, "bob")
        for name, make in ATTEMPTS.items():
            signed, origin = make(hers, bobs, fields, other)
            ballot = DecisionInput(fields["id"], "approve", passkey=signed, origin=origin, via_web=True)
            outcome = server.run(server.service.decide(ballot, alice))
            if outcome.kind != "passkey" or not server.stored(fields["id"]).is_pending:
                effects.append(f"{name}: {outcome.kind}")
        assert effects == [] and server.service.votes(fields["id"]) == []
        good = DecisionInput(
            fields["id"], "approve", passkey=hers.sign(fields["digest"]), origin=PAGE, via_web=True
        )
        assert server.run(server.service.decide(good, alice)).kind == "decided"
