"""Helpers' working trees: nothing that is in one is thrown away unseen."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest

from tests.app.helper_runs import helper, shell, steps
from tests.app.test_helpers import repository, results, run, turn
from whet.agent.session import Session
from whet.app.build import App
from whet.app.helpers import worktrees
from whet.app.helpers.task_runs import ListedTask, TaskList, run_tasks
from whet.store.helper_rows import MergePlan, WorkingTree

_IGNORED = "out/\n*.csv\nnode_modules/\n.venv/\n.env\n.envrc\nlinked\n"


def _work(folder: Path) -> Path:
    work = repository(folder)
    (work / ".gitignore").write_text(_IGNORED)
    return work


def _merge(folder: Path, work: Path, command: str) -> tuple[WorkingTree, MergePlan]:
    """Have a command work in a tree and merge it."""
    tree = worktrees.plan_tree(work, "one", folder / "trees")
    inside = worktrees.check_out_tree(tree, "one", work)
    subprocess.run(command, shell=True, cwd=inside, check=True)
    return tree, worktrees.merge(tree, "one", lambda: None, lambda plan: None)


def _files(root: Path) -> dict[str, bytes]:
    """Return the files below a folder by path, without git's own."""
    return {
        str(path.relative_to(root)): os.fsencode(os.readlink(path))
        if path.is_symlink()
        else path.read_bytes()
        for path in root.rglob("*")
        if (path.is_symlink() or path.is_file()) and path.relative_to(root).parts[0] != ".git"
    }


@pytest.mark.slow
def test_ignored_files_and_empty_folders_are_copied_into_the_workspace(tmp_path: Path) -> None:
    work = _work(tmp_path)
    report = "cd out/deep && echo report > report.html && chmod +x report.html"
    report = f"mkdir -p out/deep empty/inner && {report}"
    tree, plan = _merge(
        tmp_path, work, f"({report}); echo 1 > data.csv; ln -s a.txt linked; echo two > a.txt"
    )
    assert (work / "a.txt").read_text() == "two\n" and plan.done
    assert (work / "out/deep/report.html").read_text() == "report\n"
    assert (work / "out/deep/report.html").stat().st_mode & 0o100
    assert (work / "data.csv").read_text() == "1\n" and os.readlink(work / "linked") == "a.txt"
    assert (work / "empty/inner").is_dir()
    assert sorted(plan.brought) == ["data.csv", "empty/", "linked", "out/"] and plan.kept == ()
    assert not Path(tree.place).exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "kept"),
    [
        ("echo theirs > .env", ".env"),
        ("mkdir out && truncate -s 21M out/big.bin", "out/"),
        ("mkdir node_modules && (cd node_modules && touch $(seq 1 501))", "node_modules/"),
        ("mkdir .venv && touch .venv/pyvenv.cfg", ".venv/"),
        ("touch .envrc", ".envrc"),
        ("git init -q inner && echo x > inner/x.txt", "inner/"),
        ("git clone -q . inner", "inner/"),
    ],
)
def test_what_is_not_copied_keeps_the_tree(tmp_path: Path, command: str, kept: str) -> None:
    work = _work(tmp_path)
    (work / ".env").write_text("mine")
    tree = worktrees.plan_tree(work, "one", tmp_path / "trees")
    inside = worktrees.check_out_tree(tree, "one", work)
    subprocess.run(f"{command}; echo two > a.txt", shell=True, cwd=inside, check=True)
    before = _files(inside)
    plan = worktrees.merge(tree, "one", lambda: None, lambda plan: None)
    assert plan.done and plan.kept == (kept,) and (work / "a.txt").read_text() == "two\n"
    assert (work / ".env").read_text() == "mine" and _files(inside) == before
    assert not (work / kept.rstrip("/")).exists() or kept == ".env"


