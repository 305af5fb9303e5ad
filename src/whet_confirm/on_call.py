"""Find whom to notify next about a request that a rota's people have not answered."""

from __future__ import annotations

from typing import Any

import apsw

from whet.contract.texts import from_json
from whet_confirm.ledger import Tx
from whet_confirm.names import is_same_person, person_key
from whet_confirm.policy import ConfirmPolicy
from whet_confirm.records import ConfirmRequest
from whet_confirm.rotas import Rota
from whet_confirm.stand_ins import apply_stand_ins

_ESCALATIONS = "SELECT data FROM events WHERE request_id = ? AND kind = 'escalated' ORDER BY id"


def list_next_people(tx: Tx, request: ConfirmRequest, policy: ConfirmPolicy, rota: Rota) -> tuple[str, ...]:
    """Return the people of a rota who have not been notified about a request, or the last one again.

    Stand-ins replace people who are away. The request's submitter is left out.
    """
    away = apply_stand_ins(tx.connection, policy, tx.now_s, request.principal).away
    names = (away.get(person_key(name), name) for name in rota.list_from_duty(request.created_at))
    people = [name for name in dict.fromkeys(names) if name and not is_same_person(name, request.principal)]
    notified = list_notified(tx.connection, request.id)
    remaining = tuple(name for name in people if name not in notified)
    return remaining or tuple(people[-1:]) or rota.people[-1:]


def list_notified(db: apsw.Connection, request_id: str) -> list[str]:
    """Return the people on call to whom a request was escalated, the current one last."""
    rows = db.execute(_ESCALATIONS, (request_id,)).fetchall()
    return [person for (data,) in rows if (person := find_person(str(data)))]


def find_person(data: str) -> str:
    """Return the person on call in the data of an escalation, or an empty string."""
    return str(from_json(data, dict[str, Any]).get("person", ""))
