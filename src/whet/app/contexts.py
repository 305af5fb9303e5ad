"""Choose and start the context engine of each session, and close it.

A session that follows another in the same chat takes over its engine; a child session gets its own. The
engines are those that the setting `context.engine` may name: the built-in one and those of plugins.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from whet.agent.session import Session, TurnObserver
from whet.config.paths import Home
from whet.config.schema import ModelSettings, Settings
from whet.context.engine_runner import Deadlines, EngineRunner, HostFacts, Scope, no_scope
from whet.context.engines import NoEngine, choose, find_default, list_engine_tools, merge_offers
from whet.context.host import EngineHost
from whet.context.rows import text_tokens
from whet.contract.context_engine import EngineOffer
from whet.contract.errors import ConfigError
from whet.contract.events import TurnEnd
from whet.contract.protocols import Context, ContextStatus, ModelInfo
from whet.contract.tools import Tool
from whet.providers.connect import wire_format
from whet.store.transcript import Transcript

_MIN_HOSTS_TO_DROP = 16


class EngineObserver(TurnObserver):
    """Notifies a session's context engine when a turn is over."""

    def __init__(self, contexts: Contexts) -> None:
        self._contexts = contexts

    async def after_turn(self, session: Session, end: TurnEnd) -> None:
        """Pass the turn's end to the engine."""
        await self._contexts.host(session.context).turn_ended(end)


class Contexts:
    """The context hosts of one process."""

    def __init__(
        self,
        home: Home,
        settings: Settings,
        engines: Iterable[EngineOffer] = (),
        broken: Mapping[str, str] | None = None,
    ) -> None:
        """`broken` names the plugins whose engines could not be loaded, with the reasons."""
        self.engines: dict[str, EngineOffer] = merge_offers(engines)
        self.broken: dict[str, str] = dict(broken or {})
        self._home = home
        self._settings = settings
        self._open: dict[int, EngineHost] = {}
        self._drop_closed_at = _MIN_HOSTS_TO_DROP

    def host(self, context: Context) -> EngineHost:
        """Return the host of a session's context."""
        return self._open[id(context)]

    async def start_engine(self, info: ModelInfo, *, foreground: bool) -> EngineRunner:
        """Start the engine that the settings choose, and pass it the model. If that fails, start the built-in
        engine instead."""
        offer, warning = choose(self.engines, self._settings.context.engine)
        runner = await EngineRunner.create(offer, self._deadlines(), foreground=foreground)
        if isinstance(runner, str):
            fallback = find_default(self.engines)
            warning = f"{offer.name} is not used, {fallback.name} is: {runner}"
            runner = await EngineRunner.create(fallback, self._deadlines(), foreground=foreground)
        if isinstance(runner, str):
            warning = f"no engine could be started: {runner}"
            runner = EngineRunner.wrap(NoEngine(), self._deadlines())
        if warning:
            runner.note(warning)
        await runner.set_model(info, info.window_tokens, self._facts(lambda: info, "", 0))
        return runner

    async def tools(self, runner: EngineRunner, used_names: Collection[str]) -> list[Tool]:
        """Return the engine's own tools, except disabled ones and those whose name is already used."""
        own_tools = await list_engine_tools(runner, used_names)
        return [tool for tool in own_tools if tool.name not in self._settings.tools.disabled]

    def open_host(
        self,
        log: Transcript,
        runner: EngineRunner,
        info: Callable[[], ModelInfo],
        prefix: Sequence[str],
        *,
        scope: Scope = no_scope,
    ) -> EngineHost:
        """Create the host of a session.

        `prefix` are the texts before its messages in every request. `scope` is the context in which the
        engine is called.
        """
        fixed = sum(map(text_tokens, prefix))
        facts = msgspec.structs.replace(self._facts(info, log.session.source, fixed), scope=scope)
        host = EngineHost(
            log, runner, facts, None if runner.offer is find_default(self.engines) else self._start_fallback
        )
        self._open[id(host)] = host
        if len(self._open) >= self._drop_closed_at:  # hosts whose engine another session took over
            self._open = {key: entry for key, entry in self._open.items() if not entry.is_closed}
            self._drop_closed_at = max(_MIN_HOSTS_TO_DROP, 2 * len(self._open))
        return host

    def add_prefix_tokens(self, context: Context, tokens: int) -> None:
        """Count tokens that were added before a session's messages after its host was created."""
        self.host(context).add_fixed_tokens(tokens)

    async def read_status(self, log: Transcript, info: ModelInfo, prefix: Sequence[str]) -> ContextStatus:
        """Return how full a stored session's window is. The engine is not notified about the session."""
        runner = await self.start_engine(info, foreground=False)
        try:
            facts = self._facts(lambda: info, "", sum(map(text_tokens, prefix)))
            return await EngineHost(log, runner, facts).status()
        finally:
            await runner.close(shutdown=runner.origin == "fresh")

    async def release(self, context: Context) -> None:
        """Close a session's context with its engine and drop it."""
        await context.aclose()
        self._open.pop(id(context), None)

    async def aclose(self) -> None:
        """Close every session context that is still open, with its engine."""
        for host in reversed([*self._open.values()]):
            await host.aclose()

    async def _start_fallback(self) -> EngineRunner | None:
        runner = await EngineRunner.create(find_default(self.engines), self._deadlines(), foreground=False)
        return None if isinstance(runner, str) else runner

    def _facts(self, info: Callable[[], ModelInfo], platform: str, fixed: int) -> HostFacts:
        model = self._settings.model
        mode = _format_of(model)
        mode = "codex_responses" if mode == "responses" else mode  # the name that engines know
        return HostFacts(info, str(self._home.root), platform or "cli", model.base_url, mode, fixed)

    def _deadlines(self) -> Deadlines:
        context = self._settings.context
        return Deadlines(context.compress_timeout_s, context.hook_timeout_s)


def _format_of(model: ModelSettings) -> str:
    """Return the format of the model's server, or an empty string if no such server is known."""
    try:
        return wire_format(model)
    except ConfigError:  # a plugin brings the provider
        return ""
