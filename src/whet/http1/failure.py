"""What goes wrong between a request and its whole answer, by the stage at which it did."""

from __future__ import annotations

from typing import Literal

Stage = Literal["request", "wait", "connect", "proxy", "write", "read", "answer", "body"]
"""`request`: it can't be sent as it is; `wait`: for a free connection; `connect`: the name, the address, TLS;
`proxy`: it refused; `write`, `read`: the connection broke or was silent; `answer`: it is no HTTP; `body`: its
compression is broken."""


class HttpFailed(Exception):
    """An exchange failed; the text is one line without address, header or body. The cause is chained."""

    def __init__(self, stage: Stage, text: str, *, is_timeout: bool = False) -> None:
        super().__init__(text)
        self.stage: Stage = stage
        self.is_timeout = is_timeout

    @property
    def is_unsent(self) -> bool:
        """Whether nothing of the request can have reached the server."""
        return self.stage in ("request", "wait", "connect", "proxy")
