"""`/v1/messages`: read Anthropic's request and write a turn's events as its content blocks and events."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from whet.contract.brought_text import wrap_in_tag
from whet.contract.events import StepFinished, StreamRestarted, TextDelta, TurnEnd
from whet.contract.messages import ImagePart, ToolCall, Usage
from whet.contract.tools import ToolSpec
from whet.serve.chat import RESTARTED, refuse_fields
from whet.serve.client_tools import CallResult, HandedOver, check_tools, ignore_hosted_tool, spec_of
from whet.serve.content import Speaker, Utterance, image_of
from whet.serve.forms import AnswerForm, read_answer_form, read_stop_texts
from whet.serve.notices import AnswerNotices
from whet.serve.suspended_turn import ApiEvent
from whet.serve.wire import ApiError, encode, messages_error

_SPEAKERS: dict[str, Speaker] = {"user": "user", "assistant": "assistant", "system": "system"}
_UNSPOKEN = frozenset(("thinking", "redacted_thinking"))


class MessageInput(msgspec.Struct, frozen=True):
    """One message of a request."""

    role: str
    content: Any


class MessagesRequest(msgspec.Struct, frozen=True):
    """The fields that are read from a request; all others are ignored."""

    model: str
    messages: list[MessageInput]
    system: Any = None
    stream: bool | None = None
    stop_sequences: list[str] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None
    output_format: dict[str, Any] | None = None
    mcp_servers: list[Any] | None = None
    container: Any = None

    @property
    def parallel_tool_calls(self) -> bool:
        """Whether a step may contain several calls."""
        return not (self.tool_choice or {}).get("disable_parallel_tool_use")


def read_messages(request: MessagesRequest) -> tuple[Utterance, ...]:
    """Return the messages of a request, its system prompt first. Raises ApiError."""
    refuse_fields(request, "mcp_servers", "container")
    if not request.messages:
        raise ApiError(400, "messages is empty", param="messages")
    utterances: list[Utterance] = []
    if request.system:
        utterances.append(Utterance("system", _Blocks(request.system, "system").text))
    for number, message in enumerate(request.messages):
        location = f"messages.{number}"
        speaker = _SPEAKERS.get(message.role)
        if speaker is None:
            raise ApiError(400, f"there is no role {message.role[:40]!r}", param=f"{location}.role")
        blocks = _Blocks(message.content, f"{location}.content")
        if blocks.results:
            utterances.append(Utterance("other", "", results=tuple(blocks.results)))
        if blocks.text or blocks.images or blocks.calls or not blocks.results:
            utterances.append(Utterance(speaker, blocks.text, tuple(blocks.images), tuple(blocks.calls)))
    return tuple(utterances)


def read_tools(request: MessagesRequest) -> tuple[ToolSpec, ...]:
    """Return the client's tools; empty if `tool_choice` is "none". Raises ApiError."""
    if (request.tool_choice or {}).get("type") == "none":
        return ()
    specs: list[ToolSpec] = []
    for number, tool in enumerate(request.tools or ()):
        location = f"tools.{number}"
        if (kind := tool.get("type", "custom")) != "custom":
            ignore_hosted_tool(kind, location)
            continue
        specs.append(spec_of(tool.get("name"), tool.get("description"), tool.get("input_schema"), location))
    return check_tools(specs)


def read_form(request: MessagesRequest) -> AnswerForm | None:
    """Return the form that the request requires, or None for plain text. Raises ApiError."""
    format_value: object = (request.output_config or {}).get("format") or request.output_format or {}
    fields = (
        cast("dict[str, Any]", format_value) if isinstance(format_value, dict) else {"type": format_value}
    )
    return read_answer_form(fields.get("type", "text"), fields.get("schema"), "output_config.format")


def read_stops(request: MessagesRequest) -> tuple[str, ...]:
    """Return the texts that end the answer. Raises ApiError."""
    return read_stop_texts(request.stop_sequences, "stop_sequences")


class _Blocks:
    """The parsed content of a message. Raises ApiError."""

    def __init__(self, content: object, location: str) -> None:
        self._texts: list[str] = []
        self.images: list[ImagePart] = []
        self.calls: list[ToolCall] = []
        self.results: list[CallResult] = []
        if isinstance(content, str):
            self._texts.append(content)
            return
        if not isinstance(content, list):
            raise ApiError(400, "content must be text or a list of blocks", param=location)
        for number, block in enumerate(cast("list[object]", content)):
            where = f"{location}.{number}"
            if not isinstance(block, dict):
                raise ApiError(400, "a block must be an object", param=where)
            self._add(cast("dict[str, Any]", block), where)

    @property
    def text(self) -> str:
        """The text blocks, joined by newlines."""
        return "\n".join(self._texts)

    def _add(self, block: dict[str, Any], where: str) -> None:
        kind = block.get("type")
        if kind == "text":
            self._texts.append(_read_text(block, "text", where))
        elif kind == "document":
            self._texts.append(_read_document(block.get("source"), f"{where}.source"))
        elif kind == "image":
            self.images.append(_read_image(block.get("source"), where))
        elif kind == "tool_use":
            self.calls.append(_read_call(block, where))
        elif kind == "tool_result":
            call_id: object = block.get("tool_use_id")
            if not isinstance(call_id, str):
                raise ApiError(400, "a result needs its tool_use_id", param=where)
            inner = _Blocks(block.get("content") or "", f"{where}.content")
            is_error = block.get("is_error") is True
            self.results.append(CallResult(call_id, inner.text, is_error, tuple(inner.images)))
        elif kind not in _UNSPOKEN:
            raise ApiError(400, f"blocks of type {str(kind)[:40]!r} are not taken", param=f"{where}.type")


