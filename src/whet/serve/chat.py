"""`/v1/chat/completions`: read OpenAI's request and write a turn's events in OpenAI's format.

Whet's own tools run here, and their calls are not sent to the client. A call of a client's tool ends the
response. Fields that Whet's settings decide, such as temperature and output limits, are accepted and ignored.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Literal, cast

import msgspec

from whet.contract.events import ReasoningDelta, StepFinished, StreamRestarted, TextDelta, TurnEnd
from whet.contract.messages import ToolCall, Usage
from whet.contract.tools import ToolSpec
from whet.serve.client_tools import CallResult, HandedOver, check_tools, ignore_hosted_tool, spec_of
from whet.serve.content import Utterance, read_utterance
from whet.serve.forms import AnswerForm, read_answer_form, read_stop_texts
from whet.serve.notices import AnswerNotices
from whet.serve.suspended_turn import ApiEvent
from whet.serve.wire import ApiError, encode, error_object

DONE = b"data: [DONE]\n\n"
RESTARTED = "\n\n[The connection to the model broke; the answer begins again.]\n\n"
_ANY_CALL = "Call at least one of the tools of this program before you answer."
_MAX_MESSAGES = 10_000
_MAX_KEY = 512


class ChatMessage(msgspec.Struct, frozen=True):
    """One message of a request."""

    role: str
    content: Any = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None


class StreamOptions(msgspec.Struct, frozen=True):
    """Options of a stream."""

    include_usage: bool | None = None


class ChatRequest(msgspec.Struct, frozen=True):
    """The fields that are read from a request; all others are ignored."""

    model: str
    messages: list[ChatMessage]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    safety_identifier: Any = None
    n: int | None = None
    tools: list[Any] | None = None
    functions: list[Any] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    response_format: dict[str, Any] | None = None
    modalities: list[str] | None = None
    stop: Any = None
    logprobs: bool | None = None
    top_logprobs: int | None = None


def read_messages(request: ChatRequest) -> tuple[Utterance, ...]:
    """Return the messages of a request. Raises ApiError if it asks for something unsupported."""
    refuse_fields(request, "functions", "logprobs", "top_logprobs")
    if request.n not in (None, 1):
        raise ApiError(400, "one answer is given; n must be 1", param="n", code="unsupported_value")
    if request.modalities not in (None, ["text"]):
        raise ApiError(400, "answers are text", param="modalities", code="unsupported_value")
    if request.user is not None and len(request.user) > _MAX_KEY:
        raise ApiError(400, f"user is longer than {_MAX_KEY} characters", param="user")
    if not request.messages:
        raise ApiError(400, "messages is empty", param="messages")
    if len(request.messages) > _MAX_MESSAGES:
        raise ApiError(400, f"more than {_MAX_MESSAGES:,} messages", param="messages")
    utterances = [
        _read_message(message, f"messages[{number}]") for number, message in enumerate(request.messages)
    ]
    if all(message.speaker == "system" for message in utterances):  # OpenAI answers such a request, too
        utterances[-1] = msgspec.structs.replace(utterances[-1], speaker="user")
    return tuple(utterances)


def _read_message(message: ChatMessage, location: str) -> Utterance:
    parsed = read_utterance(message.role, message.content, location)
    if parsed.speaker == "other":
        if not message.tool_call_id:
            raise ApiError(400, "a result needs the id of its call", param=f"{location}.tool_call_id")
        result = CallResult(message.tool_call_id, parsed.text, images=parsed.images)
        return Utterance("other", "", results=(result,))
    if message.tool_calls and parsed.speaker == "assistant":
        calls = tuple(
            _read_call(call, f"{location}.tool_calls[{at}]") for at, call in enumerate(message.tool_calls)
        )
        return msgspec.structs.replace(parsed, calls=calls)
    return parsed


def _read_call(call: dict[str, Any], location: str) -> ToolCall:
    function: Any = call.get("function")
    if not isinstance(function, dict):
        raise ApiError(400, "a call needs a function", param=f"{location}.function")
    return call_of(call.get("id"), cast("dict[str, Any]", function), location)


def call_of(call_id: object, function: dict[str, Any], location: str) -> ToolCall:
    """Read a call from a client's history. Raises ApiError."""
    name, arguments = function.get("name"), function.get("arguments")
    if not (isinstance(call_id, str) and isinstance(name, str) and isinstance(arguments, str)):
        raise ApiError(400, "a call needs an id, a name and arguments as text", param=location)
    return ToolCall(call_id, name, arguments)


