"""The model connections of one process: the answering model, the summarising model, and models chosen for
single sessions.

This module does not know sessions or how a server is reached.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import TimeoutError as WaitTimeout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from whet import log
from whet.clock import Clock
from whet.config.key_hosts import check_account, derive_second_model
from whet.config.schema import ModelSettings, Settings
from whet.context.compressor import Compressor, CompressorSettings
from whet.contract.context_engine import EngineOffer
from whet.contract.errors import BudgetReached, ProviderError, WireError
from whet.contract.messages import Message, from_dict
from whet.contract.protocols import ModelInfo, ModelLink, ModelReply, Provider, StreamItem
from whet.providers.catalog import SERVERS
from whet.providers.connect import (
    ConnectOptions,
    ServerProvider,
    connect,
    connect_one,
    find_keys,
    learn_windows,
    require_model,
    set_judge,
)

if TYPE_CHECKING:
    from whet.app.model_links.wallet import Wallet
    from whet.plugins.load import LoadedPlugins
    from whet.plugins.model_calls import SideCallHooks
    from whet.review.jobs import Runtime
    from whet.store.database import StateDatabase
    from whet_lab.practice.server import PracticeServer

MEMORY_FILE = "model-servers.json"
_MAX_UNUSED = 4
_SUMMARY_PROMPT = "You write records of conversations, exactly as asked and nothing else."


class SwitchableLink:
    """A session's link to its model, which can be replaced between requests. `around`, if set, makes each
    request, over the link that it is given."""

    def __init__(self, link: ModelLink, session_id: str, wallet: Callable[[], Wallet | None]) -> None:
        """`wallet` returns the wallet that caps the session's calls, or None."""
        self._link = link
        self._session_id = session_id
        self._wallet = wallet
        self.around: Callable[[ModelLink, Sequence[Message]], AsyncIterator[StreamItem]] | None = None

    @property
    def info(self) -> ModelInfo:
        """The model that answers now."""
        return self._link.info

    def stream(self, messages: Sequence[Message]) -> AsyncIterator[StreamItem]:
        """Stream over the current link."""
        wallet, link = self._wallet(), self._link
        if wallet is not None:
            link = wallet.cap_link(link, self._session_id, "turn")
        return link.stream(messages) if self.around is None else self.around(link, messages)

    def switch(self, link: ModelLink) -> None:
        """Use `link` for the next requests."""
        self._link = link


class Dialer:
    """Connects to model servers: those in the settings and those of `plugins`.

    The provider `practice` without an address is a server with scripted answers. It is started in this
    process when it is first needed, and `close` stops it.
    """

    def __init__(
        self,
        settings: Settings,
        secrets: Mapping[str, str],
        *,
        patience_s: float = 0.0,
        memory: Path | None = None,
    ) -> None:
        """`memory` is the file that stores which request options each server accepts."""
        self._patience_s = patience_s
        self._memory = memory
        self.plugins: LoadedPlugins | None = None
        self._fallback = settings.fallback
        self._secrets = secrets
        self._practice: PracticeServer | None = None

    def connect(self, model: ModelSettings) -> Provider:
        """Connect to `model` and to the fallback, if one is set. Raises ConfigError if that is impossible."""
        provider = connect(
            self._add_practice_address(model),
            self._fallback,
            self._secrets,
            options=ConnectOptions(self._patience_s, self._memory),
            others=self._open_plugin_provider,
        )
        return set_judge(provider, self.plugins.judge) if self.plugins else provider

    def find_key(self, names: Sequence[str]) -> str:
        """Return the first key of these variables, or an empty string. Their keys are masked in logs from now
        on."""
        keys = find_keys(names, self._secrets)
        log.protect(key.value for key in keys)
        return keys[0].value if keys else ""

    def connect_alone(self, model: ModelSettings) -> Provider:
        """Connect to `model` without a fallback. Raises ConfigError if that is impossible."""
        provider = self._open_plugin_provider(model) or connect_one(
            self._add_practice_address(model), self._secrets, options=ConnectOptions(memory=self._memory)
        )
        return set_judge(provider, self.plugins.judge) if self.plugins else provider

    def close(self) -> None:
        """Stop the practice server if it was started."""
        if self._practice is not None:
            self._practice.stop()
            self._practice = None

    def _open_plugin_provider(self, model: ModelSettings) -> Provider | None:
        offer = self.plugins.providers.get(model.provider) if self.plugins else None
        return offer.open(model, self._secrets) if offer is not None else None

    def _add_practice_address(self, model: ModelSettings) -> ModelSettings:
        """Return the settings, with the address of the practice server if they need one."""
        if model.provider != "practice" or model.base_url:
            return model
        if self._practice is None:
            # Its modules cost more to import than the rest of a one-shot together.
            from whet_lab.practice.server import PracticeServer  # noqa: PLC0415

            self._practice = PracticeServer()
            self._practice.start()
        return msgspec.structs.replace(model, base_url=self._practice.base_url, api_key_env="")


