"""A worker's HTTP endpoints for monitoring: /live, /ready and /metrics, on a port of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from whet.contract.errors import StoreError
from whet.store.team import TeamDatabase
from whet.team.metrics import WorkerCounts, team_text
from whet.web.listening import SiteServer, listen, make_config


class WorkerProbe:
    """Serves the endpoints until it is closed. `is_taking` returns whether the worker still takes turns."""

    def __init__(
        self,
        database: TeamDatabase,
        counts: WorkerCounts,
        is_taking: Callable[[], bool],
        host: str,
        port: int,
    ) -> None:
        self._database = database
        self._counts = counts
        self._is_taking = is_taking
        routes = [
            Route("/live", self._live),
            Route("/ready", self._ready),
            Route("/metrics", self._metrics),
        ]
        self._socket = listen(host, port, "--metrics-port")
        self.port: int = int(self._socket.getsockname()[1])
        self._server = SiteServer(
            make_config(Starlette(routes=routes), 1), _do_nothing, _do_nothing, takes_signals=False
        )
        self._task = asyncio.create_task(self._server.serve(sockets=[self._socket]))

    async def aclose(self) -> None:
        """Stop serving."""
        self._server.stop()
        await self._task

    async def _live(self, request: Request) -> PlainTextResponse:
        return PlainTextResponse("ok\n")

    async def _ready(self, request: Request) -> PlainTextResponse:
        if not self._is_taking():
            return PlainTextResponse("it ends, and takes no more turns\n", 503)
        return await check_database(self._database)

    async def _metrics(self, request: Request) -> PlainTextResponse:
        worker_text = self._counts.text()
        try:
            return PlainTextResponse(worker_text + await self._database.read(team_text))
        except StoreError:
            return PlainTextResponse(worker_text)


async def check_database(database: TeamDatabase) -> PlainTextResponse:
    """Return 200 if the database is reachable, else 503 with the error."""
    try:
        await database.read(lambda connection: connection.execute("SELECT 1").fetchone())
    except StoreError as error:
        return PlainTextResponse(f"{error.message}\n", 503)
    return PlainTextResponse("ok\n")


def _do_nothing() -> None:
    """The server's callbacks for start and stop, which the worker does not need."""
