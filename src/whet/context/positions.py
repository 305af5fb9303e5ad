"""How far an engine has taken a session in, kept so that no instance takes a message in twice.

An engine that stores what it sees counts the rows that it has stored, in an attribute named ..._cursor, and
begins at 0 with each instance: a session that is opened again would be stored again. The count is kept as
the number of the last message, so that it holds for any list of the same session, a compacted or cut one too.
An engine that sets its count itself is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from whet.context.engine_runner import EngineRunner
from whet.contract.context_engine import ChatRow
from whet.lanes import attempt
from whet.store import positions
from whet.store.transcript import Transcript

_LIKE = "cursor"


def cursors(engine: object) -> dict[str, int]:
    """Give the counts of rows that an engine keeps, by name; few engines have any."""
    held = attempt(lambda: vars(engine)).value or {}
    found = cast("Mapping[str, object]", held)
    return {
        name: value
        for name, value in found.items()
        if name.endswith(_LIKE) and isinstance(value, int) and not isinstance(value, bool) and value >= 0
    }


class Positions:
    """The positions of one session's engines."""

    def __init__(self, log: Transcript) -> None:
        self._log = log
        self._kept: dict[tuple[str, str], int] = {}

    def of(self, log: Transcript) -> Positions:
        """Give another session's."""
        return Positions(log)

    async def restore(self, seat: EngineRunner, rows: Sequence[ChatRow]) -> None:
        """Have an engine that was just told of the session go on where it left off."""
        names = [name for name, count in cursors(seat.engine).items() if not count]
        if not names:
            return
        kept = await self._log.writer.db.read(lambda db: positions.read(db, self._log.live.key, seat.name))
        found = {name: _count(rows, kept[name]) for name in names if kept.get(name)}

        def put() -> None:
            for name, count in found.items():
                setattr(seat.engine, name, count)

        if found:
            await seat.run("its position", put)

    async def remember(self, seat: EngineRunner, rows: Sequence[ChatRow], *, ended: bool = False) -> None:
        """Keep how far an engine is with these rows, where that is news; one that was told of the session's
        end has them all."""
        held = cursors(seat.engine)
        had = {name: rows if ended else rows[:count] for name, count in held.items()}
        now = {name: max(map(_seq, those), default=0) for name, those in had.items()}
        news = {name: seq for name, seq in now.items() if seq > self._kept.get((seat.name, name), 0)}
        if news:
            await self._log.writer.db.write(
                lambda db: positions.write(db, self._log.live.key, seat.name, news)
            )
            self._kept.update({(seat.name, name): seq for name, seq in news.items()})


def _seq(row: ChatRow) -> int:
    number = row.get("_seq")
    return number if isinstance(number, int) else 0


def _count(rows: Sequence[ChatRow], seq: int) -> int:
    """Give how many rows there are up to a message, those without a number after it included."""
    return next((at for at, row in enumerate(rows) if _seq(row) > seq), len(rows))
