"""Find the skills that a person names in a message, as `$NAME` or `/NAME`."""

from __future__ import annotations

import re

from whet.memory.library import Library

_NAMED = re.compile(r"(?<![\w$/.:~-])[$/]([a-z0-9][a-z0-9-]{0,63})(?![\w/:-]|\.\w)")
_MAX_LOOKED_UP = 20


def note_named_skills(library: Library, text: str) -> str:
    """Return a note to the model on the skills that a message names, or an empty string. Names in pasted text
    and in code do not count."""
    if _NAMED.search(text) is None:
        return ""
    from whet.memory.typed import remove_tagged, split  # noqa: PLC0415 - few messages name one

    own_words = remove_tagged(split(text, "typed")[0])
    names = dict.fromkeys(match[1] for match in _NAMED.finditer(re.sub(r"`[^`\n]*`", " ", own_words)))
    infos = [library.find(name) for name in list(names)[:_MAX_LOOKED_UP]]
    named = [info.name for info in infos if info is not None and not info.problem]
    return (
        f"[the person names the skills {', '.join(named)}: load each with skill_view first]" if named else ""
    )
