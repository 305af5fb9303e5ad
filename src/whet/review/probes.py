"""Verify the facts that a review is about to keep: run the command behind a fact once more, and if it still
prints the same line, add the date to the note.

A probe can only confirm; other results change nothing. The gate and the sandbox decide which commands may
run (`look`); the command's words are not interpreted here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import apsw

from whet.memory.folding import fold
from whet.memory.transcript import load_transcript
from whet.store import ledger
from whet.store.database import StateDatabase
from whet.store.ledger import LedgerRow, Quote, hash_text
from whet.store.sessions import get as session_of

MAX_COMMANDS = 3
"""The number of commands that one review may run."""

Look = Callable[[str, str], str | None]
"""Runs a command in a read-only workspace without network and returns its output; None if it is not allowed
or failed. Blocks, for a limited time."""


def run_probes(
    database: StateDatabase, task_id: str, trusted: Collection[str], look: Look, day: str
) -> list[int]:
    """Run the commands behind the staged facts of a review and mark the facts that were confirmed. Return
    their row ids.

    Blocks. Facts that were marked before a crash are skipped.
    """
    rows = database.read_now(lambda db: ledger.list_task_rows(db, task_id, ("staged",)))
    replaced = {row.before for row in rows}
    done: dict[tuple[str, int], str | None] = {}
    confirmed: list[int] = []
    for row in rows:
        text = row.after if "(checked " in row.after else f"{row.after} (checked {day})"
        # A note that a later note of the same review replaces must keep its words.
        if row.kind != "memory" or row.after in replaced or text == row.after or not _is_local_fact(row):
            continue
        for quote in row.evidence:
            key = (quote.session_id, quote.seq)
            if key not in done and len(done) < MAX_COMMANDS:
                done[key] = _run(database, quote, trusted, look)
        if all(_still_says(done.get((quote.session_id, quote.seq)), quote.quote) for quote in row.evidence):
            database.write_now(lambda db, row=row, text=text: _mark(db, row, text))
            confirmed.append(row.id)
    return confirmed


def _is_local_fact(row: LedgerRow) -> bool:
    """Return whether a row is a fact that rests only on this machine's own results."""
    # Without evidence nothing would run, but the note would claim that it was checked.
    return row.trust == "observed" and bool(row.evidence) and not any(quote.failed for quote in row.evidence)


def _run(database: StateDatabase, quote: Quote, trusted: Collection[str], look: Look) -> str | None:
    def find_call(connection: apsw.Connection) -> tuple[str, str]:
        texts = load_transcript(connection, quote.session_id, trusted).list_results()
        ran = next((source.call for source in texts if source.seq == quote.seq and source.ran_well), "")
        return ran, session_of(connection, quote.session_id).workspace

    command, workspace = database.read_now(find_call)
    return look(command, workspace) if command and workspace else None


def _still_says(printed: str | None, quote: str) -> bool:
    lines = {fold(line) for line in (printed or "").splitlines()}
    quoted_lines = [fold(line) for line in quote.splitlines() if line.strip()]
    return bool(quoted_lines) and all(line in lines for line in quoted_lines)


def _mark(connection: apsw.Connection, row: LedgerRow, text: str) -> None:
    connection.execute(
        "UPDATE ledger SET after = ?, hash = ? WHERE id = ? AND state = 'staged'",
        (text, hash_text(text), row.id),
    )
