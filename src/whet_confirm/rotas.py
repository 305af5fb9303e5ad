"""On-call rotas: who is on duty, and who is notified next while a request stays unanswered."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import msgspec

MIN_STEP_S, MAX_STEP_S = 30, 86_400


class RotaText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A `[rotas.NAME]` in the format of the policy file. `since` is when the first person's turn begins."""

    people: list[str]
    since: str
    turn_days: int = 7
    timezone: str = ""
    next_after_s: int = 300


class Rota(msgspec.Struct, frozen=True):
    """People who take turns of `turn_days` from `since` on, a local time.

    A request that is escalated to the rota goes to the person on duty, and every `next_after_s` without an
    answer to the next one.
    """

    people: tuple[str, ...]
    since: datetime
    turn_days: int
    timezone: str
    next_after_s: int

    def list_from_duty(self, at_s: float) -> tuple[str, ...]:
        """Return the people in the order in which they are notified. The first is on duty at `at_s`."""
        now = datetime.fromtimestamp(at_s, ZoneInfo(self.timezone) if self.timezone else None)
        turns = (now.replace(tzinfo=None) - self.since) // timedelta(days=self.turn_days)
        first = turns % len(self.people)
        return self.people[first:] + self.people[:first]


def build_rota(name: str, text: RotaText) -> Rota:
    """Build a rota from its text, of which the time zone has been checked. Raises ValueError."""
    if not text.people or len(set(text.people)) < len(text.people):
        raise ValueError(f"rota {name}: people must name each person once")
    if text.turn_days < 1 or not MIN_STEP_S <= text.next_after_s <= MAX_STEP_S:
        raise ValueError(
            f"rota {name}: turn_days must be at least 1, next_after_s from {MIN_STEP_S} to {MAX_STEP_S}"
        )
    try:
        since = datetime.fromisoformat(text.since)
    except ValueError as error:
        raise ValueError(f"rota {name}: since {text.since!r} is not like 2026-01-05 09:00") from error
    if since.tzinfo is not None:
        raise ValueError(f"rota {name}: since is a local time, without an offset; set timezone")
    return Rota(tuple(text.people), since, text.turn_days, text.timezone, text.next_after_s)
