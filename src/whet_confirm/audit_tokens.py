"""Compares the stored tokens with the log: name, role, and whether the token was revoked.

The hash of a token is not in the log; the seal covers it.
"""

from __future__ import annotations

import apsw
import msgspec

from whet.contract.texts import from_json
from whet_confirm.audit_records import MAX_PROBLEMS

_EVENTS = "SELECT kind, data FROM events WHERE kind IN ('token_created', 'token_revoked') ORDER BY id"
_TOKENS = "SELECT id, name, role, revoked_at FROM tokens NOT INDEXED"


class _TokenEvent(msgspec.Struct, frozen=True):
    token: str = ""
    name: str = ""
    role: str = ""


def check_tokens(db: apsw.Connection, *, is_pruned: bool) -> list[str]:
    """Return one line for a person per problem. If the log `is_pruned`, it may lack a token."""
    created: dict[str, _TokenEvent] = {}
    revoked: set[str] = set()
    for kind, data in db.execute(_EVENTS):
        try:
            event = from_json(data, _TokenEvent)
        except msgspec.DecodeError:
            continue  # the chain reports it
        if kind == "token_created":
            created[event.token] = event
        else:
            revoked.add(event.token)
    problems: list[str] = []
    for token_id, name, role, revoked_at in db.execute(_TOKENS):
        event = created.get(str(token_id))
        if event is None and not is_pruned:
            problems.append(f"the token {token_id} of {name} is not in the log")
        elif event is not None and (event.name, event.role) != (name, role):
            problems.append(f"the token {token_id} of {name} is not the one in the log")
        elif token_id in revoked and revoked_at is None:
            problems.append(f"the token {token_id} of {name} was revoked, and is in use again")
    return problems[:MAX_PROBLEMS]
