"""One session's link to a model server: sends requests, yields deltas, and retries failures.

The link owns the session's wire cache. Keys, connections and back-off belong to the provider, whose sessions
share them. If a stream breaks after a part of it was shown, the link yields a StreamRestarted and asks again.

A key that was rejected, is out of credit or is rate-limited rests for a while, and the next one is used
(`http.KeyPool`). If no other key is ready, the call waits (`backoff.py`, `outage.py`). The wire format is a
codec that is passed in.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING

import msgspec

from whet.contract.errors import BadRequest, ContextOverflow, ProviderError, WireError
from whet.contract.events import ReasoningDelta, Retry, TextDelta
from whet.contract.messages import Message, Usage
from whet.contract.protocols import AnswerGrew, AttemptLost, FailureJudge, ModelInfo, ModelReply, StreamItem
from whet.http1.client import Answer
from whet.providers.answer_parts import AnswerParts, Piece, separate
from whet.providers.backoff import Backoff
from whet.providers.http import Http, Key, KeyPool, explain_rejected_key
from whet.providers.progress import AnswerProgress
from whet.providers.sse import SseEvent, SseParser
from whet.providers.token_count import (
    PromptSizes,
    TextSize,
    correct_answer,
    is_plausible,
    lost_usage,
    size_of,
)
from whet.providers.tool_schemas import NO_CUTS, ToolCuts
from whet.providers.wire import Decoder, Deltas, RequestOptions, ServerDialect, WireCache, WireCodec

if TYPE_CHECKING:
    from whet.providers.outage import Outage

_DRAIN_S = 0.25
# The most data before the first event, between two events, and in total.
_MAX_BEFORE_BYTES = 1024 * 1024
_MAX_IN_EVENT_BYTES = 32 * 1024 * 1024
_MAX_ANSWER_BYTES = 256 * 1024 * 1024
_FEW_DELTAS = 4
_FEW_BYTES = 8
_GREW_CHARS = 4_096
_UNKNOWN_PATIENCE_S = 60.0
_MAX_ADAPTATIONS = 8
_UNMARKED_END = "the model's server did not mark the end of its answer, which may be cut"
_REFUSALS = (BadRequest, ContextOverflow)


class Wiring(msgspec.Struct):
    """The parts of a provider that its sessions' links share.

    - `codec`, `cuts`: replaced by those that the server accepts, for sessions opened from then on
    - `is_window_set`: the settings contain the window, so the server is not asked
    - `server`: the server's name in `VendorReplay.server`
    - `marks_ends`: an answer ended with the event for it; `unmarked_ends`: how many ended without
    - `keep`: stores a dialect and cuts for later processes, under `memory_key`
    - `account`: the name of the account whose keys are used, or an empty string
    """

    http: Http
    codec: WireCodec
    keys: KeyPool
    backoff: Backoff
    options: RequestOptions
    is_window_set: bool = False
    server: str = ""
    cuts: ToolCuts = NO_CUTS
    marks_ends: bool = False
    unmarked_ends: int = 0
    keep: Callable[[ServerDialect, ToolCuts], None] | None = None
    account: str = ""
    memory_key: str = ""


class _Attempt:
    """One request and the part of its answer that has been received."""

    def __init__(
        self, decoder: Decoder, messages: Sequence[Message], body: bytes, *, has_tools: bool
    ) -> None:
        self.decoder = decoder
        self._has_tools = has_tools
        self.messages = messages
        self.body = body
        self.texts: list[str] = []
        self.events = 0
        self.is_refused = False
        self._shown_chars = 0

    @cached_property
    def parts(self) -> AnswerParts:
        """The parser of the answer's text."""
        return AnswerParts(has_tools=self._has_tools)

    def feed(self, data: bytes) -> Deltas:
        """Decode one event. Ignores one without an object, which only keeps the connection alive. Raises
        ProviderError."""
        if len(data) <= _FEW_BYTES and data.strip() in (b"", b"null"):
            return ()
        try:
            deltas = self.decoder.feed(data)
        except ProviderError as error:
            self.refuse(error)
            raise
        self.events += 1
        for delta in deltas:
            self.texts.append(delta.text)
        return deltas

    def refuse(self, error: ProviderError) -> None:
        """Record an error event. If it is the first event, the server refused the request and charges
        nothing."""
        self.is_refused = not self.events and not isinstance(error, WireError)

    def take_growth(self) -> list[AnswerGrew]:
        """Return an item for the characters of tool calls received since the last one, if they are many."""
        chars = self.decoder.call_chars - self._shown_chars
        if chars < _GREW_CHARS:
            return []
        self._shown_chars += chars
        return [AnswerGrew(chars)]

    @property
    def answer_size(self) -> TextSize:
        """The size of the received part of the answer."""
        return size_of("".join(self.texts)) + TextSize(self.decoder.call_chars)


