"""Check signed votes: every vote that carries a passkey signature, and every rule that demanded one.

The public key is read from the enrolment event in the log and must be the same as the one in the table.
"""

from __future__ import annotations

import apsw
import msgspec

from whet.contract.errors import ConfigError
from whet.contract.texts import from_json
from whet_confirm import passkeys
from whet_confirm.audit_records import MAX_PROBLEMS
from whet_confirm.passkeys import PasskeyProof
from whet_confirm.records import ApprovalPlan


class _Enrolment(msgspec.Struct, frozen=True):
    name: str
    passkey: str
    public_key: str
    host: str


class _Vote(msgspec.Struct, frozen=True):
    verdict: str
    digest: str
    proof: PasskeyProof | None = None


def check_signatures(db: apsw.Connection) -> list[str]:
    """Check all signed votes in the database. Returns at most `MAX_PROBLEMS` problems, one line each."""
    if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'passkeys'").fetchone():
        return []
    problems: list[str] = []
    keys = _read_passkeys(db, problems)
    signed: set[tuple[str, str, str]] = set()
    sql = (
        "SELECT id, request_id, principal, data FROM events WHERE kind = 'vote' AND instr(data, '\"proof\"')"
    )
    for event_id, request_id, principal, data in db.execute(sql):
        vote = from_json(data, _Vote)
        if vote.proof is None:
            continue
        problem = _find_vote_problem(vote, principal, keys)
        if problem:
            problems.append(f"event {event_id}: the vote of {principal} is not theirs: {problem}")
        else:
            signed.add((request_id, principal, vote.digest))
        if len(problems) >= MAX_PROBLEMS:
            break
    return [*problems, *_find_missing_signatures(db, signed)][:MAX_PROBLEMS]


def _find_vote_problem(vote: _Vote, principal: str, keys: dict[str, _Enrolment]) -> str:
    """Return why a signed vote is not valid, or an empty string if it is."""
    assert vote.proof is not None
    key = keys.get(vote.proof.credential)
    if key is None or key.name != principal:
        return "the passkey that it names is not theirs"
    try:
        passkeys.import_webauthn()
    except ConfigError as error:
        return f"it can't be checked: {error.message} ({error.hint})"
    return passkeys.signature_problem(vote.proof, (vote.verdict, vote.digest), key.public_key, key.host)


def _read_passkeys(db: apsw.Connection, problems: list[str]) -> dict[str, _Enrolment]:
    """Return the passkeys by id: from the log, or from the table if the log's beginning was pruned.

    Appends to `problems` each passkey of the log that is missing in the table or differs there.
    """
    rows = db.execute("SELECT id, name, public_key, host FROM passkeys")
    table = {id_: _Enrolment(name, id_, public_key, host) for id_, name, public_key, host in rows}
    logged: dict[str, _Enrolment] = {}
    for (data,) in db.execute("SELECT data FROM events WHERE kind = 'passkey_enrolled'"):
        enrolment = from_json(data, _Enrolment)
        logged[enrolment.passkey] = enrolment
        if table.get(enrolment.passkey) != enrolment:
            problems.append(f"the passkey of {enrolment.name} is not the one in the log")
    return table | logged


def _find_missing_signatures(db: apsw.Connection, signed: set[tuple[str, str, str]]) -> list[str]:
    """Return a problem for each approval without a signature although its rule demands one."""
    sql = (
        "SELECT r.id, r.digest, r.plan, v.principal FROM requests r JOIN votes v ON v.request_id = r.id"
        " WHERE v.verdict = 'approve' AND instr(r.plan, '\"needs_passkey\"')"
    )
    return [
        f"request {request_id}: the rule demands a passkey, and the vote of {principal} has no signature"
        for request_id, digest, plan, principal in db.execute(sql)
        if from_json(plan, ApprovalPlan).needs_passkey and (request_id, principal, digest) not in signed
    ]
