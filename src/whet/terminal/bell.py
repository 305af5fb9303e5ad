"""Call a person back to the terminal, with the bell and with a notification (OSC 9 or 777).

The settings `notify` decide when. Without a terminal, nothing is written.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TextIO

from whet.app.plugins.notify import NotifiedPerson
from whet.config.schema import NotifySettings
from whet.contract.events import TurnEnd
from whet.contract.protocols import Person
from whet.log import mask
from whet.terminal.wording import clip

_TEXT_COLUMNS = 120
_NO_NOTIFICATIONS = ("", "dumb", "unknown", "linux")


class TerminalBell:
    """The bell of the terminal that standard error or standard output shows."""

    def notify(self, title: str, text: str) -> None:
        """Ring, and show a notification of one line, with secrets masked."""
        stream = _terminal_stream()
        if stream is not None:
            stream.write(bell_sequence(f"{title}: {mask(text)}", os.environ))
            stream.flush()


def bell_sequence(text: str, environ: Mapping[str, str]) -> str:
    """Return the characters that ring and, on all but the plainest terminals, show `text`."""
    if environ.get("TERM", "") in _NO_NOTIFICATIONS:
        return "\a"
    text = clip(text, _TEXT_COLUMNS)
    if environ.get("VTE_VERSION") or environ["TERM"].startswith(("rxvt", "foot")):
        return f"\x1b]777;notify;Whet;{text}\x1b\\\a"
    return f"\x1b]9;{text}\a\a"


def ring_for(person: Person, settings: NotifySettings) -> Person:
    """Return a `Person` that passes questions on to `person` and calls them back for each one."""
    return NotifiedPerson(person, TerminalBell(), settings)


def ring_at_end(end: TurnEnd, settings: NotifySettings) -> None:
    """Call the person back at the end of a long turn."""
    if end.duration_s >= settings.turns_over_s:
        TerminalBell().notify(f"Whet: the turn ended ({end.reason})", end.text or end.error)


def _terminal_stream() -> TextIO | None:
    return next((stream for stream in (sys.stderr, sys.stdout) if stream.isatty()), None)
