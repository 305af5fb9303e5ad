"""Take what came from deleted sessions out of the templates: arguments, and what was asked for."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from whet.config.paths import Home
from whet.warm.template import Template, delete, every, save

Existing = Callable[[set[str]], set[str]]
"""Gives those of the session ids that are in the store."""


def forget_examples(home: Home, existing: Existing) -> int:
    """Rewrite each template without the examples whose session is gone; one without any left is deleted.

    Templates from elsewhere are left alone, for their sessions never were here. Gives how many examples went;
    on return that is on disk. Raises ConfigError.
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
