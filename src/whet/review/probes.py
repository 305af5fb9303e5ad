"""Looks again at what a review is about to keep: the command that a fact rests on is run once more, and where
it still prints the very line, the note says on which day.

A probe only confirms: what it finds otherwise changes nothing. Which commands may be run is the gate's and
the sandbox's decision (`look`), and no word of the command is read here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import apsw

from whet.memory.folding import fold
from whet.memory.transcript import load
from whet.store import ledger
from whet.store.database import StateDatabase
from whet.store.ledger import LedgerRow, Quote, digest
from whet.store.sessions import get as session_of

MOST = 3
"""The commands that one review runs."""

Look = Callable[[str, str], str | None]
"""Runs a command in a workspace where neither it nor the network can be changed or reached, and gives what it
printed; None where that may not be, or where it failed. Blocks, for a limited time."""


def probe(database: StateDatabase, task_id: str, trusted: Collection[str], look: Look, day: str) -> list[int]:
    """Run what the staged facts of a review rest on, and mark those that were seen again. Gives their rows.

    Blocks. What was marked before, after a crash, is left as it is.
    """
    rows = database.read_now(lambda db: ledger.of_task(db, task_id, ("staged",)))
    replaced = {row.before for row in rows}
    done: dict[tuple[str, int], str | None] = {}
    seen: list[int] = []
    for row in rows:
        text = row.after if "(checked " in row.after else f"{row.after} (checked {day})"
        # A note that a later one of the same review builds on has to keep its words.
        if row.kind != "memory" or row.after in replaced or text == row.after or not _is_plain(row):
            continue
        for one in row.evidence:
            key = (one.session_id, one.seq)
            if key not in done and len(done) < MOST:
                done[key] = _run(database, one, trusted, look)
        if all(_still_says(done.get((one.session_id, one.seq)), one.quote) for one in row.evidence):
            database.write_now(lambda db, row=row, text=text: _mark(db, row, text))
            seen.append(row.id)
    return seen


def _is_plain(row: LedgerRow) -> bool:
    """Whether a row is a fact that nothing but this machine's own results showed."""
    # Without evidence nothing would be run, and the note would say that it was checked.
    return row.trust == "observed" and bool(row.evidence) and not any(one.failed for one in row.evidence)


def _run(database: StateDatabase, quote: Quote, trusted: Collection[str], look: Look) -> str | None:
    def call(connection: apsw.Connection) -> tuple[str, str]:
        texts = load(connection, quote.session_id, trusted).results()
        ran = next((one.call for one in texts if one.seq == quote.seq and one.ran_well), "")
        return ran, session_of(connection, quote.session_id).workspace

    command, workspace = database.read_now(call)
    return look(command, workspace) if command and workspace else None


def _still_says(printed: str | None, quote: str) -> bool:
    lines = {fold(line) for line in (printed or "").splitlines()}
    wanted = [fold(line) for line in quote.splitlines() if line.strip()]
    return bool(wanted) and all(line in lines for line in wanted)


def _mark(connection: apsw.Connection, row: LedgerRow, text: str) -> None:
    connection.execute(
        "UPDATE ledger SET after = ?, hash = ? WHERE id = ? AND state = 'staged'",
        (text, digest(text), row.id),
    )
