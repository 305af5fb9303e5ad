"""The tool `warm_session`: the operations of the command line, for the model.

Imported at the tool's first call, because few sessions need the mining modules.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from whet.contract.errors import WhetError
from whet.contract.messages import to_dict
from whet.contract.texts import plural
from whet.contract.tools import ToolContext
from whet.tools.learning import WarmRequest
from whet.warm.compose import BuildOptions
from whet.warm.mine import MiningScope
from whet.warm.openings import WarmStarts
from whet.warm.prime import make_prime
from whet.warm.start import redact_example
from whet.warm.template_store import WarmTemplates

_PREVIEW_MESSAGES, _PREVIEW_CHARS = 6, 200


async def run_request(warmth: WarmStarts, ctx: ToolContext, request: WarmRequest) -> dict[str, Any]:
    """Run the model's request on a thread and return the result; an error is part of the result."""
    try:
        return await asyncio.to_thread(_run, warmth, ctx, request)
    except WhetError as error:
        return {"error": f"{error.message.rstrip('.')}. {error.hint}".strip()}


def _run(warmth: WarmStarts, ctx: ToolContext, request: WarmRequest) -> dict[str, Any]:
    warm_templates = WarmTemplates(warmth.home, warmth.database, warmth.clock)
    if request.action == "list":
        return _list(warm_templates)
    if request.action == "build":
        return _build(warm_templates, request)
    if request.action == "delete":
        warm_templates.delete(request.name)
        return {"deleted": request.name, "name": request.name, "message": f"Deleted {request.name}."}
    return _load(warm_templates, ctx, request)


def _list(warm_templates: WarmTemplates) -> dict[str, Any]:
    rows = warm_templates.list_rows()
    templates = [{**msgspec.to_builtins(row), "example_count": row.examples} for row in rows]
    count = len(rows)
    message = f"{plural(count, 'template')}." if count else "There is no template yet: build one."
    return {"templates": templates, "count": count, "message": message}


def _build(warm_templates: WarmTemplates, request: WarmRequest) -> dict[str, Any]:
    options = BuildOptions(name=request.name, description=request.description, tags=request.tags)
    scope = MiningScope(
        min_messages=request.min_messages, max_sessions=request.max_sessions, source=request.source_filter
    )
    built = warm_templates.build(options, scope)
    count = len(built.template.examples)
    return {
        "name": built.template.name,
        "description": built.template.description,
        "tags": built.template.tags,
        "examples": count,
        "example_count": count,
        "message_count": 4 * count,
        "sessions": built.sessions,
        "error_rates": {name: round(rate, 4) for name, rate in built.error_rates.items()},
        "message": f"Built {built.template.name}: {count} examples from {plural(built.sessions, 'session')}.",
    }


def _load(warm_templates: WarmTemplates, ctx: ToolContext, request: WarmRequest) -> dict[str, Any]:
    template = warm_templates.load(request.name)
    if request.apply:
        warm_templates.apply(request.name, str(ctx.workspace))
    examples = [
        redact_example(stored_example)
        for stored_example in template.examples[: template.max_examples]
        if stored_example.result_success
    ]
    messages = [to_dict(message) for message in make_prime(template.hash, examples).messages]
    next_step = (
        "The next session here starts with it." if request.apply else "apply starts the next session with it."
    )
    return {
        "name": template.name,
        "description": template.description,
        "tags": template.tags,
        "example_count": len(template.examples),
        "applies_to_next_session": request.apply,
        "messages": messages,
        "message_count": len(messages),
        "conversation_preview": [
            {"role": row["role"], "content_preview": str(row.get("content") or "")[:_PREVIEW_CHARS]}
            for row in messages[:_PREVIEW_MESSAGES]
        ],
        "message": f"{template.name} holds {plural(len(template.examples), 'example')}. {next_step}",
    }
