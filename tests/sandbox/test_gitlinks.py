"""Which repositories git enters, from indexes that git itself wrote."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from whet.sandbox.gitlinks import NestedRepositories, gitlinks


def git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=b@c", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A repository with files of many lengths, an embedded repository, one in that, and a submodule."""
    tree = tmp_path / "top"
    for folder in (tree, tree / "sub", tree / "sub" / "deep"):
        folder.mkdir(parents=True)
        git(folder, "init", "-q")
    git(tree / "sub" / "deep", "commit", "-q", "--allow-empty", "-m", "x")
    git(tree / "sub", "add", "deep")
    git(tree / "sub", "commit", "-q", "-m", "x")
    for length in range(1, 20):
        (tree / ("f" * length)).write_text("x")
    git(tree, "add", "-A")
    git(tree, "submodule", "add", str(tree / "sub"), "lib/sm")
    return tree


@pytest.mark.slow
@pytest.mark.parametrize("version", ["2", "3", "4"])
def test_every_form_of_an_index_is_read(top: Path, version: str) -> None:
    git(top, "update-index", "--index-version", version)
    if version == "3":
        git(top, "update-index", "--skip-worktree", "ffff")  # a longer entry
    assert list(gitlinks((top / ".git" / "index").read_bytes())) == ["lib/sm", "sub"]
    texts = [os.path.relpath(text, top) for text in NestedRepositories().repositories(str(top))]
    assert sorted(texts) == [".git/modules/lib/sm", "lib/sm/deep/.git", "sub/.git", "sub/deep/.git"]


def test_a_folder_that_git_takes_for_a_repository_is_one(tmp_path: Path) -> None:
    (tmp_path / "HEAD").touch()
    assert NestedRepositories().repositories(str(tmp_path)) == []
    (tmp_path / "sub").mkdir()
    git(tmp_path / "sub", "init", "-q", "--bare")
    (tmp_path / "objects").mkdir()
    assert NestedRepositories().repositories(str(tmp_path)) == [str(tmp_path), str(tmp_path / "sub")]


def test_a_repository_is_where_its_link_leads(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / ".git").symlink_to("../g")
    assert NestedRepositories().repositories(str(tmp_path)) == [str(tmp_path / "g")]


def test_what_is_no_index_names_nothing(tmp_path: Path) -> None:
    assert NestedRepositories().repositories(str(tmp_path)) == []
    (tmp_path / ".git").mkdir()
    for data in (b"", b"\0\0\xe0\0", b"DIRC\0\0\0\2\0\0\0\x09" + b"\0\0\xe0\0" * 4):
        (tmp_path / ".git" / "index").write_bytes(data)
        assert NestedRepositories().repositories(str(tmp_path)) == []
