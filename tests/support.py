"""What tests share: a clock that stands still and ids that count."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class FixedClock:
    """A clock that moves only when told to; ids are id00000000000001, id00000000000002, ..."""

    def __init__(self) -> None:
        self.moment = datetime(2026, 11, 21, 9, 0, 0, tzinfo=UTC)
        self._count = 0

    def now(self) -> datetime:
        return self.moment

    def unix_ms(self) -> int:
        return int(self.moment.timestamp() * 1000)

    def monotonic_s(self) -> float:
        return self.moment.timestamp()

    def new_id(self) -> str:
        self._count += 1
        return f"id{self._count:014d}"

    def advance(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)
