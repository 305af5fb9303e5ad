"""A hostile identity provider: its answers and addresses sign nobody in and reach nothing inside."""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from tests.confirm.provider import CLIENT
from whet_confirm.oidc import OidcProvider, OidcSettings, SignInRefused, is_allowed_address

PUBLIC = "https://login.example.com"
INNER_ADDRESSES = [
    "http://login.example.com/token", "http://127.0.0.1:8080/token", "http://localhost/token",
    "https://localhost/token", "https://127.0.0.1/token", "https://[::1]/token",
    "https://[::ffff:127.0.0.1]/token", "https://169.254.169.254/latest/meta-data/",
    "https://[fd00:ec2::254]/", "https://100.100.100.200/", "https://10.0.0.5/token",
    "https://192.168.1.1/token", "https://2130706433/token", "https://0x7f.1/token", "https://127.1/token",
    "https://0/token", "https://127.0.0.1./token", "file:///etc/passwd", "ftp://login.example.com/token",
    "javascript:alert(1)", "https://me:secret@login.example.com/token", "https://[bad/token",
    "https:///token", "",
]  # fmt: skip
_DEEP = b"[" * 100_000
BODIES: dict[str, Callable[[str], tuple[bytes, dict[str, str]]]] = {
    "an answer without end": lambda _: (b'{"issuer": "' + b"x" * 60_000_000 + b'"}', {}),
    "a packed answer of 60 MB": lambda _: (gzip.compress(bytes(60_000_000)), {"content-encoding": "gzip"}),
    "a list": lambda _: (b"[]", {}),
    "nothing": lambda _: (b"", {}),
    "a page": lambda _: (b"<html>", {}),
    "nested without end": lambda _: (_DEEP, {}),
    "another issuer": lambda url: (_discovery(url, issuer="https://other.example"), {}),
    "an issuer with a slash more": lambda url: (_discovery(url, issuer=f"{url}/"), {}),
    "no keys' address": lambda url: (_discovery(url, jwks_uri=None), {}),
    "a number as address": lambda url: (_discovery(url, token_endpoint=5), {}),
    "a plain address elsewhere": lambda url: (_discovery(url, token_endpoint="http://evil.example/"), {}),
    "a file as keys": lambda url: (_discovery(url, jwks_uri="file:///etc/passwd"), {}),
    "a script as login": lambda url: (_discovery(url, authorization_endpoint="javascript:alert(1)"), {}),
}
KEYS: dict[str, bytes] = {
    "keys that are a list": b"[]",
    "keys that are a number": b'{"keys": 5}',
    "keys of nulls": b'{"keys": [null]}',
    "no keys": b'{"keys": []}',
    "a shared secret": b'{"keys": [{"kty": "oct", "kid": "k", "alg": "HS256", "k": "AAAA"}]}',
    "a key without numbers": b'{"keys": [{"kty": "RSA", "kid": "k", "alg": "RS256"}]}',
    "nested keys": b'{"keys": ' + _DEEP,
    "keys without end": b'{"keys": ["' + b"x" * 50_000_000 + b'"]}',
}
REDIRECTS = ["http://127.0.0.1:{port}/inner", "http://169.254.169.254/latest/meta-data/", "//127.0.0.1/inner"]
ATTEMPTS = [*INNER_ADDRESSES, *BODIES, *KEYS, *REDIRECTS]


def _discovery(url: str, **lies: object) -> bytes:
    fields = {
        "issuer": url,
        "authorization_endpoint": f"{url}/a",
        "token_endpoint": f"{url}/t",
        "jwks_uri": f"{url}/k",
    }
    return json.dumps(fields | lies).encode()


