"""A gateway from its start to its end, in this process: why it ends, and what it lets go of then."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from tests.gateway.parts import PEOPLE, Rig, Wall, model, place, rig
from tests.support import let_pass
from whet.app.conversations.hosted import SessionHost
from whet.config.paths import Home
from whet.config.permission_settings import SandboxSettings
from whet.config.schema import ModelSettings, ReviewSettings, ScheduleSettings, Settings
from whet.contract.channels import Memo, SendFailed, Take, Verb
from whet.contract.errors import StoreBusy, StoreError, WhetError
from whet.gateway.chat import ChatCommands
from whet.gateway.lock import TokenLock
from whet.gateway.server import Setup, serve
from whet.gateway.settings import ConfiguredChannel, GatewayChannelText, GatewayText
from whet.store import chats

__all__ = ["model", "rig"]  # fixtures


class Listening(Wall):
    """A platform that refuses the token; or where nobody says anything, and the gateway gets a signal."""

    def __init__(self, number: signal.Signals | None = None) -> None:
        super().__init__("one")
        self.number = number
        self.is_closed = False

    async def listen(self, take: Take, memo: Memo, wants: frozenset[Verb]) -> None:
        if self.number is None:
            raise SendFailed("the token was revoked", is_final=True, is_barred=True, status=401)
        await take([])
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
    texts: list[str] = []
    hosts: list[SessionHost] = []

    async def beside(hosted: SessionHost, stop: asyncio.Event) -> None:
        hosts.append(hosted)
        with pytest.raises(WhetError, match="another gateway"):
            TokenLock.take(folder / "home" / "gateway", "one", ("a token",))
        await stop.wait()
        await asyncio.sleep(0)
        hosted.services.database.write_now(lambda db: None)  # what it works with is open as long as it works
        texts.append("beside: over")
        raise ValueError("it broke")

    code = asyncio.run(serve(setup, ChatCommands([]), texts.append, beside))
    return code, texts, hosts[0]


def is_let_go(folder: Path, board: Listening, hosted: SessionHost) -> bool:
    """Check that nothing of it is held any more."""
    TokenLock.take(folder / "home" / "gateway", "one", ("a token",)).release()
    with pytest.raises(StoreError):
        hosted.services.database.write_now(lambda db: None)
    with pytest.raises(WhetError, match="is ending"):
        asyncio.run(hosted.new_session())
    return board.is_closed


@pytest.mark.logs_errors("channel one is off")
def test_a_gateway_ends_by_itself_once_all_its_channels_are_off(tmp_path: Path) -> None:
    board = Listening()
    code, texts, hosted = served(tmp_path, board)
    assert (code, texts) == (1, ["one: off, the token was revoked", "beside: over"])
    assert is_let_go(tmp_path, board, hosted)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_gateway_that_is_told_to_stop_ends_well(tmp_path: Path, number: signal.Signals) -> None:
    board = Listening(number)
    code, texts, hosted = served(tmp_path, board)
    assert (code, texts) == (0, ["one: listening", "beside: over"])
    assert is_let_go(tmp_path, board, hosted)


class Busy(Wall):
    """A platform that listens in vain: its first updates can't be stored, and then it is gone."""

    tries = 0

    async def listen(self, take: Take, memo: Memo, wants: frozenset[Verb]) -> None:
        self.tries += 1
        if self.tries == 1:
            raise StoreBusy("busy")
        raise SendFailed("gone", is_final=True)


@pytest.mark.logs_errors("channel one is off")
async def test_a_channel_gives_its_store_time_before_it_listens_again(rig: Rig) -> None:
    board = Busy("one")
    listening = asyncio.create_task(rig.server.listen(board, rig.intake))
    for _ in range(20):
        await asyncio.sleep(0)
    assert board.tries == 1
    let_pass(5)
    await listening
    assert board.tries == 2


async def test_old_rows_are_dropped_now_and_then_and_not_all_the_time(rig: Rig) -> None:
    async def leave(update_id: str) -> None:
        row = rig.received(place(), update_id)
        await rig.app.database.append(lambda db: chats.set_update_state(db, row.id, "done"))

    async def go_on() -> None:
        for _ in range(50):
            await rig.app.database.read(lambda db: None)

    await leave("u1")
    pruning = asyncio.create_task(rig.server.prune())
    while rig.state("u1"):
        await asyncio.sleep(0)
    for _ in range(2):
        await go_on()
        let_pass(1)  # it looks again until nothing more is found
    await go_on()
    await leave("u2")
    await go_on()
    assert rig.state("u2") == "done"
    pruning.cancel()
