"""The OpenAI Responses wire format, stateless: `store` is false and each request contains the conversation.

Reasoning arrives encrypted and is sent back unchanged with the items around it (`VendorReplay`). OpenAI's
models from GPT-5.4 on accept tools together with reasoning only in this format. Pure, no I/O.
Source: platform.openai.com/docs/api-reference/responses (November 2026).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from whet.contract.errors import ProviderError
from whet.contract.events import ReasoningDelta, TextDelta
from whet.contract.messages import ImagePart, Message, TextPart, ToolCall, Usage, VendorReplay
from whet.contract.protocols import ModelInfo, ModelReply
from whet.contract.texts import is_object, shared_decoder
from whet.contract.tools import ToolSpec
from whet.providers.token_count import Reported
from whet.providers.wire import (
    ABSENT,
    PAUSE,
    SHORT_IDS,
    Deltas,
    OutputDetails,
    PromptDetails,
    RequestOptions,
    ServerDialect,
    allowed_output,
    bearer_headers,
    content_json,
    data_url,
    encode,
    end_of,
    event_error,
    join_pieces,
    object_or_empty,
    quote,
    raise_error_in,
    read_events,
    read_replay,
    sent_schema,
    unique_ids,
    wire_id,
    wire_name,
    without,
)

_IDS = re.compile(r"[\x21-\x7e]{1,64}")
_OPTIONAL = ("strict", "detail")
# These models refuse a request for encrypted reasoning, because they have none.
_NO_REASONING = re.compile(r"^(?:gpt-3|gpt-4|chatgpt)")


class ResponsesEncoder:
    """The encoder for one server's dialect."""

    path = "/responses"
    models_query = "/models"

    def __init__(self, dialect: ServerDialect) -> None:
        self.dialect: ServerDialect = dialect

    def headers(self, key: str) -> dict[str, str]:
        """Return the headers of one request."""
        return bearer_headers(key)

    def head(self, system: str, tools: Sequence[ToolSpec], options: RequestOptions) -> bytes:
        """Return the body up to the first input item."""
        fields: dict[str, Any] = {"model": options.model, "stream": True, "store": False}
        if not _NO_REASONING.match(options.model):
            fields["include"] = ["reasoning.encrypted_content"]
        if options.max_output_tokens:
            fields["max_output_tokens"] = allowed_output(options.max_output_tokens, self.dialect)
        if options.reasoning_effort:
            fields["reasoning"] = {"effort": options.reasoning_effort}
        if self.dialect.cache_key and options.session_id:
            fields["prompt_cache_key"] = options.session_id
        fields |= options.extra
        if system:
            fields["instructions"] = system
        if tools:
            fields["tools"] = [without(_tool(tool), self.dialect.left_out) for tool in tools]
        return encode(without(fields, self.dialect.left_out))[:-1] + b',"input":['

    def fragment(self, messages: Sequence[Message], index: int) -> bytes:
        """Encode one message as one or more input items."""
        message = messages[index]
        if message.role == "user":
            is_second = self.dialect.alternates and index and not messages[index - 1].is_final
            pause = PAUSE if is_second else b""
            return pause + b',{"role":"user","content":' + content_json(message, self._part) + b"}"
        if message.role == "tool":
            output = msgspec.Raw(content_json(message, self._part))
            call_id = self._id(message.tool_call_id)
            return b"," + encode({"type": "function_call_output", "call_id": call_id, "output": output})
        return b"," + (self._replay_items(message) or self._assistant(message))

    def tail(self, messages: Sequence[Message]) -> bytes:
        """Close the body."""
        return b"]}"

    def adapt(
        self, refusal: ProviderError, body: bytes, prompt_tokens: int
    ) -> tuple[ResponsesEncoder, str] | None:
        """Return a codec without what the server refused in `body`, and the change in words."""
        from whet.providers.adapting import adapt_common  # noqa: PLC0415 read only after a refusal

        adapted = adapt_common(refusal, body, self.dialect, prompt_tokens, _OPTIONAL)
        return None if adapted is None else (ResponsesEncoder(adapted[0]), adapted[1])

    def decoder(self, info: ModelInfo) -> ResponsesDecoder:
        """Return a decoder for one answer."""
        return ResponsesDecoder(info)

    def _part(self, part: TextPart | ImagePart) -> bytes:
        if isinstance(part, TextPart):
            return b'{"type":"input_text","text":' + quote(part.text) + b"}"
        detail = b"" if "detail" in self.dialect.left_out else b'"detail":"auto",'
        return b'{"type":"input_image",' + detail + b'"image_url":' + data_url(part) + b"}"

    def _assistant(self, message: Message) -> bytes:
        items: list[dict[str, str]] = []
        if message.text or not message.tool_calls:
            items.append({"role": "assistant", "content": message.text})
        for call in message.tool_calls:
            item = {"type": "function_call", "call_id": self._id(call.id), "name": wire_name(call.name)}
            items.append(item | {"arguments": object_or_empty(call.arguments)})
        return b",".join(map(encode, items))

    def _replay_items(self, message: Message) -> bytes:
        """Return the vendor's own items, or b"" if there are none or the message now has other tool calls."""
        text, items = read_replay(message, "responses", _ITEMS)
        calls = [(item.call_id, item.name) for item in items or () if item.type == "function_call"]
        if not items or calls != [(self._id(call.id), wire_name(call.name)) for call in message.tool_calls]:
            return b""
        return text.strip()[1:-1].encode("utf-8", "replace")

    def _id(self, call_id: str) -> str:
        return wire_id(call_id, SHORT_IDS, 9) if self.dialect.short_ids else wire_id(call_id, _IDS)


def _tool(tool: ToolSpec) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": sent_schema(tool),
        "strict": False,
    }


class _Text(msgspec.Struct):
    text: str | None = None
    refusal: str | None = None


class _Item(msgspec.Struct):
    type: str = ""
    call_id: str | None = None
    name: str | None = None
    arguments: Any = None
    encrypted_content: str | None = None
    content: list[_Text] | str | None = None


_ITEMS = shared_decoder(list[_Item])
_ITEM = shared_decoder(_Item)


class _OutputItem(NamedTuple):
    """One item of an answer: its index, its JSON as received, and the decoded fields."""

    position: int
    raw: bytes
    item: _Item

    @property
    def kind(self) -> str:
        return self.item.type


def _read_items(info: ModelInfo, raws: Mapping[int, bytes]) -> list[_OutputItem]:
    """Return the valid items in order, without repeated calls."""
    items: list[_OutputItem] = []
    for at in sorted(raws):
        with suppress(ProviderError):
            item = _OutputItem(at, raws[at], read_events(info, raws[at], _Item, _ITEM)[0])
            if item.kind != "function_call" or all(item.raw != other.raw for other in items):
                items.append(item)
    return items


class _Usage(msgspec.Struct):
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    input_tokens_details: PromptDetails | None = None
    output_tokens_details: OutputDetails | None = None


class _Incomplete(msgspec.Struct):
    reason: str | None = None


class _Response(msgspec.Struct):
    model: str = ""
    status: str = ""
    output: list[msgspec.Raw] | None = None
    usage: _Usage | None = None
    incomplete_details: _Incomplete | None = None


# Some servers repeat the status of the event that began the answer.
_WHOLE = ("completed", "in_progress", "queued")


class _Event(msgspec.Struct):
    type: str = ""
    delta: str | None = None
    text: str | None = None
    arguments: str | None = None
    refusal: str | None = None
    output_index: int | None = None
    item: msgspec.Raw = ABSENT
    response: _Response | None = None


_EVENT = shared_decoder(_Event)


