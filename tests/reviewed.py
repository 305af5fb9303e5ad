"""What a review left in a home while nobody looked: a note in force, one that was refused, one that waits."""

from __future__ import annotations

from typing import Any

import apsw

from whet.contract.origin import Origin
from whet.store import ledger
from whet.store.ledger import LedgerRow, NewRow, Quote, State

KEPT, REFUSED, WAITS = "Dates are written 24.11.", "The lift is out of order.", "Payments go through Lumen."
WHY = "That is a question, not a rule or a fact"
AT = "2026-11-24T02:00:00.000Z"


def leave(connection: apsw.Connection, profile: str = "", task_id: str = "job-1") -> dict[str, LedgerRow]:
    """Enter the three, as a review does; give them by state."""

    def enter(state: State, text: str, why: str = "") -> LedgerRow:
        origin = Origin("review", session_id="s", tool_call_id=f"{task_id}-{state}", task_id=task_id)
        quotes = (Quote(text, "s", 1, "user"),)
        more: dict[str, Any] = {"after": text, "evidence": quotes, "reason": why, "profile": profile}
        new = NewRow("memory", "memory", "add", state, origin, trust="untrusted", **more)
        return ledger.insert_row(connection, new, AT)

    return {
        "active": enter("active", KEPT),
        "refused": enter("refused", REFUSED, WHY),
        "quarantined": enter("quarantined", WAITS, "it came from a page"),
    }
