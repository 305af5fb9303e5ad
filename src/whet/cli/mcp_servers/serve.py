"""`whet mcp serve`: run Whet as an MCP server on stdin and stdout. Its tools are in `app/own_mcp`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing

from whet.app.conversations.hosted import SessionHost
from whet.app.conversations.people import PersonRouter
from whet.app.own_mcp.server import OwnMcpServer
from whet.app.upkeep import limit_memory
from whet.cli.launch import ChatOptions, load_settings, start_app
from whet.cli.main import run_on_loop
from whet.config.paths import Home
from whet.config.schema import Settings
from whet.rpc import serve_stdio


def run(home: Home, flags: Mapping[str, object], *, asks: bool) -> None:
    """Serve until stdin ends, then cancel running turns, durably. Raises WhetError."""
    options = ChatOptions(home, flags)
    settings = load_settings(options, None)
    run_on_loop(_serve(options, settings, asks=asks))


async def _serve(options: ChatOptions, settings: Settings, *, asks: bool) -> None:
    people = PersonRouter()
    async with (
        aclosing(await start_app(options, settings, people)) as app,
        aclosing(SessionHost(app.sessions, people)) as hosted,
        limit_memory(),
    ):
        await serve_stdio(OwnMcpServer(hosted, can_ask=asks).answer)
