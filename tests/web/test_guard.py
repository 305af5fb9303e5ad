"""The guard before every page: which names and sites are ours."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from whet.contract.errors import ConfigError
from whet.web.guard import POLICY, SiteGuard, host_name, make_site_address


def ask(
    where: Any, method: str = "GET", server: str = "127.0.0.1", **headers: str
) -> tuple[int, dict[str, str], Any]:
    """Send one request through a guard; gives status, headers, body."""
    sent: list[dict[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x-frame-options", b"own")]})
        await send({"type": "http.response.body", "body": b"ok"})

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    raw = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    scope = {"type": "http", "method": method, "headers": raw, "server": (server, 6080)}
    asyncio.run(SiteGuard(app, where)(scope, None, send))  # type: ignore[arg-type]
    fields = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], fields, sent[1]["body"]


def test_names_that_are_ours() -> None:
    where = make_site_address("127.0.0.1", "https://confirm.example.org", ["box.lan"])
    ours = (
        "localhost:6080",
        "127.0.0.1",
        "[::1]:6080",
        "LOCALHOST",
        "confirm.example.org",
        "box.lan:1",
        "localhost.",
    )
    for host in ours:
        assert ask(where, host=host)[0] == 200, host
    strange = (
        "evil.example",
        "localhost.evil.example",
        "10.0.0.5",
        "localhost:x",
        "localhost/x",
        "[::1",
        "a@localhost",
    )
    for host in ("", *strange):
        status, _, body = ask(where, host=host)
        assert status == 421, host
        assert msgspec.json.decode(body) == {"error": "this server does not answer under that host name"}
    assert ask(where)[0] == 421


def test_an_address_counts_only_where_it_is_the_one_that_was_called() -> None:
    where = make_site_address("0.0.0.0")
    assert ask(where, server="10.0.0.5", host="10.0.0.5:6080")[0] == 200
    assert ask(where, server="10.0.0.5", host="10.0.0.6:6080")[0] == 421


def test_other_sites_are_refused() -> None:
    where = make_site_address("127.0.0.1", "https://confirm.example.org")
    own = {"host": "127.0.0.1:6080"}
    assert ask(where, "POST", **own, origin="http://127.0.0.1:6080")[0] == 200
    assert ask(where, "POST", host="confirm.example.org", origin="https://confirm.example.org")[0] == 200
    assert ask(where, "POST", **own)[0] == 200  # a program sends no Origin
    evil = (
        "null",
        "http://evil.example",
        "http://127.0.0.1",
        "http://localhost:6080",
        "https://127.0.0.1:6081",
    )
    for origin in evil:
        assert ask(where, "POST", **own, origin=origin)[0] == 403, origin
        assert ask(where, "GET", **own, origin=origin)[0] == 403, origin
    for site in ("cross-site", "same-site"):
        assert ask(where, "POST", **own, sec_fetch_site=site)[0] == 403
        assert ask(where, "GET", **own, sec_fetch_site=site)[0] == 200
    assert ask(where, "POST", **own, sec_fetch_site="same-origin")[0] == 200


def test_every_answer_carries_the_headers_and_an_apps_own_stay() -> None:
    for host in ("localhost", "evil.example"):
        _, headers, _ = ask(make_site_address("127.0.0.1"), host=host)
        assert headers["content-security-policy"] == POLICY
        assert headers["x-content-type-options"] == "nosniff"
    assert ask(make_site_address("127.0.0.1"), host="localhost")[1]["x-frame-options"] == "own"
    assert "unsafe" not in POLICY and "default-src 'none'" in POLICY


def test_host_names() -> None:
    hosts = {"A.b:80": "a.b", "[::1]:80": "::1", "[::1]": "::1", "x.": "x", "[x]": "", "a:b": "", "a:1:2": ""}
    assert {host: host_name(host) for host in hosts} == hosts


@pytest.mark.parametrize(
    "url", ["ftp://x", "https://", "https://x/path", "https://x?q", "nonsense", "https://u@x", "http://[::1"]
)
def test_a_public_address_must_be_one(url: str) -> None:
    with pytest.raises(ConfigError, match="not usable"):
        make_site_address("127.0.0.1", url)
