"""JSON calls to a vendor's API: one client per channel, short limits, failures as SendFailed.

Tokens are part of addresses and headers; no error text here quotes either.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import urlsplit

import httpx2
import msgspec

from whet.config.key_hosts import is_theirs
from whet.contract.channels import SendFailed
from whet.log import mask

T = TypeVar("T")
CALL_TIMEOUT_S = 15.0
_MOST_BYTES = 1_000_000
# Node's and uvicorn's servers close a connection after 5 idle seconds: of a message on its way in that moment
# nobody could say whether it has arrived.
LONGEST_IDLE_S = 3.0
_NOTHING_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.InvalidURL)


class VendorAnswer(msgspec.Struct, frozen=True):
    """What the vendor said: its status, its body, and Retry-After."""

    status: int
    body: bytes
    retry_after_s: float | None

    def read(self, shape: type[T]) -> T | None:
        """Read the body as this shape; None where it is not."""
        return read(self.body, shape)


class VendorHttp:
    """The way to one vendor."""

    def __init__(self, vendor: str, base_url: str, headers: Mapping[str, str] | None = None) -> None:
        self._vendor = vendor
        self._base_url = base_url.rstrip("/")
        self._host = urlsplit(base_url).hostname or base_url
        self._headers = {"user-agent": "whet", **(headers or {})}
        self._client: httpx2.AsyncClient | None = None

    async def call(
        self, method: str, path: str, body: object | None = None, *, timeout_s: float = CALL_TIMEOUT_S
    ) -> VendorAnswer:
        """Make one call and give the answer, whatever its status. Raises SendFailed where there was none."""
        content = None if body is None else msgspec.json.encode(body)
        headers = {"content-type": "application/json; charset=utf-8"} if content else {}
        return await self.raw(method, path, content, headers, timeout_s)

    async def raw(
        self, method: str, path: str, content: bytes | None, headers: Mapping[str, str], timeout_s: float
    ) -> VendorAnswer:
        """Make one call with this body. Raises SendFailed where there was no answer."""
        try:
            response = await self.client.request(
                method,
                self._base_url + path,
                content=content,
                headers=headers,
                timeout=httpx2.Timeout(timeout_s, connect=min(timeout_s, 10.0)),
            )
        except httpx2.TimeoutException as error:
            raise SendFailed(
                f"{self._vendor}: {self._host} did not answer in time",
                maybe_sent=not isinstance(error, _NOTHING_SENT),
            ) from error
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise SendFailed(
                f"{self._vendor}: can't reach {self._host} ({type(error).__name__})",
                maybe_sent=not isinstance(error, _NOTHING_SENT),
            ) from error
        return VendorAnswer(
            response.status_code,
            response.content[:_MOST_BYTES],
            _seconds(response.headers.get("retry-after")),
        )

    @property
    def client(self) -> httpx2.AsyncClient:
        """The connections, made at the first use."""
        if self._client is None:
            self._client = httpx2.AsyncClient(
                headers=self._headers,
                follow_redirects=False,
                event_hooks={"request": [self._keep_token]},
                limits=httpx2.Limits(
                    max_connections=100, max_keepalive_connections=20, keepalive_expiry=LONGEST_IDLE_S
                ),
            )
        return self._client

    async def _keep_token(self, request: httpx2.Request) -> None:
        """Take the token off a request to somebody else: others give the addresses of files and sockets."""
        if not is_theirs(str(request.url), self._base_url):
            request.headers.pop("authorization", None)

    async def aclose(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None


def refused(vendor: str, answer: VendorAnswer, reason: str, retry_after_s: float | None = None) -> SendFailed:
    """Say why the vendor did not take it. Final but for 429, 408 and its own trouble. A server that stumbled,
    or something before it, may have done it first; only 503 says that it has not begun."""
    status = answer.status
    is_final = 400 <= status < 500 and status not in (408, 429)
    after_s = retry_after_s if retry_after_s is not None else answer.retry_after_s
    text = mask(str(reason))[:200] or "no reason given"
    return SendFailed(
        f"{vendor} answered {status}: {text}",
        is_final=is_final,
        retry_after_s=after_s,
        maybe_sent=status < 300 or (status >= 500 and status != 503),
        is_barred=status == 401,
        status=status,
    )


def read(body: bytes | str, shape: type[T]) -> T | None:
    """Read JSON as a shape whose unknown fields don't matter; None where it does not fit."""
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _seconds(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if 0 <= number < 1e6 else None
