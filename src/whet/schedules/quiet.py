"""Hours in which nothing is sent: read, asked for their end, and what is sent together after them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, time, timedelta

from whet.contract.errors import ConfigError
from whet.contract.texts import plural
from whet.schedules import timing
from whet.store.digests import HeldAnswer

_SPAN = re.compile(r"(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})")
_EACH_CHARS = 700


def span(text: str) -> str:
    """Give quiet hours as they are kept, e.g. 22:00-07:00. Raises ConfigError."""
    if not text.strip():
        return ""
    found = _SPAN.fullmatch(text.strip())
    hint = "e.g. --quiet 22:00-07:00"
    if found is None:
        raise ConfigError(f"{text!r} are no quiet hours", hint=hint)
    try:
        first, last = time(int(found[1]), int(found[2])), time(int(found[3]), int(found[4]))
    except ValueError as error:
        raise ConfigError(f"{text!r} are no quiet hours", hint=hint) from error
    if first == last:
        raise ConfigError(f"{text!r} would never send anything", hint=hint)
    return f"{first:%H:%M}-{last:%H:%M}"


def ends(quiet: str, zone: str, now: datetime) -> datetime | None:
    """Give when the quiet hours that `now` lies in end; None outside of them."""
    if not quiet:
        return None
    first, last = (time.fromisoformat(part) for part in quiet.split("-"))
    local = now.astimezone(timing.zone(zone))
    at = local.time().replace(tzinfo=None)
    is_quiet = first <= at < last if first < last else at >= first or at < last
    if not is_quiet:
        return None
    end = local.replace(hour=last.hour, minute=last.minute, second=0, microsecond=0)
    return end if end > local else end + timedelta(days=1)


def digest(held: Sequence[HeldAnswer]) -> str:
    """Write in one message what came while it was quiet."""
    parts = [f"While it was quiet: {plural(len(held), 'result')}."]
    for one in held:
        text = (one.text or one.note).strip()
        cut = text if len(text) <= _EACH_CHARS else text[:_EACH_CHARS].rstrip() + " …"
        parts.append(f"{one.name or 'a removed schedule'} ({one.result})\n{cut}".strip())
    return "\n\n".join(parts)
