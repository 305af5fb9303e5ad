"""Fetch one URL of the public web, and nothing from this machine or its network.

Every address is checked before it is connected to, the connection goes to exactly the checked address, and
each redirect is checked again. So neither a name with a private address nor one whose address changes gets
through. With a proxy in the environment, the proxy connects, and only the address that this machine
resolves can be checked. Time, size and decompression are bounded. Pages are interpreted elsewhere.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import zlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing

import httpx2

from whet.config.secrets import find_proxy
from whet.contract.errors import BadInput, ToolDenied, ToolError, ToolTimeout
from whet.internet import canonical_host, is_public
from whet.tools.addresses import private_address_error
from whet.tools.page_source import FetchedPage, RefuseRedirect, WebLimits

MAX_BODY_BYTES = 5_000_000
MAX_REDIRECTS = 5
_HEADERS = {
    "Accept": "text/html,application/xhtml+xml,text/plain,application/json;q=0.9,*/*;q=0.5",
    "Accept-Encoding": "gzip, deflate",
}

Resolve = Callable[[str], Awaitable[Sequence[str]]]
IsOpen = Callable[[str], bool]


class Fetcher:
    """Fetches one URL per call. Keeps no connection, cookie or state except the trust store."""

    def __init__(
        self,
        limits: WebLimits,
        *,
        resolve: Resolve | None = None,
        trust: ssl.SSLContext | None = None,
        is_open: IsOpen | None = None,
    ) -> None:
        """Create a fetcher.

        `is_open` decides which addresses may be connected to; None follows the limits. `trust` None loads
        the system's certificates at the first fetch (75 CPU ms once); pass an existing context to avoid
        that.
        """
        self._limits = limits
        self._resolve = resolve or resolve_name
        self._trust = trust
        self._is_open = is_open or (_any_address if limits.allow_private else is_public)

    async def fetch(self, url: str, refuse: RefuseRedirect | None = None) -> FetchedPage:
        """Get `url`, following redirects that `refuse` allows. Raises BadInput, ToolDenied (address),
        ToolTimeout, ToolError."""
        target = _parse_url(url)
        host = target.host
        silence_s = min(10.0, self._limits.timeout_s * 0.8)
        if self._trust is None:
            self._trust = httpx2.create_ssl_context()
        guard = GuardedTransport(self._trust, self._resolve, self._is_open)
        headers = {"User-Agent": f"Mozilla/5.0 (compatible; {self._limits.client})", **_HEADERS}
        try:
            async with (
                asyncio.timeout(self._limits.timeout_s),
                httpx2.AsyncClient(transport=guard, headers=headers, timeout=silence_s) as client,
            ):
                return await follow_redirects(client, target, refuse)
        except (httpx2.TimeoutException, TimeoutError) as error:
            raise ToolTimeout(f"{host} did not answer in time", hint="try again later") from error
        except httpx2.UnsupportedProtocol as error:
            raise ToolDenied(f"only http and https are fetched: {error}") from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise ToolError(_failure(host, error)) from error


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Sends a request only to a checked address, or through the environment's proxy."""

    def __init__(self, trust: ssl.SSLContext, resolve: Resolve, is_open: IsOpen) -> None:
        self._trust = trust
        self._resolve = resolve
        self._is_open = is_open
        # A kept connection could serve another name at the same address.
        self._limits = httpx2.Limits(max_keepalive_connections=0)
        self._direct = httpx2.AsyncHTTPTransport(verify=trust, limits=self._limits)
        self._proxied: dict[str, httpx2.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Check the request's host, then send it. Raises ToolDenied and httpx2's errors."""
        url = request.url
        if url.scheme not in ("http", "https"):
            raise ToolDenied(f"only http and https are fetched, not {url.scheme}")
        host = url.raw_host.decode("ascii").rstrip(".")
        proxy = find_proxy(url.scheme, host)
        addresses = await self._addresses(host, is_proxied=bool(proxy))
        if private := [address for address in addresses if not self._is_open(address)]:
            raise private_address_error(host, private[0])
        if proxy:
            return await self._proxy_transport(proxy).handle_async_request(request)
        return await self._send(request, host, addresses)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._direct.aclose()
        for transport in self._proxied.values():
            await transport.aclose()

    async def _addresses(self, host: str, *, is_proxied: bool) -> Sequence[str]:
        try:
            addresses = await self._resolve(host)
        except (OSError, UnicodeError) as error:
            if is_proxied:
                return ()  # only the proxy knows this name
            raise ToolError(f"the host name {host} can't be resolved", hint="check the address") from error
        if not addresses and not is_proxied:
            raise ToolError(f"the host name {host} has no address")
        return addresses

    async def _send(self, request: httpx2.Request, host: str, addresses: Sequence[str]) -> httpx2.Response:
        failure: Exception | None = None
        for address in addresses:
            pinned = httpx2.Request(
                request.method,
                request.url.copy_with(host=address),
                headers=request.headers,
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": host},
            )
            try:
                return await self._direct.handle_async_request(pinned)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failure = error
        raise failure or httpx2.ConnectError(f"{host} has no address")

    def _proxy_transport(self, proxy: str) -> httpx2.AsyncHTTPTransport:
        if proxy not in self._proxied:
            try:
                self._proxied[proxy] = httpx2.AsyncHTTPTransport(
                    verify=self._trust, limits=self._limits, proxy=proxy
                )
            except (ImportError, ValueError, httpx2.InvalidURL) as error:
                raise ToolError("the proxy in the environment can't be used", hint=str(error)) from error
        return self._proxied[proxy]


async def resolve_name(host: str) -> list[str]:
    """Return the addresses of a host as the system resolves it, including spellings such as 0x7f.1."""
    rows = await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(row[4][0]) for row in rows))


class Inflater:
    """Decodes a body's content encoding piece by piece, never returning more than requested."""

    def __init__(self, encoding: str) -> None:
        name = encoding.strip().lower()
        if name not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise ToolError(f"the server sent the content encoding {name!r}, which is not supported")
        self._is_deflate = name == "deflate"
        self._zlib = None if name in ("", "identity") else zlib.decompressobj(47)

    def feed(self, data: bytes, room: int) -> bytes:
        """Decode `data` and return at most `room` bytes. Raises ToolError if it is not in the declared
        encoding."""
        if self._zlib is None:
            return data[:room]
        try:
            return self._zlib.decompress(data, room)
        except zlib.error as error:
            if not self._is_deflate:
                raise ToolError(f"the page's compression is broken: {error}") from error
        # Some servers send deflate without the zlib header.
        self._is_deflate, self._zlib = False, zlib.decompressobj(-15)
        return self.feed(data, room)


def _any_address(_address: str) -> bool:
    return True


def _parse_url(url: str) -> httpx2.URL:
    text = url.strip()
    if ":" not in text.split("/", 1)[0]:
        text = "https://" + text
    try:
        target = httpx2.URL(text)
    except httpx2.InvalidURL as error:
        raise BadInput(f"{url[:200]!r} is not a URL: {error}") from error
    if target.scheme not in ("http", "https") or not target.host:
        raise BadInput(f"only http and https URLs are fetched, not {url[:200]!r}")
    if target.userinfo:
        raise BadInput("a URL with a user name or password in it is not fetched")
    return target


async def follow_redirects(
    client: httpx2.AsyncClient, url: httpx2.URL, refuse: RefuseRedirect | None
) -> FetchedPage:
    """Return the page at `url`, following redirects that `refuse` allows. Raises ToolDenied, ToolError and
    httpx2's errors."""
    request = client.build_request("GET", url)
    for _ in range(MAX_REDIRECTS + 1):
        async with aclosing(await client.send(request, stream=True, follow_redirects=False)) as response:
            if response.next_request is None:
                return await _read_body(response)
        is_same_host = _is_same_server(request.url, response.next_request.url)
        request = response.next_request
        if refuse is not None and (why := await refuse(str(request.url), is_same_host)):
            raise ToolDenied(f"{url.host} redirects to {request.url}, which was not fetched: {why}")
    raise ToolError(f"{url.host} redirected more than {MAX_REDIRECTS} times")


def _is_same_server(url: httpx2.URL, target: httpx2.URL) -> bool:
    """Return whether a redirect stays at the server that was allowed: another port of a host is another one,
    but for the step from http to https, each at its default port."""
    if canonical_host(url.host) != canonical_host(target.host):
        return False
    if (url.scheme, target.scheme) == ("http", "https"):
        return url.port is target.port is None
    return (url.scheme, url.port) == (target.scheme, target.port)


async def _read_body(response: httpx2.Response) -> FetchedPage:
    inflater = Inflater(response.headers.get("content-encoding", ""))
    body = bytearray()
    received = 0
    is_cut = False
    async for chunk in response.aiter_raw():
        received += len(chunk)
        body += inflater.feed(chunk, MAX_BODY_BYTES + 1 - len(body))
        if len(body) > MAX_BODY_BYTES or received > MAX_BODY_BYTES:
            is_cut = True
            break
    return FetchedPage(
        url=str(response.url),
        status=response.status_code,
        content_type=response.headers.get("content-type", ""),
        body=bytes(body[:MAX_BODY_BYTES]),
        is_cut=is_cut,
    )


def _failure(host: str, error: Exception) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"the TLS certificate of {host} is not valid: {cause.verify_message}"
        if isinstance(cause, ssl.SSLError):
            return f"no secure connection to {host}: {cause.reason or cause}"
        cause = cause.__cause__ or cause.__context__
    return f"{host} could not be read: {error or type(error).__name__}"