@pytest.mark.slow
def test_a_merge_that_was_cut_off_copies_the_same_files(tmp_path: Path) -> None:
    work = _work(tmp_path)
    tree = worktrees.plan_tree(work, "one", tmp_path / "trees")
    inside = worktrees.check_out_tree(tree, "one", work)
    subprocess.run("mkdir out; echo x > out/x; echo two > a.txt", shell=True, cwd=inside, check=True)
    plans: list[MergePlan] = []

    def cut(plan: MergePlan) -> None:
        plans.append(plan)
        if plan.done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        worktrees.merge(tree, "one", lambda: None, cut)
    again = worktrees.merge(tree, "one", lambda: plans[0], plans.append)
    assert again.brought == ("out/",) and (work / "out/x").read_text() == "x\n"
    assert not Path(tree.place).exists()


def _fill(chance: random.Random, root: Path, depth: int = 0) -> None:
    for number in range(chance.randint(1, 4)):
        name = chance.choice(["out", "a", "b.csv", "c.txt", "node_modules", ".env", "é ü", "-n"]) + str(
            number
        )
        name = name.rstrip("0")
        path = root / name
        if path.exists() or path.is_symlink():
            continue
        kind = chance.random()
        if kind < 0.35 and depth < 3:
            path.mkdir()
            if chance.random() < 0.2:
                subprocess.run(["git", "init", "-q", str(path)], check=True)
            if chance.random() < 0.8:
                _fill(chance, path, depth + 1)
        elif kind < 0.45:
            path.symlink_to(chance.choice(["a.txt", "/nowhere", "out"]))
        else:
            path.write_bytes(chance.randbytes(chance.choice([0, 10, 3_000])))
            path.chmod(chance.choice([0o644, 0o755, 0o400]))


@pytest.mark.slow
def test_no_byte_of_a_random_tree_is_lost(tmp_path: Path) -> None:
    for seed in range(12):
        folder, chance = tmp_path / str(seed), random.Random(seed)
        work = _work(folder)
        _fill(chance, work)
        tree = worktrees.plan_tree(work, "one", folder / "trees")
        inside = worktrees.check_out_tree(tree, "one", work)
        _fill(chance, inside)
        mine, theirs = _files(work), _files(inside)
        plan = worktrees.merge(tree, "one", lambda: None, lambda plan: None)
        now = _files(work)
        assert plan.done, (seed, plan)
        lost = [path for path in theirs if now.get(path) != theirs[path]]
        assert not lost or (plan.kept and _files(inside) == theirs), (seed, lost, plan)
        assert {path: now.get(path) for path in mine} == mine, seed


@pytest.mark.slow
def test_the_result_names_what_git_does_not_carry_and_where_a_tree_is_kept(tmp_path: Path) -> None:
    folder = _work(tmp_path)
    (folder / ".env").write_text("mine")

    async def work(app: App, session: Session) -> None:
        task = steps([shell("mkdir out; echo x > out/x; echo theirs > .env")])
        [said] = results(await turn(session, steps([helper(task, worktree=True)])))
        [place] = (tmp_path / "home-worktrees").glob("*/work")
        assert "copied into the workspace, though git does not carry them: out/" in said
        assert f"not copied: .env; its working tree is kept in {place}" in said
        assert (place / ".env").read_text() == "theirs\n" and (folder / "out/x").read_text() == "x\n"

    run(tmp_path, work)


@pytest.mark.slow
def test_tasks_that_run_beside_each_other_lose_no_ignored_file(tmp_path: Path) -> None:
    folder = _work(tmp_path)

    async def work(app: App, session: Session) -> None:
        tasks = tuple(
            ListedTask(
                steps([shell(f"mkdir out; for file in same {name}; do echo {name} > out/$file; done")]),
                name,
                worktree=True,
            )
            for name in ("left", "right")
        )
        rows = await run_tasks(app.sessions, TaskList(tasks, "k"), "two")
        assert [row.reason for row in rows] == ["answered", "answered"]
        assert (folder / "out/left").is_file() and (folder / "out/right").is_file()
        assert (folder / "out/same").read_text() == "left\n"
        second = rows[1]
        assert second.merge is not None and second.merge.kept == ("out/same",) and second.tree is not None
        assert (Path(second.tree.place) / "out/same").read_text() == "right\n"

    run(tmp_path, work)
