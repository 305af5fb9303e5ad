"""Create the parts of a program: Whet's own tools, and parts that only some homes have.

Plugins, MCP servers and a confirmation service are imported only if the settings name one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from whet import __version__
from whet.app.model_links.models import Dialer
from whet.clock import Clock
from whet.config.key_hosts import find_search_server
from whet.config.paths import Home
from whet.config.permission_settings import McpServerSettings
from whet.config.schema import ModelSettings, Settings, ToolSettings, WalletSettings
from whet.contract.delegation import BackgroundHelpers, HelperWish
from whet.contract.errors import ConfigError, ToolError
from whet.contract.protocols import NobodyPresent, Person, Provider
from whet.contract.tools import ToolContext, ToolOutput
from whet.providers import catalog
from whet.tools.page_source import WebLimits
from whet.tools.registry import Registry
from whet.tools.toolsets.delegation import DelegationTools
from whet.tools.toolsets.files import FileTools
from whet.tools.toolsets.planning import PlanningTools
from whet.tools.toolsets.session import RecallTools, SessionTools
from whet.tools.toolsets.skills import WarmTools
from whet.tools.toolsets.terminal import ShellLimits, ShellTools
from whet.tools.toolsets.web import SearchTools, WebTools

if TYPE_CHECKING:
    from whet.app.confirming import Confirmations
    from whet.app.learning.services import LearningServices
    from whet.app.plugins.sessions import PluginParts
    from whet.app.services import BaseParts
    from whet.app.tracing import Tracing
    from whet.mcp.servers import Servers
    from whet.mcp.stdio import ServerJail
    from whet.store.database import StateDatabase
    from whet.tools.engines import SearchEngine
    from whet.tools.learning import WarmRequest
    from whet.tools.toolsets.web import SearchEngineOf
    from whet_confirm.boundary import ServiceBoundary

_REMOTE_PREFIX = "mcp__"
_OWN_PORTS = (6000, 6080, 6090)  # defaults of `whet confirm serve`, its page, and `whet serve`


class LaunchArguments(msgspec.Struct, frozen=True):
    """The arguments that a program is started with. `source` names the interface."""

    home: Home
    settings: Settings
    secrets: Mapping[str, str]
    person: Person
    workspace: Path
    source: str


def open_tracing(settings: Settings, source: str, database: StateDatabase) -> Tracing | None:
    """Return the trace exporter, or None if traces are not configured. Raises ConfigError."""
    if not settings.traces.url:
        return None
    try:
        from whet.app.tracing import Tracing  # noqa: PLC0415 - brings packages of an extra, 300 ms
    except ImportError as error:
        from whet.extras import install_command  # noqa: PLC0415 - few processes lack an extra

        raise ConfigError(
            "traces.url needs OpenTelemetry's packages", hint=install_command("otel")
        ) from error
    return Tracing(settings.traces.url, source, database)


def make_built_in_tools(base: BaseParts, launch: LaunchArguments) -> Registry:
    """Create Whet's own tools, in the order in which every session sends them."""
    settings = launch.settings.tools

    async def run_warm_request(context: ToolContext, request: WarmRequest) -> dict[str, Any]:
        from whet.warm import tool as warm_tool  # noqa: PLC0415 - it brings the mining modules

        return await warm_tool.run_request(base.warm_starts, context, request)

    async def spawn(parent: ToolContext, wish: HelperWish) -> ToolOutput:
        return await base.helpers.get().delegate(parent, wish)

    def make_window() -> BackgroundHelpers:
        from whet.app.helpers.window import HelperWindow  # noqa: PLC0415 - few sessions have helpers

        return HelperWindow(base.helpers.get())

    engine, file_tools = make_search_engine(launch), FileTools(base.pool, home=launch.home.main_root)
    if deny := launch.settings.approval.deny:
        from whet.sandbox.path_rules import read_path_rules  # noqa: PLC0415 - few have such rules

        file_tools = msgspec.structs.replace(file_tools, rules=read_path_rules(deny))
    return Registry(
        (
            *file_tools,
            *ShellTools(
                base.processes,
                ShellLimits(
                    settings.terminal_timeout_s,
                    settings.output_cap_chars,
                    launch.settings.sandbox.variables,
                ),
                helpers=make_window,
            ),
            *WebTools(base.pool, web_limits(settings)),
            *(SearchTools(engine) if engine else ()),
            *PlanningTools(base.todo_lists),
            *base.learning.tools(),
            *WarmTools(run_warm_request),
            *SessionTools(base.database),
            *RecallTools(base.database),
            *DelegationTools(spawn),
        )
    )


