"""Remove the examples of deleted sessions from the templates: arguments, and the words of the request."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from whet.config.paths import Home
from whet.warm.template import Template, delete, iter_templates, save

Existing = Callable[[set[str]], set[str]]
"""Returns those of the session ids that are in the store."""


def forget_examples(home: Home, existing: Existing) -> int:
    """Rewrite each template without the examples of deleted sessions; a template without examples is deleted.

    Imported templates are not changed, because their sessions never were here. Returns the number of
    removed examples; the change is on disk on return. Raises ConfigError.
    """
    count = 0
    for template in list(iter_templates(home)):
        if isinstance(template, Template) and not template.imported_at:
            count += _remove_deleted(home, template, existing)
    return count


def _remove_deleted(home: Home, template: Template, existing: Existing) -> int:
    ids = {example.session_id for example in template.examples} | set(template.source_session_ids)
    present_ids = existing(ids - {""})
    remaining = tuple(
        kept_example
        for kept_example in template.examples
        if not kept_example.session_id or kept_example.session_id in present_ids
    )
    gone = len(template.examples) - len(remaining)
    if not gone:
        return 0
    if not remaining:
        delete(home, template.name)
        return gone
    sources = tuple(id_ for id_ in template.source_session_ids if id_ in present_ids)
    save(home, msgspec.structs.replace(template, examples=remaining, source_session_ids=sources))
    return gone
