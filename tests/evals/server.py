"""An independent scripted model server: Chat Completions over plain HTTP, nothing of the practice model's.

It works like a forgetful clerk: without the code in its prompt it looks it up and writes nothing of use, with
it it writes it at once; asked for a review it saves what the look-up showed.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from tests.support import ended

FACT = "code_of_the_day: BLUE-42"


def decide(body: dict[str, Any]) -> dict[str, Any]:
    """Give the assistant message for a request."""
    messages = body["messages"]
    system = str(messages[0]["content"])
    last = next(at for at in range(len(messages) - 1, -1, -1) if messages[at]["role"] == "user")
    asked, since = _text(messages[last]), messages[last + 1 :]
    if asked.startswith("Self-improvement review"):
        if since or "memory" not in _tools(body) or FACT in system:
            return {"content": "Nothing more."}
        return _call("memory", action="add", target="memory", content=FACT, evidence=[FACT])
    if FACT in system:
        return {"content": "Done."} if since else _call("terminal", command="echo BLUE-42 > answer.txt")
    steps = ("cat nowhere.txt", "cat hint.txt", "echo none > answer.txt")
    done = sum(message["role"] == "tool" for message in since)
    return _call("terminal", command=steps[done]) if done < len(steps) else {"content": "I gave up."}


def _text(message: dict[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def _tools(body: dict[str, Any]) -> set[str]:
    return {tool["function"]["name"] for tool in body.get("tools", ())}


def _call(name: str, **arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"index": 0, "id": f"c{name}", "type": "function", "function": function}
    return {"content": None, "tool_calls": [call]}


class Clerk:
    """The running server; `bodies` are the requests that it got. A context manager. `answer` gives the
    assistant message for a request."""

    def __init__(self, answer: Callable[[dict[str, Any]], dict[str, Any]] = decide) -> None:
        self.bodies: list[dict[str, Any]] = []
        clerk = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                clerk.bodies.append(body)
                delta = answer(body)
                reason = "tool_calls" if delta.get("tool_calls") else "stop"
                usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
                frames = [
                    {
                        "choices": [
                            {"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": None}
                        ]
                    },
                    {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
                    {"choices": [], "usage": usage},
                ]
                head = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": body["model"]}
                lines = [f"data: {json.dumps({**head, **frame})}\n\n" for frame in frames]
                data = "".join([*lines, "data: [DONE]\n\n"]).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self) -> None:
                self.send_error(404)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        ended(self._thread, "the clerk's end")
