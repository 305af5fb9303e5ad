"""The model connections of one process: which one answers, which summarises, and others for single sessions.

It does not know sessions, nor how a server is reached.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import msgspec

from whet.app.reviews import runtime_of
from whet.app.summaries import Summariser
from whet.clock import Clock
from whet.config.schema import ModelSettings, Settings
from whet.context.compressor import Compressor, CompressorSettings
from whet.contract.context_engine import EngineOffer
from whet.contract.protocols import ModelInfo, Provider
from whet.review.order import Runtime

_MOST_UNUSED = 4


class Models:
    """The models in use. `provider` answers; it can be switched to another model of the same provider."""

    def __init__(self, settings: Settings, connect: Callable[[ModelSettings], Provider]) -> None:
        """Connect what the settings name. Raises ConfigError where that can't be."""
        self._settings = settings
        self._connect = connect
        self.provider = connect(settings.model)
        self._summaries = self._connect_for_summaries()
        self._configured = settings.model.model
        self._others: OrderedDict[str, Provider] = OrderedDict()
        self._answering: dict[str, str] = {}

    @property
    def settings(self) -> ModelSettings:
        """What the answering model is reached with."""
        return self._settings.model

    async def switch(self, model: str) -> None:
        """Let another model answer from now on, "" the configured one; the connection to the one before is
        closed."""
        wanted = msgspec.structs.replace(self.settings, model=model or self._configured)
        provider = self._connect(wanted)
        await self.provider.aclose()
        self.provider = provider
        self._settings = msgspec.structs.replace(self._settings, model=wanted)

    async def choose(self, session_id: str, model: str) -> Provider:
        """Give what answers a session for which a model of the same provider was chosen; "" for none.

        It is kept until `leave`, and a few beyond that for whoever chooses the same.
        """
        await self.leave(session_id)
        if model in ("", self.settings.model):
            return self.provider
        if model not in self._others:
            self._others[model] = self._connect(msgspec.structs.replace(self.settings, model=model))
        self._others.move_to_end(model)
        self._answering[session_id] = model
        return self._others[model]

    def answering(self, session_id: str) -> Provider:
        """Give what answers a session now."""
        return self._others.get(self._answering.get(session_id, ""), self.provider)

    async def leave(self, session_id: str) -> None:
        """Let go of what was chosen for a session; connections that nobody used for longest are closed."""
        if self._answering.pop(session_id, None) is None:
            return
        used = set(self._answering.values())
        for model in [name for name in self._others if name not in used][:-_MOST_UNUSED]:
            await self._others.pop(model).aclose()

    def runtime(self, answering: ModelInfo) -> Runtime:
        """Say which server, model and key a session is answered by, for whoever goes on with it later."""
        return runtime_of(self.provider, answering, self._settings)

    def compressor(self, clock: Clock, *, can_recall: bool) -> EngineOffer:
        """Offer the built-in context engine, with the model that it has summaries written by."""
        own, other = Summariser(lambda: self.provider), self._summaries
        limits = CompressorSettings(
            max_output_tokens=self.provider.info.max_output_tokens,
            summary_window_tokens=other.info.window_tokens if other else 0,
            can_recall=can_recall,
        )
        summarise, again = (Summariser(lambda: other), own) if other else (own, None)
        return EngineOffer(
            "compressor",
            "Keeps the beginning and the end, summarises the middle; recall brings any of it back.",
            fresh=lambda: Compressor(summarise, clock, limits, summarise_again=again),
            is_quick=True,
            recorded=Compressor.recorded,
        )

    async def aclose(self) -> None:
        """Close every connection."""
        for provider in (self.provider, *self._others.values(), self._summaries):
            if provider is not None:
                await provider.aclose()

    def _connect_for_summaries(self) -> Provider | None:
        model, wanted = self._settings.model, self._settings.context.summary_model
        if not wanted:
            return None
        return self._connect(
            msgspec.structs.replace(model, model=wanted, window_tokens=0, max_output_tokens=0)
        )
