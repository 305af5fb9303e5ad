"""One turn as an answer: whole or as a stream, silent, failing, revoked, and left by its client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from starlette.requests import Request

from tests.support import cancel_task, wait_for_cancel
from whet.contract.errors import StoreBusy, WhetError
from whet.contract.events import EndReason, TextDelta, TurnEnd
from whet.contract.messages import Usage
from whet.serve.suspended_turn import ApiEvent
from whet.serve.turn_responder import TurnResponder, failure_of
from whet.serve.wire import ApiError
from whet.web.connection import WebConnection

Emit = Callable[[ApiEvent], None]


class Plain:
    """A client's shape that is read at a glance; events that are not text have no piece."""

    beat = b"beat "
    answer = ""

    def event(self, event: ApiEvent) -> bytes:
        return event.text.encode() + b" " if isinstance(event, TextDelta) else b""

    def end(self, end: TurnEnd) -> bytes:
        return b"end"

    def encode_error(self, error: ApiError) -> bytes:
        return f"failed {error.status} {error.message}".encode()

    def whole(self, end: TurnEnd) -> object:
        return {"text": end.text}


def ended(reason: EndReason = "answered", **more: Any) -> TurnEnd:
    return TurnEnd("s", "t", reason, "Said.", 1, Usage(), 0.1, **more)


class Client:
    """Asks for one turn and keeps what it is sent."""

    def __init__(self) -> None:
        self.line = WebConnection()
        self.sent: list[dict[str, Any]] = []
        self.came = asyncio.Event()

    @property
    def scope(self) -> dict[str, Any]:
        return {
            "type": "http",
            "method": "POST",
            "path": "/v1/x",
            "headers": [],
            "extensions": {"whet.line": self.line},
        }

    async def send(self, message: Any) -> None:
        self.sent.append(message)
        self.came.set()

    async def listen(
        self,
        work: Callable[[Emit, Callable[[str], None]], Coroutine[Any, Any, TurnEnd]],
        *,
        beat_s: float = 60.0,
        head_wait_s: float = 60.0,
        may_go_on: Callable[[], bool] = lambda: True,
    ) -> tuple[int, str, str]:
        """Give the status of a stream, its session and all that it said."""
        response = TurnResponder(beat_s, head_wait_s).stream(work, Plain(), may_go_on)
        await response(self.scope, Request(self.scope).receive, self.send)
        head = {name: value.decode() for name, value in self.sent[0]["headers"]}
        text = b"".join(message.get("body", b"") for message in self.sent).decode()
        return self.sent[0]["status"], head.get(b"x-whet-session", ""), text


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(20):
            await main()

    asyncio.run(limited())


async def test_a_client_that_hangs_up_stops_its_turn_and_a_cancel_of_ours_stays_one() -> None:
    stopped: list[str] = []
    begun = asyncio.Event()

    async def work(emit: Emit, name: Callable[[str], None]) -> TurnEnd:
        begun.set()
        return await wait_for_cancel(stopped)

    client, responder = Client(), TurnResponder(1.0, 1.0)
    answering = asyncio.create_task(responder.respond(Request(client.scope), work, Plain()))
    await begun.wait()
    client.line.cut()
    answer = await answering
    assert answer.status_code == 499 and stopped == ["turn"]
    begun.clear()
    answering = asyncio.create_task(responder.respond(Request(Client().scope), work, Plain()))
    await begun.wait()
    await cancel_task(answering)
    assert stopped == ["turn"] * 2


async def test_a_stream_gives_pieces_as_they_come_and_ends() -> None:
    client = Client()

    async def work(emit: Emit, name: Callable[[str], None]) -> TurnEnd:
        name("s1")
        emit(TextDelta("a"))
        await client.came.wait()
        emit(TextDelta("b"))
        return ended()

    assert await client.listen(work) == (200, "s1", "a b end")
    assert [message.get("body") for message in client.sent[1:]] == [b"a ", b"b ", b"end", b""]


@pytest.mark.parametrize("is_begun", [False, True])
async def test_a_failure_is_a_status_before_the_first_piece_and_a_last_piece_after_it(is_begun: bool) -> None:
    client = Client()

    async def work(emit: Emit, name: Callable[[str], None]) -> TurnEnd:
        if is_begun:
            emit(TextDelta("a"))
            await client.came.wait()
        raise StoreBusy("busy")

    status, _, text = await client.listen(work)
    assert (status, text) == (200, "a failed 409 busy") if is_begun else status == 409 and "busy" in text
    other = Client()

    async def refusing(emit: Emit, name: Callable[[str], None]) -> TurnEnd:
        if is_begun:
            emit(TextDelta("a"))
            await other.came.wait()
        return ended("failed", error="it broke", hint="try later")

    status, _, text = await other.listen(refusing)
    told = "it broke (try later)"
    assert (status, text) == (200, f"a failed 502 {told}") if is_begun else status == 502 and told in text


@pytest.mark.parametrize("is_begun", [False, True])
async def test_a_token_that_is_revoked_meanwhile_ends_its_stream(is_begun: bool) -> None:
    stopped: list[str] = []

    async def work(emit: Emit, name: Callable[[str], None]) -> TurnEnd:
        if is_begun:
            emit(TextDelta("a"))
        return await wait_for_cancel(stopped)

    looks: list[int] = []

    def may_go_on() -> bool:
        looks.append(1)
        return len(looks) < 2

    status, _, text = await Client().listen(work, beat_s=0.02, may_go_on=may_go_on)
    if is_begun:
        assert (status, text.replace("beat ", "")) == (200, "a failed 401 this token was revoked")
    else:
        assert status == 401 and "this token was revoked" in text
    assert stopped == ["turn"] and len(looks) == 2


async def test_a_stream_is_silent_until_its_head_is_due_and_then_beats() -> None:
    client = Client()
    hush = asyncio.Event()

    async def work(emit: Emit, name: Callable[[str], None]) -> TurnEnd:
        await hush.wait()
        return ended()

    listening = asyncio.create_task(client.listen(work, beat_s=0.02, head_wait_s=0.1))
    began_s = asyncio.get_running_loop().time()
    await client.came.wait()
    assert asyncio.get_running_loop().time() - began_s > 0.09
    while len(client.sent) < 4:
        client.came.clear()
        await client.came.wait()
    hush.set()
    status, _, text = await listening
    assert status == 200 and text.startswith("beat beat beat ") and text.endswith("end")


@pytest.mark.parametrize(
    ("end", "told"),
    [
        (ended(), None),
        (ended("budget"), None),
        (ended("refused"), None),
        (ended("failed"), (502, "the turn failed", "turn_failed", "")),
        (ended("failed", error="a", hint="b"), (502, "a (b)", "turn_failed", "")),
        (ended("crashed", error="a"), (502, "a", "turn_failed", "")),
        (ended("cancelled"), (409, "the turn was cancelled", "turn_cancelled", "")),
    ],
)
def test_what_a_turns_end_is_to_a_client(end: TurnEnd, told: tuple[int, str, str, str] | None) -> None:
    api_error = failure_of(end)
    assert (
        None if api_error is None else (api_error.status, api_error.message, api_error.code, api_error.param)
    ) == told
    assert not isinstance(api_error, ApiError) or isinstance(api_error, WhetError)