class Summariser:
    """Writes summaries for context engines, with the model of `provider`.

    A request has no tools and a short system prompt of its own, so a session's prefix is not involved. An
    engine calls it on its own thread and waits; the request runs on the event loop on which this object was
    created.
    """

    def __init__(
        self,
        provider: Callable[[], Provider],
        wallet: Callable[[], Wallet | None],
        side_calls: SideCallHooks | None,
    ) -> None:
        self._provider = provider
        self._wallet = wallet
        self._side_calls = side_calls
        self._loop = asyncio.get_running_loop()

    def __call__(self, messages: Sequence[dict[str, Any]], *, max_tokens: int, timeout_s: float) -> str:
        """Return the model's text. Must not be called on the event loop. Raises ProviderError or
        TimeoutError."""
        del max_tokens  # a cap would cut reasoning models off before they answer
        future = asyncio.run_coroutine_threadsafe(self._ask([from_dict(row) for row in messages]), self._loop)
        try:
            return future.result(timeout_s)
        except WaitTimeout:
            future.cancel()
            raise

    async def _ask(self, messages: Sequence[Message]) -> str:
        link: ModelLink = self._provider().open(_SUMMARY_PROMPT, (), "summaries")
        if (wallet := self._wallet()) is not None:
            link = wallet.cap_link(link, "", "summary")
        side = self._side_calls
        stream = link.stream(messages) if side is None else side.stream("compression", link, messages)
        try:
            async for item in stream:
                if isinstance(item, ModelReply):
                    if item.stop == "length":
                        raise WireError("the model's output limit cut the summary off")
                    return item.message.text
        except BudgetReached as reached:  # an engine continues without a summary
            raise ProviderError(reached.message, hint=reached.hint) from reached
        raise ProviderError("the model ended its stream without a reply")


