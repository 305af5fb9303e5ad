"""Remove the examples of deleted sessions from the templates: arguments, and the words of the request."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from whet.config.paths import Home
from whet.warm.template import Template, delete, every, save

Existing = Callable[[set[str]], set[str]]
"""Returns those of the session ids that are in the store."""


def forget_examples(home: Home, existing: Existing) -> int:
    """Rewrite each template without the examples of deleted sessions; a template without examples is deleted.

    Imported templates are not changed, because their sessions never were here. Returns the number of
    removed examples; the change is on disk on return. Raises ConfigError.
    """
    count = 0
    for template in list(every(home)):
        if isinstance(template, Template) and not template.imported_at:
            count += _without_the_gone(home, template, existing)
    return count


def _without_the_gone(home: Home, template: Template, existing: Existing) -> int:
    ids = {example.session_id for example in template.examples} | set(template.source_session_ids)
    there = existing(ids - {""})
    kept = tuple(one for one in template.examples if not one.session_id or one.session_id in there)
    gone = len(template.examples) - len(kept)
    if not gone:
        return 0
    if not kept:
        delete(home, template.name)
        return gone
    sources = tuple(id_ for id_ in template.source_session_ids if id_ in there)
    save(home, msgspec.structs.replace(template, examples=kept, source_session_ids=sources))
    return gone
