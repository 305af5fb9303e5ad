"""OpenAI Responses: parses a body into a `PracticeRequest` and writes a `ScriptedReply` as JSON or a stream.

Reasoning items have a sealed content that only this server can make, bound to the item's id. Validation is
in responses_rules.py.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import msgspec

from whet_lab.practice.ask import Json, Offer, PracticeCall, PracticeRequest, RequestMessage
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.wire import AnswerEnvelope, encode_event, join_text, split_text

_encode = msgspec.json.Encoder().encode


def seal(item_id: str, seed: int) -> str:
    """Return the encrypted_content of a reasoning item."""
    return "practice" + hmac.new(str(seed).encode(), item_id.encode(), hashlib.sha256).hexdigest()


def read(body: Json) -> PracticeRequest:
    """Return the conversation of a valid body."""
    system = [str(body.get("instructions") or "")]
    messages: list[RequestMessage] = []
    input_value = body["input"]
    items: list[Json] = (
        [{"role": "user", "content": input_value}] if isinstance(input_value, str) else input_value
    )
    for row in items:
        kind = row.get("type", "message")
        if kind == "message":
            text = join_text(row["content"])
            if row["role"] in ("system", "developer"):
                system.append(text)
            else:
                messages.append(RequestMessage(row["role"], text))
        elif kind == "function_call":
            messages.append(
                RequestMessage(
                    "assistant", "", (PracticeCall(row["name"], row["arguments"], row["call_id"]),)
                )
            )
        elif kind == "function_call_output":
            messages.append(RequestMessage("tool", join_text(row["output"]), call_id=row["call_id"]))
    offers = {t["name"]: Offer(t["name"], t.get("parameters") or {}) for t in body.get("tools") or ()}
    prompt = "\n".join(text for text in system if text)
    return PracticeRequest(
        "responses", body["model"], prompt, offers, tuple(messages), bool(body.get("reasoning"))
    )


def blocks(body: Json) -> list[bytes]:
    """Return the request as cache blocks: instructions, tools, input items."""
    input_value = body["input"]
    items: list[Any] = [input_value] if isinstance(input_value, str) else input_value
    return [_encode(item) for item in (body.get("instructions") or "", *(body.get("tools") or ()), *items)]


def build_usage(envelope: AnswerEnvelope, override: dict[str, int] | None) -> Json:
    """Return the usage object."""
    prompt, completion = envelope.tally.prompt, envelope.completion_tokens
    usage: Json = {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": envelope.tally.read, "cache_write_tokens": 0},
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": envelope.reasoning_tokens},
        "total_tokens": prompt + completion,
    }
    usage |= override or {}
    if override and "total_tokens" not in override:
        usage["total_tokens"] = usage["input_tokens"] + usage["output_tokens"]
    return usage


def whole(reply: ScriptedReply, envelope: AnswerEnvelope, seed: int) -> Json:
    """Return the body of an answer that is not streamed."""
    return _response(reply, envelope, _items(reply, envelope, seed), _status(reply))


def stream(reply: ScriptedReply, envelope: AnswerEnvelope, seed: int) -> list[bytes]:
    """Return the answer as server-sent events; the last one is response.completed (or .incomplete)."""
    items = _items(reply, envelope, seed)
    begun = _response(reply, envelope, [], "in_progress")
    writer = _Writer()
    writer.add("response.created", {"response": begun})
    writer.add("response.in_progress", {"response": begun})
    for index, item in enumerate(items):
        writer.item(index, item, reply.pieces)
    status = _status(reply)
    writer.add(f"response.{status}", {"response": _response(reply, envelope, items, status)})
    return writer.events


def error_event(error: Json) -> bytes:
    """Return an error object as an event of a stream."""
    inner = error["error"]
    row = {"code": inner.get("code") or inner["type"], "message": inner["message"], "param": None}
    return encode_event("error", {**row, "sequence_number": 0})


class _Writer:
    """Collects events and numbers them."""

    def __init__(self) -> None:
        self.events: list[bytes] = []

    def add(self, kind: str, data: Json) -> None:
        self.events.append(encode_event(kind, {"sequence_number": len(self.events), **data}))

    def item(self, index: int, item: Json, pieces: int) -> None:
        blank: dict[str, Json] = {
            "message": {"content": []},
            "function_call": {"arguments": ""},
            "reasoning": {"summary": []},
        }
        start = {**item, **blank[item["type"]], "status": "in_progress"}
        self.add("response.output_item.added", {"output_index": index, "item": start})
        at: Json = {"item_id": item["id"], "output_index": index}
        if item["type"] == "function_call":
            for piece in split_text(item["arguments"], pieces):
                self.add("response.function_call_arguments.delta", {**at, "delta": piece})
            done = {"arguments": item["arguments"], "name": item["name"]}
            self.add("response.function_call_arguments.done", {**at, **done})
        elif item["type"] == "message":
            self._text(at | {"content_index": 0}, item["content"][0], pieces)
        else:
            self._summary(at | {"summary_index": 0}, item["summary"][0], pieces)
        self.add("response.output_item.done", {"output_index": index, "item": item})

    def _text(self, at: Json, part: Json, pieces: int) -> None:
        text: str = part["text"]
        self.add("response.content_part.added", {**at, "part": {**part, "text": ""}})
        for piece in split_text(text, pieces):
            self.add("response.output_text.delta", {**at, "delta": piece, "logprobs": []})
        self.add("response.output_text.done", {**at, "text": text, "logprobs": []})
        self.add("response.content_part.done", {**at, "part": part})

    def _summary(self, at: Json, part: Json, pieces: int) -> None:
        self.add("response.reasoning_summary_part.added", {**at, "part": {**part, "text": ""}})
        for piece in split_text(part["text"], pieces):
            self.add("response.reasoning_summary_text.delta", {**at, "delta": piece})
        self.add("response.reasoning_summary_text.done", {**at, "text": part["text"]})
        self.add("response.reasoning_summary_part.done", {**at, "part": part})


def _items(reply: ScriptedReply, envelope: AnswerEnvelope, seed: int) -> list[Json]:
    items: list[Json] = []
    if reply.reasoning:
        item_id = f"rs_{envelope.id}"
        reasoning: Json = {"type": "reasoning", "id": item_id, "encrypted_content": seal(item_id, seed)}
        items.append({**reasoning, "summary": [{"type": "summary_text", "text": reply.reasoning}]})
    if reply.text:
        part: Json = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
        message: Json = {"type": "message", "id": f"msg_{envelope.id}", "role": "assistant"}
        items.append({**message, "status": "completed", "content": [part]})
    for index, call in enumerate(reply.tool_calls):
        row: Json = {"type": "function_call", "id": f"fc_{envelope.id}_{index}", "call_id": call.id}
        items.append({**row, "name": call.name, "arguments": call.arguments, "status": "completed"})
    return items


def _response(reply: ScriptedReply, envelope: AnswerEnvelope, items: list[Json], status: str) -> Json:
    body = envelope.body
    stopped = {"reason": "max_output_tokens" if reply.stop == "length" else "content_filter"}
    return {
        "id": f"resp_{envelope.id}",
        "object": "response",
        "created_at": envelope.created,
        "status": status,
        "error": None,
        "incomplete_details": stopped if status == "incomplete" else None,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "model": envelope.model,
        "output": items,
        "parallel_tool_calls": body.get("parallel_tool_calls", True),
        "previous_response_id": None,
        "reasoning": body.get("reasoning") or {"effort": None, "summary": None},
        "store": body.get("store", True),
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": body.get("tools") or [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": build_usage(envelope, reply.usage) if status != "in_progress" else None,
        "metadata": {},
    }


def _status(reply: ScriptedReply) -> str:
    return "incomplete" if reply.stop in ("length", "refusal") else "completed"
