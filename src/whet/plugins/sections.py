"""Text that plugins add to the system prompts of new sessions: requested once, then part of the stored
prefix.

A section that is too long, empty or fails is left out and reported; the session starts anyway.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from whet.contract.errors import PluginError
from whet.plugins.calls import attribute_errors, call, within
from whet.plugins.parts import Problem, PromptSection

MAX_CHARS = 4_000
_ID = re.compile(r"[a-z0-9._-]{1,128}")
_MAX_IN_ALL = 8_000
_MAX = 32
_LIMIT_S = 10.0


def is_id(text: object) -> bool:
    """Return whether a section can have this name."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None


async def render_sections(
    sections: Sequence[PromptSection], facts: Mapping[str, str], note: Callable[[Problem], None]
) -> str:
    """Return the sections of a new session, by name, each under a heading that names its plugin. `note`
    receives the reasons of omissions."""
    texts: list[str] = []
    for section in sorted(sections, key=lambda one: one.id):
        try:
            text = await _section_text(section, facts)
        except PluginError as error:
            note(Problem(section.plugin, f"its prompt section {section.id} is left out: {error.message}"))
            continue
        block = f"## {section.id} (from the plugin {section.plugin})\n{text}"
        if len(texts) == _MAX or sum(map(len, texts)) + len(block) > _MAX_IN_ALL:
            too_much = f"all plugins' sections may have {_MAX_IN_ALL:,} characters in {_MAX} sections"
            note(Problem(section.plugin, f"its prompt section {section.id} is left out: {too_much}"))
            continue
        texts.append(block)
    return "\n\n".join(texts)


async def _section_text(section: PromptSection, facts: Mapping[str, str]) -> str:
    with attribute_errors(section.plugin, f"section {section.id}"):
        text = section.content
        if callable(text):
            text = await within(_LIMIT_S, call(text, MappingProxyType(dict(facts))))
        if not isinstance(text, str) or not text.strip():
            raise ValueError("it gave no text")
        if len(text) > section.max_chars:
            raise ValueError(f"its {len(text):,} characters are more than its {section.max_chars:,}")
        return text.strip()
