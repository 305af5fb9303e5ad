"""Which number a submission has under the rate limit, and when the one that has to leave the window was made.

Requests that a person approved do not count: the limit keeps an agent from wearing people down, and a yes
shows that the request was welcome. The number of the newest one is remembered for as long as nobody else
writes.
"""

from __future__ import annotations

from typing import Any

from whet.contract.errors import StoreCorrupt
from whet_confirm.ledger import Tx

_ROW = "SELECT principal, action_key, rate_number, created_at, status FROM requests NOT INDEXED WHERE seq ="
_OF_RATE = "FROM requests WHERE principal = ? AND action_key = ? AND rate_number"
_NEWEST = f"{_ROW} (SELECT seq {_OF_RATE} IS NOT NULL ORDER BY rate_number DESC LIMIT 1)"
_NUMBERED = f"{_ROW} (SELECT seq {_OF_RATE} = ? LIMIT 1)"
_KEPT, _MAX_KEPT = "rate numbers", 1024
_MAX_LOOKED_AT = 1_000
"""How many submissions are looked at for a yes; all before them count."""


def next_rate(tx: Tx, principal: str, action_key: str, limit: int, window_s: float) -> tuple[int, float]:
    """Return the number of the principal's next submission of an action, and the time of the one that has to
    leave the window first: of those that count the `limit`th before it (0.0 if there is none)."""
    newest = tx.sealer.row_cache(_KEPT).get((principal, action_key))
    if newest is None:
        row = _row(tx, _NEWEST, (principal, action_key))
        newest = row[2] if row else 0

    def find_time(number: int) -> tuple[float, bool]:
        """Return when a submission was made, 0.0 if before the window, and whether it counts."""
        row = _row(tx, _NUMBERED, (principal, action_key, number)) if number > 0 else None
        return (row[3], row[4] != "approved") if row and row[3] > tx.now_s - window_s else (0.0, False)

    if find_time(newest - limit + 1) == (0.0, False):  # too few even if all counted
        return newest + 1, 0.0
    left, number = limit, newest
    while left > 0 and number > newest - _MAX_LOOKED_AT:
        made_at, counts = find_time(number)
        if not made_at:
            return newest + 1, 0.0
        left, number = left - counts, number - 1
    return newest + 1, find_time(number - left + 1)[0]


def keep(tx: Tx, principal: str, action_key: str, number: int | None) -> None:
    """Remember the number of the submission just stored; None: it does not count."""
    if number is not None:
        kept = tx.sealer.row_cache(_KEPT)
        if len(kept) >= _MAX_KEPT:
            kept.clear()
        kept[principal, action_key] = number


def _row(tx: Tx, sql: str, asked: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return a counted submission as its row has it. Raises StoreCorrupt if the index leads to another's."""
    row = tx.connection.execute(sql, asked).fetchone()
    if row is not None and row[: len(asked)] != asked:
        raise StoreCorrupt("the index of the rate limit leads to another request")
    return row