class ServerLink:
    """One session's link to a server. Not shared; used by one task at a time."""

    def __init__(
        self,
        info: Callable[[], ModelInfo],
        wiring: Wiring,
        head: Callable[[WireCodec, ToolCuts], bytes],
        *,
        has_tools: bool = True,
        on_recovery: Callable[[], Awaitable[object]] | None = None,
        judge: FailureJudge | None = None,
    ) -> None:
        """`head` encodes the request up to the first message, with the tools that the cuts keep.
        `on_recovery` is called when the server answers after a failure, `judge` for each failure."""
        self._info = info
        self._on_recovery = on_recovery
        self._judge = judge
        self._wiring = wiring
        self._head = head
        self._has_tools = has_tools
        self._cuts = wiring.cuts
        self._server = wiring.server
        self._codec = wiring.codec
        self._adapted_to: list[str] = []
        self._is_changed = False
        self._cache = self._make_cache(self._codec, self._cuts)
        self._sizes: PromptSizes | None = None

    @property
    def info(self) -> ModelInfo:
        """The model that answers."""
        return self._info()

    async def stream(self, messages: Sequence[Message]) -> AsyncIterator[StreamItem]:
        """Send the prefix and `messages`; yield deltas and one ModelReply. Raises ProviderError."""
        wiring = self._wiring
        body = self._cache.body(messages)
        outage: Outage | None = None
        while True:
            key = wiring.keys.current
            has_shown = False
            began_s = wiring.backoff.monotonic_s()
            attempt = _Attempt(self._codec.decoder(self.info), messages, body, has_tools=self._has_tools)
            try:
                async with aclosing(self._make_attempt(attempt, key)) as items:
                    async for item in items:
                        if isinstance(item, ModelReply):
                            self._remember(attempt)
                            yield item if outage is None else await self._finish_outage(outage, item)
                            return
                        has_shown = has_shown or not isinstance(item, AnswerGrew)
                        yield item
                return
            except ProviderError as error:
                failure = explain_rejected_key(error, key, wiring.http.where, wiring.account)
            if failure.was_sent:
                yield AttemptLost(self._measure_lost(attempt))
            if self._judge is not None:
                failure = await self._judge(self.info, failure, messages)
            outage = outage or self._new_outage()
            if not has_shown and (notice := self._repair_request(failure, attempt, outage)):
                yield Retry(1, 0.0, notice)
                body = self._cache.body(messages)
                continue
            for event in outage.note_failure(failure, key, None if has_shown else began_s):
                yield event
            await outage.wait()
            yield AnswerGrew(0)

    def _repair_request(self, failure: ProviderError, attempt: _Attempt, outage: Outage) -> str:
        """Change the next request so that the server does not refuse it again: cut tools, or adapt the
        dialect. Returns the notice for the person, or an empty string if the failure is no such refusal.
        Each change changes the request's prefix, once."""
        from whet.providers import tool_cuts  # noqa: PLC0415 read only where something failed

        change = tool_cuts.read_cuts(failure, attempt.body, self._cuts)
        if change is None and (notice := self._adapt(failure, attempt)):
            outage.notices.append(notice)
            return notice
        change = change or tool_cuts.read_refused_tool(failure, attempt.body, self._cuts)
        if change is None:
            return ""
        self._cuts, notice = change
        self._use_cache(self._make_cache(self._codec, self._cuts))
        outage.warnings.append(notice := f"{notice} ({failure.message})")
        return notice

    def _adapt(self, failure: ProviderError, attempt: _Attempt) -> str:
        """Switch to a dialect that avoids the refusal. Returns the notice, or "" if there is none."""
        is_refusal = type(failure) in _REFUSALS or failure.status == 500  # a local server's template error
        if not is_refusal or len(self._adapted_to) >= _MAX_ADAPTATIONS:
            return ""
        adapted = self._codec.adapt(failure, attempt.body, self._measure(attempt).estimate)
        if adapted is None or adapted[1] in self._adapted_to:
            if isinstance(failure, ContextOverflow) and self._adapted_to:  # no lower limit helped: drop it
                self._codec, self._adapted_to = self._wiring.codec, []
                self._use_cache(self._make_cache(self._codec, self._cuts))
            return ""
        codec, change = adapted
        cache = self._make_cache(codec, self._cuts)
        if cache.body(attempt.messages) == attempt.body:  # the same request would be refused again
            return ""
        self._codec, self._adapted_to = codec, [*self._adapted_to, change]
        self._use_cache(cache)
        return f"the model's server refused {change} ({failure.message})"

    def _remember(self, attempt: _Attempt) -> None:
        """Store the dialect and cuts with which the server has answered, for later sessions and processes."""
        wiring = self._wiring
        wiring.marks_ends = wiring.marks_ends or attempt.decoder.is_done
        if not self._is_changed:
            return
        before = wiring.codec.dialect, wiring.cuts
        # The refusal of a single tool is not kept: its schema may be correct in the next session.
        wiring.codec, wiring.cuts = self._codec, msgspec.structs.replace(self._cuts, names=(), plain=())
        self._is_changed, self._adapted_to = False, []
        learned = wiring.codec.dialect, wiring.cuts
        if wiring.keep is not None and learned != before:
            wiring.keep(*learned)

    def _make_cache(self, codec: WireCodec, cuts: ToolCuts) -> WireCache:
        return WireCache(codec, self._head(codec, cuts), self._server)

    def _use_cache(self, cache: WireCache) -> None:
        self._cache, self._sizes, self._is_changed = cache, None, True

    def _new_outage(self) -> Outage:
        from whet.providers.outage import Outage  # noqa: PLC0415 read only where something failed

        backoff = self._wiring.backoff
        if not self._wiring.http.has_answered:  # more likely a wrong address than an outage
            patience_s = min(backoff.patience_s, _UNKNOWN_PATIENCE_S)
            backoff = msgspec.structs.replace(backoff, patience_s=patience_s)
        return Outage(backoff, self._wiring.keys)

    async def _finish_outage(self, outage: Outage, reply: ModelReply) -> ModelReply:
        """Call `on_recovery` and return the reply with the outage's notices for the person."""
        if self._on_recovery is not None:
            await self._on_recovery()
        warnings = (*outage.warnings, *reply.warnings)
        return msgspec.structs.replace(reply, notices=tuple(outage.notices), warnings=warnings)

    def _measure(self, attempt: _Attempt) -> TextSize:
        if self._sizes is None:
            self._sizes = PromptSizes(self._head(self._codec, self._cuts))
        return self._sizes.measure(attempt.messages, attempt.body, self.info.window_tokens)

    def _measure_lost(self, attempt: _Attempt) -> Usage:
        """Return the usage of an attempt without a complete answer."""
        return lost_usage(self.info, attempt.decoder.usage(), self._measure(attempt), attempt.answer_size)

    def _correct_usage(self, attempt: _Attempt, reply: ModelReply) -> ModelReply:
        """Return the reply. If its usage contradicts the sizes of request and answer, it is corrected."""
        usage = reply.usage
        prompt = None
        if not is_plausible(usage, attempt.body, self.info.window_tokens):
            prompt = self._measure(attempt)
        usage = correct_answer(self.info, usage, prompt, reply.message)
        return reply if usage is reply.usage else msgspec.structs.replace(reply, usage=usage)

    async def _make_attempt(
        self, attempt: _Attempt, key: Key
    ) -> AsyncGenerator[Piece | AnswerGrew | ModelReply, None]:
        """Send one request and yield its answer. Raises ProviderError, with `was_sent` if the server may
        charge for it."""
        wiring, decoder = self._wiring, attempt.decoder
        request_id, is_answered = "", False
        try:
            headers = self._codec.headers(key.value)
            async with wiring.http.post(self.info, self._codec.path, headers, attempt.body) as answer:
                is_answered = True
                request_id = answer.headers.get("x-request-id") or answer.headers.get("request-id") or ""
                async with aclosing(self._decode(answer, attempt)) as deltas:
                    async for delta in deltas:
                        yield delta
        except ProviderError as error:
            # Errors after the complete answer are ignored.
            if not decoder.is_done:
                error.request_id = error.request_id or request_id
                error.was_sent = (error.was_sent or is_answered) and not attempt.is_refused
                raise
        try:
            reply = self._correct_usage(attempt, decoder.reply(self._cache.call_ids))
        except ProviderError as error:
            error.was_sent = True
            raise
        parts = attempt.parts
        if not parts.has_text and reply.message.text:  # only the last event contained the text
            for item in parts.feed([TextDelta(reply.message.text)]):
                yield item
        for item in parts.finish():
            yield item
        message = separate(reply.message, parts, self._cache.call_ids)
        if message.replay is not None:
            replay = msgspec.structs.replace(message.replay, server=self._server)
            message = msgspec.structs.replace(message, replay=replay)
        warnings = reply.warnings if decoder.is_done else (_UNMARKED_END, *reply.warnings)
        yield msgspec.structs.replace(reply, message=message, request_id=request_id, warnings=warnings)

    async def _decode(self, answer: Answer, attempt: _Attempt) -> AsyncGenerator[Piece | AnswerGrew, None]:
        info, decoder, progress = self.info, attempt.decoder, AnswerProgress(self._wiring.http)
        content_type = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content_type == "application/json":
            for item in attempt.parts.feed(await _read_plain_answer(info, answer, attempt, progress)):
                yield item
            return
        parser = SseParser()
        first, size, pending_bytes = b"", 0, 0
        # Closed here, because a generator left to the event loop costs an extra task and wake-up.
        async with aclosing(answer.chunks()) as chunks:
            async for chunk in chunks:
                events = parser.feed(chunk)
                first, size = first or chunk, size + len(chunk)
                pending_bytes = 0 if events else pending_bytes + len(chunk)
                if pending_bytes > _MAX_BEFORE_BYTES and not parser.has_events:
                    raise _early_end_error(info, first, content_type)
                if pending_bytes > _MAX_IN_EVENT_BYTES or size > _MAX_ANSWER_BYTES:
                    raise WireError("the answer has no end", provider=info.provider, model=info.model)
                deltas = _decode(info, events, attempt)
                for item in (*attempt.parts.feed(deltas), *attempt.take_growth()):
                    yield item
                if decoder.is_ended:
                    await _drain(answer, chunks)
                    return
                progress.note(
                    info, has_events=bool(events), delta_count=len(deltas), call_chars=decoder.call_chars
                )
        for item in attempt.parts.feed(_decode(info, parser.finish(), attempt)):
            yield item
        if not decoder.is_done and not self._ends_unmarked(answer, attempt):
            raise _early_end_error(info, b"" if parser.has_events else first, content_type)

    def _ends_unmarked(self, answer: Answer, attempt: _Attempt) -> bool:
        """Return whether an answer without an event for its end counts as complete. HTTP must have marked the
        end of its body, and the server must never have sent such an event. The first of these answers counts
        as cut all the same."""
        may_be_whole = answer.is_complete and answer.is_delimited and not self._wiring.marks_ends
        if not may_be_whole or not (attempt.texts or attempt.decoder.call_chars):
            return False
        self._wiring.unmarked_ends += 1
        return self._wiring.unmarked_ends > 1