class Models:
    """The models in use. `provider` answers; it can be switched to another model of the same provider."""

    def __init__(self, settings: Settings, dialer: Dialer) -> None:
        """Connect to the configured models. Raises ConfigError if that is impossible."""
        self._settings = settings
        self._dialer = dialer
        self.provider = dialer.connect(settings.model)
        self._summaries = self._connect_for_summaries()
        self._configured = settings.model.model
        self._others: OrderedDict[str, Provider] = OrderedDict()
        self._answering: dict[str, str] = {}
        self.wallet: Wallet | None = None

    def open_wallet(self, database: StateDatabase, clock: Clock) -> None:
        """Check the sessions' model calls against the spending caps from now on."""
        from whet.app.model_links.wallet import Wallet  # noqa: PLC0415 - only where something is capped

        self.wallet = Wallet(database, clock, self._settings.wallet)

    def find_key(self, names: Sequence[str]) -> str:
        """Return the first key of these variables, or an empty string."""
        return self._dialer.find_key(names)

    def connect_judge(self) -> Provider:
        """Connect to the model that marks answers: the one set for judging, else the answering model. Raises
        ConfigError. The caller closes the provider."""
        judge_settings = self._settings.judge
        return self._dialer.connect_alone(
            derive_second_model(self.settings, judge_settings) if judge_settings.model else self.settings
        )

    @property
    def settings(self) -> ModelSettings:
        """The settings of the answering model."""
        return self._settings.model

    def require_model(self) -> None:
        """Raise ConfigError if no model is set, so that a server reports that at its start."""
        require_model(self.provider.info)

    async def learn_windows(self) -> None:
        """Ask a server on this machine for the context windows of its models."""
        server = SERVERS.get(self.settings.provider)
        if server is not None and server.local and self.settings.provider != "practice":
            await learn_windows(self.provider)

    async def switch(self, model: str) -> None:
        """Let another model answer from now on ("" means the configured one); close the previous
        connection."""
        name = model or self._configured
        name = self.settings.aliases.get(name, name)
        await self._switch_to(msgspec.structs.replace(self.settings, model=name))

    async def switch_account(self, name: str) -> None:
        """Use another account of the provider from now on ("" means the one without a name); close the
        previous connection. Raises ConfigError if the account does not exist."""
        check_account(self.settings, name)
        await self._switch_to(msgspec.structs.replace(self.settings, account=name))

    async def _switch_to(self, model_settings: ModelSettings) -> None:
        provider = self._dialer.connect(model_settings)
        await self.provider.aclose()
        self.provider: Provider = provider
        self._settings = msgspec.structs.replace(self._settings, model=model_settings)

    async def choose(self, session_id: str, model: str) -> Provider:
        """Return the provider for a session that chooses a model of the same provider; "" means no choice.

        The choice lasts until `release`. A few unused providers are kept longer, in case another session
        chooses the same model.
        """
        await self.release(session_id)
        model = self.settings.aliases.get(model, model)
        if model in ("", self.settings.model):
            return self.provider
        if model not in self._others:
            self._others[model] = self._dialer.connect(msgspec.structs.replace(self.settings, model=model))
        self._others.move_to_end(model)
        self._answering[session_id] = model
        return self._others[model]

    def provider_of(self, session_id: str) -> Provider:
        """Return the provider that answers a session now."""
        return self._others.get(self._answering.get(session_id, ""), self.provider)

    async def release(self, session_id: str) -> None:
        """Drop a session's choice and close the connections that have been unused for longest."""
        if self._answering.pop(session_id, None) is None:
            return
        used = set(self._answering.values())
        for model in [name for name in self._others if name not in used][:-_MAX_UNUSED]:
            await self._others.pop(model).aclose()

    def runtime(self, answering: ModelInfo) -> Runtime:
        """Return the server, model and key that answer a session, for a later review: those of the fallback
        if it is `answering`."""
        from whet.review.jobs import Runtime  # noqa: PLC0415 - after an answer

        provider, model = self.provider, self.settings
        if not isinstance(provider, ServerProvider):
            from whet.providers.fallback import FallbackProvider  # noqa: PLC0415 most settings name no fallback

            if isinstance(provider, FallbackProvider):
                has_switched = answering == provider.second.info
                model = derive_second_model(model, self._settings.fallback) if has_switched else model
                provider = provider.second if has_switched else provider.first
        key = provider.wiring.keys.current.name if isinstance(provider, ServerProvider) else ""
        return Runtime(model, key)

    def compressor(self, clock: Clock, *, can_recall: bool) -> EngineOffer:
        """Return the built-in context engine, with the model that writes its summaries."""
        main, other = self._make_summariser(lambda: self.provider), self._summaries
        settings = CompressorSettings(
            max_output_tokens=self.provider.info.max_output_tokens,
            summary_window_tokens=other.info.window_tokens if other else 0,
            can_recall=can_recall,
        )
        summarise, retry = (self._make_summariser(lambda: other), main) if other else (main, None)
        return EngineOffer(
            "compressor",
            "Keeps the beginning and the end, summarises the middle; recall brings any of it back.",
            fresh=lambda: Compressor(summarise, clock, settings, summarise_again=retry),
            is_quick=True,
            recorded=Compressor.on_recorded,
        )

    def _make_summariser(self, provider: Callable[[], Provider]) -> Summariser:
        plugins = self._dialer.plugins
        return Summariser(provider, lambda: self.wallet, plugins.side_calls if plugins else None)

    async def aclose(self) -> None:
        """Close every connection."""
        for provider in (self.provider, *self._others.values(), self._summaries):
            if provider is not None:
                await provider.aclose()

    def _connect_for_summaries(self) -> Provider | None:
        model, summary_model = self._settings.model, self._settings.context.summary_model
        if not summary_model:
            return None
        return self._dialer.connect(
            msgspec.structs.replace(model, model=summary_model, window_tokens=0, max_output_tokens=0)
        )
