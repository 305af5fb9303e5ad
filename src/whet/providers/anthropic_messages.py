"""The Anthropic Messages wire format. Pure, no I/O.

Consecutive messages of one role share one wire message, for example tool results and the user's text after
them, so roles alternate. It is closed only by the next role, so each request is a prefix of the next one.
Thinking blocks are sent back exactly as they arrived (`VendorReplay`). There are two cache marks: one on the
system prompt, and the API's automatic mark at the top, which moves with the last message without changing
earlier bytes. Source: platform.claude.com/docs/en/api/messages (November 2026).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from whet.contract.errors import ProviderError
from whet.contract.events import ReasoningDelta, TextDelta
from whet.contract.messages import ImagePart, Message, TextPart, ToolCall, Usage, VendorReplay, sent_content
from whet.contract.protocols import ModelInfo, ModelReply
from whet.contract.texts import shared_decoder
from whet.contract.tools import ToolSpec
from whet.providers.anthropic_events import (
    EVENT,
    OPENING,
    BlockOpening,
    BlockPiece,
    CallUsage,
    StreamEvent,
    kind_of_event,
    kind_of_piece,
)
from whet.providers.token_count import Reported
from whet.providers.wire import (
    SHORT_IDS,
    Deltas,
    RequestOptions,
    ServerDialect,
    allowed_output,
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
    unreadable,
    wire_id,
    wire_name,
    without,
)

DEFAULT_MAX_TOKENS = 32_000
_EPHEMERAL = {"type": "ephemeral"}
_IDS = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OPTIONAL = ("cache_control", "is_error")
_EMPTY = b'{"type":"text","text":"(empty)"}'
_VERSION = re.compile(r"claude-(opus|sonnet|haiku|fable|mythos)-(\d+)(?:-(\d{1,2})(?!\d))?")
_BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 24_000}
_THINKING = ("thinking", "redacted_thinking")
_PLAIN = ("text", "thinking", "tool_use")
_COUNTS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
_BLOCK_OF = {"input_json_delta": "tool_use", "thinking_delta": "thinking", "signature_delta": "thinking"}


class AnthropicMessages:
    """The encoder for one server's dialect. `max_tokens`: the output limit if the settings set none."""

    path = "/messages"
    models_query = "/models?limit=1000"

    def __init__(
        self,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        dialect: ServerDialect = ServerDialect(),  # noqa: B008 it is frozen
    ) -> None:
        self._max_tokens = max_tokens
        self.dialect: ServerDialect = dialect

    def headers(self, key: str) -> dict[str, str]:
        """Return the headers of one request."""
        headers = {"content-type": "application/json", "anthropic-version": "2023-06-01"}
        return headers | {"x-api-key": key} if key else headers

    def head(self, system: str, tools: Sequence[ToolSpec], options: RequestOptions) -> bytes:
        """Return the body up to the first message."""
        max_tokens = allowed_output(options.max_output_tokens or self._max_tokens, self.dialect)
        fields: dict[str, Any] = {
            "model": options.model,
            "max_tokens": max_tokens,
            "stream": True,
            "cache_control": _EPHEMERAL,
        }
        fields |= thinking_fields(options.model, options.reasoning_effort, max_tokens)
        fields |= options.extra
        if tools:
            fields["tools"] = [
                {"name": t.name, "description": t.description, "input_schema": sent_schema(t)} for t in tools
            ]
        if system.strip():
            block = {"type": "text", "text": system, "cache_control": _EPHEMERAL}
            fields["system"] = [without(block, self.dialect.left_out)]
        return encode(without(fields, self.dialect.left_out))[:-1] + b',"messages":['

    def fragment(self, messages: Sequence[Message], index: int) -> bytes:
        """Encode one message as blocks of the open wire message, or open a new one."""
        message = messages[index]
        blocks = self._assistant(message) if message.role == "assistant" else self._user(message)
        if message.cache_until and "cache_control" not in self.dialect.left_out:
            blocks = blocks[:-1] + b',"cache_control":' + encode(_EPHEMERAL) + b"}"
        if index and _wire_role(messages[index - 1]) == _wire_role(message):
            return b"," + blocks
        opening = b',{"role":"' + _wire_role(message) + b'","content":[' + blocks
        return b"]}" + opening if index else opening

    def tail(self, messages: Sequence[Message]) -> bytes:
        """Close the open message and the body."""
        return b"]}]}" if messages else b"]}"

    def adapt(
        self, refusal: ProviderError, body: bytes, prompt_tokens: int
    ) -> tuple[AnthropicMessages, str] | None:
        """Return a codec without what the server refused in `body`, and the change in words."""
        from whet.providers.adapting import adapt_common  # noqa: PLC0415 read only after a refusal

        adapted = adapt_common(refusal, body, self.dialect, prompt_tokens, _OPTIONAL)
        if adapted is None or "max_tokens" in adapted[0].left_out:  # this format requires it
            return None
        return AnthropicMessages(self._max_tokens, adapted[0]), adapted[1]

    def decoder(self, info: ModelInfo) -> AnthropicDecoder:
        """Return a decoder for one answer."""
        return AnthropicDecoder(info)

    def _user(self, message: Message) -> bytes:
        if message.role == "tool":
            return self._tool_result(message)
        content = sent_content(message)
        if isinstance(content, str):
            return _text(content) or _EMPTY
        return b",".join(_parts(content)) or _EMPTY

    def _tool_result(self, message: Message) -> bytes:
        result: dict[str, Any] = {"type": "tool_result", "tool_use_id": self._id(message.tool_call_id)}
        if isinstance(message.content, str):
            result |= {"content": message.content} if message.content.strip() else {}
        elif parts := _parts(message.content):
            result["content"] = list(map(msgspec.Raw, parts))
        return encode(
            without(result | {"is_error": True} if message.is_error else result, self.dialect.left_out)
        )

    def _assistant(self, message: Message) -> bytes:
        if replay := self._replay_blocks(message):
            return replay
        # An answer that ends the request may not end in white space; it is cut everywhere, to stay a prefix.
        blocks = [_text(message.text.rstrip())] + [
            _tool_use(self._id(c.id), c.name, c.arguments) for c in message.tool_calls
        ]
        return b",".join(block for block in blocks if block) or _EMPTY

    def _replay_blocks(self, message: Message) -> bytes:
        """Return the vendor's own blocks, or b"" if there are none or the message now has other tool
        calls."""
        text, heads = read_replay(message, "anthropic_messages", _BLOCK_HEADS)
        uses = [head.id for head in heads or () if head.type == "tool_use"]
        if not heads or uses != [self._id(call.id) for call in message.tool_calls]:
            return b""
        blocks = text.strip()[1:-1].encode("utf-8", "replace")
        # The API refuses an assistant message whose last block is a thought.
        return blocks + b"," + _EMPTY if heads[-1].type in _THINKING else blocks

    def _id(self, call_id: str) -> str:
        return wire_id(call_id, SHORT_IDS, 9) if self.dialect.short_ids else wire_id(call_id, _IDS)


