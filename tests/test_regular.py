"""Whatever a command put under a name that Whet reads by itself, reading it ends, and soon."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from whet.app.git_branch import read_branch
from whet.context.prompt import project_instructions
from whet.regular import read_regular
from whet.sandbox.gitlinks import NestedRepositories, git_folder


@pytest.fixture(params=["pipe", "device", "sparse"])
def odd(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A file that a plain read would wait for, or never come to the end of."""
    folder = tmp_path / "odd"
    if request.param == "pipe":
        os.mkfifo(folder)
    elif request.param == "device":
        folder.symlink_to("/dev/urandom")
    else:
        folder.touch()
        os.truncate(folder, 2**40)
    return folder


def test_a_read_ends(odd: Path) -> None:
    try:
        assert len(read_regular(odd, 1_000)) == 1_000
    except OSError as error:
        assert "not a regular file" in str(error)


@pytest.mark.parametrize("name", [".git/index", ".git", ".git/HEAD"])
def test_whoever_looks_at_a_repository_goes_on(odd: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "w").mkdir()
    if name != ".git":
        (tmp_path / "w" / ".git").mkdir()
    odd.rename(tmp_path / "w" / name)
    assert NestedRepositories().repositories(str(tmp_path / "w")) == []
    assert git_folder(str(tmp_path / "w"))
    assert "\n" not in read_branch(tmp_path / "w")


def test_a_projects_instructions_are_short_and_its_own(odd: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    workspace.mkdir()
    odd.rename(workspace / "AGENTS.md")
    assert len(project_instructions(workspace)) < 20_000
    (workspace / "AGENTS.md").unlink()
    (tmp_path / "key").write_text("KEY-1")
    (workspace / "AGENTS.md").symlink_to("../key")
    assert project_instructions(workspace) == ""
    (workspace / "real.md").write_text("Be brief.")
    (workspace / "CLAUDE.md").symlink_to("real.md")
    assert "Be brief." in project_instructions(workspace)


def test_a_folder_that_leads_out_is_none_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "f").write_text("x")
    (tmp_path / "w" / "d").symlink_to("../other")
    assert read_regular(tmp_path / "w" / "d" / "f", 10) == b"x"
    with pytest.raises(OSError, match="leads out"):
        read_regular(tmp_path / "w" / "d" / "f", 10, tmp_path / "w")
