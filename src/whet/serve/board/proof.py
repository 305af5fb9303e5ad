"""The pages of skills with uses and outcomes, warm templates with uplift, and reviews with cost."""

from __future__ import annotations

import asyncio
from typing import Any

import apsw
from starlette.requests import Request
from starlette.responses import Response

from whet.contract.errors import ConfigError, NotFound, WhetError
from whet.memory import skill_store
from whet.memory.effects import MIN_SESSIONS, Effect, measure_effects
from whet.memory.requests import Refused
from whet.review.jobs import read_review_job
from whet.serve.board.frame import Frame
from whet.store import learned, ledger, reviews
from whet.warm.template_store import Listed, WarmTemplates
from whet.web.sessions import Visit


class Proof:
    """The pages for skills, templates and reviews."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._service = frame.services.learning.owner_service
        self._warm = WarmTemplates(frame.services.home, frame.services.database, frame.services.clock)

    async def skills(self, request: Request, visit: Visit) -> Response:
        """List skills, how often they were loaded, and the outcomes of sessions with them."""
        infos = await asyncio.to_thread(self._service.library.all)
        uses = await self._frame.services.database.read(lambda db: learned.count_uses(db, ""))
        effects = {
            effect.item.name: effect
            for effect in await measure_effects(self._service, ("skill",))
            if effect.current
        }
        rows = [(info, uses.get(info.name, 0), effects.get(info.name)) for info in infos]
        return self._frame.page(
            "skills.html", visit, here="skills", rows=rows, least=MIN_SESSIONS, compared=_has_comparison
        )

    async def skill(self, request: Request, visit: Visit) -> Response:
        """Show a skill's text and its changes."""
        name = request.path_params["name"]
        try:
            load = await asyncio.to_thread(skill_store.load, self._service.library, name)
        except Refused as error:
            raise NotFound(error.message, hint=error.hint) from error

        def read(db: apsw.Connection) -> list[ledger.LedgerRow]:
            return ledger.select(db, 50, profile="", kind="skill", item=name)

        rows = await self._frame.services.database.read(read)
        return self._frame.page("skill.html", visit, here="skills", name=name, load=load, rows=rows)

    async def warm(self, request: Request, visit: Visit) -> Response:
        """List templates with their measured uplift."""
        rows: list[Listed] = await asyncio.to_thread(self._warm.list_rows)
        return self._frame.page(
            "warm.html", visit, here="warm", rows=rows, default=self._frame.services.settings.warm.default
        )

    async def template(self, request: Request, visit: Visit) -> Response:
        """Show a template's examples."""
        try:
            warm_template = await asyncio.to_thread(self._warm.load, request.path_params["name"])
        except ConfigError as error:
            raise NotFound(error.message, hint=error.hint) from error
        return self._frame.page("template.html", visit, here="warm", template=warm_template)

    async def reviews(self, request: Request, visit: Visit) -> Response:
        """List reviews with their reasons, outcomes and costs."""
        rows = await self._frame.services.database.read(lambda db: reviews.list_reviews(db, 100))
        return self._frame.page(
            "reviews.html", visit, here="reviews", rows=[_review_values(row) for row in rows]
        )


def _has_comparison(effect: Effect) -> bool:
    """Return whether there are enough sessions on both sides for a comparison."""
    return min(effect.shown.sessions, effect.compared.sessions) >= MIN_SESSIONS


def _review_values(row: reviews.ReviewRow) -> dict[str, Any]:
    try:
        order = read_review_job(row.payload)
        why = ", ".join(order.reasons)
    except WhetError:
        why = ""
    outcome = row.summary.partition(": ")[2]
    if not outcome and row.state == "done" and not row.note:
        outcome = "nothing to save"
    return {"row": row, "why": why, "outcome": " · ".join(filter(None, (outcome, row.note)))}
