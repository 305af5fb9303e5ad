"""Outages in mid-turn against a real server, with a clock that jumps: the turn ends by itself, once."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import SupportsIndex

import pytest

from tests.listening import listening
from tests.providers.machine import Machine
from tests.providers.server import SSE, Script, Server, running, sse
from tests.support import each, quiet_port
from whet.config.schema import ModelSettings
from whet.contract.errors import AuthRejected, ProviderError, RateLimited, Unavailable
from whet.contract.events import Retry, StreamRestarted, TextDelta
from whet.contract.messages import Message
from whet.contract.protocols import AnswerGrew, AttemptLost, ModelReply
from whet.providers.backoff import Backoff
from whet.providers.connect import ServerProvider, connect_one
from whet.providers.http import Key, KeyPool
from whet.providers.outage import Outage

ANSWER = Script([sse(b'{"choices":[{"delta":{"content":"done"},"finish_reason":"stop"}]}', b"[DONE]")])
HI = [Message("user", "hi")]
JSON = "application/json"


class _Scripts(list[Script]):
    def __init__(self, choose: Callable[[], Script]) -> None:
        super().__init__()
        self._choose = choose

    def pop(self, index: SupportsIndex = 0) -> Script:
        return self._choose()


class Flaky(Server):
    """Answers `down` until the machine's clock reaches `until_s`."""

    def __init__(self, machine: Machine, until_s: float, down: Script) -> None:
        super().__init__()
        self.scripts = _Scripts(lambda: down if machine.now_s < until_s else ANSWER)


def provider(url: str, backoff: Backoff, name: str = "mine") -> ServerProvider:
    source = connect_one(
        ModelSettings(provider=name, base_url=url, model="m", timeout_s=5.0), {}, backoff=backoff
    )
    backoff.is_local = False
    return source


async def ask(source: ServerProvider) -> list[object]:
    try:
        return [item async for item in source.open("sys", [], "s").stream(HI)]
    finally:
        await source.aclose()


async def through(machine: Machine, down: Script, until_s: float, patience_s: float) -> list[object]:
    server = Flaky(machine, until_s, down)
    async with listening(server.serve) as server.port:
        return await ask(provider(server.url, machine.backoff(patience_s)))


DOWN = {
    "loading": Script([b'{"error":{"message":"x"}}'], 503, JSON, {"retry-after": "20"}),
    "busy": Script([b"bad gateway"], 502, "text/html"),
    "limited": Script([b"{}"], 429, JSON),
    "cut": Script([], 200, SSE, cut=True),
    "reset": Script([], 200, SSE, reset=True),
}


@pytest.mark.fast_rows("180.0-300.0", "880.0-900.0-busy")
@pytest.mark.parametrize("kind", DOWN)
@pytest.mark.parametrize(("outage_s", "patience_s"), [(30.0, 300.0), (180.0, 300.0), (880.0, 900.0)])
def test_an_outage_within_the_patience_ends_with_the_answer(kind: str, outage_s: float, patience_s: float):
    machine = Machine()
    items = asyncio.run(through(machine, DOWN[kind], outage_s, patience_s))
    reply, retries = items[-1], [item for item in items if isinstance(item, Retry)]
    assert isinstance(reply, ModelReply) and reply.message.content == "done"
    assert outage_s <= machine.now_s <= outage_s + 31.0
    assert len(retries) > 1 and max(machine.slept) <= 1.0
    assert all(a.left_s > b.left_s for a, b in itertools.pairwise(retries))


def test_a_longer_outage_fails_when_the_patience_is_over_and_says_the_status():
    machine = Machine()
    with pytest.raises(Unavailable) as caught:
        asyncio.run(through(machine, DOWN["busy"], 1e9, 300.0))
    assert 300.0 <= machine.now_s <= 301.0 and "HTTP 502" in caught.value.message


async def test_a_server_that_is_started_later_is_waited_for():
    machine, port = Machine(), quiet_port()
    server = Server()
    server.answer(ANSWER)
    started: list[asyncio.Server] = []

    async def start() -> None:
        started.append(await asyncio.start_server(server.serve, "127.0.0.1", port))

    tasks: list[asyncio.Task[None]] = []
    machine.at[40.0] = lambda: tasks.append(asyncio.create_task(start()))
    items = await ask(provider(f"http://127.0.0.1:{port}/v1", machine.backoff(300.0)))
    assert isinstance(items[-1], ModelReply) and machine.now_s >= 40.0
    assert isinstance(items[0], Retry) and "is the server running" in items[0].hint
    started[0].close()
    await started[0].wait_closed()


@pytest.mark.parametrize("what", ["resumed", "network"])
def test_a_wake_up_and_a_new_network_end_the_wait_at_once(what: str):
    machine = Machine()

    def happens() -> None:
        machine.address = "" if what == "network" else machine.address

    def back() -> None:
        if what == "network":
            machine.address = "192.168.7.2"
        else:
            machine.asleep_s += 8 * 3600

    machine.at = {100.0: happens, 101.0: back}
    down = Script([b"{}"], 503, JSON, {"retry-after": "250"})
    items = asyncio.run(through(machine, down, 101.0, 300.0))
    assert isinstance(items[-1], ModelReply) and machine.now_s == pytest.approx(101.0, abs=1.0)


