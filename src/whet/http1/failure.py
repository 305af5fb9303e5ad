"""Failures between a request and its complete answer, by stage."""

from __future__ import annotations

from typing import Literal

Stage = Literal["request", "wait", "connect", "proxy", "write", "read", "answer", "body"]
"""The stage that failed.

- `request`: the request can't be sent as given
- `wait`: no connection was free in time
- `connect`: the name, the address or TLS
- `proxy`: the proxy refused
- `write`, `read`: the connection broke or was silent
- `answer`: the answer is not HTTP
- `body`: the body's compression is broken
"""


class HttpFailed(Exception):
    """A failed exchange. The text is one line without address, header or body. The cause is chained."""

    def __init__(self, stage: Stage, text: str, *, is_timeout: bool = False) -> None:
        super().__init__(text)
        self.stage: Stage = stage
        self.is_timeout = is_timeout

    @property
    def is_unsent(self) -> bool:
        """Whether the server can't have received any of the request."""
        return self.stage in ("request", "wait", "connect", "proxy")