def make_search_engine(launch: LaunchArguments) -> SearchEngineOf | None:
    """Return a function that creates the engine of web_search with its key, or None if the settings name no
    engine."""
    search_settings = launch.settings.search
    if not search_settings.provider:
        return None

    def engine() -> SearchEngine:
        from whet.tools.engines import SearchEngine  # noqa: PLC0415 - an HTTP client, for who searches

        server = find_search_server(search_settings)
        if not search_settings.provider or not server.url:
            raise ToolError("search.base_url is not set", hint="whet config set search.base_url http://...")
        key = next((launch.secrets[name] for name in server.keys if launch.secrets.get(name)), "")
        if not key and search_settings.provider != "searxng":
            names = " or ".join(server.keys) or "a key that may go to this address"
            raise ToolError(
                f"{search_settings.provider} needs {names}", hint=f"put it into {launch.home.env}"
            )
        return SearchEngine(
            search_settings.provider, server.url, key, search_settings.google_cx, search_settings.results
        )

    return engine


def load_plugins(
    launch: LaunchArguments,
    built_in: Registry,
    learning: LearningServices,
    dialer: Dialer,
    database: StateDatabase,
) -> PluginParts | None:
    """Load the enabled plugins for a program that runs sessions. Returns None if no plugin is enabled."""
    if not launch.settings.plugins.enabled:
        return None
    # The plugin layer costs 40 ms.
    from whet.app.plugins.parts import PluginNeeds  # noqa: PLC0415
    from whet.app.plugins.sessions import PluginParts  # noqa: PLC0415

    def connect(model: ModelSettings) -> Provider:
        provider, clock = dialer.connect(model), learning.reader.clock
        return cap_calls(provider, database, clock, launch.settings.wallet, "plugin")

    needs = PluginNeeds(launch.home, launch.settings, launch.workspace, built_in.by_name, connect)
    plugins = PluginParts.load(needs, learning.owner_service, launch.source)
    dialer.plugins = None if plugins is None else plugins.loaded
    return plugins


def open_confirmations(launch: LaunchArguments, clock: Clock) -> Confirmations | None:
    """Return the client of the confirmation service, or None if no service is configured. Raises
    ConfigError."""
    if not launch.settings.confirm.url:
        return None
    from whet.app.confirming import Confirmations  # noqa: PLC0415 - an HTTP client of its own

    return Confirmations(launch.settings.confirm, launch.secrets, launch.home, clock)


def has_caps(wallet: WalletSettings) -> bool:
    """Return whether the settings name any spending cap."""
    usd = wallet.daily_usd or wallet.session_usd or wallet.person_usd or wallet.schedule_usd
    return bool(usd or wallet.daily_tokens or wallet.session_tokens)


def cap_calls(
    provider: Provider, database: StateDatabase, clock: Clock, wallet: WalletSettings, purpose: str
) -> Provider:
    """Return the provider with its calls checked against the spending caps, if there are any. `purpose` is
    the kind of call, such as "review"."""
    if not has_caps(wallet):
        return provider
    from whet.app.model_links.wallet import Wallet, WalletProvider  # noqa: PLC0415 - only where something is capped

    return WalletProvider(provider, Wallet(database, clock, wallet), purpose)


def learn_prices(home: Home, clock: Clock) -> None:
    """Load the home's own price table if it exists. Raises ConfigError."""
    path = home.root / "prices.csv"
    if path.exists():
        catalog.learn_prices(path, clock.now().date().isoformat())


