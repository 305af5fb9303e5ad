"""What forks have copied: a message that stands in many sessions is found once, where it was said.

A fork keeps its messages' numbers, so a copy and what it is a copy of differ in the session's key alone. That
is decided by numbers, before any row is read: with two hundred forks each hit has two hundred copies.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable

import apsw

from whet.store import rows

_COPIED = (
    "SELECT f.session, o.key, (SELECT m.id FROM messages m"
    f" WHERE m.id >= f.session << {rows.SEQ_BITS} AND m.id < (f.session + 1) << {rows.SEQ_BITS}"
    " AND m.turn <= f.turn ORDER BY m.id DESC LIMIT 1)"
    " FROM json_each(?) j CROSS JOIN forks f ON f.session = CAST(j.value AS bigint)"
    " JOIN sessions o ON o.id = f.origin"
)


class Copies:
    """Some messages by where they were said: `of` has, for each that was said in its own session, those that
    are it or a copy of it."""

    def __init__(self, connection: apsw.Connection, ids: Iterable[int]) -> None:
        ids = list(ids)
        self._origins: dict[int, tuple[int, int]] = {}
        left = {id_ >> rows.SEQ_BITS for id_ in ids}
        while left:
            found = connection.execute(_COPIED, (json.dumps(list(left)),)).fetchall()
            self._origins |= {key: (origin, last or 0) for key, origin, last in found}
            left = {origin for _, origin, _ in found} - self._origins.keys()
        self.of: dict[int, list[int]] = {}
        for id_ in ids:
            self.of.setdefault(self.first(id_), []).append(id_)

    def first(self, id_: int) -> int:
        """Give where a message was said."""
        while (above := self._above(id_)) is not None:
            id_ = above
        return id_

    def chains(self, firsts: Iterable[int]) -> list[list[int]]:
        """Give, for each copy of these, the way from it to where it was said."""
        return [self._chain(id_) for first in firsts for id_ in self.of[first]]

    def firsts_of(self, places: Iterable[int]) -> list[int]:
        """Give where those of some messages that are copies were said."""
        origins, bits = self._origins, rows.SEQ_BITS
        return [self.first(id_) for id_ in places if id_ >> bits in origins]

    def _above(self, id_: int) -> int | None:
        found = self._origins.get(id_ >> rows.SEQ_BITS)
        if found is None or id_ > found[1]:
            return None
        return (found[0] << rows.SEQ_BITS) + (id_ & ((1 << rows.SEQ_BITS) - 1))

    def _chain(self, id_: int) -> list[int]:
        chain = [id_]
        while (above := self._above(chain[-1])) is not None:
            chain.append(above)
        return chain


def nearest(chains: Iterable[list[int]], there: Collection[int]) -> dict[int, None]:
    """Give, of each way from a copy to where it was said, the last that is there without a gap before it."""
    found: dict[int, None] = {}
    for chain in chains:
        gap = next((number for number, id_ in enumerate(chain) if id_ not in there), len(chain))
        if gap:
            found[chain[gap - 1]] = None
    return found
