"""What the tool `warm_session` does: the desk of the command line, for the model.

Imported at the tool's first call: the mining modules are not for every session.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from whet.app.warm_desk import WarmTemplates
from whet.app.warmth import WarmStarts
from whet.contract.errors import WhetError
from whet.contract.messages import to_dict
from whet.contract.tools import ToolContext
from whet.tools.learning import WarmRequest
from whet.warm.compose import BuildOptions
from whet.warm.mine import MiningScope
from whet.warm.prime import make_prime


async def act(warmth: WarmStarts, ctx: ToolContext, request: WarmRequest) -> dict[str, Any]:
    """Do what the model asked for on a thread and give what it reads; a failure is part of that."""
    try:
        return await asyncio.to_thread(_act, warmth, ctx, request)
    except WhetError as error:
        return {"error": f"{error.message.rstrip('.')}. {error.hint}".strip()}


def _act(warmth: WarmStarts, ctx: ToolContext, request: WarmRequest) -> dict[str, Any]:
    desk = WarmTemplates(warmth.home, warmth.database, warmth.clock)
    if request.action == "list":
        return {"templates": msgspec.to_builtins(desk.listed())}
    if request.action == "build":
        return _build(desk, request)
    if request.action == "delete":
        desk.delete(request.name)
        return {"deleted": request.name}
    return _load(desk, ctx, request)


def _build(desk: WarmTemplates, request: WarmRequest) -> dict[str, Any]:
    built = desk.build(BuildOptions(name=request.name, description=request.description), MiningScope())
    return {
        "name": built.template.name,
        "examples": len(built.template.examples),
        "sessions": built.sessions,
        "error_rates": {name: round(rate, 4) for name, rate in built.error_rates.items()},
    }


def _load(desk: WarmTemplates, ctx: ToolContext, request: WarmRequest) -> dict[str, Any]:
    template = desk.load(request.name)
    if request.apply:
        desk.apply(request.name, str(ctx.workspace))
    examples = template.examples[: template.max_examples]
    prime = make_prime(template.hash, examples)
    return {
        "name": template.name,
        "description": template.description,
        "applies_to_next_session": request.apply,
        "messages": [to_dict(message) for message in prime.messages],
    }
