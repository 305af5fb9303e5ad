"""Trace messages that forks copied to their original session, so that a search finds each of them once.

A copy has its original's number within the session, so the two ids differ only in the session's key. Copies
are resolved by ids before any row is read, because with two hundred forks each hit has two hundred copies.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Set
from itertools import takewhile

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
    """The copies among some messages.

    `first` maps each copy to its original, `by_original` each original to its copies. `forked` are the keys
    of the sessions that are forks.
    """

    def __init__(self, connection: apsw.Connection, forked: Set[int], ids: Iterable[int]) -> None:
        self._origins: dict[int, tuple[int, int]] = {}
        copied = [id_ for id_ in ids if id_ >> rows.SEQ_BITS in forked] if forked else []
        pending = {id_ >> rows.SEQ_BITS for id_ in copied}
        while pending:
            records = connection.execute(_COPIED, (json.dumps(list(pending)),)).fetchall()
            for key, origin, last in records:
                self._origins[key] = ((origin - key) << rows.SEQ_BITS, last or 0)
            pending = ({origin for _, origin, _ in records} & forked) - self._origins.keys()
        self.first: dict[int, int] = {}
        self.by_original: dict[int, list[int]] = {}
        origins, bits = self._origins, rows.SEQ_BITS
        for id_ in copied:
            first = id_
            while (up := origins.get(first >> bits)) is not None and first <= up[1]:
                first += up[0]
            if first != id_:
                self.first[id_] = first
                self.by_original.setdefault(first, []).append(id_)

    def fold(self, weights: dict[int, float]) -> None:
        """Replace each copy by its original, with the largest weight of its copies."""
        for id_ in self.first.keys() & weights.keys():
            first = self.first[id_]
            weights[first] = max(weights.pop(id_), weights.get(first, 0.0))

    def chain(self, id_: int) -> list[int]:
        """Return the ids from a message to its original."""
        chain = [id_]
        while (up := self._origins.get(id_ >> rows.SEQ_BITS)) is not None and id_ <= up[1]:
            chain.append(id_ := id_ + up[0])
        return chain


def find_nearest(chains: Iterable[list[int]], present: Collection[int]) -> dict[int, None]:
    """Return the last present id of each chain from a copy to its original, before the first one missing."""
    nearest_ids: dict[int, None] = {}
    for chain in chains:
        unbroken = list(takewhile(present.__contains__, chain))
        if unbroken:
            nearest_ids[unbroken[-1]] = None
    return nearest_ids
