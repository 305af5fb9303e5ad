"""Takes back all that rests on one session: its own writes, its reviews', and what was built on them.

Skills compiled from it go with what was patched onto them since; where a person has changed one by hand it
stays, and the step says so. Runs inside the caller's transaction and touches no file.
"""

from __future__ import annotations

from typing import Literal

import apsw
import msgspec

from whet.contract.origin import Origin
from whet.memory import undo
from whet.memory.undo import WAITING, CannotUndo
from whet.store import ledger
from whet.store.ledger import LedgerRow


class ForgetStep(msgspec.Struct, frozen=True):
    """What happens to one change: taken back (by the row `back`), dropped before it came into force, or kept
    and why."""

    row: LedgerRow
    what: Literal["take back", "drop", "keep"]
    why: str = ""
    back: LedgerRow | None = None


def plan(connection: apsw.Connection, profile: str, session_id: str) -> list[ForgetStep]:
    """Give the steps that forgetting a session takes, the newest change first."""
    # Without a session the filter would let everything through.
    own = ledger.select(connection, profile=profile, session_id=session_id) if session_id else []
    steps: dict[int, ForgetStep] = {}
    for row in own:
        if row.state in WAITING:
            steps[row.id] = ForgetStep(row, "drop")
        elif row.state == "active" and not row.undoes:
            _add(connection, row, steps)
    return [steps[row_id] for row_id in sorted(steps, reverse=True)]


def carry_out(
    connection: apsw.Connection, profile: str, session_id: str, origin: Origin, now: str
) -> list[ForgetStep]:
    """Do what `plan` says and give what was done; what can't be taken back is kept and says why."""
    done: list[ForgetStep] = []
    for step in plan(connection, profile, session_id):
        if step.what == "keep":
            done.append(step)
            continue
        try:
            back = undo.undo(connection, ledger.get(connection, step.row.id), origin, now)
            done.append(ForgetStep(step.row, step.what, step.why, back))
        except CannotUndo as error:
            done.append(ForgetStep(step.row, "keep", error.message))
    return done


def _add(connection: apsw.Connection, row: LedgerRow, steps: dict[int, ForgetStep]) -> None:
    later = undo.later(connection, row)
    by_hand = next((one for one in later if one.origin.write_origin == "user"), None)
    if by_hand is not None:
        steps[row.id] = ForgetStep(row, "keep", f"you changed it since (change {by_hand.id})")
        return
    if row.kind == "memory" and later:
        steps[row.id] = ForgetStep(
            row, "keep", f"replaced since by change {later[0].id}, which has evidence of its own"
        )
        return
    for one in later:
        steps.setdefault(one.id, ForgetStep(one, "take back", f"it was built on change {row.id}"))
    steps[row.id] = ForgetStep(row, "take back")
