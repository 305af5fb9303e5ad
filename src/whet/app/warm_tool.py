"""What the tool `warm_session` does: the desk of the command line, for the model.

The mining modules are imported at the first build, not with every session.
"""

from __future__ import annotations

import asyncio
import pkgutil
from typing import TYPE_CHECKING, Any

import msgspec

from whet.app.warmth import WarmStarts
from whet.contract.errors import WhetError
from whet.contract.messages import to_dict
from whet.contract.tools import ToolContext
from whet.tools.warm import WarmRequest

if TYPE_CHECKING:
    from whet.app.warm_desk import WarmTemplates


class WarmToolHandler(msgspec.Struct, frozen=True):
    """Carries out the model's requests; a failure is part of the answer."""

    warmth: WarmStarts

    async def __call__(self, ctx: ToolContext, request: WarmRequest) -> dict[str, Any]:
        """Do it on a thread and give what the model reads."""
        try:
            return await asyncio.to_thread(self._act, ctx, request)
        except WhetError as error:
            return {"error": f"{error.message.rstrip('.')}. {error.hint}".strip()}

    def _act(self, ctx: ToolContext, request: WarmRequest) -> dict[str, Any]:
        warmth = self.warmth
        desk: WarmTemplates = pkgutil.resolve_name("whet.app.warm_desk:WarmTemplates")(
            warmth.home, warmth.database, warmth.clock
        )
        if request.action == "list":
            return {"templates": msgspec.to_builtins(desk.listed())}
        if request.action == "build":
            return self._build(desk, request)
        if request.action == "delete":
            desk.delete(request.name)
            return {"deleted": request.name}
        return self._load(desk, ctx, request)

    def _build(self, desk: WarmTemplates, request: WarmRequest) -> dict[str, Any]:
        options = pkgutil.resolve_name("whet.warm.compose:BuildOptions")(
            name=request.name, description=request.description
        )
        built = desk.build(options, pkgutil.resolve_name("whet.warm.mine:MiningScope")())
        return {
            "name": built.template.name,
            "examples": len(built.template.examples),
            "sessions": built.sessions,
            "error_rates": {name: round(rate, 4) for name, rate in built.error_rates.items()},
        }

    def _load(self, desk: WarmTemplates, ctx: ToolContext, request: WarmRequest) -> dict[str, Any]:
        template = desk.load(request.name)
        if request.apply:
            desk.apply(request.name, str(ctx.workspace))
        examples = template.examples[: template.max_examples]
        prime = pkgutil.resolve_name("whet.warm.prime:make_prime")(template.hash, examples)
        return {
            "name": template.name,
            "description": template.description,
            "applies_to_next_session": request.apply,
            "messages": [to_dict(message) for message in prime.messages],
        }
