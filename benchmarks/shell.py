"""What the command `true` costs beyond starting a program: the gate's look at it, and the tool around it.

Both in this process and in turn, so that a busy machine hits both alike. Unconfined: a jail has costs of its
own (`python -m benchmarks sandbox`). CPU of this process; the commands' own is the system's.
"""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from tests.tools.calls import context

from benchmarks.measure import own_cpu_s
from benchmarks.table import Row
from whet.agent.session import Session
from whet.app.build import App
from whet.config.paths import Home
from whet.config.permission_settings import SandboxSettings
from whet.config.schema import ModelSettings, Settings
from whet.contract.messages import ToolCall
from whet.contract.protocols import GateCall, NobodyPresent

GOAL_MS = 1.5
_COMMANDS = 100


def run(runs: int, full: bool) -> list[Row]:
    """The gate, the tool and a bare start; the least of the rounds each."""
    with tempfile.TemporaryDirectory() as folder:
        least = asyncio.run(_measure(Path(folder), max(3, runs)))
    beyond = least["gate"] + least["tool"] - least["start"]
    return [
        Row(
            "shell",
            "the command `true`, unconfined: CPU beyond the start of a program",
            f"≤ {GOAL_MS} ms",
            f"{beyond:.2f} ms (gate {least['gate']:.2f}, tool {least['tool']:.2f}, of it the start"
            f" {least['start']:.2f})",
            "none measured",
            beyond <= GOAL_MS,
            "python -m benchmarks shell",
        )
    ]


async def _measure(folder: Path, rounds: int) -> dict[str, float]:
    settings = Settings(
        model=ModelSettings(provider="practice", base_url="http://127.0.0.1:1/v1", model="m"),
        sandbox=SandboxSettings(mode="off"),
    )
    app = await App.start(Home(folder / "home"), settings, {}, NobodyPresent(), folder)
    session = await app.new_session()
    arms = {"start": _start, "gate": lambda: _ask(session), "tool": lambda: _command(session, folder)}
    least: dict[str, float] = {}
    for _ in range(rounds + 1):
        for name, arm in arms.items():
            least[name] = min(least.get(name, 1e9), await _spent(arm))
    await app.aclose()
    return least


async def _spent(arm: Callable[[], Awaitable[None]]) -> float:
    before_s = own_cpu_s()
    for _ in range(_COMMANDS):
        await arm()
    return 1000 * (own_cpu_s() - before_s) / _COMMANDS


async def _start() -> None:
    quiet = subprocess.DEVNULL
    command = ["/bin/sh", "-c", "true"]
    subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True).wait()


async def _ask(session: Session) -> None:
    call = ToolCall("c1", "terminal", '{"command":"true"}')
    place, tool = str(session.workspace), session.tools["terminal"]
    question = GateCall(session.id, call, tool, {"command": "true"}, place, "1.1.1", None, "t")
    decision = await session.gate.decide(question, lambda event: None)
    assert decision.verdict == "allow", decision


async def _command(session: Session, folder: Path) -> None:
    ctx = msgspec.structs.replace(context(), workspace=folder)
    output = await session.tools["terminal"].run(ctx, {"command": "true"})
    assert output.exit_code == 0, output
