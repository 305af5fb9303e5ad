"""The Chat Completions wire format, as OpenAI's and all compatible servers use it. Pure, no I/O.

A message is encoded once. A tool call is sent with its arguments as received if they are a JSON object, else
with `{}`: OpenAI accepts any string, but llama.cpp, vLLM, Mistral and Gemini parse it and refuse the whole
request. (The call's error result shows the model the text that it wrote.) A tool result can't contain an
image in this format, so images follow the results in a user message. Source:
platform.openai.com/docs/api-reference/chat.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from whet.config.model_servers import OTHER_REASONING
from whet.contract.errors import ProviderError
from whet.contract.events import ReasoningDelta, TextDelta
from whet.contract.messages import ImagePart, Message, TextPart, ToolCall, Usage, VendorReplay
from whet.contract.protocols import ModelInfo, ModelReply
from whet.contract.texts import shared_decoder
from whet.contract.tools import ToolSpec
from whet.late import late_pattern
from whet.providers.reasoning_details import is_other_reasoning, merge_detail, read_other_reasoning
from whet.providers.token_count import Reported
from whet.providers.tool_schemas import NO_PARAMETERS
from whet.providers.wire import (
    ABSENT,
    PAUSE,
    SHORT_IDS,
    Deltas,
    OutputDetails,
    PromptDetails,
    RequestOptions,
    ServerDialect,
    WireCodec,
    allowed_output,
    bearer_headers,
    caller_of,
    content_json,
    data_url,
    encode,
    end_of,
    event_error,
    images_before,
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

if TYPE_CHECKING:
    from whet.providers.streamed_calls import StreamedCalls

_IDS = late_pattern(r"[\x21-\x7e]{1,40}")
# Marks the stored data of an answer whose call ids other servers refuse. Its own server may read the ids.
_OWN_IDS = "own_ids"
# What Google's endpoints take in place of the signature of a call that another model made.
_UNSIGNED = msgspec.Raw(b'{"google":{"thought_signature":"skip_thought_signature_validator"}}')
_FIELDS: msgspec.json.Decoder[dict[str, msgspec.Raw]] = shared_decoder(dict[str, msgspec.Raw])


class ChatCompletions:
    """The encoder for one server's dialect."""

    path = "/chat/completions"
    models_query = "/models"

    def __init__(self, dialect: ServerDialect) -> None:
        self.dialect: ServerDialect = dialect

    def headers(self, key: str) -> dict[str, str]:
        """Return the headers of one request."""
        return bearer_headers(key)

    def head(self, system: str, tools: Sequence[ToolSpec], options: RequestOptions) -> bytes:
        """Return the body up to the first message."""
        dialect = self.dialect
        fields: dict[str, Any] = {
            "model": options.model,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if options.max_output_tokens:
            fields[dialect.max_tokens_field] = allowed_output(options.max_output_tokens, dialect)
        fields |= _effort(dialect, options.reasoning_effort)
        if dialect.cache_key and options.session_id:
            fields["prompt_cache_key"] = options.session_id
        fields |= options.extra
        if tools:
            fields["tools"] = [{"type": "function", "function": _tool(tool)} for tool in tools]
        opening = encode(without(fields, dialect.left_out))[:-1] + b',"messages":['
        return opening + _system_message(dialect.system_role, system) if system else opening

    def fragment(self, messages: Sequence[Message], index: int) -> bytes:
        """Encode one message, preceded by the images of the tool results before it."""
        message = messages[index]
        if message.role == "tool":
            call_id = self._id(message.tool_call_id, is_own=self._is_own_id(messages, index))
            return b"," + encode({"role": "tool", "tool_call_id": call_id, "content": message.text})
        images = self._images(messages, index)
        if message.role == "user":
            is_second = self.dialect.alternates and index and not messages[index - 1].is_final
            pause = PAUSE if is_second else b""
            return images + pause + b',{"role":"user","content":' + content_json(message, _part) + b"}"
        return images + self._assistant(message)

    def tail(self, messages: Sequence[Message]) -> bytes:
        """Close the body."""
        return self._images(messages, len(messages)) + b"]}"

    def adapt(self, refusal: ProviderError, body: bytes, prompt_tokens: int) -> tuple[WireCodec, str] | None:
        """Return a codec without what the server refused in `body`, and the change in words."""
        from whet.providers.adapting import adapt_dialect  # noqa: PLC0415 read only after a refusal

        adapted = adapt_dialect(refusal, body, self.dialect, prompt_tokens)
        if adapted is None:
            return None
        if adapted[0].endpoint:
            from whet.providers.responses import ResponsesEncoder  # noqa: PLC0415 few servers ask for it

            return ResponsesEncoder(adapted[0]), adapted[1]
        return ChatCompletions(adapted[0]), adapted[1]

    def decoder(self, info: ModelInfo) -> ChatDecoder:
        """Return a decoder for one answer."""
        return ChatDecoder(info, self.dialect.replay_fields)

    def _images(self, messages: Sequence[Message], end: int) -> bytes:
        images = _image_message(messages, end)
        return PAUSE + images if images and self.dialect.alternates else images

    def _assistant(self, message: Message) -> bytes:
        dialect = self.dialect
        fields: dict[str, Any] = {"role": "assistant", "content": message.text}
        if message.tool_calls and not message.text and dialect.call_content != "empty":
            fields["content"] = None
            if dialect.call_content == "absent":
                del fields["content"]
        _, sent = read_replay(message, "chat_completions", _FIELDS)
        replay = {name: value for name, value in (sent or {}).items() if self._is_replayed(name)}
        extras = _FIELDS.decode(replay.pop("extra_content")) if "extra_content" in replay else {}
        if dialect.signs_calls and message.tool_calls and not extras:
            extras = {message.tool_calls[0].id: _UNSIGNED}
        fields |= replay
        if dialect.needs_reasoning:
            # An answer of another model may have no reasoning, and servers refuse an empty text.
            fields.setdefault(dialect.needs_reasoning, message.reasoning or " ")
        if message.tool_calls:
            calls: list[dict[str, Any]] = []
            for call in message.tool_calls:
                function = {"name": wire_name(call.name), "arguments": object_or_empty(call.arguments)}
                call_id = self._id(call.id, is_own=_OWN_IDS in (sent or {}))
                extra = {"extra_content": extras[call.id]} if call.id in extras else {}
                calls.append({"id": call_id, "type": "function", "function": function, **extra})
            fields["tool_calls"] = calls
        return b"," + encode(fields)

    def _is_replayed(self, name: str) -> bool:
        """Return whether a field of an answer is sent back to its server."""
        dialect = self.dialect
        is_other = is_other_reasoning(name) and OTHER_REASONING in dialect.replay_fields
        return name in dialect.replay_fields or (is_other and name not in dialect.left_out)

    def _is_own_id(self, messages: Sequence[Message], index: int) -> bool:
        """Return whether the id of a result's call is sent unchanged: it is valid everywhere, or its server
        made it."""
        if _IDS.fullmatch(messages[index].tool_call_id):
            return True
        caller = caller_of(messages, index)
        return caller is not None and _OWN_IDS in (read_replay(caller, "chat_completions", _FIELDS)[1] or {})

    def _id(self, call_id: str, *, is_own: bool) -> str:
        if self.dialect.short_ids:
            return wire_id(call_id, SHORT_IDS, 9)
        return call_id if is_own else wire_id(call_id, _IDS)


def _system_message(role: str, text: str) -> bytes:
    if role == "user":  # such models also want turns to alternate
        return b'{"role":"user","content":' + quote(text) + b"}" + PAUSE
    return b'{"role":' + quote(role) + b',"content":' + quote(text) + b"}"


def _tool(tool: ToolSpec) -> dict[str, Any]:
    named = {"name": tool.name, "description": tool.description}
    return named if tool.parameters is NO_PARAMETERS else {**named, "parameters": sent_schema(tool)}


def _effort(dialect: ServerDialect, effort: str) -> dict[str, Any]:
    if not effort:
        return {}
    if dialect.effort == "reasoning":
        return {"reasoning": {"effort": effort} if effort != "none" else {"enabled": False}}
    if dialect.effort == "thinking":
        return {"thinking": {"type": "disabled" if effort == "none" else "enabled"}}
    return {"reasoning_effort": effort}


def _part(part: TextPart | ImagePart) -> bytes:
    if isinstance(part, TextPart):
        return b'{"type":"text","text":' + quote(part.text) + b"}"
    return b'{"type":"image_url","image_url":{"url":' + data_url(part) + b"}}"


def _image_message(messages: Sequence[Message], end: int) -> bytes:
    images = images_before(messages, end)
    if not images:
        return b""
    parts = [_part(TextPart("Images from the tool results above:")), *map(_part, images)]
    return b',{"role":"user","content":[' + b",".join(parts) + b"]}"


class _Piece(msgspec.Struct):
    type: str = ""
    text: str | None = None
    thinking: list[_Piece] | None = None


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: Any = None


class _Call(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None
    extra_content: msgspec.Raw = ABSENT


class _Delta(msgspec.Struct):
    content: str | list[_Piece] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[dict[str, Any]] | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None
    function_call: _Function | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None
    index: int = 0
    error: msgspec.Raw = ABSENT


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: OutputDetails | None = None
    prompt_cache_hit_tokens: int | None = None
    cost: float | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    model: str | None = None
    error: msgspec.Raw = ABSENT


_CHUNK = shared_decoder(_Chunk)
_NO_ERROR = (b"", b"null", b"false", b"{}", b"[]", b'""', b"0")


class ChatDecoder:
    """Decodes one answer. Reads reasoning under its three field names, and tool calls by index, id or order.
    `replay_fields`: the extra fields that the server needs back, so they are kept."""

    def __init__(self, info: ModelInfo, replay_fields: Sequence[str] = ()) -> None:
        self._info = info
        self._replay_fields = replay_fields
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._reasoning_field = ""
        self._details: list[dict[str, Any]] = []
        self._other_reasoning: dict[str, Any] = {}
        self._refusal: list[str] = []
        self._calls: StreamedCalls | None = None
        self._usage = _Usage()
        self._finish = ""
        self._model = info.model
        self._saw_choice = False
        self.call_chars: int = 0
        self.is_done: bool = False
        self.is_ended: bool = False

    def feed(self, data: bytes) -> Deltas:
        """Take one event's data."""
        if data == b"[DONE]":
            self.is_done = self.is_ended = True
            return ()
        events = read_events(self._info, data, _Chunk, _CHUNK)
        if len(events) == 1:
            return self._take(events[0], data)
        return [delta for event in events for delta in self._take(event, data)]

    def _take(self, chunk: _Chunk, data: bytes) -> Deltas:
        if chunk.error is not ABSENT and bytes(chunk.error) not in _NO_ERROR:
            raise event_error(self._info, data)
        if chunk.usage is not None and _size(chunk.usage) >= _size(self._usage):
            self._usage = chunk.usage
        if chunk.model:
            self._model = chunk.model
        if not chunk.choices:
            if chunk.choices is None and chunk.usage is None:
                raise_error_in(self._info, data)
            return ()
        choices = chunk.choices
        # Only one answer was requested. A server that sends several numbers them.
        choice = choices[0] if len(choices) == 1 else min(choices, key=lambda it: it.index)
        if choice.error is not ABSENT and bytes(choice.error) not in _NO_ERROR:
            raise event_error(self._info, b'{"error":' + bytes(choice.error) + b"}")
        deltas = self._take_choice(choice)
        thought = read_other_reasoning(data, self._other_reasoning)
        if not thought or self._reasoning_field:
            return deltas
        self._reasoning.append(thought)
        return [ReasoningDelta(thought), *deltas]

    def _take_choice(self, choice: _Choice) -> Deltas:
        self._saw_choice = True
        self._finish = choice.finish_reason or self._finish
        self.is_done: bool = self.is_done or bool(choice.finish_reason)
        # Some servers repeat the whole message in their last event.
        whole = None if self._text or self._reasoning or self._calls else choice.message
        delta = choice.delta or whole
        if delta is None:
            return ()
        deltas: list[TextDelta | ReasoningDelta] = []
        reasoning = delta.reasoning_content or delta.reasoning
        if reasoning or delta.reasoning_details:
            self._add_reasoning(delta, reasoning, deltas)
        if isinstance(delta.content, list):
            self._add_content(delta.content, deltas)
        elif delta.content:
            self._text.append(delta.content)
            deltas.append(TextDelta(delta.content))
        if delta.refusal:
            self._refusal.append(delta.refusal)
        if delta.tool_calls or delta.function_call:
            for call in delta.tool_calls or [_Call(function=delta.function_call)]:
                self._add_call(call)
        return deltas

    def _add_reasoning(
        self, delta: _Delta, text: str | None, deltas: list[TextDelta | ReasoningDelta]
    ) -> None:
        for detail in delta.reasoning_details or ():
            merge_detail(self._details, detail)
        if text:
            self._reasoning_field = "reasoning_content" if delta.reasoning_content else "reasoning"
            self._reasoning.append(text)
            deltas.append(ReasoningDelta(text))

    def _add_content(self, content: list[_Piece], deltas: list[TextDelta | ReasoningDelta]) -> None:
        for piece in content:
            if piece.text:
                self._text.append(piece.text)
                deltas.append(TextDelta(piece.text))
            for thought in piece.thinking or ():
                if thought.text:
                    self._reasoning.append(thought.text)
                    deltas.append(ReasoningDelta(thought.text))

    def _add_call(self, call: _Call) -> None:
        if self._calls is None:
            from whet.providers.streamed_calls import StreamedCalls  # noqa: PLC0415 not every answer has calls

            self._calls = StreamedCalls()
        function = call.function or _Function()
        arguments = function.arguments
        if arguments is not None and not isinstance(arguments, str):
            arguments = encode(arguments).decode()
        extra = bytes(call.extra_content)
        extra = b"" if extra == b"null" else extra
        self._calls.add(call.index, call.id or "", function.name or "", arguments, extra)
        self.call_chars += len(arguments or "")

    def reply(self, used_ids: Iterable[str]) -> ModelReply:
        """Return the complete answer."""
        stop, warnings = end_of(self._info, self._finish, join_pieces(self._refusal))
        if not self._saw_choice:
            raise unreadable(self._info, b"", "a stream without an answer in it")
        finished = self._calls.finish() if self._calls is not None else []
        ids = unique_ids([call.id for call in finished], used_ids)
        calls = tuple(
            ToolCall(call_id, call.name, call.arguments) for call_id, call in zip(ids, finished, strict=True)
        )
        message = Message(
            role="assistant",
            content=join_pieces(self._text),
            tool_calls=calls,
            reasoning=join_pieces(self._reasoning),
            replay=self._replay(ids, [call.extra for call in finished]),
        )
        return ModelReply(message, self.usage(), join_pieces([self._model]), stop, warnings=warnings)

    def _replay(self, ids: list[str], sent_extras: list[bytes]) -> VendorReplay | None:
        fields: dict[str, Any] = {}
        if self._details and "reasoning_details" in self._replay_fields:
            fields["reasoning_details"] = self._details
        if self._reasoning and self._reasoning_field in self._replay_fields:
            fields[self._reasoning_field] = join_pieces(self._reasoning)
        if OTHER_REASONING in self._replay_fields:
            fields |= self._other_reasoning
        if not all(map(_IDS.fullmatch, ids)):
            fields[_OWN_IDS] = True
        extras = {
            call_id: msgspec.Raw(extra) for call_id, extra in zip(ids, sent_extras, strict=True) if extra
        }
        if extras and "extra_content" in self._replay_fields:
            fields["extra_content"] = extras
        return VendorReplay("chat_completions", encode(fields).decode()) if fields else None

    def usage(self) -> Usage:
        """Return the usage that the server has reported so far."""
        usage = self._usage
        details = usage.prompt_tokens_details or PromptDetails()
        output = usage.completion_tokens_details or OutputDetails()
        counts = Reported(
            prompt=usage.prompt_tokens or 0,
            output=usage.completion_tokens or 0,
            total=usage.total_tokens or 0,
            cache_read=details.cached_tokens or usage.prompt_cache_hit_tokens or 0,
            cache_write=details.cache_write_tokens or 0,
            reasoning=output.reasoning_tokens or 0,
        )
        counted = counts.usage(self._info)
        # OpenRouter reports the actual price of the call.
        return counted if usage.cost is None else msgspec.structs.replace(counted, cost_usd=usage.cost)


def _size(usage: _Usage) -> int:
    return max((usage.prompt_tokens or 0) + (usage.completion_tokens or 0), usage.total_tokens or 0)