def thinking_fields(model: str, effort: str, max_tokens: int) -> dict[str, Any]:
    """Return the fields for the reasoning effort in the model's own terms: an effort from 4.6 on, a token
    budget before."""
    if not effort:
        return {}
    match = _VERSION.search(model)
    version = [int(part) for part in match.group(2, 3) if part] if match else []
    if match and version >= [4, 6]:
        always_on = match[1] in ("fable", "mythos") or (match[1] == "opus" and version >= [5, 5])
        if effort == "none" and not always_on:
            return {"thinking": {"type": "disabled"}}
        level = effort if effort in ("medium", "high") else "low"
        return {"thinking": {"type": "adaptive"}, "output_config": {"effort": level}}
    # The API requires a budget of at least 1,024, plus space for the answer.
    if effort not in _BUDGETS or max_tokens < 2048:
        return {}
    return {"thinking": {"type": "enabled", "budget_tokens": min(_BUDGETS[effort], max_tokens - 1024)}}


def _wire_role(message: Message) -> bytes:
    return b"assistant" if message.role == "assistant" else b"user"


def _parts(parts: Sequence[TextPart | ImagePart]) -> list[bytes]:
    blocks = [_text(part.text) if isinstance(part, TextPart) else _image(part) for part in parts]
    return [block for block in blocks if block]


def _text(text: str) -> bytes:
    # The API refuses text blocks that are empty or only white space.
    return b'{"type":"text","text":' + quote(text) + b"}" if text.strip() else b""


