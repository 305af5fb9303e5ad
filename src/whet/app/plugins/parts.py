"""Load the enabled plugins of a program, and answer their requests for a model.

`load` imports the plugin layer only if a plugin is enabled.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from whet.app.model_links.models import Dialer
from whet.app.plugins.notify import NotifierGroup
from whet.config.paths import Home
from whet.config.schema import ModelSettings, NotifySettings, Settings
from whet.contract.errors import ProviderError
from whet.contract.messages import Message, from_dict
from whet.contract.protocols import ModelReply, Provider
from whet.providers.catalog import SERVERS

if TYPE_CHECKING:
    from whet.plugins.hermes import ModelRequest
    from whet.plugins.load import LoadedPlugins
    from whet.plugins.model_calls import SideCallHooks

_LIMIT_S = 120.0


class PluginNeeds(msgspec.Struct, frozen=True):
    """The parts of the program that loading needs. `connect` opens a provider for model settings."""

    home: Home
    settings: Settings
    workspace: Path
    taken_tools: Collection[str]
    connect: Callable[[ModelSettings], Provider]


def load(needs: PluginNeeds) -> LoadedPlugins | None:
    """Load the plugins in `plugins.enabled`. Returns None if there are none.

    Without a running event loop the plugins can't ask a model.
    """
    if not needs.settings.plugins.enabled:
        return None
    # imported on demand: the plugin layer costs 40 ms, and most homes have no plugin
    from whet.plugins.load import PluginHost, load_plugins  # noqa: PLC0415

    side_calls: list[SideCallHooks] = []  # filled once the plugins, which bring these hooks, are loaded
    host = PluginHost(
        ask_model=_make_asker(needs, loop, side_calls) if (loop := _running_loop()) else None,
        taken_tools=needs.taken_tools,
        taken_engines=("compressor", "none"),
        taken_providers=SERVERS,
        workspace=needs.workspace,
    )
    plugins = load_plugins(needs.home, needs.settings.plugins, os.environ, host)
    side_calls.append(plugins.side_calls)
    return plugins


@contextmanager
def temporary_provider(
    home: Home, settings: Settings, secrets: Mapping[str, str], memory: Path | None = None
) -> Generator[Provider]:
    """Connect to the model without a running App, e.g. to list models. `memory` is as in `Dialer`.

    Plugins are loaded only if the provider's name is not one of ours. A practice server lives as long as
    the context.
    """
    names = {settings.model.provider, settings.fallback.provider} - {"", *SERVERS}
    dialer = Dialer(settings, secrets, memory=memory)
    if names and not settings.model.base_url:
        dialer.plugins = load(PluginNeeds(home, settings, Path.cwd(), (), no_model))
    try:
        yield dialer.connect(settings.model)
    finally:
        dialer.close()
        if dialer.plugins is not None:
            dialer.plugins.close()


def make_notifier_group(plugins: LoadedPlugins | None, settings: NotifySettings) -> NotifierGroup | None:
    """Return the group of the plugins' notifiers, or None if no plugin has one."""
    if plugins is None or not plugins.notifiers:
        return None
    return NotifierGroup(list(plugins.notifiers.values()), settings, plugins.note_failure)


def no_model(model: ModelSettings) -> Provider:
    """Raise ProviderError. For plugins that are loaded without a model."""
    raise ProviderError("no model is asked here")


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _make_asker(
    needs: PluginNeeds, loop: asyncio.AbstractEventLoop, side_calls: Sequence[SideCallHooks]
) -> Callable[[ModelRequest], str]:
    async def answer(request: ModelRequest) -> str:
        async with asyncio.timeout(request.timeout_s or _LIMIT_S):
            return await _answer(needs, request, side_calls)

    def ask(request: ModelRequest) -> str:
        """Return the model's answer. Blocks the plugin's thread; must not be called on the loop's thread."""
        if _running_loop() is loop:
            raise RuntimeError("call_llm waits, so it can't be called from an async function")
        return asyncio.run_coroutine_threadsafe(answer(request), loop).result()

    return ask


async def _answer(needs: PluginNeeds, request: ModelRequest, side_calls: Sequence[SideCallHooks]) -> str:
    system, messages = _split(request)
    model = needs.settings.model
    model_settings = msgspec.structs.replace(
        model,
        model=model.aliases.get(request.model, request.model)
        or needs.settings.context.summary_model
        or model.model,
        max_output_tokens=request.max_tokens or model.max_output_tokens,
    )
    async with aclosing(needs.connect(model_settings)) as provider:
        link = provider.open(system, (), "")
        stream = link.stream(messages)
        if side_calls:
            stream = side_calls[0].stream(request.task or "plugin", link, messages)
        async for item in stream:
            if isinstance(item, ModelReply):
                return item.message.text
    raise ProviderError("the model gave no answer")


def _split(request: ModelRequest) -> tuple[str, list[Message]]:
    rows = [dict(row) for row in request.messages]
    system = "\n\n".join(str(row.get("content", "")) for row in rows if row.get("role") == "system")
    return system, [from_dict(row) for row in rows if row.get("role") != "system"]
