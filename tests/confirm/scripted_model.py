"""A model server for real agent programs: it asks for one shell command, then ends with the tool's result.

It speaks the four wires that these programs use: Anthropic messages, OpenAI responses, chat completions, and
Gemini's generateContent.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_SHELLS = ("Bash", "bash", "exec_command", "shell_command", "shell", "run_shell_command")
_USAGE = {"input_tokens": 1, "output_tokens": 1}


class ScriptedModel(ThreadingHTTPServer):
    """Asks every conversation to run `command` once; `results` holds what came back.

    With `tool` it calls the tool whose name ends so, with `command` as its `path`.
    """

    daemon_threads = True

    def __init__(self, command: str, tool: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.command = command
        self.tool = tool
        self.results: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> ScriptedModel:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: ScriptedModel  # pyright: ignore[reportIncompatibleVariableOverride]
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        model = {"id": "practice", "object": "model", "slug": "practice", "name": "models/practice"}
        self._send("application/json", json.dumps({"data": [model], "models": [], "object": "list"}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        path = self.path.partition("?")[0]
        if path.endswith("/messages"):
            self._stream(_anthropic(self._next_step(body)))
        elif path.endswith("/responses"):
            self._stream(_responses(self._next_step(body)))
        elif path.endswith("/chat/completions"):
            self._stream(_completions(self._next_step(body)))
        elif path.endswith("streamGenerateContent"):
            self._stream(_gemini(self._next_step(body)))
        elif path.endswith("generateContent"):
            self._send("application/json", json.dumps(next(_gemini(self._next_step(body)))[1]))
        else:
            self._send("application/json", json.dumps(_USAGE | {"totalTokens": 1}))

    def _next_step(self, body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return the tool's name and its arguments, or "" once the tool's result is there."""
        if result := _find_result(body.get("messages") or body.get("input") or body.get("contents") or []):
            self.server.results.append(result)
            return "", {}
        tools = _find_tools(body.get("tools") or [])
        if self.server.tool:
            name = next((name for name in tools if name.endswith(self.server.tool)), "")
            return name, {"path": self.server.command}
        name = next((shell for shell in _SHELLS if shell in tools), "")
        fields = tools.get(name, {})
        command: Any = self.server.command
        if fields.get("command", {}).get("type") == "array":
            command = ["sh", "-c", command]
        arguments = {"cmd" if "cmd" in fields else "command": command}
        arguments |= {key: "try it" for key in ("description",) if key in fields}
        return name, arguments | ({"is_background": False} if "is_background" in fields else {})

    def _stream(self, events: Iterator[tuple[str, Any]]) -> None:
        text = "".join(
            f"event: {name}\ndata: {json.dumps(data)}\n\n" if name else f"data: {json.dumps(data)}\n\n"
            for name, data in events
        )
        self._send("text/event-stream", text)

    def _send(self, kind: str, text: str) -> None:
        raw = text.encode()
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: Any) -> None:
        return


def _find_tools(tools: list[Any]) -> dict[str, dict[str, Any]]:
    """Return each tool's parameters by its name."""
    fields: dict[str, dict[str, Any]] = {}
    for tool in tools:
        for item in (tool, tool.get("function"), *(tool.get("functionDeclarations") or ())):
            if isinstance(item, dict) and "name" in item:
                keys = ("input_schema", "parameters", "parametersJsonSchema")
                schema = next((item[key] for key in keys if item.get(key)), {})
                fields[item["name"]] = schema.get("properties", {})
    return fields


def _find_result(messages: Any) -> str:
    """Return the first tool result of a conversation as text."""
    for message in messages if isinstance(messages, list) else []:
        if message.get("role") == "tool" or message.get("type") == "function_call_output":
            return json.dumps(message.get("content") or message.get("output") or "-")
        content = message.get("content")
        for part in [*(content if isinstance(content, list) else []), *(message.get("parts") or [])]:
            if isinstance(part, dict) and (part.get("type") == "tool_result" or "functionResponse" in part):
                return json.dumps(part)
    return ""


def _anthropic(step: tuple[str, dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    name, arguments = step
    head: dict[str, Any] = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "practice",
        "content": [],
    }
    yield "message_start", {"type": "message_start", "message": head | {"usage": _USAGE}}
    block: dict[str, Any] = {"type": "text", "text": ""}
    delta = {"type": "text_delta", "text": "done"}
    if name:
        block = {"type": "tool_use", "id": "toolu_1", "name": name, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
    yield "content_block_start", {"type": "content_block_start", "index": 0, "content_block": block}
    yield "content_block_delta", {"type": "content_block_delta", "index": 0, "delta": delta}
    yield "content_block_stop", {"type": "content_block_stop", "index": 0}
    reason = {"stop_reason": "tool_use" if name else "end_turn", "stop_sequence": None}
    yield "message_delta", {"type": "message_delta", "delta": reason, "usage": _USAGE}
    yield "message_stop", {"type": "message_stop"}


def _responses(step: tuple[str, dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    name, arguments = step
    item: dict[str, Any] = {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed"}
    item["content"] = [{"type": "output_text", "text": "done", "annotations": []}]
    if name:
        item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": name}
        item |= {"arguments": json.dumps(arguments), "status": "completed"}
    usage = _USAGE | {"total_tokens": 2, "input_tokens_details": None, "output_tokens_details": None}
    response: dict[str, Any] = {"id": "resp_1", "object": "response", "status": "in_progress", "output": []}
    yield "response.created", {"type": "response.created", "response": response}
    added = "response.output_item.added"
    yield added, {"type": added, "output_index": 0, "item": item}
    yield "response.output_item.done", {"type": "response.output_item.done", "output_index": 0, "item": item}
    response |= {"status": "completed", "output": [item], "usage": usage}
    yield "response.completed", {"type": "response.completed", "response": response}


def _completions(step: tuple[str, dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    name, arguments = step
    delta: dict[str, Any] = {"role": "assistant", "content": "done"}
    if name:
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"index": 0, "id": "call_1", "type": "function", "function": function}
        delta = {"role": "assistant", "content": None, "tool_calls": [call]}
    head: dict[str, Any] = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "practice"}
    yield "", head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    end: dict[str, Any] = {"index": 0, "delta": {}, "finish_reason": "tool_calls" if name else "stop"}
    yield "", head | {"choices": [end], "usage": usage}


def _gemini(step: tuple[str, dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    name, arguments = step
    part = {"functionCall": {"name": name, "args": arguments}} if name else {"text": "done"}
    content = {"role": "model", "parts": [part]}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    candidate = {"content": content, "finishReason": "STOP", "index": 0}
    yield "", {"candidates": [candidate], "usageMetadata": usage}
