"""Puts a command before the gate, with nobody there to ask, and really runs it in its jail if it may run."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path

from benchmarks.walls.stepwise import PERSON
from benchmarks.walls.world import World
from whet.approval.confined import JailGate
from whet.approval.gate import GateParts, PolicyGate
from whet.approval.policy import PolicyGrant
from whet.config.permission_settings import ApprovalMode, ApprovalSettings
from whet.contract.messages import ToolCall
from whet.contract.protocols import GateCall, NobodyPresent
from whet.contract.tools import Tool, ToolContext, ToolOutput, ToolSpec
from whet.sandbox.backend import ConfinementSettings
from whet.sandbox.confinement import Confinement
from whet.sandbox.jail import JailedCommand
from whet.sandbox.status import EngineStatus

_LIMIT_S = 10


class _Confinement(Confinement):
    """With an engine of our choice."""

    def __init__(self, engine: EngineStatus, home: Path, environment: dict[str, str]) -> None:
        super().__init__(ConfinementSettings("auto", home), environment)
        self._engine = engine

    def status(self) -> EngineStatus:
        return self._engine


class _NoGrants:
    async def add(self, tool: str, pattern: str, workspace: str) -> None:
        raise AssertionError("nobody is there to grant anything")

    async def all(self) -> Sequence[PolicyGrant]:
        return ()


async def _never(ctx: ToolContext, arguments: dict[str, object]) -> ToolOutput:
    raise AssertionError("the gate runs nothing")


class Bench:
    """A gate in one mode, before one engine."""

    def __init__(self, world: World, engine: EngineStatus, mode: ApprovalMode) -> None:
        self._world = world
        self._calls = 0
        home = world.home / ".whet"
        self._confinement = _Confinement(engine, home, world.environment)
        jails = JailGate(lambda: self._confinement)
        parts = GateParts(jails=lambda: jails)
        self._gate = PolicyGate(ApprovalSettings(mode=mode), NobodyPresent(), _NoGrants(), home, parts)
        self._tool = Tool(
            ToolSpec("terminal", "", {}),
            "terminal",
            frozenset({"execute"}),
            _never,
            tags=frozenset({"command"}),
        )

    def may_run(self, command: str) -> bool:
        """Whether nobody need be asked."""
        self._calls += 1
        call = ToolCall(f"c{self._calls}", "terminal", "{}")
        case = GateCall("s", call, self._tool, {"command": command}, str(self._world.workspace))
        decision = asyncio.run(self._gate.decide(case, lambda event: None))
        self.said: str = decision.reason
        return decision.verdict == "allow"

    def run(self, command: str, limit_s: float = _LIMIT_S) -> tuple[int, bytes]:
        """Run the command that was last let through, as `terminal` does: where the wall stops it, it is told
        what it would need."""
        jail = self._confinement.jail(self._world.workspace, "s", f"c{self._calls}")
        assert jail is not None, "the gate gave a command all rights"
        with tempfile.TemporaryFile() as output, open(os.devnull, "rb") as nothing:
            wanted = JailedCommand(
                ["/bin/bash", "-c", command], jail.environment(self._world.environment), self._world.workspace
            )
            process = jail.spawn(wanted, (nothing.fileno(), output.fileno(), output.fileno()))
            try:
                code = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait(5)
            output.seek(0)
            said = output.read(1_000_000)
            if code:
                what = (command, said.decode("utf-8", "replace"), self._world.workspace)
                self._confinement.explain(f"c{self._calls}", jail, what)
            return code, said

    @property
    def is_stopped(self) -> bool:
        """Whether the wall stopped the command that was run last."""
        return self._confinement.denial_of(f"c{self._calls}") is not None

    def close(self) -> None:
        """End the jails."""
        self._confinement.close()


def run_bare(world: World, command: str, limit_s: float = _LIMIT_S) -> tuple[int, bytes]:
    """Run a command with nothing to hold it; only for what aims at the throwaway world."""
    process = subprocess.Popen(
        ["/bin/bash", "-c", command],
        cwd=world.workspace,
        env=world.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
    return process.returncode, output


def go_on(world: World) -> None:
    """Do what a person does after a command, with a person's rights and environment."""
    subprocess.run(
        ["/bin/bash", "-c", PERSON],
        cwd=world.workspace,
        env={"HOME": str(world.home), "PATH": os.environ["PATH"]},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )


def in_script(world: World, command: str) -> str:
    """Write the command into a script of the workspace; gives what runs it. Each has a name of its own: what
    the wall stopped is asked about when the same text comes again."""
    name = f"step-{zlib.crc32(command.encode())}.sh"
    (world.workspace / name).write_text(command + "\n")
    return f"bash {name}"


def make_world() -> World:
    """Make a world below the person's own home, where no engine's private folders hide it."""
    home = Path(os.path.expanduser("~"))
    return World(Path(tempfile.mkdtemp(prefix="whet-walls-", dir=home)))


def remove(world: World) -> None:
    """End a world and remove it."""
    world.close()
    shutil.rmtree(world.root, ignore_errors=True)