def read_form(request: ChatRequest) -> AnswerForm | None:
    """Return the form that the request requires, or None for plain text. Raises ApiError."""
    form = request.response_format or {}
    kind, schema = form.get("type", "text"), form.get("json_schema")
    inner = cast("dict[str, Any]", schema).get("schema") if isinstance(schema, dict) else None
    return read_answer_form(kind, inner, "response_format")


def read_stops(request: ChatRequest) -> tuple[str, ...]:
    """Return the texts that end the answer. Raises ApiError."""
    return read_stop_texts(request.stop, "stop")


def read_tools(request: ChatRequest) -> tuple[ToolSpec, ...]:
    """Return the client's tools; empty if `tool_choice` is "none". Raises ApiError."""
    if request.tool_choice == "none":
        return ()
    specs: list[ToolSpec] = []
    for number, item in enumerate(request.tools or ()):
        location = f"tools[{number}]"
        tool = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
        function: Any = tool.get("function")
        if (kind := tool.get("type", "function")) != "function":
            ignore_hosted_tool(kind, location)
            continue
        if not isinstance(function, dict):
            raise ApiError(400, "a tool needs its function", param=location, code="unsupported_value")
        inner = cast("dict[str, Any]", function)
        specs.append(spec_of(inner.get("name"), inner.get("description"), inner.get("parameters"), location))
    return check_tools(specs)


def choice_instruction(choice: object, tools: Sequence[ToolSpec]) -> str:
    """Return the instruction to the model for a client's tool choice, or "" if the model may choose.

    Raises ApiError if the choice is invalid or names a tool that is not in `tools`.
    """
    fields = cast("dict[str, Any]", choice) if isinstance(choice, dict) else {"type": choice}
    if (name := _named_tool(fields, tools)) is not None:
        return f"Call the tool {name} before you answer; answer with that call."
    if fields.get("type") == "allowed_tools":
        return _allowed_tools_instruction(fields.get("allowed_tools") or fields, tools)
    if fields.get("type") in ("required", "any"):
        if not tools:
            raise ApiError(400, "there is nothing in tools to be called", param="tool_choice")
        return _ANY_CALL
    if fields.get("type") not in (None, "auto", "none"):
        raise ApiError(400, "tool_choice is none, auto, required or a tool", param="tool_choice")
    return ""


def _named_tool(choice: object, tools: Sequence[ToolSpec]) -> str | None:
    """Return the tool that a choice names, or None. Raises ApiError if the tool is unknown."""
    fields = cast("dict[str, Any]", choice) if isinstance(choice, dict) else {}
    inner: Any = fields.get("function") or fields
    name: object = cast("dict[str, Any]", inner).get("name") if isinstance(inner, dict) else None
    if not isinstance(name, str):
        return None
    if all(spec.name != name for spec in tools):
        raise ApiError(400, f"there is no tool {name[:80]!r} in tools", param="tool_choice")
    return name


def _allowed_tools_instruction(choice: object, tools: Sequence[ToolSpec]) -> str:
    inner = cast("dict[str, Any]", choice) if isinstance(choice, dict) else {}
    listed = inner.get("tools")
    choices = cast("list[Any]", listed) if isinstance(listed, list) else []
    tool_names = [_named_tool(item, tools) for item in choices]
    names = ", ".join(name for name in tool_names if name)
    if not names:
        raise ApiError(400, "allowed_tools names no tools", param="tool_choice")
    only = f"Of the tools of this program call no other than {names}."
    return f"{only} {_ANY_CALL}" if inner.get("mode") == "required" else only


