"""Quiet hours: parse them, find their end, and combine the answers that were held during them."""

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


def parse_span(text: str) -> str:
    """Return quiet hours in their stored form, e.g. 22:00-07:00. Raises ConfigError."""
    if not text.strip():
        return ""
    match = _SPAN.fullmatch(text.strip())
    hint = "e.g. --quiet 22:00-07:00"
    if match is None:
        raise ConfigError(f"{text!r} are not quiet hours", hint=hint)
    try:
        first, last = time(int(match[1]), int(match[2])), time(int(match[3]), int(match[4]))
    except ValueError as error:
        raise ConfigError(f"{text!r} are not quiet hours", hint=hint) from error
    if first == last:
        raise ConfigError(f"{text!r} would never send anything", hint=hint)
    return f"{first:%H:%M}-{last:%H:%M}"


def find_end(quiet: str, zone: str, now: datetime) -> datetime | None:
    """Return when the quiet hours around `now` end, or None if `now` is outside of them."""
    if not quiet:
        return None
    first, last = (time.fromisoformat(part) for part in quiet.split("-"))
    local = now.astimezone(timing.find_zone(zone))
    local_time = local.time().replace(tzinfo=None)
    is_within_day = first < last
    if is_within_day and not first <= local_time < last:
        return None
    if not is_within_day and last <= local_time < first:
        return None
    end = local.replace(hour=last.hour, minute=last.minute, second=0, microsecond=0)
    return end if end > local else end + timedelta(days=1)


def format_digest(answers: Sequence[HeldAnswer]) -> str:
    """Return one message with the answers that were held during quiet hours."""
    parts = [f"While it was quiet: {plural(len(answers), 'result')}."]
    for answer in answers:
        text = (answer.text or answer.note).strip()
        cut = text if len(text) <= _EACH_CHARS else text[:_EACH_CHARS].rstrip() + " …"
        parts.append(f"{answer.name or 'a removed schedule'} ({answer.result})\n{cut}".strip())
    return "\n\n".join(parts)
