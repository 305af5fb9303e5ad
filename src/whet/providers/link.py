"""One server as a Provider, and one session's link to it: bytes out, deltas in, retries around both.

The link owns a session's wire cache; keys, connections and back-off belong to the provider and are shared
by its sessions. A stream that was shown in part and then broke is begun again after a StreamRestarted.
Knows no wire format: a codec is handed in.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, suppress

import msgspec

from whet.contract.errors import ConfigError, ProviderError
from whet.contract.events import ReasoningDelta, Retry, StreamRestarted, TextDelta
from whet.contract.messages import Message
from whet.contract.protocols import ModelInfo, ModelReply, StreamItem
from whet.contract.tools import ToolSpec
from whet.providers import failures
from whet.providers.credentials import Key, KeyPool
from whet.providers.http import Http, HttpAnswer
from whet.providers.retry import Backoff
from whet.providers.sse import SseEvent, SseParser
from whet.providers.windows import ask_window
from whet.providers.wire import Decoder, Deltas, RequestOptions, WireCache, WireCodec

_DRAIN_S = 0.25


class Wiring(msgspec.Struct, frozen=True):
    """What a server's provider is made of. `is_window_set`: the settings name the window, don't ask."""

    http: Http
    codec: WireCodec
    keys: KeyPool
    backoff: Backoff
    options: RequestOptions
    is_window_set: bool = False


class ServerProvider:
    """A model server with its keys and connection pool."""

    def __init__(self, info: ModelInfo, wiring: Wiring) -> None:
        self._info = info
        self.wiring = wiring

    @property
    def info(self) -> ModelInfo:
        """The configured model; its window is the server's own once `probe_window` has asked."""
        return self._info

    def open(self, system: str, tools: Sequence[ToolSpec], session_id: str) -> ServerLink:
        """Freeze a session's prefix and give its link. No I/O. Raises ConfigError without a model."""
        if not self._info.model:
            raise ConfigError(
                f"no model is named for {self._info.provider}",
                hint="set model.model; whet model list shows what the server has",
            )
        return ServerLink(self, system, tools, session_id)

    async def list_models(self) -> list[str]:
        """Ask the server which models it serves, sorted. Raises ProviderError."""
        http = self.wiring.http
        query = "/models?limit=1000" if self.wiring.codec.path == "/messages" else "/models"
        body = await http.get(self._info, http.base_url + query, self.headers(self.wiring.keys.current))
        try:
            listed = _MODELS.decode(body)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise failures.unreadable(self._info, body, "no list of models") from error
        return sorted(
            {row.id or row.name for row in listed.data or listed.models or () if row.id or row.name}
        )

    async def probe_window(self) -> int | None:
        """Ask a local server how large the model's window is, and use it; None if it won't say."""
        if self.wiring.is_window_set or not self._info.model:
            return None
        tokens = await ask_window(self.wiring.http, self._info, self.headers(self.wiring.keys.current))
        if tokens:
            self._info = msgspec.structs.replace(self._info, window_tokens=tokens)
        return tokens

    async def aclose(self) -> None:
        """Close the connection pool."""
        await self.wiring.http.aclose()

    def headers(self, key: Key) -> dict[str, str]:
        """Give the headers of one request."""
        if self.wiring.codec.path == "/messages":
            headers = {"content-type": "application/json", "anthropic-version": "2023-06-01"}
            return headers | {"x-api-key": key.value} if key.value else headers
        headers = {"content-type": "application/json"}
        return headers | {"authorization": f"Bearer {key.value}"} if key.value else headers


class _Model(msgspec.Struct):
    id: str = ""
    name: str = ""


class _Models(msgspec.Struct):
    data: list[_Model] | None = None
    models: list[_Model] | None = None


_MODELS = msgspec.json.Decoder(_Models)