def refuse_fields(request: object, *names: str) -> None:
    """Raise ApiError if one of these fields is set. They are unsupported, and ignoring them would surprise
    the client."""
    for name in names:
        if getattr(request, name):
            raise ApiError(400, f"{name} is not supported", param=name, code="unsupported_parameter")


Finish = Literal["stop", "length", "content_filter", "tool_calls"]


def finish_reason(end: TurnEnd) -> Finish:
    """Return OpenAI's finish reason for a turn's end."""
    return "length" if end.reason == "budget" else "content_filter" if end.reason == "refused" else "stop"


def usage_of(usage: Usage) -> dict[str, Any]:
    """Return the usage of a turn in OpenAI's format."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens, "audio_tokens": 0},
    }


class ChatCodec:
    """Writes a turn as a chat completion, whose content is the text of all steps, separated by blank
    lines."""

    beat = b": beat\n\n"

    def __init__(self, answer_id: str, model: str, *, wants_usage: bool = False) -> None:
        self._head = {"id": f"chatcmpl-{answer_id}", "created": int(time.time()), "model": model}
        self._wants_usage = wants_usage
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._step_start = 0
        self._is_begun = False
        self._calls: Sequence[ToolCall] = ()
        self._notices = AnswerNotices()

    @property
    def answer(self) -> str:
        """The text that was sent to the client."""
        return "".join(self._texts)

    def event(self, event: ApiEvent) -> bytes:
        """Return the chunks for an event."""
        match event:
            case HandedOver():
                self._calls = event.calls
                return self._chunk(
                    {"tool_calls": [{"index": i, **_call_object(c)} for i, c in enumerate(event.calls)]}
                )
            case TextDelta():
                return self._text(event.text)
            case ReasoningDelta():
                self._thoughts.append(event.text)
                return self._chunk({"reasoning_content": event.text})
            case StepFinished():
                self._step_start = len(self._texts)
            case StreamRestarted():
                had_text = len(self._texts) > self._step_start
                del self._texts[self._step_start :]
                # Text that was sent can't be taken back.
                return self._chunk({"content": RESTARTED}) if had_text else b""
            case _:
                if waiting := self._notices.add(event):
                    return self._chunk({}, more=waiting)
        return b""

    def end(self, end: TurnEnd) -> bytes:
        """Return the last chunks."""
        pieces = [self._chunk({}, self._finish(end), self._notices.fields)]
        if self._wants_usage:
            pieces.append(self._line({"choices": [], "usage": usage_of(end.usage)}))
        return b"".join((*pieces, DONE))

    def encode_error(self, error: ApiError) -> bytes:
        """Return an error inside the stream."""
        return b"data: %s\n\n%s" % (encode({"error": error_object(error)}), DONE)

    def whole(self, end: TurnEnd) -> object:
        """Return the whole answer."""
        message: dict[str, Any] = {"role": "assistant", "content": self.answer, "refusal": None}
        if self._calls:
            message["content"] = self.answer or None
            message["tool_calls"] = [_call_object(call) for call in self._calls]
        if self._thoughts:
            message["reasoning_content"] = "".join(self._thoughts)
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._finish(end)}
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [choice],
            "usage": usage_of(end.usage),
        } | self._notices.fields

    def _finish(self, end: TurnEnd) -> Finish:
        return "tool_calls" if self._calls else finish_reason(end)

    def _text(self, text: str) -> bytes:
        if self._texts and len(self._texts) == self._step_start:
            text = f"\n\n{text}"
        self._texts.append(text)
        return self._chunk({"content": text})

    def _chunk(
        self, delta: dict[str, Any], finish: Finish | None = None, more: dict[str, object] | None = None
    ) -> bytes:
        if not self._is_begun:
            self._is_begun = True
            delta = {"role": "assistant", "content": "", **delta}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return self._line({"choices": [choice], **(more or {})})

    def _line(self, more: dict[str, Any]) -> bytes:
        row = {**self._head, "object": "chat.completion.chunk", **more}
        if self._wants_usage:
            row.setdefault("usage", None)
        return b"data: %s\n\n" % encode(row)


def _call_object(call: ToolCall) -> dict[str, Any]:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }
