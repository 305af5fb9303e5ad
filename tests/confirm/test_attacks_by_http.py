"""Ways round by names of hosts, frames of requests and addresses, each as it was tried."""

from __future__ import annotations

import http.server
import threading
from contextlib import aclosing
from typing import Any, ClassVar

import pytest

from tests.confirm.running import Running, answered
from tests.confirm.test_attacks import ask
from whet.http1.client import HttpClient, Limits
from whet_confirm.callbacks import Callbacks

pytestmark = pytest.mark.service(upkeep=False)

HOSTS = ["[::1].evil.example", "localhost.evil.example", "127.0.0.1:80:evil", "localhost@evil.example",
         "[::1", "::1", "127.0.0.1.", "0x7f.1", "2130706433", "127.1", "localhost:999999",
         "[::ffff:7f00:1]", "evil.example"]  # fmt: skip


def test_a_host_that_only_looks_like_ours_is_refused(server):
    for host in HOSTS:
        raw = server.raw(f"GET /health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        assert answered(raw)[0] in (400, 403), host


FRAMES = [
    "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "Content-Length: +4\r\n\r\nabcd",
    "Content-Length: 4, 4\r\n\r\nabcd",
    "Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcd",
    "Content-Length: -1\r\n\r\nabcd",
    "Content-Length: 0x4\r\n\r\nabcd",
    "Content-Length: 1_0\r\n\r\nabcd",
    "Content-Length: 99999999999999999999999\r\n\r\nabcd",
    "Transfer-Encoding: chunked\r\n\r\n-1\r\nabcd\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked\r\n\r\n0x4\r\nabcd\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffffff\r\nabcd\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked\r\n\r\n4\nabcd\n0\n\n",
    "X: a\r\n b: c\r\nContent-Length: 4\r\n\r\nabcd",
    "Transfer-Encoding: chunked\r\n\r\n4;a=b\r\nabcdX\r\n0\r\n\r\n",
]


def test_no_request_hides_behind_another(server):
    host = f"Host: 127.0.0.1:{server.port}\r\n"
    for frame in FRAMES:
        hidden = f"GET /health HTTP/1.1\r\n{host}\r\n"
        raw = server.raw(f"POST /confirm HTTP/1.1\r\n{host}{frame}{hidden}".encode())
        assert raw.count(b"HTTP/1.1 ") == 1 and answered(raw)[0] in (400, 401, 413), frame


class Elsewhere(http.server.BaseHTTPRequestHandler):
    """Sends whoever comes on to another place of this machine."""

    asked: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.asked.append(self.path)
        self.send_response(307)
        self.send_header("location", "/inside")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.mark.slow
def test_a_webhook_goes_nowhere_else_because_its_receiver_says_so(tmp_path):
    receiver = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
    receiver.daemon_threads = True
    threading.Thread(target=receiver.serve_forever, args=(0.02,), daemon=True).start()
    with Running(tmp_path, private_callbacks=True, upkeep=False) as server:
        request = ask(server, callback_url=f"http://127.0.0.1:{receiver.server_port}/first")
        server.client("approve", "alice").post(f"/confirm/{request['id']}/deny")
        callbacks = Callbacks(server.service, "whsec_AAAA", allow_private=True)
        due: list[Any] = []
        callbacks.start_due(due.append)
        (item,) = due

        async def send() -> tuple[str, bool]:
            async with aclosing(HttpClient(Limits(20.0, silence_s=20.0), uses_proxy=False)) as client:
                return await callbacks.post(client, item)

        assert server.run(send()) == ("answered 307", False)
    receiver.shutdown()
    receiver.server_close()
    assert Elsewhere.asked == ["/first"]
