"""Build the API as one ASGI application, with the guard in front of it and errors in one format.

The dashboard's pages, if enabled, are routes of the same application.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from whet.app.conversations.hosted import SessionHost
from whet.clock import Clock
from whet.contract.errors import StoreError, WhetError
from whet.serve.auth import ApiAuth
from whet.serve.conversations import SessionTurns
from whet.serve.embeddings import Embeddings
from whet.serve.feed import Feeds
from whet.serve.goals import Goals
from whet.serve.lessons import LessonCalls
from whet.serve.mcp_endpoint import McpEndpoint
from whet.serve.native import Native
from whet.serve.plans import PlanCalls
from whet.serve.questions import Questions
from whet.serve.rewinds import RewindCalls
from whet.serve.routes import mcp_call, openapi_document, public_calls, route_of, session_calls, vendor_calls
from whet.serve.turn_responder import TurnResponder
from whet.serve.turns import Turns
from whet.serve.vendor_endpoints import VendorEndpoints
from whet.serve.wire import (
    ApiError,
    ErrorAnswer,
    JsonAnswer,
    as_api_error,
    error_object,
    refusal,
    speaks_messages,
)
from whet.visible import visible
from whet.web.guard import SiteAddress, SiteGuard
from whet.web.operations import Operation

_PATH_CHARS = 100
_API = ("/v1/", "/api/", "/mcp", "/health", "/ready", "/metrics", "/openapi.json")


class SiteTimings(msgspec.Struct, frozen=True):
    """Time limits in seconds.

    - `answer_wait_s`: how long a question waits for its answer
    - `beat_s`: how long a stream may be silent
    - `head_wait_s`: how long a stream waits for the model's first piece before it sends its status; less than
      the minute after which proxies time out
    - `results_wait_s`: how long a turn waits for the results of its client's tools
    """

    answer_wait_s: float = 300.0
    beat_s: float = 5.0
    head_wait_s: float = 30.0
    results_wait_s: float = 600.0


class Site:
    """The parts of a running API. The dashboard uses the same `turns` and `feeds`; the server closes them."""

    def __init__(self, hosted: SessionHost, clock: Clock, timings: SiteTimings) -> None:
        services = hosted.services
        self.services = services
        self.auth: ApiAuth = ApiAuth(services.database, clock)
        self.turns: Turns = make_turns(hosted, clock, timings)
        self.feeds: Feeds = self.turns.feeds
        self.session_turns: SessionTurns = SessionTurns(services.database, self.turns, timings.results_wait_s)
        self.operations: tuple[Operation, ...] = (
            *vendor_calls(
                VendorEndpoints(
                    services,
                    self.auth,
                    self.session_turns,
                    TurnResponder(timings.beat_s, timings.head_wait_s),
                ),
                Embeddings(services.settings.embeddings, services.models),
            ),
            *session_calls(native := Native(services, self.auth, self.session_turns, self.turns)),
            *PlanCalls(native).operations(),
            *RewindCalls(native).operations(),
            *Goals(services).operations(),
            *LessonCalls(services.database, services.learning).operations(),
            mcp_call(McpEndpoint(hosted, timings.beat_s)),
            *public_calls(self._describe, self._health, self._ready, self._metrics),
        )

    def asgi(
        self,
        address: SiteAddress,
        pages: Sequence[BaseRoute] = (),
        render_problem: Callable[[int, str], Response] | None = None,
    ) -> ASGIApp:
        """Return the application. `render_problem` renders an error of one of `pages` as a page."""

        async def handle_error(request: Request, error: Exception) -> Response:
            api_error = _to_api_error(request, error)
            if render_problem is None or request.url.path.startswith(_API):
                return refusal(api_error, to_messages=speaks_messages(request.scope))
            return render_problem(api_error.status, api_error.message)

        handlers: dict[Any, Any] = {
            WhetError: handle_error,
            HTTPException: handle_error,
            Exception: handle_error,
        }
        return SiteGuard(
            Starlette(routes=[*self.routes(), *pages], exception_handlers=handlers), address, _as_error
        )

    def routes(self) -> list[Route]:
        """Return the API's routes."""
        return [route_of(operation, self.auth) for operation in self.operations]

    async def _describe(self, request: Request) -> Response:
        """Return this document."""
        return JsonAnswer(openapi_document(self.operations))

    async def _health(self, request: Request) -> Response:
        """Report that the server is running."""
        return JsonAnswer({"status": "ok", "running": len(self.turns.running)})

    async def _ready(self, request: Request) -> Response:
        """Report whether the database answers."""
        try:
            await self.services.database.read(lambda db: db.execute("SELECT 1").fetchone())
        except StoreError as error:
            return JsonAnswer({"status": error.message}, 503)
        return JsonAnswer({"status": "ok"})

    async def _metrics(self, request: Request) -> Response:
        """Return counts in the Prometheus text format."""
        return PlainTextResponse(await self.turns.metrics())


def make_turns(hosted: SessionHost, clock: Clock, timings: SiteTimings) -> Turns:
    """Return the object that runs turns: in this process, or on a team's workers."""
    if hosted.services.database.is_team:
        from whet.serve.team_turns import TeamTurns  # noqa: PLC0415 - brings psycopg, an extra

        return TeamTurns(hosted, clock, timings.beat_s, timings.answer_wait_s)
    questions = Questions(clock, timings.answer_wait_s)
    return Turns(hosted, Feeds(clock.new_id(), timings.beat_s), questions, clock)


def _to_api_error(request: Request, error: Exception) -> ApiError:
    """Return the API error for an exception. The text of an unexpected error is only in the server's log."""
    if isinstance(error, WhetError):
        return as_api_error(error)
    if not isinstance(error, HTTPException):
        return ApiError(500, "something went wrong here; the log knows more", code="internal_error")
    if error.status_code == 405:
        return ApiError(405, f"{request.method} is not answered here", code="method_not_allowed")
    request_line = f"{request.method} {visible(request.url.path, _PATH_CHARS)}"
    return ApiError(
        error.status_code,
        f"{request_line} is not offered here; GET /openapi.json lists what is",
        code="not_found",
    )


def _as_error(status: int, reason: str) -> object:
    return ErrorAnswer(error_object(ApiError(status, reason, code="refused")))
