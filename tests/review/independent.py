"""A Chat Completions server that shares nothing with the practice model: standard library, its own rules.

It answers what a conversation, or a review of one, would ask of any vendor's model, and keeps every request.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

FACT = "builds of this project go through ./ship --dry first."
QUOTE = "builds of this project go through ./ship --dry first"


class Vendor(ThreadingHTTPServer):
    """A model server on loopback; `seen` has each request's headers and body, `latency_s` delays answers, and
    `mind` gives the assistant message for a request."""

    daemon_threads = True

    def __init__(
        self, latency_s: float = 0.0, mind: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seen: list[tuple[dict[str, str], bytes]] = []
        self.latency_s = latency_s
        self.mind = mind or answer
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/api"

    def stop(self) -> None:
        self.shutdown()
        self.server_close()


def answer(body: dict[str, Any]) -> dict[str, Any]:
    """Give the assistant message for a request, by what stands in it."""
    rows = [row for row in body["messages"] if row["role"] == "user"]
    last = body["messages"][-1]
    if not rows[-1]["content"].startswith("Self-improvement review"):
        return {"content": "Noted." if len(rows) > 1 else "I ran make."}
    if last["role"] == "tool":
        return {"content": "One fact saved."}
    arguments = {"action": "add", "content": FACT, "evidence": [QUOTE]}
    call = {"name": "memory", "arguments": json.dumps(arguments)}
    return {"tool_calls": [{"index": 0, "id": "abc123", "type": "function", "function": call}]}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, Vendor)
        body = self.rfile.read(int(self.headers["content-length"]))
        server.seen.append(({k.lower(): v for k, v in self.headers.items()}, body))
        if server.latency_s:
            threading.Event().wait(server.latency_s)
        delta = {"role": "assistant", **server.mind(json.loads(body))}
        stop = "tool_calls" if "tool_calls" in delta else "stop"
        tokens = len(body) // 4
        usage: dict[str, Any] = {"prompt_tokens": tokens, "completion_tokens": 5, "total_tokens": tokens + 5}
        usage["prompt_tokens_details"] = {"cached_tokens": tokens // 2}
        rows = [
            {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": stop}]},
            {"choices": [], "usage": usage},
        ]
        out = b"".join(b"data: " + json.dumps(row).encode() + b"\n\n" for row in rows) + b"data: [DONE]\n\n"
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(out)))
        self.end_headers()
        self.wfile.write(out)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""
