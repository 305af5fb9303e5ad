"""The CPU time of a command and its children is known, in the sandbox and outside of it."""

from __future__ import annotations

import asyncio
import os
from contextlib import closing
from pathlib import Path

import pytest

from tests.sandbox.engines import ENGINES
from tests.sandbox.jails import made_jail
from tests.tools.running import call, context, find_tool
from whet.sandbox.jail import JailedCommand
from whet.sandbox.jailed_process import JailedProcess
from whet.tools.process import Processes
from whet.tools.shell import command_environment
from whet.tools.toolsets.terminal import SharedProcesses, ShellTools


def _run(folder: Path, command: str) -> float | None:
    with closing(Processes()) as processes:
        terminal = find_tool(ShellTools(SharedProcesses(processes)), "terminal")
        return asyncio.run(call(terminal, context(folder), command=command)).cpu_s


@pytest.mark.slow
def test_a_result_says_how_much_cpu_the_command_and_its_children_used(tmp_path: Path) -> None:
    used_s: list[float] = []
    for command in ("sleep 0.3; echo waited", "python3 -c 'for i in range(20_000_000): pass'; echo worked"):
        cpu_s = _run(tmp_path, command)
        assert cpu_s is not None
        used_s.append(cpu_s)
    assert 0 <= used_s[0] < used_s[1]


@pytest.mark.slow
def test_the_cpu_time_of_a_command_and_its_children_is_reported(tmp_path: Path) -> None:
    with made_jail(ENGINES[0], tmp_path) as jail:
        inside = jail.environment(command_environment(os.environ))
        null = os.open(os.devnull, os.O_RDWR)
        used_s: list[float] = []
        for text in ("true", "python3 -c 'for i in range(20_000_000): pass'; true"):
            command = JailedCommand(["bash", "-c", text], inside, jail.policy.workspace)
            ended = jail.spawn(command, (null, null, null))
            assert isinstance(ended, JailedProcess)
            ended.wait(60)
            used_s.append(-1.0 if ended.cpu_s is None else ended.cpu_s)
        os.close(null)
    assert 0 <= used_s[0] < used_s[1]
