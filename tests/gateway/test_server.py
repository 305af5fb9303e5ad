"""A gateway from its start to its end, in this process: why it ends, and what it lets go of then."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from tests.gateway.parts import PEOPLE, Wall
from whet.app.hosted import SessionHost
from whet.config.paths import Home
from whet.config.schema import ModelSettings, ReviewSettings, SandboxSettings, ScheduleSettings, Settings
from whet.contract.channels import Memo, SendFailed, Take, Verb
from whet.contract.errors import StoreError, WhetError
from whet.gateway.chat import ChatCommands
from whet.gateway.lock import TokenLock
from whet.gateway.server import Setup, serve
from whet.gateway.settings import ConfiguredChannel, GatewayChannelText, GatewayText


class Listening(Wall):
    """A platform that refuses the token; or where nobody says anything, and the gateway gets a signal."""

    def __init__(self, number: signal.Signals | None = None) -> None:
        super().__init__("one")
        self.number = number
        self.is_closed = False

    async def listen(self, take: Take, memo: Memo, wants: frozenset[Verb]) -> None:
        if self.number is None:
            raise SendFailed("the token was revoked", is_final=True, is_barred=True, status=401)
        signal.raise_signal(self.number)
        await asyncio.Event().wait()

    async def aclose(self) -> None:
        self.is_closed = True


def served(folder: Path, board: Listening) -> tuple[int, list[str], SessionHost]:
    """Serve until it ends. Gives the exit code, what was said, and the sessions."""
    settings = Settings(
        model=ModelSettings(provider="practice", base_url="http://127.0.0.1:9", model="practice"),
        review=ReviewSettings(worker="off"),
        sandbox=SandboxSettings(mode="off"),
        schedules=ScheduleSettings(worker="off"),
    )
    seat = ConfiguredChannel(board, GatewayChannelText("board"), ("a token",))
    setup = Setup(Home(folder / "home"), settings, {}, GatewayText(people=PEOPLE), [seat], folder)
    said: list[str] = []
    hosts: list[SessionHost] = []

    async def beside(hosted: SessionHost, stop: asyncio.Event) -> None:
        hosts.append(hosted)
        with pytest.raises(WhetError, match="another gateway"):
            TokenLock.take(folder / "home" / "gateway", "one", ("a token",))
        await stop.wait()
        await asyncio.sleep(0)
        hosted.app.database.write_now(lambda db: None)  # what it works with is open as long as it works
        said.append("beside: over")
        raise ValueError("it broke")

    code = asyncio.run(serve(setup, ChatCommands([]), said.append, beside))
    return code, said, hosts[0]


def is_let_go(folder: Path, board: Listening, hosted: SessionHost) -> bool:
    """Check that nothing of it is held any more."""
    TokenLock.take(folder / "home" / "gateway", "one", ("a token",)).release()
    with pytest.raises(StoreError):
        hosted.app.database.write_now(lambda db: None)
    with pytest.raises(WhetError, match="is ending"):
        asyncio.run(hosted.new_session())
    return board.is_closed


@pytest.mark.logs_errors("channel one is off")
def test_a_gateway_ends_by_itself_once_all_its_channels_are_off(tmp_path: Path) -> None:
    board = Listening()
    code, said, hosted = served(tmp_path, board)
    assert (code, said) == (1, ["one: listening", "one: off, the token was revoked", "beside: over"])
    assert is_let_go(tmp_path, board, hosted)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_gateway_that_is_told_to_stop_ends_well(tmp_path: Path, number: signal.Signals) -> None:
    board = Listening(number)
    code, said, hosted = served(tmp_path, board)
    assert (code, said) == (0, ["one: listening", "beside: over"])
    assert is_let_go(tmp_path, board, hosted)
