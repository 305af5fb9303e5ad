"""Programs that Whet runs by itself are never those that a command may have put into the workspace."""

from __future__ import annotations

import os
import subprocess
import venv
from pathlib import Path

import pytest

from tests.app.test_helpers import repository
from tests.tools.calls import Desk
from whet.app.helpers import worktrees
from whet.approval.repository import find_risky_settings
from whet.goals.roles import installed_modules
from whet.searchpath import find_trusted_program, trusted_path


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A workspace whose virtual environment is active and has programs that leave a trace; and that."""
    workspace = repository(tmp_path)
    programs, trace = workspace / ".venv" / "bin", tmp_path / "ran"
    programs.mkdir(parents=True)
    for name in ("git", "rg", "python3", "python"):
        (programs / name).write_text(f'#!/bin/sh\necho "$0" >> {trace}\n')
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(workspace)
    assert subprocess.run(["git", "status"], check=True).returncode == 0 and trace.exists()
    trace.unlink()
    return workspace, trace


def test_a_search_runs_no_program_of_the_workspace(trap: tuple[Path, Path]) -> None:
    workspace, trace = trap
    desk = Desk(workspace)
    assert "a.txt" in desk.text("search_files", pattern="a.*", target="names")
    assert not trace.exists()


def test_looking_at_a_repository_runs_none(trap: tuple[Path, Path]) -> None:
    workspace, trace = trap
    (workspace / "deep").mkdir()
    with (workspace / ".git" / "config").open("a") as config:
        config.write("[core]\n\tfsmonitor = evil\n")
    assert "evil" in find_risky_settings(str(workspace / "deep"))[0]
    assert not trace.exists()


def test_working_trees_are_made_by_none(trap: tuple[Path, Path], tmp_path: Path) -> None:
    workspace, trace = trap
    tree = worktrees.plan_tree(workspace, "h1", tmp_path / "trees")
    worktrees.check_out_tree(tree, "h1", workspace)
    assert Path(tree.place, "a.txt").exists()
    assert not trace.exists()


@pytest.mark.parametrize("way", ["import {}", "a path"])
def test_an_interpreter_elsewhere_runs_nothing_that_its_packages_lead_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """As an environment beside the workspace does, in which that is installed to be worked on."""
    workspace, trace, env = tmp_path / "work", tmp_path / "ran", tmp_path / "env"
    workspace.mkdir()
    venv.create(env, symlinks=True)
    (site,) = env.glob("lib/python3*/site-packages")
    (site / "there.py").touch()
    (site / "own.pth").write_text(f"{workspace}\n" + (way.format("hook") + "\n" if "{" in way else ""))
    for name in ("sitecustomize", "hook"):
        (workspace / f"{name}.py").write_text(f"open({str(trace)!r}, 'w')\n")
    monkeypatch.setenv("PATH", f"{env / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert "there" in installed_modules(["there", "nowhere_at_all"], workspace)
    assert "nowhere_at_all" not in installed_modules(["nowhere_at_all"], workspace)
    assert not trace.exists()


def test_an_interpreter_of_the_workspace_is_looked_at_and_not_run(trap: tuple[Path, Path]) -> None:
    workspace, trace = trap
    (workspace / ".venv" / "lib" / "python3.12" / "site-packages" / "mine").mkdir(parents=True)
    assert "mine" in installed_modules(["mine", "yours"], workspace)
    assert not trace.exists()


def test_links_into_a_workspace_are_seen_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace, linked = tmp_path / "w", tmp_path / "linked"
    (workspace / "bin").mkdir(parents=True)
    (workspace / "bin" / "tool").write_text("")
    (workspace / "bin" / "tool").chmod(0o755)
    linked.symlink_to(workspace / "bin")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "tool").symlink_to(workspace / "bin" / "tool")
    monkeypatch.setenv("PATH", f".:{linked}:{tmp_path / 'other'}")
    assert trusted_path(workspace) == str(tmp_path / "other")
    assert find_trusted_program("tool", workspace) is None
    assert find_trusted_program("tool", tmp_path / "elsewhere") == str(linked / "tool")
