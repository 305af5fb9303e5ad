"""Stores how far an engine has processed a session, so that no instance processes a message twice.

An engine that stores rows counts them in an attribute named ..._cursor and starts at 0 with each instance,
so a reopened session would be stored again. The count is stored as the number of the last message, so it
is valid for any list of the session, including a compacted or cut one. An engine that sets its own count
is left alone.
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


def read_cursors(engine: object) -> dict[str, int]:
    """Return the row counts that an engine keeps, by attribute name. Few engines have any."""
    attributes = attempt(lambda: vars(engine)).value or {}
    values = cast("Mapping[str, object]", attributes)
    return {
        name: value
        for name, value in values.items()
        if name.endswith(_LIKE) and isinstance(value, int) and not isinstance(value, bool) and value >= 0
    }


class Positions:
    """The positions of one session's engines."""

    def __init__(self, log: Transcript) -> None:
        self._log = log
        self._kept: dict[tuple[str, str], int] = {}

    def for_session(self, log: Transcript) -> Positions:
        """Return the positions of another session."""
        return Positions(log)

    async def restore(self, runner: EngineRunner, rows: Sequence[ChatRow]) -> None:
        """Set an engine's counts to its stored position, after it was informed about the session."""
        names = [name for name, count in read_cursors(runner.engine).items() if not count]
        if not names:
            return
        stored = await self._log.writer.db.read(
            lambda db: positions.read(db, self._log.live.key, runner.name)
        )
        counts = {name: _count(rows, stored[name]) for name in names if stored.get(name)}

        def set_counts() -> None:
            for name, count in counts.items():
                setattr(runner.engine, name, count)

        if counts:
            await runner.run("its position", set_counts)

    async def remember(self, runner: EngineRunner, rows: Sequence[ChatRow], *, ended: bool = False) -> None:
        """Store an engine's position in these rows if it has changed. At the session's end (`ended`) it
        covers all rows."""
        counts = read_cursors(runner.engine)
        covered = {name: rows if ended else rows[:count] for name, count in counts.items()}
        now = {name: max(map(_seq, those), default=0) for name, those in covered.items()}
        news = {name: seq for name, seq in now.items() if seq > self._kept.get((runner.name, name), 0)}
        if news:
            await self._log.writer.db.write(
                lambda db: positions.write(db, self._log.live.key, runner.name, news)
            )
            self._kept.update({(runner.name, name): seq for name, seq in news.items()})


def _seq(row: ChatRow) -> int:
    number = row.get("_seq")
    return number if isinstance(number, int) else 0


def _count(rows: Sequence[ChatRow], seq: int) -> int:
    """Return the number of rows up to a message, including unnumbered rows after it."""
    return next((at for at, row in enumerate(rows) if _seq(row) > seq), len(rows))
