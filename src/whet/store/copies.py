"""Fold the copies that forks made: a message that exists in many sessions is found once, in its original
session.

A fork keeps its messages' numbers, so a copy differs from its original only in the session's key. Copies
are resolved by numbers, before any row is read: with two hundred forks each hit has two hundred copies.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Set

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
    """The copies among some messages: `first` maps each copy to its original, `by_original` each original to
    its copies. `forked` are the keys of the sessions that are forks."""

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


def find_nearest(chains: Iterable[list[int]], there: Collection[int]) -> dict[int, None]:
    """Return, for each chain from a copy to its original, the last id that is present without a gap before
    it."""
    nearest_ids: dict[int, None] = {}
    for chain in chains:
        gap = next((number for number, id_ in enumerate(chain) if id_ not in there), len(chain))
        if gap:
            nearest_ids[chain[gap - 1]] = None
    return nearest_ids