def _decode(info: ModelInfo, events: list[SseEvent], attempt: _Attempt) -> Deltas:
    deltas: list[TextDelta | ReasoningDelta] = []
    for name, data in events:
        if name == b"error":
            from whet.providers import failures  # noqa: PLC0415 read only where something failed

            error = failures.from_payload(info, data)
            attempt.refuse(error)
            raise error
        deltas += attempt.feed(data)
    return deltas if len(deltas) <= _FEW_DELTAS else _join_runs(deltas)


def _join_runs(deltas: Deltas) -> Deltas:
    """Join neighbouring deltas of one kind. They arrived together, so nobody would see them separately, and
    each delta passes through every layer up to the screen."""
    joined: list[TextDelta | ReasoningDelta] = []
    for kind, run in groupby(deltas, type):
        joined.append(kind("".join([delta.text for delta in run])))
    return joined


async def _read_plain_answer(
    info: ModelInfo, answer: Answer, attempt: _Attempt, progress: AnswerProgress
) -> Deltas:
    """Read an answer that was not streamed, or an error object sent with status 200. A server may send blanks
    before it to keep the connection alive."""
    received = bytearray()
    async with aclosing(answer.chunks()) as chunks:
        async for chunk in chunks:
            received += chunk
            if len(received) >= _MAX_IN_EVENT_BYTES:
                break
            progress.note(info, has_events=True, delta_count=len(chunk.strip()), call_chars=0)
    body = bytes(received[:_MAX_IN_EVENT_BYTES])
    deltas = attempt.feed(body)
    if not attempt.decoder.is_done:
        from whet.providers import failures  # noqa: PLC0415 as above

        raise failures.unreadable_error(info, body, "JSON instead of an event stream")
    return deltas


def _early_end_error(info: ModelInfo, received: bytes, content_type: str) -> ProviderError:
    """Return the error for a stream that ended early or, if `received` is not empty, was no event stream."""
    from whet.providers import failures  # noqa: PLC0415 as above

    if received.strip():
        kind = content_type or "no content type"
        return failures.unreadable_error(info, received, f"{kind} instead of an event stream")
    return failures.cut_stream_error(info)


async def _drain(answer: Answer, chunks: AsyncIterator[bytes]) -> None:
    """Read to the end for at most `_DRAIN_S`, so that the connection can be reused."""
    if answer.is_complete:
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_S):
            async for _ in chunks:
                pass
