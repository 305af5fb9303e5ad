"""`/v1/responses`: read OpenAI's request and write a turn's events as output items and stream events.

The text of each step is an output message of its own. A response is stored as the last turn of its session,
so that `previous_response_id` continues there.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec

from whet.contract.events import StepFinished, StreamRestarted, TextDelta, TurnEnd
from whet.contract.messages import ToolCall, Usage
from whet.serve.chat import RESTARTED, refuse_fields
from whet.serve.client_tools import CallResult, HandedOver
from whet.serve.content import Utterance, kind_of, read_utterance
from whet.serve.forms import AnswerForm, read_answer_form
from whet.serve.notices import AnswerNotices
from whet.serve.response_tools import CALL_EVENTS, NO_TOOLS, ResponseTools, read_call, read_tools
from whet.serve.suspended_turn import ApiEvent
from whet.serve.wire import ApiError, encode

_SPOKEN = frozenset(("message", None))
_CALLS = frozenset(("function_call", "custom_tool_call"))
_RESULTS = frozenset(("function_call_output", "custom_tool_call_output"))
_UNSPOKEN = frozenset(("reasoning", "item_reference"))


class Format(msgspec.Struct, frozen=True, omit_defaults=False):
    """The form of an answer."""

    type: str = "text"
    schema: dict[str, Any] | None = None


class TextOptions(msgspec.Struct, frozen=True):
    """Options for the answer's text."""

    format: Format | None = None


class ResponsesRequest(msgspec.Struct, frozen=True):
    """The fields that are read from a request; all others are ignored."""

    model: str
    input: str | list[dict[str, Any]]
    instructions: str | None = None
    previous_response_id: str | None = None
    stream: bool | None = None
    store: bool | None = None
    user: str | None = None
    safety_identifier: Any = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    background: bool | None = None
    conversation: Any = None
    prompt: Any = None
    include: list[str] | None = None
    top_logprobs: int | None = None


def read_messages(request: ResponsesRequest) -> tuple[Utterance, ...]:
    """Return the messages of a request, its instructions first. Raises ApiError if it asks for something
    unsupported."""
    refuse_fields(request, "background", "conversation", "prompt", "top_logprobs")
    if any("logprobs" in name for name in request.include or ()):
        raise ApiError(400, "logprobs are not given", param="include", code="unsupported_value")
    utterances = [Utterance("system", request.instructions)] if request.instructions else []
    if isinstance(request.input, str):
        return (*utterances, Utterance("user", request.input))
    for number, item in enumerate(request.input):
        location, kind = f"input[{number}]", kind_of(item)
        if kind in _SPOKEN:
            role = item.get("role")
            if not isinstance(role, str):
                raise ApiError(400, "a message needs a role", param=f"{location}.role")
            spoken = read_utterance(role, item.get("content"), location)
            utterances.append(msgspec.structs.replace(spoken, item_id=_id_of(item)))
        elif kind in _CALLS:
            call = read_call(item, location)
            if utterances and utterances[-1].speaker == "assistant":
                calls = (*utterances[-1].calls, call)
                utterances[-1] = msgspec.structs.replace(utterances[-1], calls=calls, item_id=_id_of(item))
            else:
                utterances.append(Utterance("assistant", "", calls=(call,), item_id=_id_of(item)))
        elif kind in _RESULTS:
            utterances.append(Utterance("other", "", results=(_read_result(item, location),)))
        elif kind not in _UNSPOKEN:
            raise ApiError(400, f"items of type {str(kind)[:40]!r} are not taken", param=f"{location}.type")
    return tuple(utterances)


def _id_of(item: dict[str, Any]) -> str:
    item_id = item.get("id")
    return item_id if isinstance(item_id, str) else ""


def _read_result(item: dict[str, Any], location: str) -> CallResult:
    call_id, output = item.get("call_id"), item.get("output")
    if not isinstance(call_id, str):
        raise ApiError(400, "a result needs its call_id", param=f"{location}.call_id")
    parsed = read_utterance("tool", output, location)
    return CallResult(call_id, parsed.text, images=parsed.images)


def read_form(request: ResponsesRequest) -> AnswerForm | None:
    """Return the form that the request requires, or None for plain text. Raises ApiError."""
    form = (request.text and request.text.format) or Format()
    return read_answer_form(form.type, form.schema, "text.format")


def tools_of(request: ResponsesRequest) -> ResponseTools:
    """Return the client's tools; empty if `tool_choice` is "none". Raises ApiError."""
    return NO_TOOLS if request.tool_choice == "none" else read_tools(request.tools or ())


def usage_of(usage: Usage) -> dict[str, Any]:
    """Return the usage of a turn in OpenAI's format."""
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


