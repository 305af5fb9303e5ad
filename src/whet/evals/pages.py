"""A small web server on loopback with fixed texts, for sessions that read a page."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self


class Pages:
    """Serves `texts` by path (with the slash) on a port of its own. A context manager."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        class Page(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = texts.get(self.path, "").encode()
                self.send_response(200 if body else 404)
                self.send_header("Content-Type", "text/plain; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.01,), name="pages", daemon=True
        )

    def address(self, path: str) -> str:
        """Give the address of a page."""
        return f"http://127.0.0.1:{self._server.server_port}{path}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
