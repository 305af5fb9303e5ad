"""Random scripts destroy a tree through the real shell tool; a rewind brings it back, its undo the wreck."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.rewind.trees import back, fill, fingerprint, open_workspace, script, unlock
from tests.rewind.unprivileged import only_root, run_as_nobody
from tests.tools.running import call, context, find_tool
from whet.rewind.steps import begin_step, end_step
from whet.tools.process import Processes
from whet.tools.toolsets.terminal import SharedProcesses, ShellTools


def destroy_and_take_back(folder: Path, seed: int) -> None:
    rng = random.Random(seed)
    folder.mkdir()
    workspace = open_workspace(folder)
    root = folder / "work"
    fill(root, rng)
    states = [fingerprint(root)]
    firsts: list[int] = []
    processes = Processes()
    terminal = find_tool(ShellTools(SharedProcesses(processes)), "terminal")
    try:
        for step in range(1, rng.randrange(2, 5)):
            firsts.append(begin_step(workspace, "s", 1, step)[0])
            asyncio.run(call(terminal, context(root), command="bash -c " + _quoted(script(rng))))
            end_step(workspace, firsts[-1])
            states.append(fingerprint(root))
        chosen = rng.randrange(len(firsts))
        done = back(workspace, firsts[chosen])
        assert not done.conflicts and not done.failed, (seed, done)
        assert fingerprint(root) == states[chosen], f"seed {seed}: not what it was"
        if done.record:
            again = back(workspace, done.record)
            assert not again.conflicts and not again.failed, (seed, again)
        assert fingerprint(root) == states[-1], f"seed {seed}: not what it became"
    finally:
        processes.close()
        workspace.close()
        unlock(folder)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


@pytest.mark.fast_rows("0")
@pytest.mark.parametrize("seed", range(8))
def test_a_destroyed_tree_is_what_it_was(tmp_path: Path, seed: int) -> None:
    destroy_and_take_back(tmp_path / "t", seed)


@pytest.mark.slow
@only_root
def test_what_a_step_locked_for_its_own_owner_comes_back() -> None:
    def destroy(folder: Path) -> None:
        for seed in (1, 2, 20):
            destroy_and_take_back(folder / str(seed), seed)

    run_as_nobody(destroy)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(1_000, 1_500, 25))
def test_500_destroyed_trees_are_what_they_were(tmp_path: Path, first: int) -> None:
    for seed in range(first, first + 25):
        destroy_and_take_back(tmp_path / str(seed), seed)
