"""What servers say on their own and while a call runs: changed lists, progress, streams that end early."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.mcp.rig import Session, bench, until
from tests.mcp.sdk_server import Events, make, make_growing
from tests.mcp.serving import Answer, Request, raw, result, sdk_over_http, usual
from whet.config.permission_settings import McpServerSettings

EVENTS = {"content-type": "text/event-stream"}
CHANGED = b'data: {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}\n\n'


def is_call(request: Request) -> bool:
    return isinstance(request.message, dict) and request.message.get("method") == "tools/call"


def answered(request: Request, text: str) -> bytes:
    """Give the event that answers a call."""
    value = {"content": [{"type": "text", "text": text}]}
    return (
        f"data: {json.dumps({'jsonrpc': '2.0', 'id': request.message['id'], 'result': value})}\n\n".encode()
    )


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"handshake": False}])
async def test_a_list_the_sdks_server_changes_reaches_the_next_one(home: Path, more: dict[str, Any]) -> None:
    with sdk_over_http(make_growing, **more) as url:
        async with bench(home, {"web": McpServerSettings(url=url)}) as b:
            frozen = [tool.spec for tool in b.servers.tools()]
            async with asyncio.timeout(30):
                while not b.told:  # what it says before it has taken our listening goes nowhere
                    assert "tricks" in (await b.call("mcp__web__grow")).text
            assert "changed its tools (new: mcp__web__trick0" in b.told[0] and b.servers.is_stale
            later = Session()
            b.servers.attach_sink(frozen, later)
            assert later.notices == []
            assert (await b.call("mcp__web__trick0")).text.endswith("done")
        async with bench(home, {"web": McpServerSettings(url=url)}) as b:
            assert "mcp__web__trick0" in [tool.name for tool in b.servers.tools()]


async def test_a_standing_stream_that_lies_about_its_encoding_is_opened_again(home: Path) -> None:
    streams: list[Request] = []

    def answer(request: Request) -> Answer:
        if request.method != "GET":
            return usual(request)
        streams.append(request)
        return 200, {**EVENTS, "content-encoding": "gzip"}, [CHANGED]

    async with raw(answer) as (url, _), bench(home, {"web": McpServerSettings(url=url)}):
        await until(lambda: len(streams) > 1)


async def test_a_stream_that_the_sdks_server_cuts_on_purpose_is_polled(home: Path) -> None:
    with sdk_over_http(make_growing, event_store=Events(), retry_interval=100) as url:
        async with bench(home, {"web": McpServerSettings(url=url)}) as b:
            assert (await b.call("mcp__web__nap")).text.endswith("slept well")


async def test_the_standing_stream_is_taken_up_where_it_ended_and_refusals_end_it(home: Path) -> None:
    streams: list[str] = []

    def answer(request: Request) -> Answer:
        if request.method != "GET":
            return usual(request)
        streams.append(request.headers.get("last-event-id", ""))
        assert request.headers["mcp-session-id"] == "s-1" and request.headers["accept"] == "text/event-stream"
        match len(streams):
            case 1:
                return 200, EVENTS, [b"retry: 7000\nid: e-1\ndata:\n\n", b"CUT"]
            case count if count < 8:
                return (409, 429, 500, 502, 503, 504)[count - 2], {}, []
            case 8:
                return 200, EVENTS, [b"id: e-2\n" + CHANGED]
            case _:
                return 405, {}, []

    async with raw(answer) as (url, requests), bench(home, {"web": McpServerSettings(url=url)}) as b:
        await until(lambda: len(streams) == 9)
        await until(lambda: [request.message.get("method") for request in requests].count("tools/list") == 2)
        assert streams == ["", *["e-1"] * 7, "e-2"]
        assert b.waits[:8] == [7.0, 7.0, 7.0, 15.0, 31.0, 60.0, 60.0, 7.0]
        assert (await b.call("mcp__web__echo", text="hi")).text.endswith("you said: hi")
    assert len(streams) == 9 and requests[-1].method == "DELETE"
    assert requests[-1].headers["mcp-session-id"] == "s-1"


async def test_a_flood_of_changes_is_one_question_at_a_time(home: Path) -> None:
    def answer(request: Request) -> Answer:
        if request.method == "GET":
            return 200, EVENTS, [CHANGED * 1_000] if not streams else []
        return usual(request)

    streams: list[int] = []
    async with raw(answer) as (url, requests), bench(home, {"web": McpServerSettings(url=url)}) as b:

        def asked() -> int:
            return [request.message.get("method") for request in requests].count("tools/list")

        await until(lambda: asked() > 1)
        streams.append(1)
        await b.call("mcp__web__echo", text="hi")
        assert asked() < 100 and b.told == []


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ({"progress": 3, "total": 10, "message": "reading\u202e\n the  post"}, "3 of 10: reading the post\n"),
        ({"progress": 0.5}, "0.5\n"),
        ({"message": "x" * 5_000}, "x" * 200 + "\n"),
        ({"progress": "lots", "message": 7}, None),
        ({"progress": True}, None),
    ],
)
async def test_progress_is_shown_in_a_call(home: Path, said: dict[str, object], shown: str | None) -> None:
    def answer(request: Request) -> Answer:
        if not is_call(request):
            return usual(request)
        token = request.message["params"]["_meta"]["progressToken"]
        notices = [{"progressToken": 999, "message": "another's"}, *[{"progressToken": token, **said}] * 50]
        lines = [
            {"jsonrpc": "2.0", "method": "notifications/progress", "params": notice} for notice in notices
        ]
        return (
            200,
            EVENTS,
            [f"data: {json.dumps(line)}\n\n".encode() for line in lines] + [answered(request, "done")],
        )

    async with raw(answer) as (url, _), bench(home, {"web": McpServerSettings(url=url)}) as b:
        assert (await b.call("mcp__web__echo")).text.endswith("done")
        assert b.shown == ([shown] if shown else [])


@pytest.mark.slow
async def test_the_sdks_progress_is_shown(home: Path) -> None:
    with sdk_over_http(make) as url:
        async with bench(home, {"web": McpServerSettings(url=url)}) as b:
            assert (await b.call("mcp__web__slow", steps=3)).text.endswith("done")
            assert b.shown == ["0 of 3: counting\n"]


async def test_a_session_that_is_lost_is_begun_again_once_and_ends_no_other_call(home: Path) -> None:
    lost: list[Request] = []
    both, third = asyncio.Event(), asyncio.Event()

    async def answer(request: Request) -> Answer:
        if not is_call(request):
            return usual(request)
        if request.message["params"]["arguments"]["text"] == "c":
            await third.wait()  # it was taken before the session was lost, and is answered long after
        elif len(lost) < 2:
            lost.append(request)
            if len(lost) == 2:
                both.set()
            await both.wait()
            return 404, {}, []
        return usual(request)

    async with raw(answer) as (url, requests), bench(home, {"web": McpServerSettings(url=url)}) as b:
        slow = asyncio.create_task(b.call("mcp__web__echo", text="c"))
        outs = await asyncio.gather(*(b.call("mcp__web__echo", text=text) for text in ("a", "b")))
        assert [out.text[-1] for out in outs] == ["a", "b"]
        third.set()
        assert (await slow).text.endswith("you said: c")
        methods = [request.message.get("method") for request in requests]
        assert methods.count("initialize") == 2 and methods.count("tools/call") == 5


@pytest.mark.slow
async def test_a_stream_that_drips_ends_with_the_calls_time(home: Path) -> None:
    async def drip() -> AsyncIterator[bytes]:
        for _ in range(1_000):
            yield b": drip\n\n"
            await asyncio.sleep(0.02)

    def answer(request: Request) -> Answer:
        return (200, EVENTS, drip()) if is_call(request) else usual(request)

    server: Callable[[str], McpServerSettings] = lambda url: McpServerSettings(url=url, timeout_s=0.2)  # noqa: E731
    async with raw(answer) as (url, _), bench(home, {"web": server(url)}) as b:
        out = await b.call("mcp__web__echo")
        assert out.error_kind == "timeout" and "within 0.2 s" in out.text


@pytest.mark.parametrize("says", ["progress", "nothing"])
async def test_a_call_that_tells_its_progress_has_its_whole_time_again(
    home: Path, monkeypatch: pytest.MonkeyPatch, says: str
) -> None:
    """https://github.com/anomalyco/opencode/issues/24965"""
    loop, passed = asyncio.get_running_loop(), [0.0]
    real_s = loop.time
    monkeypatch.setattr(loop, "time", lambda: real_s() + passed[0])

    async def work(request: Request) -> AsyncIterator[bytes]:
        token = request.message["params"]["_meta"]["progressToken"]
        for step in range(1, 4):
            if says == "progress":
                params = {"progressToken": token, "progress": step}
                fields = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
                yield f"data: {json.dumps(fields)}\n\n".encode()
                await until(lambda: len(b.shown) == int(passed[0]) // 8 + 1)
            passed[0] += 8
            b.clock.advance(8)
        yield answered(request, "done")

    def answer(request: Request) -> Answer:
        return (200, EVENTS, work(request)) if is_call(request) else usual(request)

    server: Callable[[str], McpServerSettings] = lambda url: McpServerSettings(url=url, timeout_s=10)  # noqa: E731
    async with raw(answer) as (url, _), bench(home, {"web": server(url)}) as b:
        out = await b.call("mcp__web__echo")
        assert out.text.endswith("done" if says == "progress" else "its setting is timeout_s")


@pytest.mark.parametrize(
    ("session_id", "sent"), [("s-2", True), ("has space", False), ("x" * 2_000, False), ("\u00e9", False)]
)
async def test_a_session_id_is_printable_ascii_or_none(home: Path, session_id: str, sent: bool) -> None:
    def answer(request: Request) -> Answer:
        if request.method == "POST" and request.message.get("method") == "initialize":
            hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "raw"}}
            return result(request, hello, mcp_session_id=session_id)
        return usual(request)

    async with raw(answer) as (url, requests), bench(home, {"web": McpServerSettings(url=url)}) as b:
        assert (await b.call("mcp__web__echo", text="hi")).text.endswith("hi")
        assert ("mcp-session-id" in requests[-1].headers) is sent
