"""An application that wants whole requests at once: it gets them in the read that brought them."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest

from tests.confirm.running import request
from tests.web.test_cycle import body, call, serve, start
from whet.web.first_step import run_first_step

MARK: ContextVar[str] = ContextVar("MARK", default="")


class PromptApp:
    """Answers with its body. It notes whether a task ran it before its first wait, and after it."""

    def __init__(self, waits: str = "") -> None:
        self._waits = waits
        self.had_task: list[bool] = []
        self.marks: list[str] = []
        self.ended: list[str] = []

    def may_start_at_once(self, scope: Any) -> bool:
        return scope["path"] != "/later"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.had_task.append(asyncio.current_task() is not None)
        self.marks.append(MARK.get())
        MARK.set(scope["path"])
        data = b""
        while (message := await receive())["type"] == "http.request":
            data += message["body"]
            if not message.get("more_body"):
                break
        try:
            await self._wait(scope)
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise
        except ValueError:
            data += b" failed"
        self.had_task.append(asyncio.current_task() is not None)
        self.marks.append(MARK.get())
        await start(send, (b"content-length", str(len(data)).encode()))
        await body(send, data)

    async def _wait(self, scope: Any) -> None:
        if self._waits == "pass":
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        elif self._waits == "error":
            future = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(future.set_exception, ValueError())
            await future
        elif self._waits == "timeout":
            await asyncio.sleep(0)
            async with asyncio.timeout(60):
                await asyncio.sleep(0)
        elif self._waits == "done":
            future = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(future.set_result, None)
            await future


def post(port: int, path: str, text: str) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: {len(text)}\r\n\r\n"
    return (head + text).encode()


def play_all(app: PromptApp, *parts: str, cut: int = 0) -> bytes:
    async def play(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        raw = b"".join(post(port, f"/{name}", f"hello {name}") for name in parts)
        raw += request(port, "GET", "/last")
        for piece in (raw[:cut], raw[cut:]) if cut else (raw,):
            writer.write(piece)
            await writer.drain()
            for _ in range(5):  # passes of the loop, in which the server reads this piece
                await asyncio.sleep(0)
        answer = await reader.read()
        writer.close()
        return answer

    return serve(app, play)


def test_a_whole_request_that_waits_for_nothing_gets_no_task() -> None:
    app = PromptApp()
    assert b"hello one" in play_all(app, "one")
    assert app.had_task[:2] == [False, False]


@pytest.mark.parametrize("waits", ["pass", "done", "timeout"])
def test_a_request_that_waits_goes_on_as_a_task_in_its_own_context(waits: str) -> None:
    async def play(port: int) -> list[bytes]:
        raw = post(port, "/one", "hello").replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        return [await call(port, raw) for _ in range(2)]

    app = PromptApp(waits)
    assert all(answer.endswith(b"hello") for answer in serve(app, play))
    assert app.had_task == [False, True] * 2
    assert app.marks == ["", "/one"] * 2  # the second request does not see what the first has set


def test_an_error_of_what_is_waited_for_reaches_the_application() -> None:
    assert b"hello one failed" in play_all(PromptApp("error"), "one")


def test_a_request_that_is_not_whole_or_not_wanted_at_once_gets_a_task() -> None:
    app = PromptApp()
    assert b"hello later" in play_all(app, "later")
    assert app.had_task[0]
    app = PromptApp()
    assert b"hello one" in play_all(app, "one", cut=len(post(12345, "/one", "hello one")) - 3)
    assert app.had_task[0]


@pytest.mark.parametrize("waits", ["", "pass"])
def test_requests_sent_ahead_are_answered_in_their_order(waits: str) -> None:
    names = [f"number{number}" for number in range(40)]
    answer = play_all(PromptApp(waits), *names)
    places = [answer.index(f"hello {name}".encode()) for name in names]
    assert places == sorted(places)
    assert answer.count(b"HTTP/1.1 200 ") == 41


def test_a_request_that_waits_is_cancelled_as_the_server_ends() -> None:
    async def play() -> tuple[list[str], bool]:
        ended: list[str] = []

        async def work() -> None:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise

        task = run_first_step(asyncio.get_running_loop(), work())
        assert task is not None
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait((task,))
        return ended, task.cancelled()

    assert asyncio.run(play()) == (["cancelled"], True)


def test_an_application_that_fails_at_once_is_answered_for() -> None:
    class Failing(PromptApp):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            raise ValueError(scope["path"])

    async def play(port: int) -> bytes:
        return await call(port, post(port, "/one", "hello"))

    assert b"500 Internal Server Error" in serve(Failing(), play)
