"""The rate limit: numbers the submissions of a principal and action, and finds the oldest that counts.

Approved requests do not count: the limit keeps an agent from wearing people down, and an approval shows that
the request was welcome. The newest number is cached as long as no other process writes.
"""

from __future__ import annotations

from typing import Any

from whet.contract.errors import StoreCorrupt
from whet_confirm.ledger import Tx

_ROW = "SELECT principal, action_key, rate_number, created_at, status FROM requests NOT INDEXED WHERE seq ="
_OF_RATE = "FROM requests WHERE principal = ? AND action_key = ? AND rate_number"
_NEWEST = f"{_ROW} (SELECT seq {_OF_RATE} IS NOT NULL ORDER BY rate_number DESC LIMIT 1)"
_NUMBERED = f"{_ROW} (SELECT seq {_OF_RATE} = ? LIMIT 1)"
_CACHE_NAME, _CACHE_SIZE = "rate numbers", 1024
_MAX_LOOKED_AT = 1_000
"""How many submissions are checked for an approval. All earlier ones count."""


def next_rate(tx: Tx, principal: str, action_key: str, limit: int, window_s: float) -> tuple[int, float]:
    """Return the number of the principal's next submission of an action, and the time of an earlier one.

    The earlier one is the `limit`th counted submission before it, which must have left the window. If there
    is none, the time is 0.0.
    """
    newest = tx.sealer.row_cache(_CACHE_NAME).get((principal, action_key))
    if newest is None:
        row = _read_numbered(tx, _NEWEST, (principal, action_key))
        newest = row[2] if row else 0

    def find_time(number: int) -> tuple[float, bool]:
        """Return the time of a submission (0.0 if it is before the window), and whether it counts."""
        row = _read_numbered(tx, _NUMBERED, (principal, action_key, number)) if number > 0 else None
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


def remember(tx: Tx, principal: str, action_key: str, number: int | None) -> None:
    """Cache the number of the submission that was just stored, unless it does not count (None)."""
    if number is not None:
        cache = tx.sealer.row_cache(_CACHE_NAME)
        if len(cache) >= _CACHE_SIZE:
            cache.clear()
        cache[principal, action_key] = number


def _read_numbered(tx: Tx, sql: str, key: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return a submission's row. Raises StoreCorrupt if the index leads to another principal's row."""
    row = tx.connection.execute(sql, key).fetchone()
    if row is not None and row[: len(key)] != key:
        raise StoreCorrupt("the index of the rate limit leads to another request")
    return row