def _read_text(block: dict[str, Any], name: str, where: str) -> str:
    text: object = block.get(name)
    if not isinstance(text, str):
        raise ApiError(400, f"{name} must be a string", param=f"{where}.{name}")
    return text


def _read_document(source: object, where: str) -> str:
    fields = cast("dict[str, Any]", source) if isinstance(source, dict) else {}
    if fields.get("type") != "text":
        raise ApiError(400, "a document needs text, base64 or an http(s) URL", param=where)
    return wrap_in_tag("file", _read_text(fields, "data", where))


def _read_image(source: object, where: str) -> ImagePart:
    fields = cast("dict[str, Any]", source) if isinstance(source, dict) else {}
    data: object = fields.get("data")
    if fields.get("type") != "base64" or not isinstance(data, str):
        raise ApiError(400, "an image needs base64 or an http(s) URL", param=f"{where}.source")
    return image_of(data, f"{where}.source.data")


def _read_call(block: dict[str, Any], where: str) -> ToolCall:
    call_id, name = block.get("id"), block.get("name")
    if not (isinstance(call_id, str) and isinstance(name, str)):
        raise ApiError(400, "a call needs an id and a name", param=where)
    return ToolCall(call_id, name, encode(block.get("input") or {}).decode())


def usage_of(usage: Usage) -> dict[str, Any]:
    """Return the usage of a turn in Anthropic's format."""
    return {
        "input_tokens": usage.prompt_tokens - usage.cache_read_tokens - usage.cache_write_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "output_tokens": usage.completion_tokens,
    }


class MessagesCodec:
    """Writes a turn as a message: a text block for each step, then the calls of the client's tools.

    `stopped_by` is the stop text that ended the answer.
    """

    beat = b'event: ping\ndata: {"type":"ping"}\n\n'

    def __init__(self, answer_id: str, request: MessagesRequest) -> None:
        self._id = f"msg_{answer_id}"
        self._request = request
        self._blocks: list[dict[str, Any]] = []
        self._open: list[str] | None = None
        self._notices = AnswerNotices()
        self._is_begun = False
        self._has_calls = False
        self.stopped_by = ""

    @property
    def answer(self) -> str:
        """The text that was sent to the client."""
        return "".join(block.get("text", "") for block in self._blocks)

    def event(self, event: ApiEvent) -> bytes:
        """Return the stream events for an event."""
        match event:
            case TextDelta():
                return self._text(event.text)
            case StepFinished():
                return self._close()
            case StreamRestarted() if self._open:
                if self._request.stream:
                    return self._text(RESTARTED)
                self._open = []
            case HandedOver():
                self._has_calls = True
                return b"".join((self._begin(), self._close(), *map(self._call, event.calls)))
            case _:
                if waiting := self._notices.add(event):
                    return self._begin() + _line("ping", waiting)
        return b""

    def end(self, end: TurnEnd) -> bytes:
        """Return the last events."""
        body = self._begin() + self._close()
        delta = {"stop_reason": self._reason(end), "stop_sequence": self.stopped_by or None}
        usage = usage_of(end.usage)
        body += _line("message_delta", {"delta": delta, "usage": usage, **self._notices.fields})
        return body + _line("message_stop", {})

    def encode_error(self, error: ApiError) -> bytes:
        """Return the event for a failure."""
        return b"event: error\ndata: %s\n\n" % encode(messages_error(error))

    def whole(self, end: TurnEnd) -> object:
        """Return the whole answer."""
        self._close()
        return self._object(self._reason(end), end.usage) | self._notices.fields

    def _reason(self, end: TurnEnd) -> str:
        if self._has_calls:
            return "tool_use"
        if self.stopped_by:
            return "stop_sequence"
        return {"budget": "max_tokens", "refused": "refusal"}.get(end.reason, "end_turn")

    def _text(self, text: str) -> bytes:
        body = self._begin()
        if self._open is None:
            self._open = []
            empty = {"type": "text", "text": ""}
            body += _line("content_block_start", {"index": len(self._blocks), "content_block": empty})
        self._open.append(text)
        delta = {"type": "text_delta", "text": text}
        return body + _line("content_block_delta", {"index": len(self._blocks), "delta": delta})

    def _close(self) -> bytes:
        if self._open is None:
            return b""
        at = len(self._blocks)
        self._blocks.append({"type": "text", "text": "".join(self._open)})
        self._open = None
        return _line("content_block_stop", {"index": at})

    def _call(self, call: ToolCall) -> bytes:
        at = len(self._blocks)
        block = {
            "type": "tool_use",
            "id": call.id,
            "name": call.name,
            "input": msgspec.json.decode(call.arguments),
        }
        self._blocks.append(block)
        delta = {"type": "input_json_delta", "partial_json": call.arguments}
        return b"".join(
            (
                _line("content_block_start", {"index": at, "content_block": {**block, "input": {}}}),
                _line("content_block_delta", {"index": at, "delta": delta}),
                _line("content_block_stop", {"index": at}),
            )
        )

    def _begin(self) -> bytes:
        if self._is_begun:
            return b""
        self._is_begun = True
        return _line("message_start", {"message": {**self._object(None, Usage()), "content": []}})

    def _object(self, reason: str | None, usage: Usage) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._request.model,
            "content": list(self._blocks),
            "stop_reason": reason,
            "stop_sequence": self.stopped_by or None,
            "usage": usage_of(usage),
        }


def _line(kind: str, more: dict[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), encode({"type": kind, **more}))
