"""A bare HTTP server on loopback that keeps the first request and answers each with one short stream.

It stands between nothing and nothing: what Whet sends is what is measured. The CPU that the client has used
when its request is complete is read from /proc, so that the answer's handling does not count.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from dataclasses import dataclass, field

_TICKS = os.sysconf("SC_CLK_TCK")
_CHUNKS = (
    {"id": "r", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [
        {"index": 0, "delta": {"role": "assistant", "content": "hello"}, "finish_reason": None}]},
    {"id": "r", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [
        {"index": 0, "delta": {}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}},
)  # fmt: skip


@dataclass
class Recorder:
    """Start with `with Recorder() as r`; `r.first` is the first body, `r.cpu_s` the client's CPU by then."""

    client_pid: int = 0
    first: bytes = b""
    cpu_s: float = 0.0
    _server: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.getsockname()[1]}/v1"

    def __enter__(self) -> Recorder:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            with connection:
                body = _read_request(connection)
                if not self.first:
                    self.first = body
                    self.cpu_s = cpu_of(self.client_pid) if self.client_pid else 0.0
                stream = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in _CHUNKS) + "data: [DONE]\n\n"
                head = (
                    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n"
                    f"content-length: {len(stream)}\r\n\r\n"
                )
                connection.sendall((head + stream).encode())


def _read_request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return b""
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    while len(body) < length:
        body += connection.recv(65536)
    return body


def resident_mb(pid: int) -> float:
    """Megabytes that a running process has in memory now."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return int(file.read().partition("VmRSS:")[2].split()[0]) / 1000


def cpu_of(pid: int) -> float:
    """CPU seconds that a running process has used so far."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
