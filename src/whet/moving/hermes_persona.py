"""Imports Hermes Agent's persona (`SOUL.md` and `agent.system_prompt`) as the instructions setting here.

Both programs put it into every system prompt. The agent there may write that file too, so a person has to
see the whole text first, and text that looks like an attack or hides something is left.
The default persona of Hermes Agent is not imported. Source: default_soul.py of hermes-agent 0.19.0.
"""

from __future__ import annotations

import hashlib
import re

from whet.config import edit, load
from whet.config.paths import Home
from whet.contract.errors import WhetError
from whet.foreign_text import find_orders
from whet.memory.scan import scan
from whet.moving.carry import Consent, ImportOutcome
from whet.shell.fetches import find_outside_host

PART = "persona"
_KEY = "agent.instructions"
_MAX_CHARS = 20_000
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_OWN = frozenset(("2765a846e1bb371d78d3b93b403dfb0f8d1ba1a9895edb5f608367abfe81194d",))


def read_persona(soul: str, system_prompt: str) -> str:
    """Return the person's own text of both, or an empty string if all of it is the program's default."""
    return "\n\n".join(text for text in (_own_words(soul), _own_words(system_prompt)) if text)


def _own_words(text: str) -> str:
    text = _COMMENT.sub("", text.replace("\r\n", "\n")).strip()
    if hashlib.sha256(" ".join(text.split()).encode()).hexdigest() in _OWN:
        return ""
    content_lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return re.sub(r"\n{3,}", "\n\n", text) if content_lines else ""


def import_persona(
    home: Home, words: str, consent: Consent, *, was_imported: bool, dry: bool
) -> list[ImportOutcome]:
    """Write the persona to agent.instructions if that is not set and the person agrees to its text.
    `was_imported`: it was imported before."""
    if not words:
        return []
    host = find_outside_host(words)
    order = find_orders(words)
    problem = scan(words) or (f"it names {host}" if host else "")
    problem = problem or (f"it reads like orders to the assistant: {order!r}" if order else "")
    if load.load(home, environ={}).origins[_KEY] != "default":
        return [ImportOutcome("SOUL.md", "kept", f"{_KEY} is set here already")]
    if was_imported:
        return [ImportOutcome("SOUL.md", "kept", "it came before and was taken away here")]
    if problem or len(words) > _MAX_CHARS:
        why = problem or f"it has {len(words):,} characters, and every request would carry them"
        return [ImportOutcome("SOUL.md", "left", f"{why}; whet config set {_KEY} takes what you want of it")]
    if not consent(f"Put this text into every system prompt ({_KEY})?", words):
        why = "nobody has read it: whet import hermes --only persona shows it and asks, in a terminal"
        return [ImportOutcome("SOUL.md", "left", why)]
    try:
        if not dry:
            edit.set_value(home, _KEY, words)
    except WhetError as error:
        return [ImportOutcome("SOUL.md", "left", error.message)]
    return [ImportOutcome("SOUL.md", "set", f"as {_KEY}: {len(words):,} characters in every system prompt")]
