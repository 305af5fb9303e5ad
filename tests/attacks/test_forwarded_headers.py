"""Headers with which a client claims another address, host or scheme: none of them is believed."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.confirm.running import SUBMIT, Running

CLAIMS: dict[str, str] = {
    "X-Forwarded-For": "203.0.113.{n}",
    "X-Real-IP": "203.0.113.{n}",
    "Forwarded": "for=203.0.113.{n};host=evil.example;proto=https",
    "True-Client-IP": "203.0.113.{n}",
    "CF-Connecting-IP": "203.0.113.{n}",
    "X-Client-IP": "203.0.113.{n}",
    "X-Cluster-Client-IP": "203.0.113.{n}",
    "X-Forwarded": "for=203.0.113.{n}",
    "Fastly-Client-IP": "203.0.113.{n}",
    "X-Originating-IP": "203.0.113.{n}",
}
HOSTS = [
    "evil.example", "evil.example:6000", "127.0.0.1.evil.example", "localhost.evil.example",
    "evil.example#localhost", "evil.example/localhost", "localhost@evil.example", "2130706433",
    "0x7f.0.0.1", "127.1", "0.0.0.0", "[::ffff:7f00:1]", "localhost:6000@evil.example",
    "localhost evil.example", "LOCALHOST.",
]  # fmt: skip
LINKS = [
    ("X-Forwarded-Host", "evil.example"),
    ("X-Host", "evil.example"),
    ("X-Forwarded-Server", "evil.example"),
    ("Forwarded", "host=evil.example;proto=https"),
    ("X-Original-URL", "/audit/events"),
    ("X-Rewrite-URL", "/audit/events"),
    ("X-HTTP-Method-Override", "DELETE"),
    ("X-Forwarded-Proto", "https"),
    ("X-Forwarded-Prefix", "//evil.example"),
    ("X-Forwarded-Port", "443"),
]
ORIGINS = [
    {"origin": "http://evil.example"},
    {"origin": "null"},
    {"origin": "http://127.0.0.1.evil.example"},
    {"origin": "http://localhost"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
]
ATTEMPTS = [*CLAIMS, *HOSTS, *LINKS, *map(str, ORIGINS)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with Running(tmp_path, upkeep=False, rate=1000) as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("name", CLAIMS)
def test_a_claimed_address_neither_escapes_the_limit_nor_enters_the_log(server: Running, name: str) -> None:
    client, page = server.client(), server.page()
    statuses, pages = list[int](), list[int]()
    for n in range(15):
        claim = {name: CLAIMS[name].format(n=n)}
        statuses.append(
            client.get("/confirm", headers={"authorization": f"Bearer x{n}", **claim}).status_code
        )
        pages.append(page.post("/login", data={"token": f"x{n}"}, headers=claim).status_code)
    assert 429 in statuses and 429 in pages
    logged = [
        json.loads(row[0]) for row in server.rows("SELECT data FROM events WHERE kind = 'login_failed'")
    ]
    assert logged and {row.get("address") or row["client"] for row in logged} == {"127.0.0.1"}


def test_a_name_that_is_not_ours_is_served_nowhere(server: Running) -> None:
    token = server.token("approve", "alice")
    effects: list[str] = []
    for host in HOSTS:
        for port in (server.port, server.page_port):
            lines = f"GET /confirm HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n"
            answer = send_raw(port, f"{lines}Connection: close\r\n\r\n".encode())
            if b" 200 " in answer.split(b"\r\n")[0] or b" 303 " in answer.split(b"\r\n")[0]:
                effects.append(f"{host} at {port}")
    assert effects == []


def test_two_hosts_or_another_in_the_line_are_refused(server: Running) -> None:
    token = server.token("approve", "alice")
    for head in (
        "GET /confirm HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n",
        "GET /confirm HTTP/1.1\r\nHost: evil.example\r\nHost: localhost\r\n",
    ):
        raw = f"{head}Authorization: Bearer {token}\r\nConnection: close\r\n\r\n".encode()
        assert b" 200 " not in send_raw(server.port, raw).split(b"\r\n")[0]


@pytest.mark.slow
@pytest.mark.parametrize("header", LINKS)
def test_no_header_changes_links_cookies_or_routes(server: Running, header: tuple[str, str]) -> None:
    name, value = header
    agent = server.client("submit", "agent")
    plain = agent.post("/confirm", json=SUBMIT).json()
    body = agent.post("/confirm", json=SUBMIT, headers={name: value}).json()
    assert "evil.example" not in json.dumps(body)

    def shape(answer: dict[str, object]) -> str:
        return re.sub(r"[0-9a-f]{64}|[\w-]{22}|[\d.]{9,}|\d{4}-[^\"]*Z", "", json.dumps(answer))

    assert shape(body) == shape(plain)
    page = server.page()
    landed = page.post("/login", data={"token": server.token("approve", "bob")}, headers={name: value})
    assert landed.status_code == 303 and landed.headers["location"] == "/"
    cookie = landed.headers["set-cookie"].lower()
    assert "secure" not in cookie and "httponly" in cookie and "domain" not in cookie


@pytest.mark.slow
@pytest.mark.parametrize("odd", ORIGINS)
def test_another_sites_page_sends_nothing(server: Running, odd: dict[str, str]) -> None:
    assert server.client("submit", "agent").post("/confirm", json=SUBMIT, headers=odd).status_code == 403
    page = server.page()
    landed = page.post("/login", data={"token": server.token("approve", "bob")}, headers=odd)
    assert landed.status_code in (403, 421) and "set-cookie" not in landed.headers
    assert server.rows("SELECT count(*) FROM requests") == [(0,)]


def send_raw(port: int, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
        sock.sendall(data)
        parts: list[bytes] = []
        try:
            while part := sock.recv(65_536):
                parts.append(part)
        except ConnectionError:
            pass
        return b"".join(parts)
