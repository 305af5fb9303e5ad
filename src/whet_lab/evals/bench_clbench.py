"""Runs tasks of Continual Learning Bench with Whet as the system: reward, gain and cost under four arms.

The benchmark's tasks and harness stay in their public checkout and run in its own Python (`clbench_driver`).
Each instance is a session of the program: `ours` keeps memory and skills and is reviewed, `notes` has the
memory tool only, `off` begins from nothing, and in `conversation` all instances are turns of one session.
`gain` is an arm's mean reward minus that of `off`, the benchmark's stateless baseline.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from whet.agent.loop import run_turn
from whet.agent.session import Session
from whet.app.build import App
from whet.config.paths import Home
from whet.config.schema import Settings
from whet.contract.errors import ConfigError
from whet.contract.messages import Usage
from whet.contract.protocols import NobodyPresent
from whet.contract.texts import from_json
from whet.stats import Interval, typical_mean
from whet.store import sessions

ARMS: dict[str, tuple[str, ...]] = {
    "off": (),
    "conversation": (),
    "notes": ("memory",),
    "ours": ("memory", "skills"),
}
_DRIVER = Path(__file__).with_name("clbench_driver.py")
_LINE_BYTES = 16_000_000
_TRIES = 3


class DriverLine(msgspec.Struct):
    """A line of the driver: a query, feedback at an instance's end, or the rewards of all instances."""

    instance: int = -1
    prompt: str = ""
    schema: dict[str, Any] = {}
    feedback: str = ""
    rewards: list[float] | None = None


class ClbenchArm(msgspec.Struct, frozen=True):
    """An arm's rewards by instance, its usage with that of reviews, and its gain over `off`."""

    arm: str
    rewards: tuple[float, ...]
    usage: Usage
    gain: Interval

    @property
    def mean(self) -> float:
        """The mean reward."""
        return sum(self.rewards) / max(len(self.rewards), 1)


class ClbenchCard(msgspec.Struct, frozen=True):
    """The results of a run."""

    task: str
    model: str
    arms: tuple[ClbenchArm, ...]


class ClbenchSetup(msgspec.Struct, frozen=True, kw_only=True):
    """A checkout with its Python, the task and its length, a folder for homes, and the model's settings."""

    repo: Path
    python: str
    task: str
    instances: int
    folder: Path
    settings: Settings
    secrets: Mapping[str, str]


async def run(setup: ClbenchSetup, arms: Sequence[str], progress: Callable[[str], None]) -> ClbenchCard:
    """Run the task under each arm. Raises ConfigError if the checkout's driver fails."""
    measured: dict[str, tuple[tuple[float, ...], Usage]] = {}
    for arm in arms:
        measured[arm] = await _run_arm(setup, arm, progress)
    base = measured.get("off", ((), Usage()))[0]
    rows = tuple(
        ClbenchArm(arm, rewards, usage, typical_mean([a - b for a, b in zip(rewards, base, strict=False)]))
        for arm, (rewards, usage) in measured.items()
    )
    return ClbenchCard(setup.task, setup.settings.model.model, rows)


async def _run_arm(
    setup: ClbenchSetup, arm: str, progress: Callable[[str], None]
) -> tuple[tuple[float, ...], Usage]:
    workspace = setup.folder / arm / "workspace"
    workspace.mkdir(parents=True, exist_ok=True)
    home = Home(setup.folder / arm / "home")
    async with (
        aclosing(
            await App.start(
                home, _arm_settings(setup.settings, arm), setup.secrets, NobodyPresent(), workspace
            )
        ) as app,
        _driver(setup) as driver,
    ):
        session: Session | None = None
        instance, tries = -1, 0
        rewards: tuple[float, ...] = ()
        while (line := await _read_line(driver)) is not None:
            if line.rewards is not None:
                rewards = tuple(line.rewards)
            elif line.prompt:
                if session is None or (line.instance != instance and arm != "conversation"):
                    session = await app.new_session()
                tries = tries + 1 if line.instance == instance else 0
                instance = line.instance
                progress(f"{arm}: instance {instance + 1} of {setup.instances}")
                answer = await _ask(session, line, tries)
                assert driver.stdin is not None
                driver.stdin.write(f"{answer}\n".encode())
            elif session is not None and line.feedback:
                await run_turn(session, session.user_message(line.feedback), lambda event: None)
                if arm == "ours":
                    await app.reviews.drain()
        rows = await app.database.read(
            lambda db: sessions.list_sessions(db, 1_000_000, kinds=("chat", "review"))
        )
    return rewards, sum((row.usage for row in rows), Usage())


async def _ask(session: Session, line: DriverLine, tries: int) -> str:
    """Return the model's answer as one line of JSON, or `{}` if it gives no JSON in several tries.

    `tries` is the number of earlier queries of the same instance. After several, raises ConfigError instead.
    """
    schema = json.dumps(line.schema)
    text = f"{line.prompt}\n\nAnswer with one JSON object of this schema and nothing else: {schema}"
    for _ in range(_TRIES):
        await run_turn(session, session.user_message(text), lambda event: None)
        reply = session.log.messages[-1].text
        begin, end = reply.find("{"), reply.rfind("}")
        try:
            return json.dumps(json.loads(reply[begin : end + 1]))
        except ValueError:
            text = f"That was no JSON object. Answer with one of this schema and nothing else: {schema}"
    if tries >= _TRIES:
        raise ConfigError("the model gives no valid answer to a query", hint="try another model")
    return "{}"


def _arm_settings(settings: Settings, arm: str) -> Settings:
    others = [name for name in settings.tools.toolsets if name not in ("memory", "skills")]
    tools = msgspec.structs.replace(settings.tools, toolsets=(*others, *ARMS[arm]), workspace="")
    review = settings.review
    if arm != "ours":
        review = msgspec.structs.replace(review, writes="off")
    return msgspec.structs.replace(settings, tools=tools, review=review)


@asynccontextmanager
async def _driver(setup: ClbenchSetup) -> AsyncGenerator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        setup.python,
        str(_DRIVER),
        "src",
        setup.task,
        str(setup.instances),
        cwd=setup.repo,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=_LINE_BYTES,
    )
    try:
        yield process
        assert process.stdin is not None
        process.stdin.close()
        if await process.wait():
            raise ConfigError(
                f"the task {setup.task} of {setup.repo} failed; its messages are above",
                hint="set it up with the benchmark's own `clbench setup`, and name its Python with --python",
            )
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _read_line(process: asyncio.subprocess.Process) -> DriverLine | None:
    assert process.stdout is not None
    line = await process.stdout.readline()
    return from_json(line, DriverLine) if line else None
