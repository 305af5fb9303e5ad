"""Random bodies, headers, ids and bytes against the API: no answer of class 5xx, nothing approved."""

from __future__ import annotations

import contextlib
import json
import random
import time

import pytest

from tests.confirm.running import SUBMIT, Running, request

ODD_VALUES = [
    None, True, False, 0, -1, 1.5, 10**40, "", " ", "x" * 300, "\0", "\u202e", "😀", "\ud800", [], {}, [[]],
    {"a": {"b": []}}, float("nan"), float("inf"), "NaN", ["x"] * 100, {"": ""},
]  # fmt: skip
FIELDS = [
    "action",
    "description",
    "details",
    "requester",
    "session_key",
    "timeout_seconds",
    "callback_url",
    "approver",
    "denier",
    "reason",
    "digest",
    "result",
    "note",
    "seconds",
    "principal",
    "accepts_edits",
]
METHODS = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "BREW", "get", ""]
VERBS = [
    "",
    *["/approve", "/deny", "/cancel", "/amend", "/consume", "/report", "/grant", "/x", "//", "/approve/"],
]
ODD_IDS = ["", "x", "%00", "%2e%2e", "a%2Fb", "0" * 22, "'--", "é", "0" * 5000, "{id}"]
TOPS = [
    "/audit",
    "/audit/events",
    "/audit/checkpoint",
    "/health",
    "/metrics",
    "/openapi.json",
    "/keys",
    "/whitelist",
    "/whitelist/1",
    "/callbacks",
    "/callbacks/1/retry",
    "/confirm",
    "/",
    "/nothing",
    "*",
]
ODD_HEADERS = [
    "Content-Type: text/plain", "Content-Type: application/json; charset=utf-16", "Idempotency-Key: k",
    "Idempotency-Key: \x7f", "Content-Length: 5", "Content-Length: -1", "Content-Length: x", "Host: ",
    "Transfer-Encoding: chunked", "Transfer-Encoding: gzip", "Expect: 100-continue", "Upgrade: websocket",
    "Connection: upgrade", "Authorization: Basic eDp5", "Authorization: Bearer", "Authorization: Bearer \xff",
    "Last-Event-ID: 99999999999999999999", "Origin: http://x", "Range: bytes=0-", "Accept-Encoding: *",
    "X: " + "y" * 9000, "Cookie: a=b", ": novalue", "no colon",
]  # fmt: skip
QUERIES = [
    "", "?wait=0.01", "?wait=-1", "?wait=x", "?limit=99999999999999999999", "?before=-1", "?status=zzz",
    "?status=pending", "?%ff=%fe", "?after=1e9", "?limit=%00", "?" + "a=b&" * 500,
]  # fmt: skip


class Fuzz:
    """Makes random requests; knows one real id so that some of them hit."""

    def __init__(self, seed: int, real_id: str, tokens: list[str]) -> None:
        self._dice = random.Random(seed)
        self._real = real_id
        self._tokens = tokens

    def raw(self) -> bytes:
        dice = self._dice
        if dice.random() < 0.05:
            return dice.randbytes(dice.randrange(200)) + b"\r\n\r\n"
        path = dice.choice(TOPS)
        if dice.random() < 0.6:
            path = (
                f"/confirm/{self._real if dice.random() < 0.6 else dice.choice(ODD_IDS)}{dice.choice(VERBS)}"
            )
        body = self._body()
        headers = [f"Authorization: Bearer {dice.choice(self._tokens)}"] if dice.random() < 0.8 else []
        headers += dice.sample(ODD_HEADERS, dice.choice([0, 0, 1, 2]))
        method = dice.choice(METHODS) if dice.random() < 0.4 else dice.choice(["GET", "POST"])
        lines = [
            f"{method} {path}{dice.choice(QUERIES)} HTTP/1.1",
            "Host: 127.0.0.1",
            *headers,
            "Connection: close",
        ]
        if body and not any(header.startswith("Content-Length") for header in headers):
            lines.append(f"Content-Length: {len(body)}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace") + body

    def _body(self) -> bytes:
        dice = self._dice
        shape = dice.random()
        if shape < 0.1:
            return dice.randbytes(dice.randrange(300))
        if shape < 0.15:
            return b'{"a":' * dice.randrange(2000)
        fields = {name: dice.choice(ODD_VALUES) for name in dice.sample(FIELDS, dice.randrange(6))}
        if dice.random() < 0.5:
            fields = SUBMIT | fields
        body = json.dumps(fields).encode()
        if dice.random() < 0.1 and body:
            at = dice.randrange(len(body))
            body = body[:at] + dice.randbytes(1) + body[at + 1 :]
        return body


def run_fuzz(server: Running, *, count: int = 1 << 60, seconds: float = 1e9, seed: int = 1) -> None:
    body = server.client("submit", "agent").post("/confirm", json=SUBMIT | {"timeout_seconds": 3600}).json()
    tokens = [server.token("submit", "agent"), server.token("audit", "auditor")]
    fuzz = Fuzz(seed, body["id"], [*tokens, "wct_wrong"])
    ends = time.monotonic() + seconds
    for number in range(count):
        raw = fuzz.raw()
        answer = b""
        with contextlib.suppress(ConnectionError, TimeoutError):
            answer = server.raw(raw, wait_s=0.5)
        assert not answer.startswith(b"HTTP/1.1 5"), (number, raw[:2000], answer[:500])
        if time.monotonic() > ends:
            break
    # None of the tokens may approve, so nothing was.
    assert server.rows("SELECT count(*) FROM requests WHERE status IN ('approved', 'denied')") == [(0,)]
    health = server.raw(request(server.port, "GET", "/health"))
    assert health.startswith(b"HTTP/1.1 200")


@pytest.mark.slow
def test_odd_requests_never_break_the_service(tmp_path):
    with Running(tmp_path, rate=1_000_000) as server:
        run_fuzz(server, count=200)


@pytest.mark.soak
def test_odd_requests_for_ten_minutes(tmp_path):
    with Running(tmp_path, rate=1_000_000) as server:
        run_fuzz(server, seconds=600, seed=int(time.time()))
