"""What a message to a person says, before any vendor's format: short, exact, nothing hidden in it.

What the agent wrote (action, requester, description, details) is kept apart from what we say, so that every
channel can mark it and none of it can pass for a line of ours. Knows neither channels nor the database.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from whet.config.secrets import is_secret_name
from whet.log import MASK
from whet.visible import visible

State = Literal["pending", "approved", "denied", "expired", "cancelled"]
AGENT_MARK = "Written by the agent, not checked:"
NO_PAGE_HOSTS = ("localhost", "127.", "[::1]")


class Notice(msgspec.Struct, frozen=True):
    """One request as people are told of it. Texts are visible, redacted and within their limits."""

    request_id: str
    digest: str
    state: State
    headline: str
    action: str
    requester: str
    principal: str
    description: str
    details: str
    is_high_risk: bool
    expires_s: float
    deadline: str
    link: str
    was_cut: bool = False
    outcome: str = ""
    progress: str = ""
    may_approve: bool = True

    @property
    def is_open(self) -> bool:
        """Whether somebody may still decide."""
        return self.state == "pending"

    @property
    def has_public_link(self) -> bool:
        """Whether the link works on another device."""
        host = self.link.partition("://")[2]
        return bool(host) and not host.startswith(NO_PAGE_HOSTS)


def fit(text: str, limit: int) -> tuple[str, bool]:
    """Make text visible and cut it at `limit` UTF-16 units, in which vendors count; say whether it was cut."""
    shown = visible(text, max(limit, 200) * 2)
    if units(shown) <= limit:
        return shown, "\n[... " in shown[-60:] and len(text) > max(limit, 200) * 2
    room = limit - 44
    kept = shown.encode("utf-16-le", "surrogatepass")[: room * 2].decode("utf-16-le", "ignore")
    return f"{kept}\n[... cut, {len(text):,} characters in all]", True


def units(text: str) -> int:
    """Count UTF-16 units: what Telegram, Discord and Slack call characters."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def one_line(text: str, limit: int) -> tuple[str, bool]:
    """Make text visible on one line: a line break is shown as one, and starts none."""
    return fit(text.replace("\n", "⏎"), limit)


def redact(value: object, names: Iterable[str] = ()) -> object:
    """Replace what stands under a name that looks secret, or matches one of the `names` (with * and ?)."""
    patterns = tuple(name.lower() for name in names)
    return _redact(value, patterns)


def _redact(value: object, patterns: tuple[str, ...]) -> object:
    if isinstance(value, Mapping):
        items: Mapping[object, object] = value
        return {
            key: MASK if _is_secret(str(key), inner, patterns) else _redact(inner, patterns)
            for key, inner in items.items()
        }
    if isinstance(value, list | tuple):
        row: Iterable[object] = value
        return [_redact(inner, patterns) for inner in row]
    return value


def _is_secret(name: str, value: object, patterns: tuple[str, ...]) -> bool:
    lowered = name.lower()
    if any(fnmatch.fnmatchcase(lowered, pattern) for pattern in patterns):
        return True
    return isinstance(value, str) and bool(value) and is_secret_name(lowered.replace("-", "_"))


def pretty(details: object) -> str:
    """Write details as indented JSON; what can't be seen in it is written as its code by `visible`."""
    return json.dumps(details, indent=2, ensure_ascii=False, default=str)


def agent_lines(text: str, mark: str = "| ") -> str:
    """Put a mark before each line, so that no line of the agent's can look like one of ours."""
    return "\n".join(mark + line for line in text.split("\n"))
