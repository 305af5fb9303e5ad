"""Import Hermes Agent's persona (`SOUL.md` and `agent.system_prompt`) as the setting agent.instructions.

Both programs put it into every system prompt. Hermes' agent may write that file, so a person has to see the
whole text first, and a text that looks like an attack or hides something is not imported. Nor is the default
persona. Source: default_soul.py of hermes-agent 0.19.0.
"""

from __future__ import annotations

import hashlib
import re

from whet.config import edit, load
from whet.config.paths import Home
from whet.contract.errors import WhetError
from whet.foreign_text import find_orders
from whet.memory.scan import scan
from whet.moving.importing import Consent, ImportOutcome
from whet.shell.fetches import find_outside_host

PART = "persona"
_KEY = "agent.instructions"
_MAX_CHARS = 20_000
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_DEFAULT_SHA256 = "2765a846e1bb371d78d3b93b403dfb0f8d1ba1a9895edb5f608367abfe81194d"


def read_persona(soul: str, system_prompt: str) -> str:
    """Return the person's own text in both, or "" if there is only the program's default."""
    return "\n\n".join(filter(None, (_own_text(soul), _own_text(system_prompt))))


def _own_text(text: str) -> str:
    """Return a text without comments, or "" if it is the default or has only headings."""
    text = _COMMENT.sub("", text.replace("\r\n", "\n")).strip()
    if hashlib.sha256(" ".join(text.split()).encode()).hexdigest() == _DEFAULT_SHA256:
        return ""
    content_lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return re.sub(r"\n{3,}", "\n\n", text) if content_lines else ""


def import_persona(
    home: Home, persona: str, consent: Consent, *, was_imported: bool, dry: bool
) -> list[ImportOutcome]:
    """Write the persona to agent.instructions if that is not set and the person agrees to its text.

    `was_imported` is True if an earlier import has stored it.
    """
    if not persona:
        return []
    host = find_outside_host(persona)
    order = find_orders(persona)
    problem = scan(persona) or (f"it names {host}" if host else "")
    problem = problem or (f"it reads like orders to the assistant: {order!r}" if order else "")
    if load.load(home, environ={}).origins[_KEY] != "default":
        return [ImportOutcome("SOUL.md", "kept", f"{_KEY} is set here already")]
    if was_imported:
        return [ImportOutcome("SOUL.md", "kept", "it came before and was taken away here")]
    if problem or len(persona) > _MAX_CHARS:
        why = problem or f"it has {len(persona):,} characters, and every request would carry them"
        return [ImportOutcome("SOUL.md", "left", f"{why}; whet config set {_KEY} takes what you want of it")]
    if not consent(f"Put this text into every system prompt ({_KEY})?", persona):
        why = "nobody has read it: whet import hermes --only persona shows it and asks, in a terminal"
        return [ImportOutcome("SOUL.md", "left", why)]
    try:
        if not dry:
            edit.set_value(home, _KEY, persona)
    except WhetError as error:
        return [ImportOutcome("SOUL.md", "left", error.message)]
    return [ImportOutcome("SOUL.md", "set", f"as {_KEY}: {len(persona):,} characters in every system prompt")]
