"""`/v1/chat/completions`: OpenAI's request read, a turn's events written in OpenAI's shape.

Tools run here, so no call of one ever reaches the client; it sees text. What settings decide (temperature,
output limits and the like) is taken and not used; what would change the answer's form is refused.
"""

from __future__ import annotations

import time
from typing import Any, Literal

import msgspec

from whet.contract.events import Event, ReasoningDelta, StepFinished, StreamRestarted, TextDelta, TurnEnd
from whet.contract.messages import Usage
from whet.serve.content import Utterance, utterance
from whet.serve.wire import ApiError, encode, error_object

DONE = b"data: [DONE]\n\n"
RESTARTED = "\n\n[The connection to the model broke; the answer begins again.]\n\n"
_MOST_MESSAGES = 10_000
_MOST_KEY = 512


class ChatMessage(msgspec.Struct, frozen=True):
    """One message of a request; a wrong content is told of with its place."""

    role: str
    content: Any = None


class StreamOptions(msgspec.Struct, frozen=True):
    """What a stream should hold besides."""

    include_usage: bool | None = None


class ChatRequest(msgspec.Struct, frozen=True):
    """What is read of a request; other fields are left alone."""

    model: str
    messages: list[ChatMessage]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    n: int | None = None
    tools: list[Any] | None = None
    functions: list[Any] | None = None
    tool_choice: Any = None
    response_format: dict[str, Any] | None = None
    modalities: list[str] | None = None
    stop: Any = None
    logprobs: bool | None = None
    top_logprobs: int | None = None


def read_said(request: ChatRequest) -> tuple[Utterance, ...]:
    """Give the messages of a request. Raises ApiError for what can't be done."""
    if request.tool_choice != "none":
        refuse_own_tools(request.tools or request.functions)
    refuse_form((request.response_format or {}).get("type", "text"), "response_format")
    refuse_set(request, "stop", "logprobs", "top_logprobs")
    if request.n not in (None, 1):
        raise ApiError(400, "one answer is given; n must be 1", param="n", code="unsupported_value")
    if request.modalities not in (None, ["text"]):
        raise ApiError(400, "answers are text", param="modalities", code="unsupported_value")
    if request.user is not None and len(request.user) > _MOST_KEY:
        raise ApiError(400, f"user is longer than {_MOST_KEY} characters", param="user")
    if not request.messages:
        raise ApiError(400, "messages is empty", param="messages")
    if len(request.messages) > _MOST_MESSAGES:
        raise ApiError(400, f"more than {_MOST_MESSAGES:,} messages", param="messages")
    return tuple(
        utterance(one.role, one.content, f"messages[{number}]") for number, one in enumerate(request.messages)
    )


def refuse_own_tools(tools: object) -> None:
    """Refuse a client's own tools: it would wait for calls that never come. Raises ApiError."""
    if tools:
        raise ApiError(
            400, "tools run on the server; leave tools out", param="tools", code="unsupported_parameter"
        )


def refuse_set(request: object, *names: str) -> None:
    """Refuse fields that can't be honoured, where they are set: what is ignored would be missed. Raises
    ApiError."""
    for name in names:
        if getattr(request, name):
            raise ApiError(400, f"{name} is not supported", param=name, code="unsupported_parameter")


def refuse_form(kind: object, param: str) -> None:
    """Refuse to promise JSON. Raises ApiError."""
    if kind != "text":
        raise ApiError(400, "answers are plain text", param=param, code="unsupported_value")


Finish = Literal["stop", "length", "content_filter"]


def finish_of(end: TurnEnd) -> Finish:
    """Say why a turn ended in OpenAI's words: `length` where its budget was used up."""
    return "length" if end.reason == "budget" else "content_filter" if end.reason == "refused" else "stop"


def usage_of(usage: Usage) -> dict[str, Any]:
    """Give a turn's tokens, those of all of its model calls."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens, "audio_tokens": 0},
    }


class ChatCodec:
    """A turn as a chat completion. The content is all that was said in the turn, its steps a blank line
    apart, in a stream and in a whole answer alike."""

    def __init__(self, answer_id: str, model: str, *, wants_usage: bool = False) -> None:
        self._head = {"id": f"chatcmpl-{answer_id}", "created": int(time.time()), "model": model}
        self._wants_usage = wants_usage
        self._said: list[str] = []
        self._thought: list[str] = []
        self._step_at = 0
        self._is_begun = False

    def event(self, event: Event) -> bytes:
        """Give the chunks for an event."""
        match event:
            case TextDelta():
                return self._text(event.text)
            case ReasoningDelta():
                self._thought.append(event.text)
                return self._chunk({"reasoning_content": event.text})
            case StepFinished():
                self._step_at = len(self._said)
            case StreamRestarted():
                had_text = len(self._said) > self._step_at
                del self._said[self._step_at :]
                # What was sent can't be taken back.
                return self._chunk({"content": RESTARTED}) if had_text else b""
            case _:
                pass
        return b""

    def end(self, end: TurnEnd) -> bytes:
        """Give the last chunks."""
        pieces = [self._chunk({}, finish_of(end))]
        if self._wants_usage:
            pieces.append(self._line({"choices": [], "usage": usage_of(end.usage)}))
        return b"".join((*pieces, DONE))

    def failed(self, error: ApiError) -> bytes:
        """Give an error inside the stream."""
        return b"data: %s\n\n%s" % (encode({"error": error_object(error)}), DONE)

    def whole(self, end: TurnEnd) -> object:
        """Give the answer."""
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._said), "refusal": None}
        if self._thought:
            message["reasoning_content"] = "".join(self._thought)
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_of(end)}
        return {**self._head, "object": "chat.completion", "choices": [choice], "usage": usage_of(end.usage)}

    def _text(self, text: str) -> bytes:
        if self._said and len(self._said) == self._step_at:
            text = f"\n\n{text}"
        self._said.append(text)
        return self._chunk({"content": text})

    def _chunk(self, delta: dict[str, Any], finish: Finish | None = None) -> bytes:
        if not self._is_begun:
            self._is_begun = True
            delta = {"role": "assistant", "content": "", **delta}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return self._line({"choices": [choice]})

    def _line(self, more: dict[str, Any]) -> bytes:
        row = {**self._head, "object": "chat.completion.chunk", **more}
        if self._wants_usage:
            row.setdefault("usage", None)
        return b"data: %s\n\n" % encode(row)