class ResponsesDecoder:
    """One answer's decoder."""

    def __init__(self, info: ModelInfo) -> None:
        self._info = info
        self._text: list[str] = []
        self._whole_texts: list[str] = []
        self._reasoning: list[str] = []
        self._items: dict[int, bytes] = {}
        self._opened: dict[int, bytes] = {}
        self._arguments: dict[int, list[str]] = {}
        self._refusal = ""
        self._response = _Response()
        self.call_chars: int = 0
        self.is_done: bool = False
        self.is_ended: bool = False

    def feed(self, data: bytes) -> Deltas:
        """Take one event's data."""
        if data == b"[DONE]":
            # OpenAI's own client reads up to this event.
            self.is_done = self.is_ended = self.is_done or bool(self._items or self._text)
            return ()
        events = read_events(self._info, data, _Event, _EVENT)
        if len(events) == 1:
            return self._take(events[0], data)
        return [delta for event in events for delta in self._take(event, data)]

    def _take(self, event: _Event, data: bytes) -> Deltas:
        if event.type == "response.output_text.delta":
            self._text.append(event.delta or "")
            return (TextDelta(event.delta),) if event.delta else ()
        if event.type in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
            self._reasoning.append(event.delta or "")
            return (ReasoningDelta(event.delta),) if event.delta else ()
        self._handle_event(event, data)
        return ()

    def _handle_event(self, event: _Event, data: bytes) -> None:
        at = event.output_index
        if event.type == "response.output_item.done" and bytes(event.item):
            self._items[len(self._items) if at is None else at] = bytes(event.item)
        elif event.type == "response.output_item.added" and bytes(event.item):
            self._opened[len(self._opened) if at is None else at] = bytes(event.item)
        elif event.type == "response.function_call_arguments.delta":
            self.call_chars += len(event.delta or "")
            pieces = self._arguments.setdefault(max(self._opened, default=0) if at is None else at, [])
            pieces.append(event.delta or "")
        elif event.type == "response.function_call_arguments.done" and event.arguments:
            self._arguments[max(self._opened, default=0) if at is None else at] = [event.arguments]
        elif event.type == "response.output_text.done" and event.text:
            self._whole_texts.append(event.text)
        elif event.type in ("response.completed", "response.incomplete"):
            self._response = event.response or self._response
            self.is_done = self.is_ended = True
        elif event.type == "response.refusal.done":
            self._refusal = event.refusal or "no reason given"
        elif event.type in ("response.failed", "error"):
            raise event_error(self._info, data)
        elif not event.type:
            raise_error_in(self._info, data)

    def reply(self, used_ids: Iterable[str]) -> ModelReply:
        """Return the complete answer."""
        incomplete = self._response.incomplete_details
        reason = (incomplete.reason if incomplete is not None else "") or self._response.status
        reason = "" if reason in _WHOLE else reason
        items = self._best_items(is_cut=bool(reason))
        stop, warnings = end_of(self._info, reason, self._refusal or _refusal_of(items))
        calls = [item for item in items if item.kind == "function_call"]
        call_ids = [join_pieces([call.item.call_id or ""]) for call in calls]
        ids = unique_ids(call_ids, used_ids)
        message = Message(
            role="assistant",
            content=join_pieces(self._text) or _text_of(items) or join_pieces(self._whole_texts),
            tool_calls=tuple(
                ToolCall(call_id, join_pieces([call.item.name or ""]), self._arguments_of(call))
                for call_id, call in zip(ids, calls, strict=True)
            ),
            reasoning=join_pieces(self._reasoning),
            replay=_replay(items) if ids == call_ids else None,
        )
        model = join_pieces([self._response.model]) or self._info.model
        return ModelReply(message, self.usage(), model, stop, warnings=warnings)

    def _best_items(self, *, is_cut: bool) -> list[_OutputItem]:
        """Return the items of the source with the most calls: the finished items, those in the last event or,
        if the answer is not cut, those that were only opened."""
        output = dict(enumerate(map(bytes, self._response.output or ())))
        sources = (self._items, output, {} if is_cut else self._opened)
        candidates = [_read_items(self._info, raws) for raws in sources]
        return max(
            candidates, key=lambda items: (sum(item.kind == "function_call" for item in items), bool(items))
        )

    def _arguments_of(self, call: _OutputItem) -> str:
        """Return a call's arguments as text. If the item lacks them, they are joined from their deltas."""
        arguments = call.item.arguments
        if isinstance(arguments, str) or not arguments:
            return join_pieces([arguments or "".join(self._arguments.get(call.position, ()))]) or "{}"
        return encode(arguments).decode()

    def usage(self) -> Usage:
        """Return the usage that the server has reported so far."""
        usage = self._response.usage or _Usage()
        details = usage.input_tokens_details or PromptDetails()
        output = usage.output_tokens_details or OutputDetails()
        return Reported(
            prompt=usage.input_tokens,
            output=usage.output_tokens,
            total=usage.total_tokens,
            cache_read=details.cached_tokens or 0,
            cache_write=details.cache_write_tokens or 0,
            reasoning=output.reasoning_tokens or 0,
        ).usage(self._info)


def _text_of(items: Sequence[_OutputItem]) -> str:
    """Return the text of the message items, for an answer without deltas."""
    texts: list[str] = []
    for item in items:
        if item.kind == "message":
            content = item.item.content or ""
            texts += [content] if isinstance(content, str) else [part.text or "" for part in content]
    return join_pieces(texts)


def _refusal_of(items: Sequence[_OutputItem]) -> str:
    """Return the refusal in the message items, for an answer without deltas."""
    contents = [item.item.content for item in items if item.kind == "message"]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return join_pieces(part.refusal for part in parts if part.refusal)


def _replay(items: Sequence[_OutputItem]) -> VendorReplay | None:
    """Return the items to send back, or None if they contain no reasoning or can't be sent back."""
    shapes = [item.item for item in items]
    thoughts = [shape for shape in shapes if shape.type == "reasoning"]
    if not thoughts or not all(shape.encrypted_content for shape in thoughts):
        return None
    # Reasoning must be followed by the item that it led to, which a cut answer may lack.
    if shapes[-1].type == "reasoning":
        return None
    arguments = [shape.arguments for shape in shapes if shape.type == "function_call"]
    if any(not isinstance(text, str) or not is_object(text) for text in arguments):
        return None
    return VendorReplay("responses", (b"[" + b",".join(item.raw for item in items) + b"]").decode())
