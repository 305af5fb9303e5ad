"""Render plugins' sections for the system prompt of a new session, whose stored prefix keeps them.

A section that fails, is empty or is too long is left out and reported. The session starts anyway.
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
_MAX_TOTAL_CHARS = 8_000
_MAX_SECTIONS = 32
_LIMIT_S = 10.0


def is_id(text: object) -> bool:
    """Return whether `text` can be a section's id."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None


async def render_sections(
    sections: Sequence[PromptSection], facts: Mapping[str, str], note: Callable[[Problem], None]
) -> str:
    """Return the text of all sections, sorted by id, each under a heading that names its plugin.

    `note` receives the reasons of omissions.
    """
    texts: list[str] = []
    for section in sorted(sections, key=lambda section: section.id):
        try:
            text = await _section_text(section, facts)
        except PluginError as error:
            note(Problem(section.plugin, f"its prompt section {section.id} is left out: {error.message}"))
            continue
        block = f"## {section.id} (from the plugin {section.plugin})\n{text}"
        if len(texts) == _MAX_SECTIONS or sum(map(len, texts)) + len(block) > _MAX_TOTAL_CHARS:
            total = f"{_MAX_TOTAL_CHARS:,} characters in {_MAX_SECTIONS} sections"
            limit = f"all plugins' sections may have {total}"
            note(Problem(section.plugin, f"its prompt section {section.id} is left out: {limit}"))
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