class ResponsesCodec:
    """Writes a turn as a response."""

    beat = b": beat\n\n"

    def __init__(self, response_id: str, request: ResponsesRequest, tools: ResponseTools = NO_TOOLS) -> None:
        self._request = request
        self._tools = tools
        self._id = response_id
        self._created = int(time.time())
        self._sequence = 0
        self._items: list[dict[str, Any]] = []
        self._open: list[str] | None = None
        self._notices = AnswerNotices()
        self._is_begun = False

    @property
    def answer(self) -> str:
        """The text that was sent to the client."""
        return "".join(part["text"] for item in self._items for part in item.get("content", ()))

    def event(self, event: ApiEvent) -> bytes:
        """Return the stream events for an event."""
        match event:
            case HandedOver():
                return b"".join((self._begin(), self._close(), *map(self._call, event.calls)))
            case TextDelta():
                return self._text(event.text)
            case StepFinished():
                return self._close()
            case StreamRestarted():
                return self._handle_restart()
            case _:
                waiting = self._notices.add(event)
                return self._report_waiting(waiting) if waiting else b""

    def end(self, end: TurnEnd) -> bytes:
        """Return the last events."""
        pieces = [self._begin(), self._close()]
        done = self.whole(end)
        kind = "response.completed" if done["status"] == "completed" else "response.incomplete"
        pieces.append(self._line(kind, {"response": done}))
        return b"".join(pieces)

    def encode_error(self, error: ApiError) -> bytes:
        """Return the event for a failure."""
        error_fields = {"code": error.code or "server_error", "message": error.message}
        body = {**self._object("failed"), "error": error_fields}
        return self._begin() + self._line("response.failed", {"response": body})

    def whole(self, end: TurnEnd) -> dict[str, Any]:
        """Return the whole answer."""
        self._close()
        why = {"budget": "max_output_tokens", "refused": "content_filter"}.get(end.reason)
        body = self._object("incomplete" if why else "completed")
        body["usage"] = usage_of(end.usage)
        if why:
            body["incomplete_details"] = {"reason": why}
        return body | self._notices.fields

    def _report_waiting(self, waiting: dict[str, object]) -> bytes:
        body = self._object("in_progress") | waiting
        return self._begin() + self._line("response.in_progress", {"response": body})

    def _handle_restart(self) -> bytes:
        """Drop the text of this step. Text that was streamed can't be taken back."""
        if not self._open:
            return b""
        if self._request.stream:
            return self._text(RESTARTED)
        self._open = []
        return b""

    def _text(self, text: str) -> bytes:
        pieces = [self._begin()]
        if self._open is None:
            self._open = []
            location = {"output_index": len(self._items), "item_id": self._item_id()}
            pieces.append(
                self._line(
                    "response.output_item.added",
                    {"output_index": len(self._items), "item": self._item("in_progress", None)},
                )
            )
            pieces.append(
                self._line("response.content_part.added", {**location, "content_index": 0, "part": _part("")})
            )
        self._open.append(text)
        pieces.append(
            self._line("response.output_text.delta", {**self._location(), "delta": text, "logprobs": []})
        )
        return b"".join(pieces)

    def _close(self) -> bytes:
        if self._open is None:
            return b""
        text, location, item_at = "".join(self._open), self._location(), len(self._items)
        item = self._item("completed", text)
        self._open = None
        self._items.append(item)
        part = item["content"][0]
        return b"".join(
            (
                self._line("response.output_text.done", {**location, "text": text, "logprobs": []}),
                self._line("response.content_part.done", {**location, "part": part}),
                self._line("response.output_item.done", {"output_index": item_at, "item": item}),
            )
        )

    def _call(self, call: ToolCall) -> bytes:
        at, item_id = len(self._items), f"fc_{self._id.removeprefix('resp_')}_{len(self._items)}"
        call_fields = self._tools.call_fields(call)
        kind, field = CALL_EVENTS[call_fields["type"]]
        item = {"id": item_id, "status": "completed", "call_id": call.id, **call_fields}
        self._items.append(item)
        location = {"output_index": at, "item_id": item_id}
        begun = {**item, "status": "in_progress", field: ""}
        done = {**location, "name": item["name"], field: item[field]}
        return b"".join(
            (
                self._line("response.output_item.added", {"output_index": at, "item": begun}),
                self._line(f"{kind}.delta", {**location, "delta": item[field]}),
                self._line(f"{kind}.done", done),
                self._line("response.output_item.done", {"output_index": at, "item": item}),
            )
        )

    def _begin(self) -> bytes:
        if self._is_begun:
            return b""
        self._is_begun = True
        body = self._object("in_progress")
        return self._line("response.created", {"response": body}) + self._line(
            "response.in_progress", {"response": body}
        )

    def _item_id(self) -> str:
        return f"msg_{self._id.removeprefix('resp_')}_{len(self._items)}"

    def _location(self) -> dict[str, Any]:
        return {"item_id": self._item_id(), "output_index": len(self._items), "content_index": 0}

    def _item(self, status: str, text: str | None) -> dict[str, Any]:
        content = [] if text is None else [_part(text)]
        return {
            "id": self._item_id(),
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": content,
        }

    def _object(self, status: str) -> dict[str, Any]:
        request = self._request
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": request.instructions,
            "max_output_tokens": None,
            "model": request.model,
            "output": list(self._items),
            "parallel_tool_calls": request.parallel_tool_calls is not False,
            "previous_response_id": request.previous_response_id,
            "reasoning": {"effort": None, "summary": None},
            "store": request.store is not False,
            "temperature": None,
            "text": {"format": (request.text and request.text.format) or Format()},
            "tool_choice": request.tool_choice or "auto",
            "tools": request.tools or [],
            "top_p": None,
            "truncation": "disabled",
            "usage": None,
            "user": request.user,
            "metadata": {},
        }

    def _line(self, kind: str, more: dict[str, Any]) -> bytes:
        row = {"type": kind, "sequence_number": self._sequence, **more}
        self._sequence += 1
        return b"event: %s\ndata: %s\n\n" % (kind.encode(), encode(row))


def _part(text: str) -> dict[str, Any]:
    nothing: list[str] = []
    return {"type": "output_text", "text": text, "annotations": nothing, "logprobs": nothing}
