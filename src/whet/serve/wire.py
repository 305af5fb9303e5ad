"""The HTTP parts that all calls of the API share: bounded bodies, JSON read into types, errors in the
vendors' formats, and event streams."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import aclosing, contextmanager
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from whet.contract.errors import ConfigError, NotFound, QueueFull, StoreBusy, StoreError, WhetError
from whet.contract.texts import encode_output, from_foreign_json
from whet.log import mask
from whet.web.bodies import BodyTooLarge, CallerGone, read_with_limit
from whet.web.connection import connection_of

T = TypeVar("T")
BODY_LIMIT_BYTES = 32 * 1024 * 1024
_TOO_LONG = "context_length_exceeded"
_DRAIN_LIMIT_BYTES = 64 * 1024 * 1024
encode: Callable[[Any], bytes] = msgspec.json.Encoder().encode


class ApiError(WhetError):
    """An error that ends a request. `param` and `code` are fields of OpenAI's error object.

    `again`: a client may repeat the same request automatically.
    """

    def __init__(
        self, status: int, message: str, *, code: str = "", param: str = "", again: bool = False
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.again = again


class ErrorObject(msgspec.Struct, frozen=True):
    """An error in OpenAI's format."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorAnswer(msgspec.Struct, frozen=True):
    """The body of every error."""

    error: ErrorObject


def error_object(error: ApiError) -> ErrorObject:
    """Return the error in OpenAI's format."""
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    kind = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}.get(
        error.status, kind
    )
    return ErrorObject(_error_text(error), kind, error.param or None, error.code or None)


def _error_text(error: ApiError) -> str:
    # Anthropic's clients, and LangChain for both vendors, recognise this error by its text, not by its code.
    return mask(f"prompt is too long: {error.message}" if error.code == _TOO_LONG else error.message)


_MESSAGES_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def messages_error(error: ApiError) -> dict[str, object]:
    """Return the error in Anthropic's format."""
    kind = _MESSAGES_KINDS.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    is_named = error.param and error.status == 400 and error.code != _TOO_LONG
    where = f"{error.param}: " if is_named else ""
    return {"type": "error", "error": {"type": kind, "message": f"{where}{_error_text(error)}"}}


