"""The arguments, results and errors of a client of the confirmation service."""

from __future__ import annotations

from typing import Any, TypedDict

import msgspec

from whet.contract.errors import WhetError
from whet.contract.texts import split_http_url


class DecisionFields(TypedDict, total=False):
    """The optional fields of a decision.

    `digest` is the viewed request's, `code` the second factor's. `grant` is the kind of grant that lets
    similar requests pass for a while.
    """

    reason: str
    digest: str
    code: str
    grant: str


class ConfirmationRefused(WhetError):
    """Raised if the action may not run. `status` is denied, expired, cancelled, unavailable or refused."""

    def __init__(self, message: str, *, status: str, request_id: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.request_id = request_id


class Failed(WhetError):
    """Raised if the service answers with an error; holds its HTTP status and body."""

    def __init__(
        self, message: str, *, status: int, body: dict[str, Any], retry_after_s: float = 0.0
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = body
        self.retry_after_s = retry_after_s


class Unreachable(WhetError):
    """Raised if the service can't be reached or does not answer."""


def find_problem(url: str, token: str) -> Unreachable | None:
    """Return why no service can be called at `url` with `token`, or None."""
    if not url.startswith("unix:") and split_http_url(url) is None:
        return Unreachable(f"{url} is not an address", hint="for example http://127.0.0.1:6000")
    if not (token.isascii() and token.isprintable()):
        return Unreachable("the token holds a character that can't be sent", hint="copy the token again")
    return None


class ConfirmOptions(msgspec.Struct, frozen=True):
    """Options of a request. With an `idempotency_key`, asking again after a crash finds the same request.

    `is_attended` means that only the caller would run the action. If it dies, the service cancels the
    request.
    """

    requester: str = "agent"
    session_key: str = ""
    timeout_s: int = 300
    idempotency_key: str = ""
    callback_url: str = ""
    is_attended: bool = False


class Ticket(msgspec.Struct, frozen=True):
    """A request that was submitted, approved, or (with a grant) consumed."""

    id: str
    status: str
    digest: str
    grant: str = ""
    resolved_by: str = ""
    page_url: str = ""
