"""The MCP servers that an editor provides for one session: their settings converted to ours, used under the
gate, and stopped with the session.

They are not written to config.yaml, and receive no secrets of ours.
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
        """Return their tools, as last known."""
        return [] if self._servers is None else self._servers.tools()

    def add_notice(self, text: str, *, must_show: bool = False) -> None:
        """Add a line for the person; an editor shows all of them."""
        self.notices.append(text)

    def enter(self, specs: Sequence[ToolSpec]) -> None:
        """Report changes of the servers from now on, and how their tools differ from those of the session."""
        if self._servers is None:
            return
        self._servers.attach_board(specs, self)
        names = {spec.name for spec in specs}
        if late := [tool.name for tool in self.tools() if tool.name not in names]:
            listed_names = ", ".join(late[:5]) + (f" and {len(late) - 5} more" if len(late) > 5 else "")
            self.notices.append(f"MCP: {listed_names}: the editor brought them later; new sessions have them")

    async def aclose(self) -> None:
        """Stop the servers."""
        if self._servers is not None:
            await self._servers.aclose()


async def set_up_servers(offers: Sequence[ServerOffer], workspace: Path, services: Services) -> EditorServers:
    """Set up an editor's servers. Servers without cached tools are started and asked.

    Never raises: a server that can't be used has no tools, and a notice names the reason.
    """
    settings, notices = read_offers(offers, workspace)
    if not settings:
        return EditorServers(None, notices)

    def jail(_name: str, server: McpServerSettings) -> ServerJail | None:
        from whet.app.confining import server_jail  # noqa: PLC0415 - 15 ms, only where a server is started

        jail = server_jail(services.confinement.get(), workspace, server)
        return None if jail is None else ServerJail(jail)

    reach = RemoteParts(services.home, {}, services.clock, Guardian(), jail=jail)
    cap_chars = services.settings.tools.output_cap_chars
    servers = Servers(
        McpSettings(settings), reach, cap_chars=cap_chars, without=list_disabled_remote(services.settings)
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
    if isinstance(offer, McpServerStdio):
        env = {variable.name: variable.value for variable in offer.env}
        server = McpServerSettings(
            command=offer.command,
            args=tuple(offer.args),
            env=env,
            cwd=str(workspace),
            start_timeout_s=_START_S,
        )
        secret = [value for name, value in env.items() if is_secret_name(name)]
        values, lacks = env, not offer.command
    elif isinstance(offer, HttpMcpServer):
        headers = {header.name: header.value for header in offer.headers}
        server = McpServerSettings(url=offer.url, headers=headers, start_timeout_s=_START_S)
        secret, values, lacks = list(headers.values()), headers, not offer.url
    else:
        return f"its transport {offer.type} is not spoken, stdio and http are"
    if lacks:
        return "it has neither command nor url"
    if open_ := next((name for name, value in values.items() if _VARIABLE.search(value)), ""):
        return f"its {visible(open_)[:40]} holds a variable that the editor did not fill in"
    protect(secret)
    return server


def _unique_name(name: str, used_names: dict[str, McpServerSettings]) -> str:
    """Return a name for a server that is valid in tool names and that no server of config.yaml has."""
    plain = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:_NAME_CHARS].rstrip("-") or "server"
    tried, number = GUEST + plain, 2
    while tried in used_names:
        tried, number = f"{GUEST}{plain[: _NAME_CHARS - 3]}-{number}", number + 1
    return tried
