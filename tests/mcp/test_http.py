"""Servers over streamable HTTP: the official SDK's own, and ones that do everything wrong."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.mcp.rig import bench, until
from tests.mcp.sdk_server import make
from tests.mcp.serving import Answer, Handler, Request, as_json, raw, result, sdk_over_http, usual
from whet.config.permission_settings import McpServerSettings

EVENTS = {"content-type": "text/event-stream"}


def event(request: Request, text: str, event_id: str = "") -> bytes:
    """Give the event that holds the answer to a call."""
    value = {"content": [{"type": "text", "text": text}]}
    message = json.dumps({"jsonrpc": "2.0", "id": request.message["id"], "result": value})
    return (f"id: {event_id}\n" if event_id else "").encode() + f"data: {message}\n\n".encode()


@pytest.mark.slow
@pytest.mark.parametrize(
    "more", [{}, {"json_response": True}, {"stateless_http": True}, {"handshake": False}]
)
async def test_the_sdks_server_is_used(home: Path, more: dict[str, Any]) -> None:
    with sdk_over_http(make, **more) as url:
        async with bench(home, {"web": McpServerSettings(url=url)}) as b:
            assert len(b.servers.tools()) == 6 and b.servers.tools()[0].effects == {"network"}
            assert (await b.call("mcp__web__add", a=2, b=40)).text.endswith("\n42")
            assert (await b.call("mcp__web__slow", steps=3)).text.endswith("done")
            assert (await b.call("mcp__web__fail", reason="x")).error_kind == "failed"
            both = [b.call("mcp__web__add", a=n, b=n) for n in range(5)]
            assert [out.text.rpartition("\n")[2] for out in await asyncio.gather(*both)] == list("02468")


def use(home: Path, handler: Handler, **more: object) -> tuple[str, list[Request], list[str]]:
    """Call echo once at a raw server: what came back, what was sent, what was told."""

    async def work() -> tuple[str, list[Request], list[str]]:
        async with (
            raw(handler) as (url, requests),
            bench(home, {"web": McpServerSettings(url=url, **more)}) as b,  # type: ignore[arg-type]
        ):
            out = await b.call("mcp__web__echo", text="hi")
            return out.text, list(requests), list(b.told)

    return asyncio.run(work())


def calling(answer: Callable[[Request], Answer]) -> Handler:
    """Do what any server does, but answer calls of tools like this."""

    def handler(request: Request) -> Answer:
        is_call = isinstance(request.message, dict) and request.message.get("method") == "tools/call"
        return answer(request) if is_call or "last-event-id" in request.headers else usual(request)

    return handler


def test_headers_name_the_session_and_the_version(home: Path) -> None:
    text, requests, _ = use(home, usual, headers={"X-Key": "abc"})
    assert text.endswith("you said: hi")
    first, *others = [request.headers for request in requests]
    assert "mcp-session-id" not in first and "mcp-protocol-version" not in first
    assert {texts["mcp-session-id"] for texts in others} == {"s-1"}
    assert {texts["mcp-protocol-version"] for texts in others} == {"2025-11-25"}
    assert {request.headers["x-key"] for request in requests} == {"abc"}
    assert first["accept"] == "application/json, text/event-stream"


@pytest.mark.fast_rows("403", "500", "HTML", "list", "evil", "login", "broke0", "JSON0")
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda r: as_json({}, 401), "wants a login. whet mcp login web"),
        (
            lambda r: as_json({"error": {"message": "not yours"}}, 403),
            "HTTP 403: not yours. the login or key lacks the right to this",
        ),
        (lambda r: as_json("gone fishing", 503), "answered HTTP 503"),
        (lambda r: (500, {"content-type": "text/html"}, [b"<html>oops"]), "answered HTTP 500"),
        (
            lambda r: (200, {"content-type": "text/html"}, [b"<html>hi"]),
            "answered with HTML, which is not MCP",
        ),
        (
            lambda r: (302, {"location": "https://evil.example/mcp"}, []),
            "sends on to https://evil.example/mcp",
        ),
        (lambda r: (200, {"content-type": "application/json"}, [b"{nope"]), "what is not JSON: '{nope'"),
        (lambda r: (200, {"content-type": "application/json"}, [b'{"x": "\xe9"}']), "what is not JSON"),
        (lambda r: (200, {"content-type": "application/json"}, [b"CUT"]), "broke"),
        (lambda r: (200, {**EVENTS, "content-encoding": "gzip"}, [b"data: {}"]), "broke"),
        (lambda r: as_json({"jsonrpc": "2.0", "id": 999, "result": {}}), "without a result"),
        (lambda r: as_json([]), "without a result"),
        (lambda r: result(r, ["list"]), "answered with list, no object"),
        (lambda r: (200, EVENTS, [b": hello\n\n", b"CUT"]), "without a result"),
        (lambda r: (200, EVENTS, [b"data: {broken\n\n"]), "what is not JSON"),
        (lambda r: (200, EVENTS, []), "without a result. whether it did what was asked is unknown"),
    ],
)
def test_a_bad_answer_is_told_as_it_is(home: Path, answer: Callable[[Request], Answer], said: str) -> None:
    assert said in use(home, calling(answer))[0]


@pytest.mark.parametrize("is_stream", [True, False])
def test_half_of_an_emoji_in_an_answer_is_replaced(home: Path, is_stream: bool) -> None:
    def answer(request: Request) -> Answer:
        whole = event(request, "cut \ud83d \\ud83d whole \U0001f600")
        if is_stream:
            return 200, EVENTS, [whole]
        return 200, {"content-type": "application/json"}, [whole.partition(b"data: ")[2].strip()]

    assert use(home, calling(answer))[0].endswith("cut \ufffd \\ud83d whole \U0001f600")


async def test_a_server_that_lies_about_its_encoding_has_no_tools_and_holds_up_nothing(home: Path) -> None:
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    async with (
        raw(lambda _request: (200, headers, [b"{}"])) as (url, _),
        bench(home, {"web": McpServerSettings(url=url)}) as b,
    ):
        assert b.servers.tools() == [] and "web broke" in b.told[0]


@pytest.mark.slow
def test_an_answer_of_a_hundred_megabytes_is_not_read(home: Path) -> None:
    kinds = {"content-type": "application/json"}
    for headers in (kinds, EVENTS):
        chunks = [b"data: {" if headers is EVENTS else b'{"x": "', *[b"x" * 1_000_000] * 100]
        assert "more than 16,777,216 bytes" in use(home, calling(lambda r: (200, headers, chunks)))[0]  # noqa: B023


def test_notices_and_garbage_before_the_answer_are_skipped(home: Path) -> None:
    progress = b'event: message\ndata: {"jsonrpc": "2.0", "method": "notifications/progress"}\n\n'

    def answer(request: Request) -> Answer:
        return (
            200,
            EVENTS,
            [progress[:20], progress[20:], b"data:\n\n", event(request, "fine"), b"data: {broken\n\n"],
        )

    assert use(home, calling(answer))[0].endswith("fine")


def test_a_cut_stream_is_taken_up_again(home: Path) -> None:
    calls: list[Request] = []

    def answer(request: Request) -> Answer:
        if request.method == "GET":
            assert request.headers["last-event-id"] == "e-7"
            return 200, EVENTS, [event(calls[0], "later")]
        calls.append(request)
        return 200, EVENTS, [b"id: e-7\ndata:\n\n", b"CUT"]

    text, requests, _ = use(home, calling(answer))
    assert text.endswith("later") and len(calls) == 1
    assert ["last-event-id" in request.headers for request in requests if request.method == "GET"].count(
        True
    ) == 1


def test_a_lost_session_is_begun_again_once(home: Path) -> None:
    lost: list[Request] = []

    def answer(request: Request) -> Answer:
        if not lost:
            lost.append(request)
            return as_json({}, 404)
        return usual(request)

    text, requests, _ = use(home, calling(answer))
    assert text.endswith("you said: hi")
    assert [request.message.get("method") for request in requests if request.method == "POST"].count(
        "initialize"
    ) == 2


def restarted(status: int, message: str) -> tuple[Handler, list[Request]]:
    """A server that forgets its sessions before the first call, as one that was started again does."""
    sessions: set[str] = set()
    ran: list[Request] = []
    forgets = [True]

    def answer(request: Request) -> Answer:
        body = request.message
        if request.method != "POST":
            return usual(request)
        if body.get("method") == "initialize":
            sessions.add(f"s-{len(sessions)}-{forgets}")
            named = usual(request)
            return named[0], {**named[1], "mcp-session-id": "new" if not forgets else "old"}, named[2]
        if body.get("method") == "tools/call" and forgets:
            forgets.clear()
        if request.headers.get("mcp-session-id") != ("old" if forgets else "new"):
            error = {"code": -32000, "message": message}
            return as_json({"jsonrpc": "2.0", "error": error, "id": body.get("id")}, status)
        ran.extend([request] if body.get("method") == "tools/call" else [])
        return usual(request)

    return answer, ran


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "Bad Request: No valid session ID provided"),
        (400, "Server not initialized"),
        (401, "Unauthorized: Session not found"),  # modelcontextprotocol/rust-sdk#559
        (503, "MCP session unknown or expired"),  # markmhendrickson/neotoma#1923
    ],
)
def test_a_session_that_is_refused_is_begun_again_once(home: Path, status: int, message: str) -> None:
    answer, ran = restarted(status, message)
    text, requests, _ = use(home, answer)
    assert text.endswith("you said: hi") and len(ran) == 1
    assert [request.message.get("method") for request in requests if request.method == "POST"].count(
        "initialize"
    ) == 2


async def test_a_call_that_met_500_is_not_repeated_but_the_next_one_has_a_new_session(home: Path) -> None:
    answer, ran = restarted(500, "Internal error")
    async with raw(answer) as (url, _requests), bench(home, {"r": McpServerSettings(url=url)}) as b:
        first = await b.call("mcp__r__echo", text="one")
        assert first.error_kind and "HTTP 500" in first.text and not ran
        assert (await b.call("mcp__r__echo", text="two")).text.endswith("you said: two")


def test_a_refusal_by_a_server_that_knows_the_session_begins_no_other(home: Path) -> None:
    def answer(request: Request) -> Answer:
        if request.method == "POST" and request.message.get("method") == "tools/call":
            return as_json({"detail": "the argument text is too short for this session"}, 400)
        if request.method == "POST" and request.message.get("method") == "ping":
            return result(request, {})
        return usual(request)

    text, requests, _ = use(home, answer)
    assert "too short" in text
    methods = [request.message.get("method") for request in requests if request.method == "POST"]
    assert methods.count("initialize") == 1 and methods.count("tools/call") == 1


@pytest.mark.slow
def test_a_silent_server_times_out(home: Path) -> None:
    async def silent(request: Request) -> Answer:
        if isinstance(request.message, dict) and request.message.get("method") == "tools/call":
            await asyncio.sleep(30)
        return usual(request)

    assert "did not answer within 0.2 s" in use(home, silent, timeout_s=0.2)[0]


async def test_a_server_that_is_not_there_is_told(home: Path) -> None:
    async with raw(usual) as (url, _):
        pass
    async with bench(home, {"web": McpServerSettings(url=url)}) as b:
        assert "can't be reached at 127.0.0.1:" in b.told[0]
    async with bench(home, {"web": McpServerSettings(url="no url")}) as b:
        assert "has the url 'no url', which is none" in b.told[0]


async def test_a_cancelled_call_is_called_off(home: Path) -> None:
    async def slow(request: Request) -> Answer:
        if isinstance(request.message, dict) and request.message.get("method") == "tools/call":
            await asyncio.sleep(30)
        return usual(request)

    async with raw(slow) as (url, requests), bench(home, {"web": McpServerSettings(url=url)}) as b:
        running = asyncio.create_task(b.call("mcp__web__echo", text="hi"))
        await until(lambda: any(request.message.get("method") == "tools/call" for request in requests))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await until(lambda: requests[-1].message.get("method") == "notifications/cancelled")
