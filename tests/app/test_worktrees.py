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
from whet.contract.errors import ToolError
from whet.sandbox.path_rules import read_path_rules
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
    path = worktrees.check_out_tree(tree, "one", work)
    (path / "a.txt").write_text("theirs\n" * 9)
    (work / "a.txt").write_text("ours\n" * 9)
    worktrees.merge(tree, "one", lambda: None, lambda plan: None)
    (path / "c.txt").write_text("c\n")
    worktrees.merge(tree, "two", lambda: None, lambda plan: None)
    assert not ran.exists()


_LINES = b"one\r\ntwo\nthree $Id$\r\nfour\nfive\r\nsix\nseven\nend"
CONVERSIONS = {
    "text=auto": ("* text=auto", ""),
    "eol=crlf": ("* text eol=crlf", ""),
    "eol=lf": ("* text eol=lf", ""),
    "ident": ("* ident", ""),
    "an encoding": ("*.txt text working-tree-encoding=UTF-16 eol=crlf", ""),
    "core.autocrlf true": ("", "git config core.autocrlf true"),
    "core.autocrlf input": ("", "git config core.autocrlf input"),
    "info/attributes": ("", "mkdir -p .git/info; echo '* text eol=crlf' > .git/info/attributes"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", CONVERSIONS)
def test_a_merge_keeps_every_byte_that_the_helper_did_not_change(tmp_path: Path, kind: str) -> None:
    attributes, command = CONVERSIONS[kind]
    work = repository(tmp_path)
    lines = _LINES.decode().encode("utf-16") if kind == "an encoding" else _LINES
    for name in ("a.txt", "plain.txt", 'quote" \n.txt', "other.txt"):
        (work / name).write_bytes(lines)
    (work / ".gitattributes").write_text(f"{attributes}\n")
    commit = "git add . && git -c user.name=n -c user.email=n@localhost commit -qm b"
    subprocess.run(f"{command or 'true'}; {commit}", shell=True, cwd=work, check=True)
    (work / "untracked.txt").write_bytes(lines)
    before = {path.name: path.read_bytes() for path in work.glob("*.txt")}
    tree = worktrees.plan_tree(work, "one", tmp_path / "trees")
    inside = worktrees.check_out_tree(tree, "one", work)
    assert {path.name: path.read_bytes() for path in inside.glob("*.txt")} == before
    status = subprocess.run(["git", "status", "--short"], cwd=inside, capture_output=True, check=True)
    assert status.stdout == b""
    encoding = "utf-16-le" if kind == "an encoding" else "utf-8"
    changes = {
        name: ("two".encode(encoding), "2".encode(encoding)) for name in ("plain.txt", 'quote" \n.txt')
    }
    for name, (old, new) in changes.items():
        (inside / name).write_bytes(before[name].replace(old, new))
    with (work / "other.txt").open("ab") as other:
        other.write("\r\nmine\n".encode(encoding))
    assert worktrees.merge(tree, "one", lambda: None, lambda plan: None).done
    wanted = {name: data.replace(*changes.get(name, (b"", b""))) for name, data in before.items()}
    wanted["other.txt"] += "\r\nmine\n".encode(encoding)
    assert {path.name: path.read_bytes() for path in work.glob("*.txt")} == wanted


@pytest.mark.slow
def test_a_merge_keeps_the_modes_of_files(tmp_path: Path) -> None:
    work = repository(tmp_path)
    (work / "a.txt").chmod(0o660)
    tree = worktrees.plan_tree(work, "one", tmp_path / "trees")
    inside = worktrees.check_out_tree(tree, "one", work)
    for name, mode in (("new", 0o600), ("run", 0o750)):
        (inside / name).write_text(name)
        (inside / name).chmod(mode)
    (inside / "a.txt").write_text("changed\n")
    assert worktrees.merge(tree, "one", lambda: None, lambda plan: None).done
    modes = {path.name: path.stat().st_mode & 0o777 for path in work.iterdir() if path.is_file()}
    assert modes == {"a.txt": 0o660, "new": 0o600, "run": 0o750}


@pytest.mark.slow
def test_a_merge_keeps_the_names_the_attributes_and_the_owner_of_files(tmp_path: Path) -> None:
    work = repository(tmp_path)
    for name in ("linked.txt", "marked.txt", "theirs.txt"):
        (work / name).write_text("one\n")
    subprocess.run(
        "git add . && git -c user.name=n -c user.email=n commit -qm n", shell=True, cwd=work, check=True
    )
    os.link(work / "linked.txt", work / "second.txt")
    os.setxattr(work / "marked.txt", "user.note", b"keep me")
    if os.getuid() == 0:
        os.chown(work / "theirs.txt", 1234, 1234)
    owners = {path.name: path.stat().st_uid for path in work.glob("*.txt")}
    tree = worktrees.plan_tree(work, "one", tmp_path / "trees")
    inside = worktrees.check_out_tree(tree, "one", work)
    for name in ("linked.txt", "marked.txt", "theirs.txt"):
        (inside / name).write_text("two\n")
    (inside / "second.txt").write_text("two\n")
    assert worktrees.merge(tree, "one", lambda: None, lambda plan: None).done
    assert {path.read_text() for path in work.glob("*.txt") if path.name != "a.txt"} == {"two\n"}
    assert (work / "linked.txt").samefile(work / "second.txt")
    assert os.getxattr(work / "marked.txt", "user.note") == b"keep me"
    assert {path.name: path.stat().st_uid for path in work.glob("*.txt")} == owners


@pytest.mark.slow
def test_a_merge_writes_no_file_that_a_deny_rule_protects(tmp_path: Path) -> None:
    work = repository(tmp_path)
    (work / ".gitignore").write_text("out/\n")
    rules = read_path_rules(["write(*.lock)"])
    tree = worktrees.plan_tree(work, "one", tmp_path / "trees", rules)
    inside = worktrees.check_out_tree(tree, "one", work)
    (inside / "a.txt").write_text("changed\n")
    (inside / "out").mkdir()
    (inside / "out" / "b.lock").write_text("theirs")

    def find_rule(path: str) -> str:
        return rules.find(work / path, work, writes=True)

    plan = worktrees.merge(tree, "one", lambda: None, lambda plan: None, find_rule)
    assert plan.done and plan.kept == ("out/",) and not (work / "out").exists()
    tree = worktrees.plan_tree(work, "two", tmp_path / "trees", rules)
    (worktrees.check_out_tree(tree, "two", work) / "app.lock").write_text("theirs")
    plan = worktrees.merge(tree, "two", lambda: None, lambda plan: None, find_rule)
    assert plan.conflicts == ("app.lock",) and "write(*.lock) protects app.lock" in plan.note
    assert not (work / "app.lock").exists() and Path(tree.place).exists()


@pytest.mark.slow
def test_no_copy_is_made_of_a_file_that_a_rule_names_by_its_absolute_path(tmp_path: Path) -> None:
    work = repository(tmp_path)
    rules = read_path_rules([f"read({work}/a.txt)"])
    with pytest.raises(ToolError, match=r"protects a\.txt here, and not in a helper's copy"):
        worktrees.plan_tree(work, "one", tmp_path / "trees", rules)
    worktrees.plan_tree(
        work, "one", tmp_path / "trees", read_path_rules([f"read({work}/b.txt)", "read(a.txt)"])
    )
