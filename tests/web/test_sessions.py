"""Signing in, staying signed in, signing out; forms; assets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from tests.support import FixedClock
from whet.web.assets import Assets
from whet.web.bodies import BadForm, read_form
from whet.web.guard import make_site_address
from whet.web.sessions import LIFETIME_S, Account, LoginSession, Sessions, is_own_form


class Names:
    """Accounts whose secret is their name."""

    def __init__(self) -> None:
        self.known = {"ann"}

    async def sign_in(self, token: str, client: str) -> Account | None:
        return Account(token, token) if token in self.known else None

    async def find(self, key: str) -> Account | None:
        return Account(key, key) if key in self.known else None


class Rows(dict[str, LoginSession]):
    """Sessions in memory."""

    async def save(self, row: LoginSession) -> None:
        self[row.id_hash] = row

    async def find(self, id_hash: str) -> LoginSession | None:
        return self.get(id_hash)

    async def drop(self, id_hash: str) -> None:
        self.pop(id_hash, None)


def request(cookie: str = "", body: bytes = b"", kind: str = "application/x-www-form-urlencoded") -> Request:
    headers = [(b"content-type", kind.encode())] + ([(b"cookie", cookie.encode())] if cookie else [])
    parts = [body[i : i + 10_000] for i in range(0, len(body), 10_000)] or [b""]

    async def receive() -> dict[str, Any]:
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    return Request(
        {"type": "http", "method": "POST", "headers": headers, "client": ("127.0.0.1", 1)}, receive
    )


async def test_a_session_from_its_beginning_to_its_end(clock: FixedClock) -> None:
    names, rows = Names(), Rows()
    sessions = Sessions(names, rows, clock, make_site_address("127.0.0.1"), "site")
    response = Response()
    assert await sessions.sign_in(request(), "eve", response) is None and not rows
    assert await sessions.sign_in(request(), "ann", response)
    header = response.headers["set-cookie"]
    cookie = header.partition(";")[0]
    assert "HttpOnly" in header and "SameSite=strict" in header and "Secure" not in header
    assert cookie.partition("=")[2] not in str(rows)  # only its hash is kept
    visit = await sessions.find_visit(request(cookie))
    assert visit is not None and visit.account.name == "ann"
    assert is_own_form(visit, visit.session.csrf)
    assert not is_own_form(visit, "") and not is_own_form(visit, "\ud800")
    for wrong in ("", "site=", "site=x", cookie[:-1] + "!", cookie.replace("site", "other")):
        assert await sessions.find_visit(request(wrong)) is None
    names.known.clear()  # the token is revoked
    assert await sessions.find_visit(request(cookie)) is None
    names.known.add("ann")
    clock.advance(LIFETIME_S)
    assert await sessions.find_visit(request(cookie)) is None
    clock.advance(-LIFETIME_S)
    await sessions.sign_in(request(cookie), "ann", response)  # a fresh number; the old one is gone
    assert len(rows) == 1 and await sessions.find_visit(request(cookie)) is None
    newest = response.headers.getlist("set-cookie")[-1].partition(";")[0]
    await sessions.sign_out(request(newest), response)
    assert not rows


def test_behind_tls_the_cookie_is_bound_to_the_host(clock: FixedClock) -> None:
    sessions = Sessions(
        Names(), Rows(), clock, make_site_address("127.0.0.1", "https://c.example.org"), "site"
    )
    response = Response()
    asyncio.run(sessions.sign_in(request(), "ann", response))
    header = response.headers["set-cookie"]
    assert header.startswith("__Host-site=") and "Secure" in header and "Path=/" in header


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"a=1&a=2", "application/x-www-form-urlencoded", 400),
        (b"a=%FF", "application/x-www-form-urlencoded", 400),
        (b"\xff=1", "application/x-www-form-urlencoded", 400),
        (b"&".join(b"f%d=1" % n for n in range(50)), "application/x-www-form-urlencoded", 400),
        (b"a=" + b"x" * 70_000, "application/x-www-form-urlencoded", 413),
        (b"{}", "application/json", 415),
        (b"a=1", "text/plain", 415),
    ],
)
def test_forms_that_are_none_of_ours(body: bytes, kind: str, status: int) -> None:
    with pytest.raises(BadForm) as error:
        asyncio.run(read_form(request("", body, kind)))
    assert error.value.status == status


@pytest.mark.parametrize(("more", "fits"), [(0, True), (1, False)])
def test_a_form_may_have_64_kib(more: int, fits: bool) -> None:
    body = b"a=" + b"x" * (64 * 1024 - 2 + more)
    if fits:
        assert len(asyncio.run(read_form(request("", body)))["a"]) == 65_534
        return
    with pytest.raises(BadForm, match="too large") as refused:
        asyncio.run(read_form(request("", body)))
    assert refused.value.status == 413


def test_a_form_is_read() -> None:
    assert asyncio.run(read_form(request("", b"a=%C3%A4+b&c="))) == {"a": "ä b", "c": ""}


def test_assets_have_their_hash_in_the_name_and_nothing_else_is_served(tmp_path: Path) -> None:
    (tmp_path / "page.css").write_text("a{}")
    (tmp_path / "secret.txt").write_text("no")
    assets = Assets(tmp_path)
    url = assets.url("page.css")

    def get(name: str) -> Response:
        scope = {"type": "http", "method": "GET", "headers": [], "path_params": {"name": name}}
        return asyncio.run(assets.serve(Request(scope)))

    good = get(url.rpartition("/")[2])
    assert good.status_code == 200 and good.headers["content-type"] == "text/css; charset=utf-8"
    assert "immutable" in good.headers["cache-control"]
    for name in ("page.css", "secret.txt", "../secret.txt", "..%2fsecret.txt", ""):
        assert get(name).status_code == 404