def select_tools(registry: Registry, settings: Settings, plugins: PluginParts | None) -> Registry:
    """Return the tools that the settings select, including plugins' tools. Raises ConfigError."""
    toolsets = list(settings.tools.toolsets)
    if plugins is not None:
        toolsets += plugins.loaded.toolsets
        for tool in plugins.loaded.tools:
            if tool.name in plugins.loaded.overrides:
                del registry.by_name[tool.name]
            registry.add(tool)
    disabled = [name for name in settings.tools.disabled if not name.startswith(_REMOTE_PREFIX)]
    return registry.select(toolsets, disabled)


def patience_s(settings: Settings, source: str, person: Person) -> float:
    """Return how many seconds to wait during an outage of the model's server. A person at a terminal or an
    editor can stop the wait, so it has a limit of its own."""
    is_watched = source in ("cli", "acp") and not isinstance(person, NobodyPresent)
    return settings.model.patience_s if is_watched else settings.model.patience_unattended_s


def own_ports(settings: Settings) -> tuple[int, ...]:
    """Return the ports of this machine on which Whet's own servers may listen."""
    try:
        port = urlsplit(settings.confirm.url).port
    except ValueError:
        port = None
    return (*_OWN_PORTS, port) if port else _OWN_PORTS


def find_service_boundary(settings: Settings, home: Home) -> ServiceBoundary | None:
    """Return the files and ports of a confirmation service on this machine, which no call may touch, or None
    if there is no service. Those of the main home count too, because a profile may use its service."""
    homes = tuple(dict.fromkeys((home.root, home.main_root)))
    has_own = any((root / name).exists() for root in homes for name in ("confirm", "confirmations.db"))
    if not (settings.confirm.url or has_own or os.path.exists("/var/lib/whet-confirm")):
        return None
    from whet_confirm.boundary import boundary_of  # noqa: PLC0415 - 2 ms, and most homes have no service

    boundaries = [boundary_of(root, ports=own_ports(settings)) for root in homes]
    return msgspec.structs.replace(
        boundaries[0],
        paths=tuple(dict.fromkeys(path for boundary in boundaries for path in boundary.paths)),
        open_paths=tuple(path for boundary in boundaries for path in boundary.open_paths),
    )


def open_servers(launch: LaunchArguments, base: BaseParts) -> Servers | None:
    """Return the configured MCP servers without starting them, or None if there are none. Raises
    ConfigError."""
    settings = launch.settings
    if not settings.mcp.servers:
        return None

    def jail(name: str, server: McpServerSettings) -> ServerJail | None:
        from whet.app.server_jails import own_server_jail  # noqa: PLC0415 - only where a server is started

        return own_server_jail(base.confinement.get(), launch.home, name, server)

    def finish_start(name: str) -> None:
        # most programs leave no start behind
        from whet.app.learning.reviews import start_detached  # noqa: PLC0415

        with contextlib.suppress(OSError):  # a later session tries again
            start_detached(launch.home, ("mcp", "test", name))

    # imported only here: most homes have no MCP servers
    from whet.mcp.remote import RemoteParts  # noqa: PLC0415
    from whet.mcp.servers import Servers  # noqa: PLC0415
    from whet.tools.guardian import Guardian  # noqa: PLC0415

    return Servers(
        settings.mcp,
        RemoteParts(
            launch.home, launch.secrets, base.clock, Guardian(), jail=jail, finish_start=finish_start
        ),
        cap_chars=settings.tools.output_cap_chars,
        without=list_disabled_remote(settings),
    )


def web_limits(settings: ToolSettings) -> WebLimits:
    """Return the limits of fetching pages."""
    return WebLimits(allow_private=settings.web_allow_private, client=f"whet/{__version__}")


def list_disabled_remote(settings: Settings) -> list[str]:
    """Return the names of MCP tools that the settings disable."""
    return [name for name in settings.tools.disabled if name.startswith(_REMOTE_PREFIX)]


def add_remote_tools(registry: Registry, servers: Servers) -> Registry:
    """Return the registry with the tools that the servers list now, after all others."""
    local_tools = [tool for tool in registry.by_name.values() if "mcp" not in tool.tags]
    return Registry([*local_tools, *servers.tools()])