def test_after_a_sleep_the_patience_begins_again():
    machine = Machine()

    def sleeps() -> None:
        machine.asleep_s += 3600

    machine.at = {290.0: sleeps}
    items = asyncio.run(through(machine, DOWN["busy"], 500.0, 300.0))
    assert isinstance(items[-1], ModelReply) and machine.now_s > 500.0


NO_KEY = Key("", "")


def test_the_patience_counts_from_the_first_failure_on_and_not_while_an_answer_streamed():
    machine = Machine()
    outage = Outage(machine.backoff(100.0), KeyPool([NO_KEY]))
    machine.now_s = 50.0
    down = Unavailable("down", hint="wait")
    assert outage.note_failure(down, NO_KEY, 10.0) == [Retry(1, 0.5, "down", 100.0, "wait")]
    asyncio.run(outage.wait())
    assert machine.now_s == 50.5
    machine.now_s = 80.0
    assert outage.note_failure(down, NO_KEY, 60.0) == [Retry(2, 1.0, "down", 79.5, "wait")]
    retries = [StreamRestarted("down"), Retry(3, 2.0, "down", 79.5, "wait")]
    assert outage.note_failure(down, NO_KEY, None) == retries
    asyncio.run(outage.wait())
    assert (machine.now_s, machine.slept) == (82.0, [0.5, 1.0, 1.0])
    assert outage.note_failure(down, NO_KEY, 82.0)[0] == Retry(4, 4.0, "down", 77.5, "wait")


def test_without_patience_only_the_tries_are_counted():
    machine = Machine()
    outage = Outage(machine.backoff(0.0, retries=2), KeyPool([NO_KEY]))
    down = Unavailable("down")
    assert outage.note_failure(down, NO_KEY, None) == [StreamRestarted("down")]
    asyncio.run(outage.wait())
    assert outage.note_failure(down, NO_KEY, 0.0) == [Retry(2, 1.0, "down")]
    with pytest.raises(Unavailable):
        outage.note_failure(down, NO_KEY, 0.0)
    assert machine.slept == [0.5]


def test_another_key_is_used_without_a_wait_and_counts_as_no_try():
    machine = Machine()
    first, second = Key("A", "a"), Key("B", "b")
    outage = Outage(machine.backoff(0.0), KeyPool([first, second]))
    text = "A was rejected; B is used now"
    assert outage.note_failure(AuthRejected("no", hint="check"), first, 0.0) == [Retry(1, 0.0, text)]
    asyncio.run(outage.wait())
    assert outage.note_failure(Unavailable("down"), second, 0.0) == [Retry(1, 0.5, "down")]
    assert outage.notices == [text] and machine.slept == []


async def test_text_that_was_shown_is_void_and_the_wait_is_told():
    part = Script([sse(b'{"choices":[{"delta":{"content":"do"}}]}')], cut=True)
    machine = Machine()
    async with running(part, ANSWER) as server:
        items = await ask(provider(server.url, machine.backoff(300.0)))
        assert [type(item) for item in items] == [
            TextDelta,
            AttemptLost,
            StreamRestarted,
            Retry,
            AnswerGrew,
            TextDelta,
            ModelReply,
        ]


def test_a_server_that_says_not_to_try_again_is_heeded():
    machine = Machine()
    down = Script([b"{}"], 500, JSON, {"x-should-retry": "false"})
    with pytest.raises(Unavailable):
        asyncio.run(through(machine, down, 1e9, 900.0))
    assert machine.now_s == 0.0


@pytest.mark.parametrize(
    "proxy", ["http://ann:pass-word-1@127.0.0.1:9", "socks5://127.0.0.1:9", "http://nobody.invalid"]
)
def test_a_dead_proxy_is_named_and_not_the_address_of_the_model(proxy: str, monkeypatch: pytest.MonkeyPatch):
    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", proxy)
    with pytest.raises(Unavailable) as caught:
        asyncio.run(ask(provider("http://models.invalid/v1", Machine().backoff(0.0, retries=0))))
    assert f"the proxy {proxy.rpartition('/')[2].rpartition('@')[2]}" in caught.value.message
    assert "HTTP_PROXY" in caught.value.hint and "base_url" not in caught.value.hint
    assert "pass-word" not in caught.value.message


STATUSES = [400, 401, 402, 403, 404, 413, 422, 429, 500, 502, 503, 529]
BODIES = [b'{"error":{"message":"x"}}', b"<html>", b""]


@each(("status", "body"), list(itertools.product(STATUSES, BODIES)))
async def test_the_status_is_in_the_line_of_every_answer(status: int, body: bytes):
    async with running(Script([body] if body else [], status, JSON)) as server:
        with pytest.raises(ProviderError) as caught:
            await ask(provider(server.url, Machine().backoff(0.0, retries=0)))
        assert caught.value.message.count(f"HTTP {status}") == 1


@pytest.mark.parametrize(
    ("after", "words"),
    [("3600", "60 min"), ("86400", "24 h"), ("90", "90 s"), ("119.2", "120 s")],
)
async def test_a_wait_longer_than_the_patience_is_told_in_the_hint(after: str, words: str) -> None:
    """https://github.com/earendil-works/pi/issues/9595"""
    limited = Script([b'{"error":{"message":"Rate limit"}}'], status=429, headers={"retry-after": after})
    async with running(limited) as server:
        with pytest.raises(RateLimited) as caught:
            await ask(provider(server.url, Backoff(2, patience_s=5.0)))
    assert caught.value.hint == f"wait, or add another key; the server wants no request for {words}"
    assert len(server.requests) == 1
