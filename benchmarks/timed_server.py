"""A model server on a thread of the benchmark, which notes when it sent each piece and when requests came.

Each answer is a list of pieces, or a tool call. It speaks Chat Completions, streamed.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.loops.paced_shapes import chat_chunk, chat_end

_GET = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
_MODELS = json.dumps({"object": "list", "data": [{"id": "timed", "object": "model"}]}).encode()
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


@dataclass
class Reply:
    """An answer: pieces of text `gap_s` apart, the first after `wait_s`, and then the call of a tool."""

    pieces: Sequence[str] = ()
    gap_s: float = 0.0
    wait_s: float = 0.0
    tool: str = ""
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])


class TimedServer:
    """Sends its replies in turn, then short texts; a review gets a short text at any time. `came_s` and
    `ended_s` are the times of requests and of the ends of answers, without reviews."""

    def __init__(self, replies: Sequence[Reply]) -> None:
        self._replies = list(replies)
        self.came_s: list[float] = []
        self.ended_s: list[float] = []
        self.sent_s: dict[str, float] = {}
        """When each piece was sent, by its text."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.base_url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> TimedServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        stream = connection.makefile("rb")
        while line := stream.readline():
            size = 0
            while (header := stream.readline()) not in (b"\r\n", b""):
                name, _, value = header.partition(b":")
                size = int(value) if name.lower() == b"content-length" else size
            if line.startswith(b"GET"):
                connection.sendall(_GET % len(_MODELS) + _MODELS)
                continue
            if _is_review(stream.read(size)):
                self._answer(connection, Reply(["done"]))
                continue
            self.came_s.append(time.perf_counter())
            self._answer(connection, self._replies.pop(0) if self._replies else Reply(["done"]))
            self.ended_s.append(time.perf_counter())

    def _answer(self, connection: socket.socket, reply: Reply) -> None:
        connection.sendall(_HEAD + _chunk(chat_chunk({"role": "assistant", "content": ""})))
        due_s = time.perf_counter() + reply.wait_s
        for piece in reply.pieces:
            time.sleep(max(0.0, due_s - time.perf_counter()))
            self.sent_s[piece] = time.perf_counter()
            connection.sendall(_chunk(chat_chunk({"content": piece})))
            due_s += reply.gap_s
        call = (f"c{len(self.came_s)}", reply.tool, json.dumps(reply.arguments)) if reply.tool else None
        connection.sendall(b"".join(map(_chunk, chat_end(call))) + b"0\r\n\r\n")


def _chunk(event: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(event), event)


def _is_review(body: bytes) -> bool:
    """Return whether a request is a review's, which a chat makes beside its turns."""
    texts = [message["content"] for message in json.loads(body)["messages"] if message["role"] == "user"]
    return str(texts[-1]).startswith("Self-improvement review")