class JsonAnswer(Response):
    """A JSON answer that must not be cached."""

    media_type = "application/json"

    def __init__(self, value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(encode_output(value), status, {"cache-control": "no-store", **(headers or {})})


def speaks_messages(scope: Scope) -> bool:
    """Return whether a request is in Anthropic's protocol, by its path or a header."""
    names = {name for name, _ in scope["headers"]}
    return scope["path"].startswith("/v1/messages") or b"anthropic-version" in names


def refusal(error: ApiError, *, to_messages: bool = False) -> Response:
    """Return the response for an error, in the format of its client."""
    # The official SDKs repeat 409, 429 and 5xx automatically, but a turn that has run must not run twice.
    headers = {"x-should-retry": "true" if error.again else "false"}
    if error.status == 401:
        headers["www-authenticate"] = 'Bearer realm="whet"'
    if error.status == 413:
        headers["connection"] = "close"
    if error.again:
        headers["retry-after"] = "1"
    body = messages_error(error) if to_messages else ErrorAnswer(error_object(error))
    return JsonAnswer(body, error.status, headers)


def as_api_error(error: WhetError) -> ApiError:
    """Convert one of our errors into an API error."""
    if isinstance(error, ApiError):
        return error
    text = f"{error.message} ({error.hint})" if error.hint else error.message
    if isinstance(error, NotFound):
        return ApiError(404, text, code="not_found")
    if isinstance(error, QueueFull):
        return ApiError(429, text, code="queue_full", again=True)
    if isinstance(error, StoreBusy):
        return ApiError(409, text, code="session_busy", again=True)
    if isinstance(error, StoreError):
        return ApiError(503, text, code="store_failed", again=True)
    if isinstance(error, ConfigError):
        return ApiError(400, text, code="invalid_value")
    return ApiError(409, text, code="conflict")


async def read_body(request: Request) -> bytes:
    """Return the whole body. Raises ApiError (413) if it is too large."""
    try:
        return await read_with_limit(request.scope, request.receive, BODY_LIMIT_BYTES, _DRAIN_LIMIT_BYTES)
    except BodyTooLarge as error:
        raise _too_large(BODY_LIMIT_BYTES) from error
    except CallerGone as error:
        raise ApiError(400, "the client hung up") from error


def _too_large(limit_bytes: int) -> ApiError:
    return ApiError(413, f"the body is larger than {limit_bytes >> 20} MiB", code="body_too_large")


async def read_json(request: Request, shape: type[T]) -> T:
    """Read a JSON body into a type. Raises ApiError (400, 413, 415) that names the field."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in ("application/json", ""):
        raise ApiError(415, f"the body must be application/json, not {kind[:60]}")
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("", "identity"):
        raise ApiError(415, f"the body must not be compressed, and is {coding[:60]}")
    body = await read_body(request)
    value = decode(body, shape)
    if request.url.path.startswith("/api/"):  # Whet's own calls, which may decide something
        try:
            json.loads(body, object_pairs_hook=_check_members)
        except (ValueError, RecursionError) as error:
            raise ApiError(400, str(error), code="invalid_json") from error
    return value


def _check_members(pairs: list[tuple[str, object]]) -> None:
    """Raise ValueError if a key is repeated, because two programs may read different values."""
    if len({name for name, _ in pairs}) != len(pairs):
        raise ValueError("a key stands twice in one object")


def decode(body: bytes, shape: type[T]) -> T:
    """Read JSON into a type. Raises ApiError (400) that names the field."""
    try:
        return from_foreign_json(body, shape)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$.")
        raise ApiError(400, message, param=where.rstrip("`"), code="invalid_type") from error
    except RecursionError as error:
        raise ApiError(400, "the JSON is nested too deeply", code="invalid_json") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ApiError(400, f"the body is not JSON: {error}", code="invalid_json") from error


@contextmanager
def watch_client(scope: Scope, on_disconnect: Callable[[], object]) -> Generator[None]:
    """Call `on_disconnect` if the client disconnects inside the block, or at once if it already has."""
    connection = connection_of(scope)
    connection.listen(on_disconnect)
    try:
        if connection.is_cut:
            on_disconnect()
        yield
    finally:
        connection.stop_listening(on_disconnect)


class Ticker:
    """Reports whether `every_s` seconds have passed since the last time."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s * 0.99  # a timer may fire a clock tick early
        self.restart()

    def restart(self) -> None:
        """Count from now."""
        self._since_s = asyncio.get_running_loop().time()

    def is_due(self) -> bool:
        """Return whether it is due now. If so, start counting again."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._since_s < self._every_s:
            return False
        self._since_s = now_s
        return True


STREAM_HEADERS = {"content-type": "text/event-stream", "cache-control": "no-store", "x-accel-buffering": "no"}


class Stream(Response):
    """A response of server-sent events. `source` is called with a future that completes when the client
    disconnects; then it must end.

    The status and headers are sent with the first piece. Until then `headers` may be extended, and a source
    that fails is answered with an error status.
    """

    def __init__(self, source: Callable[[asyncio.Future[None]], AsyncGenerator[bytes]]) -> None:
        super().__init__(headers=STREAM_HEADERS)
        del self.headers["content-length"]
        self._source = source

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream. Flow control makes a slow reader slow the source. HEAD gets only the headers."""
        if scope["method"] == "HEAD":
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        is_begun = False
        try:
            with watch_client(scope, lambda: gone.done() or gone.set_result(None)):
                async with aclosing(self._source(gone)) as pieces:
                    async for piece in pieces:
                        if not is_begun:
                            is_begun = True
                            head = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
                            await send(head)
                        await send({"type": "http.response.body", "body": piece, "more_body": True})
        except WhetError as error:
            if is_begun:
                raise  # a source that has begun sends its errors in the stream
            await refusal(as_api_error(error), to_messages=speaks_messages(scope))(scope, receive, send)
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})
