"""What Ctrl-C does to a command that runs on a loop."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Generator
from typing import Any

import pytest

from whet.cli.main import run_on_loop


@pytest.fixture(autouse=True)
def _foreground() -> Generator[None]:  # pyright: ignore[reportUnusedFunction]
    """A suite started in the background ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_in_the_middle_of_a_callback_lets_it_finish() -> None:
    faults: list[object] = []
    settled: list[str] = []

    async def work() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, fault: faults.append(fault))
        waiter = loop.create_future()

        def settle() -> None:
            assert not waiter.done()
            signal.raise_signal(signal.SIGINT)
            waiter.set_result(None)
            settled.append("whole")

        loop.call_soon(settle)
        await waiter
        await asyncio.get_running_loop().create_future()

    with pytest.raises(KeyboardInterrupt):
        run_on_loop(work())
    assert settled == ["whole"]
    assert not faults
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_ends_what_waits_with_its_cleaning_done() -> None:
    cleaned: list[str] = []

    async def work() -> None:
        try:
            asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGINT)
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(0)
            cleaned.append("done")

    with pytest.raises(KeyboardInterrupt):
        run_on_loop(work())
    assert cleaned == ["done"]


def test_a_second_ctrl_c_waits_for_nothing() -> None:
    async def work() -> None:
        try:
            asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGINT)
            await asyncio.get_running_loop().create_future()
        finally:
            signal.raise_signal(signal.SIGINT)
            raise AssertionError("the second signal was not heard")

    with pytest.raises(KeyboardInterrupt):
        run_on_loop(work())


_TWICE = """\
import asyncio, signal, sys
from whet.cli import main

async def work():
    try:
        asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGTERM)
        await asyncio.get_running_loop().create_future()
    finally:
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(0)
        print("cleaned", flush=True)

class Command:
    def invoke(self):
        main.run_on_loop(work())

main._run = lambda arguments: Command().invoke()
sys.argv = ["whet", "x"]
sys.exit(main.main())
"""


@pytest.mark.slow
def test_a_sigterm_that_arrives_twice_lets_what_waits_clean_up() -> None:
    """`timeout` sends it to the process, and again to its group."""
    done = subprocess.run([sys.executable, "-c", _TWICE], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (143, "cleaned\n", "")


def test_a_command_that_ignores_ctrl_c_goes_on_ignoring_it() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    async def work() -> str:
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(0)
        return "done"

    assert run_on_loop(work()) == "done"
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_a_signal_in_the_moment_in_which_the_loop_closes_is_no_complaint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    base: Any = asyncio.SelectorEventLoop.__mro__[1]  # its close ends with the pipe
    closes = base.close

    def close(loop: asyncio.AbstractEventLoop) -> None:
        closes(loop)
        signal.raise_signal(signal.SIGTERM)

    async def work() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, print)

    def complain(fault: Any) -> None:
        complaints.append(fault.exc_value)

    complaints: list[object] = []
    monkeypatch.setattr(base, "close", close)
    monkeypatch.setattr(sys, "unraisablehook", complain)
    run_on_loop(work())
    assert not complaints


def test_what_was_cancelled_by_itself_stays_a_cancel() -> None:
    async def work() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        run_on_loop(work())