def _image(part: ImagePart) -> bytes:
    source = {"type": "base64", "media_type": part.media_type, "data": part.data_base64}
    return encode({"type": "image", "source": source})


def _tool_use(call_id: str, name: str, arguments: str) -> bytes:
    input_json = msgspec.Raw(object_or_empty(arguments).encode("utf-8", "replace"))
    return encode({"type": "tool_use", "id": call_id, "name": wire_name(name), "input": input_json})


class _BlockHead(msgspec.Struct):
    type: str
    id: str = ""


_BLOCK_HEADS = shared_decoder(list[_BlockHead])


class _Block:
    """One content block while its pieces arrive."""

    __slots__ = ("id", "is_begun", "name", "pieces", "raw", "signature", "type")

    def __init__(self, opening: BlockOpening, raw: bytes) -> None:
        self.raw = raw
        self.type = opening.type
        self.id = join_pieces([opening.id or ""])
        self.name = join_pieces([opening.name or ""])
        self.signature = opening.signature or ""
        self.pieces = [opening.text or opening.thinking or ""]
        self.is_begun = False
        if opening.type == "tool_use" and bytes(opening.input) not in (b"", b"{}", b"null"):
            self.pieces = [bytes(opening.input).decode()]

    def is_repeated_by(self, opening: BlockOpening) -> bool:
        """Return whether the server opens this block a second time, before any piece of it."""
        is_same = (self.type, self.id, self.name) == (opening.type, opening.id or "", opening.name or "")
        return is_same and not self.is_begun

    def add(self, piece: str) -> None:
        """Add a piece. The pieces of a call replace the arguments that its opening may have held."""
        if self.type == "tool_use" and piece and not self.is_begun:
            self.pieces = []
        self.is_begun = self.is_begun or bool(piece)
        self.pieces.append(piece)

    @property
    def text(self) -> str:
        return join_pieces(self.pieces)

    def wire(self, call_id: str) -> bytes:
        """Return the block as it is sent back."""
        if self.type == "text":
            return _text(self.text)
        if self.type == "tool_use":
            return _tool_use(wire_id(call_id, _IDS), self.name, self.text or "{}")
        if self.type == "thinking":
            return encode({"type": "thinking", "thinking": self.text, "signature": self.signature})
        return self.raw


