"""Working trees of helpers: one git of ours at a time in a repository, also after a kill."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.app.test_helpers import repository
from tests.support import wait_until
from whet.app.helpers import worktrees
from whet.store.helper_rows import MergePlan

_GIT = """#!/bin/sh
case " $* " in *" worktree "*) "{python}" "{look}" $PPID "$@" ;; esac
exec "{git}" "$@"
"""
_LOOK = """
import fcntl, os, signal, sys
program, words = int(sys.argv[1]), sys.argv[2:]
if os.path.exists("{deadly}"):
    os.unlink("{deadly}")
    os.kill(program, signal.SIGKILL)
    try:
        while True:
            os.kill(program, 0)
    except ProcessLookupError:
        pass
with open("{log}", "a") as log, open("{lock}", "a") as lock:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        state = "free"
    except BlockingIOError:
        state = "held"
    print(words[words.index("worktree") + 1], state, file=log)
"""


def _gits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Put a git before the others that writes down whether the repository is held when it works on trees, and
    kills who runs it where a file says so; gives what it writes, and that file."""
    programs, log, deadly = folder / "programs", folder / "log", folder / "deadly"
    look = folder / "look.py"
    programs.mkdir()
    names = {"python": sys.executable, "git": shutil.which("git"), "log": log, "deadly": deadly, "look": look}
    names["lock"] = folder / "work" / ".git" / "whet-merge.lock"
    (programs / "git").write_text(_GIT.format_map(names))
    look.write_text(_LOOK.format_map(names))
    (programs / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    return log, deadly


def _merged(folder: Path, workspace: Path, name: str) -> MergePlan:
    tree = worktrees.plan_tree(workspace, name, folder / "trees")
    (worktrees.check_out_tree(tree, name, workspace) / f"{name}.txt").write_text("new\n")
    return worktrees.merge(tree, name, lambda: None, lambda plan: None)


@pytest.mark.slow
def test_a_repository_is_held_while_git_works_on_its_trees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = repository(tmp_path)
    log, _ = _gits(tmp_path, monkeypatch)
    assert _merged(tmp_path, work, "one").done
    assert log.read_text().splitlines() == ["add held", "remove held"]


@pytest.mark.slow
def test_a_git_that_outlives_its_program_holds_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = repository(tmp_path)
    log, deadly = _gits(tmp_path, monkeypatch)
    deadly.touch()
    tree = worktrees.plan_tree(work, "one", tmp_path / "trees")
    make = "import sys; from pathlib import Path; from whet.app.helpers import worktrees;"
    make += " from whet.store.helper_rows"
    make += (
        " import WorkingTree; worktrees.check_out_tree(WorkingTree(*sys.argv[1:4]), 'one', Path(sys.argv[4]))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", make, tree.place, tree.repository, tree.base, str(work)], check=False
    )
    assert ran.returncode == -signal.SIGKILL
    wait_until(lambda: log.is_file() and log.read_text())
    assert (worktrees.check_out_tree(tree, "one", work) / "a.txt").is_file()
    assert log.read_text().splitlines() == ["add held", "add held"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["one", "other"])
def test_what_a_killed_git_left_is_in_nobodys_way(tmp_path: Path, name: str) -> None:
    work = repository(tmp_path)
    tree = worktrees.plan_tree(work, "one", tmp_path / "trees")
    half = work / ".git" / "worktrees" / "work"
    half.mkdir(parents=True)
    (half / "gitdir").write_text(f"{tree.place}/.git\n")
    (half / "HEAD").write_text("0" * 40 + "\n")
    (half / "commondir").touch()
    (work / ".git" / f"whet-{name}.index.lock").touch()
    assert _merged(tmp_path, work, name).done
    assert (work / f"{name}.txt").read_text() == "new\n"


def test_an_edit_in_the_moment_of_the_last_commit_is_seen(tmp_path: Path) -> None:
    work = repository(tmp_path, "old\n")
    subprocess.run("git config core.trustctime false", shell=True, cwd=work, check=True)
    index, file = work / ".git" / "index", work / "a.txt"
    at = file.stat().st_mtime_ns
    os.utime(index, ns=(at, at))  # as where both are written within one tick of the clock
    with file.open("r+") as text:
        text.write("new\n")
    os.utime(file, ns=(at, at))
    tree = worktrees.plan_tree(work, "one", tmp_path / "trees")
    assert (worktrees.check_out_tree(tree, "one", work) / "a.txt").read_text() == "new\n"


BY_SETTINGS = {
    "a filter on the way in": "filter.x.clean",
    "a filter on the way out": "filter.x.smudge",
    "a filter that lives on": "filter.x.process",
    "a driver of merges": "merge.x.driver",
    "a driver of diffs": "diff.x.command",
    "text of what is none": "diff.x.textconv",
    "a diff of its own": "diff.external",
    "a watch of files": "core.fsmonitor",
    "a way of refs": "core.alternateRefsCommand",
    "a program of ssh": "core.sshCommand",
    "a key of signatures": "gpg.program",
}


@pytest.mark.slow
@pytest.mark.parametrize("how", BY_SETTINGS)
@pytest.mark.parametrize("where", ["here", "in a submodule", "in its working trees"])
def test_git_runs_nothing_of_a_repositorys_choosing(tmp_path: Path, how: str, where: str) -> None:
    """A repository that came with its settings, as in an archive, and files that name its drivers."""
    work, ran = repository(tmp_path), tmp_path / "ran"
    folder = work
    if where == "in a submodule":
        folder = repository(work / "sub")
        add = "git add -f sub/work && git -c user.name=n -c user.email=n@l commit -qm s"
        subprocess.run(add, shell=True, cwd=work, check=True)
    (folder / ".gitattributes").write_text("*.txt filter=x merge=x diff=x\n")
    key = BY_SETTINGS[how]
    settings = {key: f"touch {ran}", "commit.gpgSign": "true"}
    if key.startswith("filter"):
        settings["filter.x.required"] = "true"
    file = [] if where != "in its working trees" else ["-f", ".git/trees"]
    include = ["git", "config", "includeIf.gitdir:**/worktrees/**.path", "trees"]
    subprocess.run(include, cwd=folder, check=True)
    for key, value in settings.items():
        subprocess.run(["git", "config", *file, key, value], cwd=folder, check=True)
    (folder / "b.txt").write_text("b\n")
    os.utime(folder / "a.txt", ns=(1, 1))
    tree = worktrees.plan_tree(work, "one", tmp_path / "trees")
    place = worktrees.check_out_tree(tree, "one", work)
    (place / "a.txt").write_text("theirs\n" * 9)
    (work / "a.txt").write_text("ours\n" * 9)
    worktrees.merge(tree, "one", lambda: None, lambda plan: None)
    (place / "c.txt").write_text("c\n")
    worktrees.merge(tree, "two", lambda: None, lambda plan: None)
    assert not ran.exists()
