"""Bringing a plugin in runs none of it, and never half of it stays."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.plugins.rig import TOOL, write
from whet.config.paths import Home
from whet.contract.errors import WhetError
from whet.plugins.install import discard, fetch, move_into_place


def repository(folder: Path) -> None:
    named = ["-c", "user.name=T", "-c", "user.email=t@example.com"]
    for command in (["init", "-q"], ["add", "-A"], [*named, "commit", "-qm", "x"]):
        subprocess.run(["git", *command], cwd=folder, check=True, timeout=60)


def leftovers(home: Path) -> list[str]:
    return [path.name for path in home.glob(".plugin-*")]


def test_a_folder_is_copied_without_running_it(home: Path, tmp_path: Path) -> None:
    folder = write(tmp_path, "source", "raise SystemExit('it ran')", manifest="name: named\nversion: 3\n")
    (folder / "__pycache__").mkdir()
    fetched = fetch(Home(home), str(folder))
    assert (fetched.manifest.name, fetched.manifest.version, fetched.files) == ("named", "3", 2)
    assert move_into_place(fetched) == home / "plugins" / "named"
    assert sorted(os.listdir(home / "plugins" / "named")) == ["__init__.py", "plugin.yaml"]
    assert not leftovers(home)
    with pytest.raises(WhetError, match="exists already"):
        fetch(Home(home), str(folder))
    assert not leftovers(home)


def test_a_repository_is_cloned_with_its_commit(home: Path, tmp_path: Path) -> None:
    folder = write(tmp_path, "source", TOOL.format(name="a"))
    repository(folder)
    fetched = fetch(Home(home), f"file://{folder}")
    assert len(fetched.commit) == 40 and fetched.files == 2
    move_into_place(fetched)
    assert (home / "plugins" / "source" / ".git").is_dir()


def test_a_folder_or_repository_lies_ready_under_its_own_name(home: Path, tmp_path: Path) -> None:
    folder = write(tmp_path, ".my plug-in", "", manifest="name: mine\n")
    for source in (str(folder), f"{folder}/"):
        fetched = fetch(Home(home), source)
        assert fetched.folder.name == "my-plug-in"
        discard(fetched)


def test_discarding_leaves_nothing(home: Path, tmp_path: Path) -> None:
    fetched = fetch(Home(home), str(write(tmp_path, "source", "")))
    assert leftovers(home)
    discard(fetched)
    assert not leftovers(home) and not (home / "plugins").exists()


def test_what_is_no_plugin_or_leads_out_of_its_folder_is_refused(home: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    linked = write(tmp_path, "linked", "")
    (linked / "keys").symlink_to("/etc/passwd")
    for source, reason in (
        (str(empty), "not a plugin"),
        (str(tmp_path / "nowhere"), "there is no folder"),
        (f"file://{tmp_path}/nowhere.git", "git can't clone"),
        (str(linked), "leads out of its folder"),
        ("--upload-pack=touch /tmp/x", "there is no folder"),
    ):
        with pytest.raises(WhetError, match=reason):
            fetch(Home(home), source)
    assert not leftovers(home)
