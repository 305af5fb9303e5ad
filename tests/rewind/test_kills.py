"""kill -9 while a workspace is recorded or restored: what comes next finds nothing half done."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rewind.running import ANSWER, Consenting, running, shell
from tests.rewind.trees import back, fill, fingerprint, open_workspace, unlock
from whet.agent.loop import run_turn
from whet.contract.protocols import Answer, ApprovalRequest
from whet.rewind import database
from whet.rewind.recorder import Workspace
from whet.rewind.steps import begin_step, end_step
from whet.rewind.taking_back import finish_interrupted
from whet.store import facts
from whet_lab.practice.script import ScriptedReply


def child(work: Callable[[], object]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return pid


def killed(work: Callable[[], object], after_s: float) -> None:
    pid = child(work)
    time.sleep(after_s)  # the moment of the kill is what varies
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def killed_once(is_so: Callable[[], bool], work: Callable[[], object]) -> None:
    """Run `work` in a process of its own that is killed as soon as this is so, at no set time."""
    pid = child(work)
    while not is_so():
        if os.waitpid(pid, os.WNOHANG)[0]:
            return
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def wreck(root: Path, rng: random.Random) -> list[Path]:
    """Delete, add and change files; gives those that are gone."""
    names = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    for path in names[: len(names) // 2]:
        path.unlink()
    for index in range(30):
        (root / "made" / str(index % 5)).mkdir(parents=True, exist_ok=True)
        (root / "made" / str(index % 5) / f"f{index}").write_bytes(rng.randbytes(3_000))
    os.chmod(root / "made" / "1", 0o500)
    for path in names[len(names) // 2 :]:
        path.chmod(0o600)
        path.write_bytes(rng.randbytes(2_000))
    return names[: len(names) // 2]


def one_round(folder: Path, seed: int, *, while_restoring: bool) -> bool:
    """Give whether the kill came in the middle."""
    rng = random.Random(seed)
    folder.mkdir()
    root = folder / "work"
    open_workspace(folder)
    fill(root, rng)
    before = fingerprint(root)

    def record() -> None:
        workspace = open_workspace(folder)
        begin_step(workspace, "s", 1, 1)

    def restore() -> None:
        workspace = open_workspace(folder)
        first = workspace.file.read_now(lambda db: database.list_records(db, "s"))[0].id
        back(workspace, first)

    try:
        if not while_restoring:
            killed(record, rng.uniform(0.002, 0.12))
        workspace = open_workspace(folder)
        first, _ = begin_step(workspace, "s", 1, 1)
        back_first = rng.choice(wreck(root, rng))
        wrecked = fingerprint(root)
        if not while_restoring:
            workspace.close()
            killed(lambda: end_step(open_workspace(folder), first), rng.uniform(0.002, 0.06))
            workspace = open_workspace(folder)
            assert fingerprint(root) == wrecked
            back(workspace, first)
            assert fingerprint(root) == before, f"seed {seed}"
            workspace.close()
            return True
        end_step(workspace, first)
        workspace.close()
        killed_once(back_first.exists, restore)
        workspace = open_workspace(folder)
        mid = fingerprint(root)
        finished = finish_interrupted(workspace)
        now = fingerprint(root)
        assert now == (before if finished else mid), f"seed {seed}"
        assert now in (before, wrecked), f"seed {seed}: half done"
        if finished:
            assert not finished.failed, f"seed {seed}: {finished.failed}"
            back(workspace, finished.record)
            assert fingerprint(root) == wrecked, f"seed {seed}: not taken back"
        workspace.close()
        return finished is not None
    finally:
        unlock(folder)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("while_restoring", [False, True])
def test_a_kill_leaves_nothing_half_done(tmp_path: Path, seed: int, *, while_restoring: bool) -> None:
    one_round(tmp_path / "t", seed, while_restoring=while_restoring)


class AllowingOne(Consenting):
    """A person who allows one call. At their second question the program is killed, or they say no."""

    def __init__(self, *, kills: bool) -> None:
        super().__init__()
        self._kills = kills

    async def approve(self, request: ApprovalRequest) -> Answer | None:
        if self.requests and self._kills:
            os.kill(os.getpid(), signal.SIGKILL)
        self.decision = "no" if self.requests else "once"
        return await super().approve(request)


@pytest.fixture
def cut_session(tmp_path: Path) -> str:
    """A session that was killed in a step, after the first of its three commands."""

    async def turn() -> None:
        commands = ("echo 1 > made", "rm made", "echo 1 > never")
        reply = ScriptedReply(tool_calls=tuple(shell(command).tool_calls[0] for command in commands))
        async with running(tmp_path, [reply], person=AllowingOne(kills=True)) as r:
            (tmp_path / "session").write_text(r.session.id)
            await r.turn()

    os.waitpid(child(lambda: asyncio.run(turn())), 0)
    return (tmp_path / "session").read_text()


@pytest.mark.slow
async def test_a_step_that_goes_on_after_a_kill_names_only_what_it_changed_in_the_end(
    tmp_path: Path, cut_session: str
) -> None:
    async with running(tmp_path, [ANSWER], person=AllowingOne(kills=False), session_id=cut_session) as r:

        async def changed_files() -> list[tuple[int, int, str]]:
            return await r.app.database.read(lambda db: facts.list_changed_files(db, cut_session, 1, 1))

        assert await changed_files() == [(1, 1, "made")]
        await run_turn(r.session, None, r.events.append)
        assert not (tmp_path / "work/made").exists() and await changed_files() == []


@pytest.mark.slow
@pytest.mark.parametrize("at", range(4))
def test_a_kill_while_a_new_record_is_filled_leaves_it_usable(
    workspace: Workspace, root: Path, tmp_path: Path, at: int
) -> None:
    rng = random.Random(at)
    open_workspace(tmp_path)
    for number in range(40):
        (root / f"f{number}").write_bytes(rng.randbytes(1_000_000))
    before = fingerprint(root)

    def is_so() -> bool:
        files = list((tmp_path / "home").glob("rewind/*/files.db"))
        return bool(files) and files[0].stat().st_size > at * 10_000_000

    killed_once(is_so, lambda: begin_step(open_workspace(tmp_path), "s", 1, 1))
    first, _ = begin_step(workspace, "s", 1, 1)
    wreck(root, rng)
    end_step(workspace, first)
    back(workspace, first)
    assert fingerprint(root) == before


@pytest.mark.soak
def test_100_kills_leave_nothing_half_done(tmp_path: Path) -> None:
    middle = 0
    for seed in range(100):
        middle += one_round(tmp_path / str(seed), seed, while_restoring=seed % 2 == 1)
    assert middle > 90, f"only {middle} kills came in the middle"
