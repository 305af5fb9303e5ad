"""The tools of MCP servers in a running program: loaded only where a server is configured.

`open_servers` imports the way to servers on demand, so that a start without any pays nothing.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from typing import TYPE_CHECKING

from whet.clock import Clock
from whet.config.paths import Home
from whet.config.schema import Settings
from whet.tools.registry import Registry

if TYPE_CHECKING:
    from whet.mcp.servers import Servers

PREFIX = "mcp__"


def open_servers(home: Home, settings: Settings, secrets: Mapping[str, str], clock: Clock) -> Servers | None:
    """Give the configured servers, none of them started; None where there are none. Raises ConfigError."""
    if not settings.mcp.servers:
        return None
    servers = pkgutil.resolve_name("whet.mcp.servers:Servers")
    reach = pkgutil.resolve_name("whet.mcp.remote:RemoteParts")
    guardian = pkgutil.resolve_name("whet.tools.guardian:Guardian")
    return servers(
        settings.mcp,
        reach(home, secrets, clock, guardian()),
        cap_chars=settings.tools.output_cap_chars,
        without=remote_names(settings),
    )


def remote_names(settings: Settings) -> list[str]:
    """Give the names of servers' tools that the settings leave out."""
    return [name for name in settings.tools.disabled if name.startswith(PREFIX)]


def with_remote(registry: Registry, servers: Servers) -> Registry:
    """Give the registry with the servers' tools as they are known now, after all others."""
    own = [tool for tool in registry.by_name.values() if "mcp" not in tool.tags]
    return Registry([*own, *servers.tools()])
