"""Repositories that came with settings: nothing of them runs in Whet's own git."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.app.test_helpers import repository
from whet.app.helpers import worktrees
from whet.approval.repository import find_risky_settings, remote_urls
from whet.config.paths import Home
from whet.contract.errors import WhetError
from whet.plugins.install import discard, fetch


class Hostile:
    """A repository in a workspace; `program` leaves the file `ran` behind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work = repository(folder)
        self.ran = folder / "ran"
        self.program = folder / "evil.sh"
        self.program.write_text(f"#!/bin/sh\ntouch {self.ran}\ncat\n")
        self.program.chmod(0o755)

    def git(self, *words: str) -> None:
        subprocess.run(["git", *words], cwd=self.work, check=True, capture_output=True)

    def set(self, **settings: str) -> None:
        """Set settings of the repository; `__` is a dot in their names."""
        for name, value in settings.items():
            self.git("config", name.replace("__", "."), value)

    def attribute(self, line: str) -> None:
        (self.work / ".gitattributes").write_text(f"{line}\n")

    def append(self, text: str) -> None:
        """Append text to the repository's settings, as no git writes it."""
        with (self.work / ".git/config").open("a") as file:
            file.write(text)

    def hooks(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name in (
            "post-checkout",
            "reference-transaction",
            "post-index-change",
            "pre-commit",
            "pre-auto-gc",
        ):
            shutil.copy(self.program, folder / name)

    def lose_an_object(self) -> None:
        """Have a blob missing, which a partial clone fetches when it is needed."""
        (self.work / ".git/objects/info/alternates").write_text(f"{self.folder}/other/objects\n")
        (self.folder / "other/objects").mkdir(parents=True)
        words = ["git", "rev-parse", "HEAD:a.txt"]
        blob = subprocess.run(words, cwd=self.work, capture_output=True, text=True, check=True)
        (self.work / f".git/objects/{blob.stdout[:2]}/{blob.stdout[2:].strip()}").unlink()
        (self.work / "a.txt").unlink()
        self.set(core__repositoryformatversion="1", extensions__partialClone="origin")
        self.set(remote__origin__promisor="true")


def _equals_sign(hostile: Hostile, kind: str) -> None:
    hostile.append(f'[filter "a=b"]\n{kind} = {hostile.program}\nrequired = true\n')
    hostile.attribute("* filter=a=b")


def _moved(hostile: Hostile) -> None:
    """Have `.git` be a file that leads to a folder of the workspace with settings of its own."""
    (hostile.work / ".git").rename(hostile.work / "elsewhere")
    (hostile.work / ".git").write_text("gitdir: elsewhere\n")
    hostile.set(filter__x__smudge=str(hostile.program), core__fsmonitor=str(hostile.program))
    hostile.hooks(hostile.work / "elsewhere/hooks")
    hostile.attribute("* filter=x")


def _lazy(hostile: Hostile, url: str, **settings: str) -> None:
    hostile.set(remote__origin__url=url, **settings)
    hostile.lose_an_object()


_Prepare = Callable[[Hostile], None]
VECTORS: dict[str, _Prepare] = {
    "clean with an equals sign": lambda h: _equals_sign(h, "clean"),
    "smudge with an equals sign": lambda h: _equals_sign(h, "smudge"),
    "process with an equals sign": lambda h: _equals_sign(h, "process"),
    "merge driver with an equals sign": lambda h: (
        h.append(f'[merge "a=b"]\ndriver = {h.program}\n'),
        h.attribute("* merge=a=b"),
    )[-1],
    "hooks": lambda h: h.hooks(h.work / ".git/hooks"),
    "hooksPath": lambda h: (h.hooks(h.work / "h"), h.set(core__hooksPath="h"))[-1],
    "hook in settings": lambda h: h.set(
        hook__x__command=str(h.program), hook__x__event="reference-transaction"
    ),
    "fsmonitor": lambda h: h.set(core__fsmonitor=str(h.program)),
    "pager and editor": lambda h: h.set(core__pager=str(h.program), core__editor=str(h.program)),
    "alias": lambda h: h.set(alias__add=f"!{h.program}", alias__reset=f"!{h.program}"),
    "external diff": lambda h: h.set(diff__external=str(h.program)),
    "textconv": lambda h: (h.attribute("* diff=x"), h.set(diff__x__textconv=str(h.program)))[-1],
    "signing": lambda h: h.set(
        commit__gpgSign="true",
        gpg__program=str(h.program),
        gpg__format="ssh",
        gpg__ssh__defaultKeyCommand=str(h.program),
    ),
    "maintenance": lambda h: h.set(
        gc__auto="1", gc__recentObjectsHook=str(h.program), maintenance__auto="true"
    ),
    "include": lambda h: (
        (h.work / "more").write_text(f'[filter "x"]\nsmudge = {h.program}\nclean = {h.program}\n'),
        h.attribute("* filter=x"),
        h.set(include__path="../more"),
    )[-1],
    "git file": _moved,
    "lazy ext": lambda h: _lazy(h, f"ext::{h.program}", protocol__ext__allow="always"),
    "lazy ssh": lambda h: _lazy(h, "ssh://host/x", core__sshCommand=str(h.program)),
    "lazy vcs": lambda h: _lazy(h, "https://127.0.0.1:1/x", remote__origin__vcs="ext"),
    "lazy local": lambda h: _lazy(h, str(h.work), remote__origin__uploadpack=str(h.program)),
    "lazy alternates": lambda h: _lazy(h, "https://127.0.0.1:1/x", core__alternateRefsCommand=str(h.program)),
    "lazy credentials": lambda h: _lazy(h, "https://127.0.0.1:1/x", credential__helper=f"!{h.program}"),
    "submodule": lambda h: h.set(submodule__recurse="true", submodule__x__update=f"!{h.program}"),
}


def _run_a_helper(hostile: Hostile) -> None:
    """Make a helper's tree, edit on both sides, and merge."""
    tree = worktrees.plan_tree(hostile.work, "one", hostile.folder / "trees")
    path = worktrees.check_out_tree(tree, "one", hostile.work)
    (path / "a.txt").write_text("theirs\n" * 9)
    (hostile.work / "a.txt").write_text("ours\n" * 9)
    plan = worktrees.merge(tree, "one", lambda: None, lambda plan: None)
    worktrees.text_changes(plan, tree)
    (path / "c.txt").write_text("c\n")
    worktrees.merge(tree, "two", lambda: None, lambda plan: None)


def _judge_commands(hostile: Hostile) -> None:
    """Look at the repository as the gate does before a question."""
    for verb in ("status", "diff", "log", "commit", "add"):
        find_risky_settings(str(hostile.work), verb, reads=verb != "commit")[0]
    remote_urls(str(hostile.work))


def _install_a_plugin(hostile: Hostile) -> None:
    """Install from the repository's folder and from a clone of it."""
    (hostile.work / "plugin.yaml").write_text("name: x\nversion: 1.0.0\ndescription: d\n")
    (hostile.work / "__init__.py").write_text("def register(ctx):\n    pass\n")
    for source in (str(hostile.work), f"file://{hostile.work}"):
        discard(fetch(Home(hostile.folder / "home"), source))


SURFACES = {"helper": _run_a_helper, "gate": _judge_commands, "plugin": _install_a_plugin}


@pytest.mark.slow
@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize("vector", VECTORS)
def test_nothing_of_a_repository_runs_in_whets_own_git(tmp_path: Path, vector: str, surface: str) -> None:
    hostile = Hostile(tmp_path)
    os.utime(hostile.work / "a.txt", ns=(1, 1))
    VECTORS[vector](hostile)
    with contextlib.suppress(WhetError):  # a refusal is right as well
        SURFACES[surface](hostile)
    assert not hostile.ran.exists()


@pytest.mark.slow
@pytest.mark.parametrize("vector", ["clean with an equals sign", "hooks", "fsmonitor", "git file", "include"])
def test_the_vectors_run_in_a_git_that_nothing_holds(tmp_path: Path, vector: str) -> None:
    hostile = Hostile(tmp_path)
    VECTORS[vector](hostile)
    for words in (["add", "-A"], ["checkout", "-f", "HEAD"], ["status"], ["commit", "-qm", "x"]):
        subprocess.run(["git", *words], cwd=hostile.work, capture_output=True)
    subprocess.run(
        ["git", "worktree", "add", "-f", str(tmp_path / "t")], cwd=hostile.work, capture_output=True
    )
    assert hostile.ran.exists()


@pytest.mark.slow
def test_a_helpers_tree_may_replace_its_git_file(tmp_path: Path) -> None:
    hostile = Hostile(tmp_path)
    tree = worktrees.plan_tree(hostile.work, "one", tmp_path / "trees")
    path = worktrees.check_out_tree(tree, "one", hostile.work)
    (path / ".git").unlink()
    inner = Hostile(tmp_path / "inner")
    _moved(inner)
    shutil.copytree(inner.work / "elsewhere", path / ".git")
    (path / ".gitattributes").write_text("* filter=x\n")
    (path / "a.txt").write_text("theirs\n")
    worktrees.merge(tree, "one", lambda: None, lambda plan: None)
    assert not inner.ran.exists()
    assert (hostile.work / "a.txt").read_text() == "theirs\n"


@pytest.mark.slow
def test_a_repository_whose_tree_lies_elsewhere_gets_no_helper(tmp_path: Path) -> None:
    """Its edits would be merged there."""
    other = repository(tmp_path / "of-a-person")
    hostile = Hostile(tmp_path)
    hostile.set(core__worktree=str(other))
    with pytest.raises(WhetError, match=r"core\.worktree"):
        worktrees.plan_tree(hostile.work, "one", tmp_path / "trees")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["whet-merge.lock", "whet-one.index", "worktrees", "refs/whet", "refs/whet/helpers", "index", "objects"],
)
def test_a_link_in_the_repository_leads_whets_git_nowhere(tmp_path: Path, name: str) -> None:
    """A command may write in `.git`, but not where the link leads."""
    hostile = Hostile(tmp_path)
    folder, file = tmp_path / "of-a-person", tmp_path / "of-a-person/notes.txt"
    folder.mkdir()
    file.write_text("mine\n")
    path = hostile.work / ".git" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        path.rename(folder / "moved")
    is_folder = name in ("worktrees", "refs/whet", "refs/whet/helpers")
    path.symlink_to(folder / "moved" if (folder / "moved").exists() else folder if is_folder else file)
    before = {entry: entry.stat() for entry in folder.rglob("*")}
    with contextlib.suppress(WhetError):
        _run_a_helper(hostile)
    after = {entry: entry.stat() for entry in folder.rglob("*")}
    assert file.read_text() == "mine\n"
    assert [state.st_mtime_ns for state in after.values()] == [state.st_mtime_ns for state in before.values()]