class ServerLink:
    """One session's way to a server. Not shared; used by one task at a time."""

    def __init__(
        self, provider: ServerProvider, system: str, tools: Sequence[ToolSpec], session_id: str
    ) -> None:
        self._provider = provider
        wiring = provider.wiring
        options = msgspec.structs.replace(wiring.options, session_id=session_id)
        self._cache = WireCache(wiring.codec, wiring.codec.head(system, tools, options))

    @property
    def info(self) -> ModelInfo:
        """The model that answers."""
        return self._provider.info

    async def stream(self, messages: Sequence[Message]) -> AsyncIterator[StreamItem]:
        """Send the prefix and `messages`; yield deltas and one Reply. Raises ProviderError."""
        wiring = self._provider.wiring
        body = self._cache.body(messages)
        notices: list[str] = []
        retries = 0
        while True:
            key = wiring.keys.current
            shown = False
            try:
                async with aclosing(self._attempt(body, key)) as items:
                    async for item in items:
                        if isinstance(item, ModelReply):
                            yield msgspec.structs.replace(item, notices=tuple(notices)) if notices else item
                            return
                        shown = True
                        yield item
                return
            except ProviderError as error:
                failure = error
            notice = wiring.keys.switch(key, failure)
            wait_s: float | None = 0.0
            if notice is not None:
                notices.append(notice)
            else:
                retries += 1
                wait_s = wiring.backoff.wait_s(retries, failure)
            if wait_s is None:
                raise failure
            reason = notice or failure.message
            yield StreamRestarted(reason) if shown else Retry(max(retries, 1), wait_s, reason)
            if wait_s:
                await wiring.backoff.sleep(wait_s)

    async def _attempt(
        self, body: bytes, key: Key
    ) -> AsyncGenerator[TextDelta | ReasoningDelta | ModelReply, None]:
        provider = self._provider
        wiring = provider.wiring
        decoder = wiring.codec.decoder(provider.info)
        request_id = ""
        try:
            async with wiring.http.post(
                provider.info, wiring.codec.path, provider.headers(key), body
            ) as answer:
                request_id = answer.request_id
                async with aclosing(self._deltas(answer, decoder)) as deltas:
                    async for delta in deltas:
                        yield delta
        except ProviderError as error:
            # What breaks after the answer is whole takes nothing away from it.
            if not decoder.is_done:
                error.request_id = error.request_id or request_id
                raise
        reply = decoder.reply(self._cache.call_ids)
        yield msgspec.structs.replace(reply, request_id=request_id) if request_id else reply

    async def _deltas(
        self, answer: HttpAnswer, decoder: Decoder
    ) -> AsyncGenerator[TextDelta | ReasoningDelta, None]:
        info = self._provider.info
        if answer.content_type == "application/json":
            for delta in await _whole(info, answer, decoder):
                yield delta
            return
        parser = SseParser()
        first = b""
        chunks = answer.chunks()
        async for chunk in chunks:
            first = first or chunk
            for delta in _decode(info, parser.feed(chunk), decoder):
                yield delta
            if decoder.is_ended:
                await _drain(chunks)
                return
        for delta in _decode(info, parser.finish(), decoder):
            yield delta
        if not decoder.is_done and first.strip() and not parser.has_events:
            kind = answer.content_type or "no content type"
            raise failures.unreadable(info, first, f"{kind} instead of an event stream")
        if not decoder.is_done:
            raise failures.cut_stream(info)


def _decode(info: ModelInfo, events: list[SseEvent], decoder: Decoder) -> Deltas:
    deltas: list[TextDelta | ReasoningDelta] = []
    for name, data in events:
        if name == b"error":
            raise failures.from_payload(info, data)
        deltas += decoder.feed(data)
    return deltas


async def _whole(info: ModelInfo, answer: HttpAnswer, decoder: Decoder) -> Deltas:
    """Take an answer that was not streamed, or an error object sent with status 200."""
    body = await answer.read(64 * 1024 * 1024)
    deltas = decoder.feed(body)
    if not decoder.is_done:
        raise failures.unreadable(info, body, "JSON instead of an event stream")
    return deltas


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    """Read to the end, so that the connection can be used again; not for long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_S):
            async for _ in chunks:
                pass
