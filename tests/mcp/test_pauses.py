"""How long is waited before a server that failed is asked again; the clock jumps, nothing sleeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mcp.rig import bench, until
from tests.mcp.serving import Answer, Request, raw, usual
from whet.config.permission_settings import McpServerSettings
from whet.mcp.transport import ServerFailed

SAYS = b'data: {"jsonrpc": "2.0", "method": "notifications/message", "params": {}}\n\n'


async def test_a_stream_that_is_refused_for_now_is_asked_for_ever_more_rarely(home: Path) -> None:
    streams: list[int] = []

    def answer(request: Request) -> Answer:
        if request.method != "GET":
            return usual(request)
        streams.append(1)
        if len(streams) in (8, 10):
            return 200, {"content-type": "text/event-stream"}, [SAYS]
        return (429, {}, []) if len(streams) < 11 else (405, {}, [])

    async with raw(answer) as (url, _), bench(home, {"web": McpServerSettings(url=url)}) as b:
        await until(lambda: len(streams) == 11)
        assert b.waits[:7] == [1.0, 3.0, 7.0, 15.0, 31.0, 60.0, 60.0]
        assert b.waits[7:] == [0.5, 1.0, 0.5]  # what was heard ends the silence


async def test_a_server_that_can_not_be_started_is_started_again_ever_later(home: Path) -> None:
    async with bench(home, {"bad": McpServerSettings(command="/no/such/server")}) as b:
        remote = b.servers.remotes["bad"]

        async def start() -> str:
            with pytest.raises(ServerFailed) as caught:
                await remote.fetch_catalogue()
            return caught.value.message

        assert remote.failures == 1 and b.waits == []
        await start()  # once more at once, it may have been chance
        assert b.waits == []
        for wait_s in (1.0, 2.0, 4.0):
            assert "can't be started" in await start()
            assert b.waits.pop() == pytest.approx(wait_s) and b.waits == []
        assert (
            await start()
            == "the MCP server bad has failed 5 times in a row; it is not started again for another 8 s"
        )
        assert b.waits == [] and remote.failures == 5
        b.clock.advance(5)
        assert "can't be started" in await start()
        assert b.waits.pop() == pytest.approx(3.0)
        b.clock.advance(16)
        assert "can't be started" in await start()
        assert b.waits == [] and remote.failures == 7
        b.clock.advance(31)
        assert "for another 1 s" not in await start()
        assert b.waits.pop() == pytest.approx(1.0)
        for _ in range(3):
            b.clock.advance(60)
            await start()
        assert b.waits == [] and remote.failures == 11
