"""Use the MCP servers that an editor offers for one session.

Their settings are converted to ours but not written to config.yaml. Their tools run under the gate. They
receive no secrets of ours, and stop with the session.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from acp.schema import AcpMcpServer, HttpMcpServer, McpServerStdio, SseMcpServer

from whet.app.parts import list_disabled_remote
from whet.app.services import Services
from whet.config.permission_settings import McpServerSettings, McpSettings
from whet.config.secrets import is_secret_name
from whet.contract.tools import Tool, ToolSpec
from whet.log import protect
from whet.mcp.remote import RemoteParts
from whet.mcp.servers import GUEST, Servers
from whet.mcp.stdio import ServerJail
from whet.tools.guardian import Guardian
from whet.visible import visible

ServerOffer: TypeAlias = HttpMcpServer | SseMcpServer | AcpMcpServer | McpServerStdio
_MAX_SERVERS = 30
_NAME_CHARS = 22
_START_S = 15.0
_VARIABLE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")


class EditorServers:
    """The editor's servers of one session. `notices` are lines for the person."""

    def __init__(self, servers: Servers | None, notices: list[str]) -> None:
        self.notices = notices
        self._servers = servers

    def tools(self) -> list[Tool]:
        """Return the tools that the servers last reported."""
        return [] if self._servers is None else self._servers.tools()

    def add_notice(self, text: str, *, must_show: bool = False) -> None:
        """Add a line for the person. An editor shows all lines, whatever `must_show` is."""
        self.notices.append(text)

    def enter(self, specs: Sequence[ToolSpec]) -> None:
        """Report changes of the servers from now on, and tools that the session's `specs` don't have."""
        if self._servers is None:
            return
        self._servers.attach_sink(specs, self)
        names = {spec.name for spec in specs}
        new_names = [tool.name for tool in self.tools() if tool.name not in names]
        if new_names:
            listed = ", ".join(new_names[:5])
            if len(new_names) > 5:
                listed += f" and {len(new_names) - 5} more"
            self.notices.append(f"MCP: {listed}: the editor brought them later; new sessions have them")

    async def aclose(self) -> None:
        """Stop the servers."""
        if self._servers is not None:
            await self._servers.aclose()


async def set_up_servers(offers: Sequence[ServerOffer], workspace: Path, services: Services) -> EditorServers:
    """Set up an editor's servers. Those without cached tools are started to list them.

    A server that can't be used has no tools, and a notice names the reason. Raises nothing.
    """
    settings, notices = read_offers(offers, workspace)
    if not settings:
        return EditorServers(None, notices)

    def jail(_name: str, server: McpServerSettings) -> ServerJail | None:
        from whet.app.confining import server_jail  # noqa: PLC0415 - 15 ms, only where a server is started

        jail = server_jail(services.confinement.get(), workspace, server)
        return None if jail is None else ServerJail(jail)

    parts = RemoteParts(services.home, {}, services.clock, Guardian(), jail=jail)
    cap_chars = services.settings.tools.output_cap_chars
    servers = Servers(
        McpSettings(settings), parts, cap_chars=cap_chars, without=list_disabled_remote(services.settings)
    )
    await servers.learn()
    return EditorServers(servers, notices)


def read_offers(
    offers: Sequence[ServerOffer], workspace: Path
) -> tuple[dict[str, McpServerSettings], list[str]]:
    """Return an editor's servers as settings by name, and notices on those that are not used."""
    settings: dict[str, McpServerSettings] = {}
    notices: list[str] = []
    for offer in offers[:_MAX_SERVERS]:
        display_name = visible(offer.name)[:60]
        result = _read_offer(offer, workspace)
        if isinstance(result, str):
            notices.append(f"The editor's MCP server {display_name} is not used: {result}.")
        else:
            settings[_unique_name(offer.name, settings)] = result
    if len(offers) > _MAX_SERVERS:
        notices.append(f"The editor brings {len(offers)} MCP servers; {_MAX_SERVERS} are used.")
    return settings, notices


def _read_offer(offer: ServerOffer, workspace: Path) -> McpServerSettings | str:
    """Return the settings of an offered server, or the reason why it can't be used."""
    if isinstance(offer, McpServerStdio):
        values = {variable.name: variable.value for variable in offer.env}
        secrets = [value for name, value in values.items() if is_secret_name(name)]
        server = McpServerSettings(
            command=offer.command,
            args=tuple(offer.args),
            env=values,
            cwd=str(workspace),
            start_timeout_s=_START_S,
        )
    elif isinstance(offer, HttpMcpServer):
        values = {header.name: header.value for header in offer.headers}
        secrets = list(values.values())
        server = McpServerSettings(url=offer.url, headers=values, start_timeout_s=_START_S)
    else:
        return f"its transport {offer.type} is not spoken, stdio and http are"
    if not (server.command or server.url):
        return "it has neither command nor url"
    for name, value in values.items():
        if _VARIABLE.search(value):
            return f"its {visible(name)[:40]} holds a variable that the editor did not fill in"
    protect(secrets)
    return server


def _unique_name(name: str, used_names: dict[str, McpServerSettings]) -> str:
    """Return a name for a server that is valid in tool names and that no server of config.yaml has."""
    plain = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:_NAME_CHARS].rstrip("-") or "server"
    candidate, number = GUEST + plain, 2
    while candidate in used_names:
        candidate, number = f"{GUEST}{plain[: _NAME_CHARS - 3]}-{number}", number + 1
    return candidate
