"""Chat Completions: parses a body into a `PracticeRequest` and writes a `ScriptedReply` as JSON or a stream.

Reasoning is sent as `reasoning_content`, the field of DeepSeek, vLLM and llama.cpp. Validation is in
chat_rules.py.
"""

from __future__ import annotations

from typing import Any

import msgspec

from whet_lab.practice.ask import Json, Offer, PracticeCall, PracticeRequest, RequestMessage
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.wire import AnswerEnvelope, join_text, split_text

_encode = msgspec.json.Encoder().encode


def parse_request(body: Json) -> PracticeRequest:
    """Return the conversation of a valid body."""
    system: list[str] = []
    messages: list[RequestMessage] = []
    for row in body["messages"]:
        role, text = row["role"], join_text(row.get("content"))
        if role in ("system", "developer"):
            system.append(text)
        elif role == "tool":
            messages.append(RequestMessage("tool", text, call_id=row["tool_call_id"]))
        else:
            calls = tuple(
                PracticeCall(c["function"]["name"], c["function"]["arguments"], c["id"])
                for c in row.get("tool_calls") or ()
            )
            messages.append(RequestMessage(role, text, calls))
    functions = [tool["function"] for tool in body.get("tools") or ()]
    offers = {f["name"]: Offer(f["name"], f.get("parameters") or {}) for f in functions}
    return PracticeRequest("chat_completions", body["model"], "\n".join(system), offers, tuple(messages))


def list_cache_blocks(body: Json) -> list[bytes]:
    """Return the request as cache blocks: tools, then messages."""
    tools: list[Any] = body.get("tools") or []
    return [_encode(item) for item in (*tools, *body["messages"])]


def build_usage(envelope: AnswerEnvelope, override: dict[str, int] | None) -> Json:
    """Return the usage object."""
    prompt, completion = envelope.tally.prompt, envelope.completion_tokens
    usage: Json = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": envelope.tally.read, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": envelope.reasoning_tokens, "audio_tokens": 0},
    }
    usage |= override or {}
    if override and "total_tokens" not in override:
        usage["total_tokens"] = usage["prompt_tokens"] + usage["completion_tokens"]
    return usage


def build_body(reply: ScriptedReply, envelope: AnswerEnvelope) -> Json:
    """Return the body of an answer that is not streamed."""
    message: Json = {"role": "assistant", "content": reply.text or None, "refusal": None}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if reply.tool_calls:
        message["tool_calls"] = [_call(call) for call in reply.tool_calls]
    elif not reply.text:
        message["content"] = ""
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(reply)}
    head = _head(envelope, "chat.completion")
    return {**head, "choices": [choice], "usage": build_usage(envelope, reply.usage)}


def stream(reply: ScriptedReply, envelope: AnswerEnvelope) -> list[bytes]:
    """Return the answer as server-sent events; the last one is [DONE]."""
    head = _head(envelope, "chat.completion.chunk")
    deltas: list[Json] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": piece} for piece in split_text(reply.reasoning, reply.pieces)]
    deltas += [{"content": piece} for piece in split_text(reply.text, reply.pieces)]
    for index, call in enumerate(reply.tool_calls):
        row = _call(call)
        row["index"], row["function"]["arguments"] = index, ""
        deltas.append({"tool_calls": [row]})
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
            for piece in split_text(call.arguments, reply.pieces)
        ]
    events = [_event({**head, "choices": [_choice(delta, None)]}) for delta in deltas]
    events.append(_event({**head, "choices": [_choice({}, _finish(reply))]}))
    if envelope.wants_usage:
        events.append(_event({**head, "choices": [], "usage": build_usage(envelope, reply.usage)}))
    events.append(b"data: [DONE]\n\n")
    return events


def error_event(error: Json) -> bytes:
    """Return an error object as an event of a stream."""
    return _event(error)


def _head(envelope: AnswerEnvelope, kind: str) -> Json:
    return {
        "id": f"chatcmpl-{envelope.id}",
        "object": kind,
        "created": envelope.created,
        "model": envelope.model,
        "system_fingerprint": "fp_practice",
    }


def _call(call: PracticeCall) -> Json:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _choice(delta: Json, finish: str | None) -> Json:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}


def _finish(reply: ScriptedReply) -> str:
    if reply.stop:
        return {"refusal": "content_filter"}.get(reply.stop, reply.stop)
    return "tool_calls" if reply.tool_calls else "stop"


def _event(data: Json) -> bytes:
    return b"data: " + _encode(data) + b"\n\n"
