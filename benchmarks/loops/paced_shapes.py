"""One answer of a paced model server as events, in the shapes of three vendors' streams.

Each takes how many pieces an answer has, the call that it ends with (None for text alone), and the tokens of
the request.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

Call = tuple[str, str, str]
"""A call's id, its tool's name and its arguments as JSON."""

# What a program calls its shell, and what that takes; "noop" is the tool of the loops beside this file.
_SHELLS: dict[str, dict[str, Any]] = {
    "noop": {},
    "terminal": {"command": "true"},
    "bash": {"command": "true", "description": "run it"},
    "Bash": {"command": "true", "description": "run it"},
    "exec_command": {"cmd": "true"},
    "shell_command": {"command": "true"},
    "shell": {"command": ["sh", "-c", "true"]},
}

_TOKENS_PER_PIECE = 3

# What a person's job is made of, by turns; `number` is that of the round.
_WORK = (
    "cat package{package}/module{number}.py",
    "grep -rn function_{number} package{package}",
    "sed -i 's/return {number}$/return {number}0/' package{package}/module{number}.py",
    ".venv/bin/python -m pytest -q -p no:cacheprovider tests/test_{number}.py",
    "git diff package{package}/module{number}.py",
)


def work_command(step: int) -> str:
    """Return the command of a step, counted from 1: read, search, edit, test and diff by turns."""
    number = (step - 1) // len(_WORK)
    return _WORK[(step - 1) % len(_WORK)].format(number=number, package=number % 15)


def call_for(asked: dict[str, Any], kind: str) -> Call | None:
    """Choose the shell among the tools that a request offers; None if there is none, as in a review of the
    job. It runs `true`, or if the kind is "work" what `work_command` returns."""
    offered = [tool.get("name") or tool.get("function", {}).get("name") for tool in asked.get("tools", ())]
    name = next((name for name in _SHELLS if name in offered), None)
    if name is None:
        return None
    step = results_in(asked) + 1  # in the command too: programs stop a call that repeats without change
    command = work_command(step) if kind == "work" else f"true {step}"
    return f"call_{step}", name, json.dumps(_SHELLS[name]).replace('"true"', json.dumps(command))


def chat(pieces: int, call: Call | None, sent_tokens: int) -> list[bytes]:
    """Chat Completions."""
    events = [chat_chunk({"role": "assistant", "content": ""})]
    events += [chat_chunk({"content": word}) for word in _words(pieces - 3)]
    return [*events, *chat_end(call, sent_tokens, _TOKENS_PER_PIECE * pieces)]


def chat_end(call: Call | None, sent_tokens: int = 9, output_tokens: int = 9) -> list[bytes]:
    """Return the last events of a Chat Completions stream, with the call that it ends with."""
    events: list[bytes] = []
    if call is not None:
        function = {"name": call[1], "arguments": call[2]}
        told = {"index": 0, "id": call[0], "type": "function", "function": function}
        events.append(chat_chunk({"tool_calls": [told]}))
    events.append(chat_chunk({}, "stop" if call is None else "tool_calls"))
    usage = {"prompt_tokens": sent_tokens, "completion_tokens": output_tokens}
    counted = {**usage, "total_tokens": sent_tokens + output_tokens}
    return [*events, _data({"choices": [], "usage": counted}) + b"data: [DONE]\n\n"]


def chat_chunk(delta: dict[str, object], finish: str | None = None) -> bytes:
    """Return one chunk of a Chat Completions stream."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "paced"}
    return _data({**head, "choices": [choice]})


def responses(pieces: int, call: Call | None, sent_tokens: int) -> list[bytes]:
    """OpenAI's Responses."""
    words = _words(pieces - 4)
    text = {"type": "output_text", "text": "".join(words), "annotations": []}
    said = {"type": "message", "id": "m1", "role": "assistant", "status": "completed"}
    output: list[dict[str, Any]] = [{**said, "content": [text]}]
    if call is not None:
        function = {"type": "function_call", "id": "f1", "call_id": call[0], "status": "completed"}
        output.append({**function, "name": call[1], "arguments": call[2]})
    output_tokens = _TOKENS_PER_PIECE * pieces
    usage = {"input_tokens": sent_tokens, "output_tokens": output_tokens}
    usage["total_tokens"] = sent_tokens + output_tokens
    head = {"id": "r1", "object": "response", "created_at": 1, "model": "paced"}
    events = [{"type": "response.created", "response": {**head, "status": "in_progress", "output": []}}]
    began = {**said, "status": "in_progress", "content": []}
    events.append({"type": "response.output_item.added", "output_index": 0, "item": began})
    where = {"item_id": "m1", "output_index": 0, "content_index": 0}
    events += [{"type": "response.output_text.delta", **where, "delta": word} for word in words]
    events += [
        {"type": "response.output_item.done", "output_index": index, "item": item}
        for index, item in enumerate(output)
    ]
    whole = {**head, "status": "completed", "output": output, "usage": usage}
    events.append({"type": "response.completed", "response": whole})
    return [_named({**event, "sequence_number": number}) for number, event in enumerate(events)]


def messages(pieces: int, call: Call | None, sent_tokens: int) -> list[bytes]:
    """Anthropic's Messages."""
    usage = {"input_tokens": sent_tokens, "output_tokens": _TOKENS_PER_PIECE * pieces}
    whole = {"id": "m1", "type": "message", "role": "assistant", "model": "paced", "content": []}
    ends = {"stop_reason": None, "stop_sequence": None}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {**whole, **ends, "usage": usage}}]
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
        ({"type": "text", "text": ""}, [{"type": "text_delta", "text": word} for word in _words(pieces - 4)])
    ]
    if call is not None:
        use = {"type": "tool_use", "id": call[0], "name": call[1], "input": {}}
        blocks.append((use, [{"type": "input_json_delta", "partial_json": call[2]}]))
    for index, (block, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    ends["stop_reason"] = "end_turn" if call is None else "tool_use"
    events += [{"type": "message_delta", "delta": ends, "usage": usage}, {"type": "message_stop"}]
    return [_named(event) for event in events]


def results_in(asked: dict[str, Any]) -> int:
    """Count the results of calls that a request brings, in any of the shapes."""
    count = 0
    for item in asked.get("messages") or asked.get("input") or ():
        content = item.get("content")
        parts = content if isinstance(content, list) else ()
        count += item.get("role") == "tool" or item.get("type") == "function_call_output"
        count += sum(part.get("type") == "tool_result" for part in parts)
    return count


SHAPES: dict[str, Callable[[int, Call | None, int], list[bytes]]] = {
    "/v1/chat/completions": chat,
    "/v1/responses": responses,
    "/v1/messages": messages,
}


def _words(count: int) -> list[str]:
    return [f" word{number}" for number in range(max(count, 1))]


def _data(value: object) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


def _named(event: dict[str, Any]) -> bytes:
    return f"event: {event['type']}\n".encode() + _data(event)
