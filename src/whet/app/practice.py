"""The provider `practice` without an address: a practice server in this very process.

It is a scripted stand-in for a model server, not a language model. Its modules cost more to import than
the rest of a one-shot together, so they are loaded only when somebody asks for it.
"""

from __future__ import annotations

import pkgutil
from typing import Protocol

import msgspec

from whet.config.schema import ModelSettings


class _Server(Protocol):
    @property
    def base_url(self) -> str: ...

    def start(self) -> object: ...

    def stop(self) -> None: ...


class PracticeHost:
    """Starts the practice server when a model needs it; `close` stops it."""

    def __init__(self) -> None:
        self._server: _Server | None = None

    def reach(self, model: ModelSettings) -> ModelSettings:
        """Give settings that reach a server: other providers' and set addresses come back unchanged."""
        if model.provider != "practice" or model.base_url:
            return model
        if self._server is None:
            server: _Server = pkgutil.resolve_name("whet.practice.server:PracticeServer")()
            server.start()
            self._server = server
        return msgspec.structs.replace(model, base_url=self._server.base_url)

    def close(self) -> None:
        """Stop the server where one was started."""
        if self._server is not None:
            self._server.stop()
            self._server = None
