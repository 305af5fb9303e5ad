"""Helpers' working trees: nothing that is in one is thrown away unseen."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.app.helper_runs import helper, shell, steps
from tests.app.test_helpers import repository, results, turn, working
from whet.app.helpers import worktrees
from whet.app.helpers.task_runs import ListedTask, TaskList, run_tasks
from whet.store.helper_rows import MergePlan, WorkingTree

_IGNORED = "out/\n*.csv\nnode_modules/\n.venv/\n.env\n.envrc\nlinked\n"


def _work(folder: Path) -> Path:
    work = repository(folder)
    (work / ".gitignore").write_text(_IGNORED)
    return work


def _merge(folder: Path, work: Path, command: str) -> tuple[WorkingTree, MergePlan]:
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
@pytest.mark.parametrize(
    ("command", "kept"),
    [
        ("rm sub/b.txt; git init -q sub/b.txt; echo x > sub/b.txt/x.txt", ("sub/b.txt/",)),
        ("git init -q sub; echo x > sub/x.txt", ("sub/",)),
        ("git init -q out; rm sub/b.txt; ln -s ../out sub/b.txt", ("out/",)),
    ],
)
def test_a_repository_in_the_place_of_a_tracked_file_or_folder_is_kept(
    tmp_path: Path, command: str, kept: tuple[str, ...]
) -> None:
    work = _work(tmp_path)
    (work / "sub").mkdir()
    (work / "sub/b.txt").write_text("b\n")
    commit = "git add . && git -c user.name=n -c user.email=n commit -qm n"
    subprocess.run(commit, shell=True, cwd=work, check=True)
    tree = worktrees.plan_tree(work, "one", tmp_path / "trees")
    inside = worktrees.check_out_tree(tree, "one", work)
    subprocess.run(f"{command}; echo two > a.txt", shell=True, cwd=inside, check=True)
    before = _files(inside)
    plan = worktrees.merge(tree, "one", lambda: None, lambda plan: None)
    assert plan.done and plan.kept == kept and _files(inside) == before
    assert (work / "a.txt").read_text() == "two\n"


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
                commit = "git init -q && echo n > n && git add n"
                commit += " && git -c user.name=n -c user.email=n commit -qm n"
                subprocess.run(
                    commit if chance.random() < 0.5 else "git init -q", shell=True, cwd=path, check=True
                )
            if chance.random() < 0.8:
                _fill(chance, path, depth + 1)
        elif kind < 0.45:
            path.symlink_to(chance.choice(["a.txt", "/nowhere", "out"]))
        else:
            path.write_bytes(_random_content(chance))
            path.chmod(chance.choice([0o644, 0o755, 0o400, 0o000]))


def _random_content(chance: random.Random) -> bytes:
    if chance.random() < 0.02:
        return chance.randbytes(21_000_000)
    if chance.random() < 0.5:
        return b"".join(chance.choice([b"x\r\n", b"y\n", b"$Id$\n"]) for _ in range(chance.randint(1, 40)))
    return chance.randbytes(chance.choice([0, 10, 3_000]))


def _change(chance: random.Random, root: Path) -> None:
    """Edit, remove, rename or lock some of the files that are there."""
    for path in sorted(root.rglob("*")):
        if path.is_symlink() or not path.is_file() or ".git" in path.parts or chance.random() < 0.6:
            continue
        kind = chance.random()
        path.chmod(0o600)
        if kind < 0.5:
            path.write_bytes(path.read_bytes() + _random_content(chance)[:500])
        elif kind < 0.7:
            path.unlink()
        elif kind < 0.8:
            path.rename(path.with_name(f"{path.name} moved"))
        else:
            path.chmod(chance.choice([0o000, 0o400]))


_ATTRIBUTES = ("", "* text=auto\n", "* text eol=crlf\n", "* text eol=lf\n", "* ident\n", "*.txt -text\n")


def _check_random_tree(folder: Path, seed: int) -> None:
    """Check that each byte of a helper's tree is in the workspace or still in the tree, and that the
    workspace keeps what the helper did not change."""
    chance = random.Random(seed)
    work = _work(folder)
    (work / ".gitattributes").write_text(chance.choice(_ATTRIBUTES))
    _fill(chance, work)
    if chance.random() < 0.5:
        commit = "git ls-files -zo --exclude-standard | grep -zv '/$' | xargs -0r git add --"
        commit += "; git -c user.name=n -c user.email=n commit -qm b"
        subprocess.run(commit, shell=True, cwd=work, check=True)
    before = _files(work)
    tree = worktrees.plan_tree(work, "one", folder / "trees")
    inside = worktrees.check_out_tree(tree, "one", work)
    start = _files(inside)
    assert all(before[path] == data for path, data in start.items()), seed
    _change(chance, inside)
    _fill(chance, inside)
    theirs = _files(inside)
    plan = worktrees.merge(tree, "one", lambda: None, lambda plan: None)
    now = _files(work)
    if plan.conflicts:
        assert all((work / path).is_dir() for path in plan.conflicts), (seed, plan)
        assert (now, _files(inside)) == (before, theirs), (seed, plan)
        return
    assert plan.done, (seed, plan)
    lost = [path for path in theirs if now.get(path) != theirs[path]]
    assert not lost or (plan.kept and _files(inside) == theirs), (seed, lost, plan)
    untouched = {path: data for path, data in before.items() if theirs.get(path) == start.get(path)}
    assert {path: now.get(path) for path in untouched} == untouched, seed


@pytest.mark.slow
def test_no_byte_of_a_random_tree_is_lost(tmp_path: Path) -> None:
    for seed in range(12):
        _check_random_tree(tmp_path / str(seed), seed)


@pytest.mark.soak
@pytest.mark.timeout(3_600)
def test_no_byte_of_200_random_trees_is_lost(tmp_path: Path) -> None:
    for seed in range(200):
        _check_random_tree(tmp_path / "tree", seed)
        shutil.rmtree(tmp_path / "tree")


@pytest.mark.slow
def test_a_file_with_the_name_of_an_ignored_folder_is_a_conflict(tmp_path: Path) -> None:
    work = _work(tmp_path)
    (work / "node_modules").mkdir()
    (work / "node_modules" / "x.csv").write_text("mine")
    tree, plan = _merge(tmp_path, work, "echo theirs > node_modules")
    assert plan.conflicts == ("node_modules",) and "a folder that git does not carry" in plan.note
    assert (work / "node_modules" / "x.csv").read_text() == "mine"
    assert (Path(tree.place) / "node_modules").read_text() == "theirs\n"


@pytest.mark.slow
async def test_the_result_names_what_git_does_not_carry_and_where_a_tree_is_kept(tmp_path: Path) -> None:
    folder = _work(tmp_path)
    (folder / ".env").write_text("mine")
    async with working(tmp_path) as (_app, session):
        task = steps([shell("mkdir out; echo x > out/x; echo theirs > .env")])
        [text] = results(await turn(session, steps([helper(task, worktree=True)])))
        [path] = (tmp_path / "home-worktrees").glob("*/work")
        assert "copied into the workspace, though git does not carry them: out/" in text
        assert f"not copied: .env; its working tree is kept in {path}" in text
        assert (path / ".env").read_text() == "theirs\n" and (folder / "out/x").read_text() == "x\n"


@pytest.mark.slow
async def test_tasks_that_run_beside_each_other_lose_no_ignored_file(tmp_path: Path) -> None:
    folder = _work(tmp_path)
    async with working(tmp_path) as (app, _session):
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