class AnthropicDecoder:
    """One answer's decoder."""

    def __init__(self, info: ModelInfo) -> None:
        self._info = info
        self._model = info.model
        self._blocks: list[_Block] = []
        self._by_index: dict[int, _Block] = {}
        self._counts: dict[str, int] = {}
        self._stop = ""
        self._started = False
        self.call_chars: int = 0
        self.is_done: bool = False
        self.is_ended: bool = False

    def feed(self, data: bytes) -> Deltas:
        """Take one event's data."""
        events = read_events(self._info, data, StreamEvent, EVENT)
        if len(events) == 1:
            return self._take(events[0], data)
        return [delta for event in events for delta in self._take(event, data)]

    def _take(self, event: StreamEvent, data: bytes) -> Deltas:
        kind = event.type or kind_of_event(event)
        if kind == "content_block_delta" and event.delta is not None:
            return self._take_delta(event.index, event.delta)
        if kind == "content_block_start" and bytes(event.content_block):
            return self._start_block(event.index, bytes(event.content_block))
        if kind == "message_start" and event.message is not None:
            self._started = True
            self._model = event.message.model or self._model
            self._count(event.message.usage)
        elif kind == "message_delta":
            self._count(event.usage)
            if event.delta is not None and event.delta.stop_reason:
                self._stop = event.delta.stop_reason
                self.is_done = True
        elif kind == "message_stop":
            self.is_done = self.is_ended = True
        elif kind == "error":
            raise event_error(self._info, data)
        elif not kind:
            raise_error_in(self._info, data)
        return ()

    def _start_block(self, index: int | None, raw: bytes) -> Deltas:
        opening = read_events(self._info, raw, BlockOpening, OPENING)[0]
        index = len(self._blocks) if index is None else index
        opened_block = self._by_index.get(index)
        if opened_block is not None and opened_block.is_repeated_by(opening):
            return ()
        block = self._open(index, opening, raw)
        if not block.text or block.type not in ("text", "thinking"):
            return ()
        return (TextDelta(block.text) if block.type == "text" else ReasoningDelta(block.text),)

    def _open(self, index: int, opening: BlockOpening, raw: bytes) -> _Block:
        block = self._by_index[index] = _Block(opening, raw)
        self._blocks.append(block)
        return block

    def _take_delta(self, index: int | None, delta: BlockPiece) -> Deltas:
        kind = kind_of_piece(delta)
        if kind != "text_delta" and kind not in _BLOCK_OF:
            return ()  # a newer type; the API asks clients to ignore those
        block = self._block_for(index, _BLOCK_OF.get(kind, "text"))
        if kind == "text_delta" and delta.text:
            block.add(delta.text)
            return (TextDelta(delta.text),)
        if kind == "thinking_delta" and delta.thinking:
            block.add(delta.thinking)
            return (ReasoningDelta(delta.thinking),)
        if kind == "input_json_delta":
            block.add(delta.partial_json or "")
            self.call_chars += len(block.pieces[-1])
        elif kind == "signature_delta":
            block.signature += delta.signature or ""
        return ()

    def _block_for(self, index: int | None, kind: str) -> _Block:
        """Return the block that a piece belongs to: the one at its index, else the newest one, if it has the
        right type. Otherwise opens a new block."""
        candidates = [self._by_index.get(-1 if index is None else index), *self._blocks[-1:]]
        for block in candidates:
            if block is not None and (block.type == kind or block.type not in _PLAIN):
                return block
        opening = BlockOpening(type=kind)
        return self._open(len(self._blocks) if index is None else index, opening, encode(opening))

    def _count(self, usage: CallUsage | None) -> None:
        if usage is None:
            return
        for name in _COUNTS:
            value = getattr(usage, name)
            if value is not None:  # a later event may send 0 for a count that an earlier one contained
                self._counts[name] = max(value, self._counts.get(name, 0))
        thoughts = (usage.output_tokens_details or {}).get("thinking_tokens")
        if isinstance(thoughts, int):
            self._counts["thinking_tokens"] = thoughts

    def reply(self, used_ids: Iterable[str]) -> ModelReply:
        """Return the complete answer."""
        stop, warnings = end_of(self._info, self._stop)
        if not self._started and not self._blocks:
            raise unreadable(self._info, b"", "a stream without an answer in it")
        blocks = self._blocks
        uses = [block for block in blocks if block.type == "tool_use"]
        ids = unique_ids([block.id for block in uses], used_ids)
        message = Message(
            role="assistant",
            content=join_pieces(block.text for block in blocks if block.type == "text"),
            tool_calls=tuple(
                ToolCall(call_id, block.name, block.text or "{}")
                for call_id, block in zip(ids, uses, strict=True)
            ),
            reasoning="".join(block.text for block in blocks if block.type == "thinking"),
            replay=_replay(blocks, ids, stop == "length"),
        )
        return ModelReply(message, self.usage(), join_pieces([self._model]), stop, warnings=warnings)

    def usage(self) -> Usage:
        """Return the usage that the server has reported so far."""
        counts = self._counts
        read = counts.get("cache_read_input_tokens", 0)
        written = counts.get("cache_creation_input_tokens", 0)
        return Reported(
            prompt=counts.get("input_tokens", 0) + read + written,
            output=counts.get("output_tokens", 0),
            cache_read=read,
            cache_write=written,
            reasoning=counts.get("thinking_tokens", 0),
        ).usage(self._info)


def _replay(blocks: Sequence[_Block], ids: Sequence[str], is_cut: bool) -> VendorReplay | None:
    """Return the vendor's blocks, or None if all are text or tool calls. `ids` are those of its calls."""
    # A thought cut by the output limit has no signature and would be refused.
    kept_blocks = [b for b in blocks if not (b.type == "thinking" and is_cut and not b.signature)]
    if all(block.type in ("text", "tool_use") for block in kept_blocks):
        return None
    remaining_ids = iter(ids)
    encoded = [block.wire(next(remaining_ids) if block.type == "tool_use" else "") for block in kept_blocks]
    return VendorReplay("anthropic_messages", (b"[" + b",".join(filter(None, encoded)) + b"]").decode())