class _Hostile:
    """A server that answers every path as it is told, and notes what was asked for."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, bytes, dict[str, str]]] = {}
        self.asked: list[str] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        path = head.split(b" ")[1].decode()
        self.asked.append(path)
        status, body, headers = self.answers.get(path, (404, b"", {}))
        lines = [f"{name}: {value}" for name, value in headers.items()]
        start = "\r\n".join([f"HTTP/1.1 {status} X", f"content-length: {len(body)}", *lines, "", ""])
        try:
            writer.write(start.encode())
            for at in range(0, len(body), 1 << 16):
                writer.write(body[at : at + (1 << 16)])
                await writer.drain()
            writer.close()
        except ConnectionError:
            pass


def _run(story: Callable[[_Hostile, OidcProvider], Any]) -> None:
    async def main() -> None:
        hostile = _Hostile()
        server = await asyncio.start_server(hostile.serve, "127.0.0.1", 0)
        hostile.port = server.sockets[0].getsockname()[1]
        settings = OidcSettings(hostile.url, CLIENT, approve_groups=("x",))
        async with server:
            await story(hostile, OidcProvider(settings, {}, "http://127.0.0.1:1"))

    asyncio.run(main())


WELL_KNOWN = "/.well-known/openid-configuration"


@pytest.mark.parametrize("address", INNER_ADDRESSES)
def test_a_public_provider_leads_to_no_inner_address(address: str) -> None:
    assert not is_allowed_address(address, PUBLIC)


@pytest.mark.parametrize(
    "address",
    [
        "http://login.example.com/token",
        "https://169.254.169.254/latest/meta-data/",
        "https://10.99.0.1:18443/token",
        "https://[fd00:ec2::254]/",
        "https://0x7f.1/token",
        "ftp://127.0.0.1/token",
        "http://127.0.0.2/token",
    ],
)
def test_a_provider_for_trials_leads_to_this_machine_or_a_public_address(address: str) -> None:
    assert not is_allowed_address(address, "http://127.0.0.1:18800")


@pytest.mark.parametrize(
    ("address", "issuer"),
    [
        (f"{PUBLIC}/t", PUBLIC),
        (f"{PUBLIC}/t", "http://127.0.0.1:8"),
        ("https://keys.example.org/k", PUBLIC),
        ("https://10.0.0.5/t", "https://10.0.0.5"),
        ("http://localhost:9/t", "http://localhost:8"),
        ("https://8.8.8.8/t", PUBLIC),
    ],
)
def test_a_providers_usual_addresses_are_taken(address: str, issuer: str) -> None:
    assert is_allowed_address(address, issuer)


@pytest.mark.slow
@pytest.mark.parametrize("name", BODIES)
def test_a_hostile_discovery_is_refused_within_bounds(name: str) -> None:
    async def story(hostile: _Hostile, provider: OidcProvider) -> None:
        body, headers = BODIES[name](hostile.url)
        hostile.answers[WELL_KNOWN] = (200, body, headers)
        tracemalloc.start()
        try:
            with pytest.raises(SignInRefused):
                await provider.begin()
            assert tracemalloc.get_traced_memory()[1] < 20_000_000
        finally:
            tracemalloc.stop()

    _run(story)


@pytest.mark.slow
@pytest.mark.parametrize("name", KEYS)
def test_hostile_keys_are_refused(name: str) -> None:
    pytest.importorskip("jwt")
    head = "eyJhbGciOiJSUzI1NiIsImtpZCI6ImsifQ"  # RS256, kid k
    token = f"{head}.e30.AAAA"

    async def story(hostile: _Hostile, provider: OidcProvider) -> None:
        hostile.answers[WELL_KNOWN] = (200, _discovery(hostile.url), {})
        hostile.answers["/t"] = (200, json.dumps({"id_token": token}).encode(), {})
        hostile.answers["/k"] = (200, KEYS[name], {})
        attempt = await provider.begin()
        with pytest.raises(SignInRefused):
            await provider.finish(attempt, "code")

    _run(story)


@pytest.mark.parametrize("target", REDIRECTS)
@pytest.mark.parametrize("path", [WELL_KNOWN, "/t"])
def test_a_redirect_is_not_followed(target: str, path: str) -> None:
    async def story(hostile: _Hostile, provider: OidcProvider) -> None:
        hostile.answers[WELL_KNOWN] = (200, _discovery(hostile.url), {})
        attempt = await provider.begin() if path == "/t" else None
        hostile.answers[path] = (302, b"", {"location": target.format(port=hostile.port)})
        with pytest.raises(SignInRefused):
            await (provider.begin() if attempt is None else provider.finish(attempt, "code"))
        assert "/inner" not in hostile.asked

    _run(story)
