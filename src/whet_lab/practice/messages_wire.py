"""Anthropic Messages: parses a body into a `PracticeRequest`, writes a `ScriptedReply` as JSON or a stream.

Thinking has a signature that only this server can make, so that a client that changes a thinking block is
detected. Validation is in messages_rules.py.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any, cast

import msgspec

from whet_lab.practice.ask import Json, Offer, PracticeCall, PracticeRequest, RequestMessage
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.wire import AnswerEnvelope, encode_event, split_text

_encode = msgspec.json.Encoder().encode


def sign(thinking: str, seed: int) -> str:
    """Return the signature of a thinking text."""
    return "practice" + hmac.new(str(seed).encode(), thinking.encode(), hashlib.sha256).hexdigest()


def read(body: Json) -> PracticeRequest:
    """Return the conversation of a valid body."""
    messages: list[RequestMessage] = []
    for row in body["messages"]:
        content = row["content"]
        if isinstance(content, str):
            messages.append(RequestMessage(row["role"], content))
        else:
            messages += _parse_message(row["role"], cast("list[Json]", content))
    offers = {t["name"]: Offer(t["name"], t["input_schema"]) for t in body.get("tools") or ()}
    thinking = cast("Json", body.get("thinking") or {}).get("type") in ("enabled", "adaptive")
    system = _texts(body.get("system") or "")
    return PracticeRequest("anthropic_messages", body["model"], system, offers, tuple(messages), thinking)


def _parse_message(role: Any, rows: list[Json]) -> list[RequestMessage]:
    messages = [
        RequestMessage("tool", _texts(row.get("content") or ""), call_id=row["tool_use_id"])
        for row in rows
        if row["type"] == "tool_result"
    ]
    calls = tuple(
        PracticeCall(row["name"], _encode(row["input"]).decode(), row["id"])
        for row in rows
        if row["type"] == "tool_use"
    )
    text = _texts(rows)
    if text or calls or not messages:
        messages.append(RequestMessage(role, text, calls))
    return messages


def _texts(content: str | list[Json]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(row["text"]) for row in content if row["type"] == "text")


def blocks(body: Json) -> list[tuple[bytes, bool]]:
    """Return the request as cache blocks (tools, system, content), each with a flag for a cache mark."""
    cache_blocks = [_block(tool) for tool in body.get("tools") or ()]
    system = body.get("system")
    if system:
        cache_blocks += [_block(row) for row in _rows(system)]
    for message in body["messages"]:
        head = message["role"].encode()
        cache_blocks += [(head + block, marked) for block, marked in map(_block, _rows(message["content"]))]
    if body.get("cache_control"):
        cache_blocks[-1] = (cache_blocks[-1][0], True)
    return cache_blocks


def _rows(content: Any) -> list[Json]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _block(row: Json) -> tuple[bytes, bool]:
    if not row.get("cache_control"):
        return _encode(row), False
    return _encode({key: value for key, value in row.items() if key != "cache_control"}), True


def build_usage(envelope: AnswerEnvelope, override: dict[str, int] | None) -> Json:
    """Return the usage object. input_tokens leaves out tokens read from or written to the cache."""
    tally = envelope.tally
    usage: Json = {
        "input_tokens": max(0, tally.prompt - tally.read - tally.written),
        "cache_creation_input_tokens": tally.written,
        "cache_read_input_tokens": tally.read,
        "output_tokens": envelope.completion_tokens,
        "service_tier": "standard",
    }
    return usage | (override or {})


def whole(reply: ScriptedReply, envelope: AnswerEnvelope, seed: int) -> Json:
    """Return the body of an answer that is not streamed."""
    content: list[Json] = []
    if reply.reasoning:
        content.append(
            {"type": "thinking", "thinking": reply.reasoning, "signature": sign(reply.reasoning, seed)}
        )
    if reply.text:
        content.append({"type": "text", "text": reply.text})
    for call in reply.tool_calls:
        content.append(
            {"type": "tool_use", "id": call.id, "name": call.name, "input": _input(call.arguments)}
        )
    message = _message(envelope, content)
    message["stop_reason"] = _stop(reply)
    message["usage"] = build_usage(envelope, reply.usage)
    return message


def stream(reply: ScriptedReply, envelope: AnswerEnvelope, seed: int) -> list[bytes]:
    """Return the answer as server-sent events; the last one is message_stop."""
    usage = build_usage(envelope, reply.usage)
    start = _message(envelope, [])
    start["usage"] = usage | {"output_tokens": 1}
    events = [encode_event("message_start", {"message": start}), encode_event("ping", {})]
    index = 0
    if reply.reasoning:
        deltas: list[Json] = [
            {"type": "thinking_delta", "thinking": piece}
            for piece in split_text(reply.reasoning, reply.pieces)
        ]
        deltas.append({"type": "signature_delta", "signature": sign(reply.reasoning, seed)})
        events += _block_events(index, {"type": "thinking", "thinking": "", "signature": ""}, deltas)
        index += 1
    if reply.text:
        deltas = [{"type": "text_delta", "text": piece} for piece in split_text(reply.text, reply.pieces)]
        events += _block_events(index, {"type": "text", "text": ""}, deltas)
        index += 1
    for number, call in enumerate(reply.tool_calls, index):
        deltas = [
            {"type": "input_json_delta", "partial_json": piece}
            for piece in split_text(call.arguments, reply.pieces)
        ]
        block: Json = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        events += _block_events(number, block, deltas)
    delta = {"stop_reason": _stop(reply), "stop_sequence": None}
    events.append(encode_event("message_delta", {"delta": delta, "usage": usage}))
    events.append(encode_event("message_stop", {}))
    return events


def error_event(error: Json) -> bytes:
    """Return an error object as an event of a stream."""
    return b"event: error\ndata: %b\n\n" % _encode(error)


def _block_events(index: int, block: Json, deltas: list[Json]) -> list[bytes]:
    return [
        encode_event("content_block_start", {"index": index, "content_block": block}),
        *(encode_event("content_block_delta", {"index": index, "delta": delta}) for delta in deltas),
        encode_event("content_block_stop", {"index": index}),
    ]


def _message(envelope: AnswerEnvelope, content: list[Json]) -> Json:
    return {
        "id": f"msg_{envelope.id}",
        "type": "message",
        "role": "assistant",
        "model": envelope.model,
        "content": content,
        "stop_reason": None,
        "stop_sequence": None,
    }


def _input(arguments: str) -> object:
    """Parse arguments. This format can't hold invalid JSON, so that becomes an object with the text."""
    try:
        return msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return {"unreadable": arguments}


def _stop(reply: ScriptedReply) -> str:
    if reply.stop:
        return {"length": "max_tokens"}.get(reply.stop, reply.stop)
    return "tool_use" if reply.tool_calls else "end_turn"
