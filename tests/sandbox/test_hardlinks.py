"""A command changes no file outside through its other name in the workspace, with each engine."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.jails import run
from tests.tools.calls import Desk
from whet.sandbox.hardlinks import WorkspaceLinks
from whet.sandbox.jail import Jail

pytestmark = pytest.mark.slow_rows("Landlock-with-namespaces")


def test_a_linked_file_of_a_cache_stays_as_it_is(jail: Jail, tmp_path: Path) -> None:
    cached = _linked(tmp_path / "cache" / "six.py", jail.policy.workspace / "lib" / "six.py")
    before = cached.stat()
    code, printed = run(
        jail, "echo EVIL >> lib/six.py; chmod 777 lib/six.py; touch lib/six.py; cat lib/six.py"
    )
    assert (code, printed) == (0, "safe\nEVIL\n")
    assert cached.read_text() == "safe\n"
    after = cached.stat()
    assert (after.st_mode, after.st_mtime_ns) == (before.st_mode, before.st_mtime_ns)


@pytest.mark.slow
def test_a_link_that_comes_while_the_jail_runs_is_replaced_before_a_command(
    jail: Jail, tmp_path: Path
) -> None:
    run(jail, "true")
    cached = _linked(tmp_path / "cache" / "six.py", jail.policy.workspace / "new" / "six.py")
    for _ in range(600):  # folders are looked at again once a second
        run(jail, "echo x >> ran")
        if os.stat(cached).st_nlink == 1:
            break
    run(jail, "echo EVIL >> new/six.py")
    assert cached.read_text() == "safe\n"


def test_a_command_can_not_link_a_file_from_outside(jail: Jail, tmp_path: Path) -> None:
    outside = tmp_path / "cache" / "six.py"
    outside.parent.mkdir()
    outside.write_text("safe\n")
    run(jail, f"ln {outside} own; ln /etc/hostname name; echo EVIL | tee -a own name")
    assert outside.read_text() == "safe\n"
    assert outside.stat().st_nlink == 1


@pytest.mark.slow
def test_objects_of_a_local_clone_are_not_shared(jail: Jail, tmp_path: Path) -> None:
    origin = tmp_path / "origin"
    subprocess.run(["git", "init", "-q", origin], check=True)
    (origin / "a.txt").write_text("a\n")
    git = ["git", "-C", origin, "-c", "user.name=a", "-c", "user.email=b"]
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "a"], check=True)
    jail.policy.workspace.rmdir()
    subprocess.run(["git", "clone", "-q", "--local", origin, jail.policy.workspace], check=True)
    run(jail, "chmod -R u+w .git/objects")
    text = (
        "find .git/objects -type f -exec sh -c 'echo EVIL >> $1' - {} ';'; grep -rl EVIL .git/objects | wc -l"
    )
    assert run(jail, text) == (0, "3\n")
    done = subprocess.run(["git", "-C", origin, "fsck", "--strict"], capture_output=True, text=True)
    assert done.returncode == 0 and "EVIL" not in done.stderr
    assert not any(
        b"EVIL" in path.read_bytes() for path in (origin / ".git/objects").rglob("*") if path.is_file()
    )


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("uv") is None, reason="uv is not installed")
def test_a_package_that_uv_linked_from_its_cache_is_not_shared(jail: Jail, tmp_path: Path) -> None:
    wheel = tmp_path / "six-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("six.py", "safe\n")
        archive.writestr("six-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: six\nVersion: 1.0\n")
        archive.writestr(
            "six-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("six-1.0.dist-info/RECORD", "six.py,,\n")
    workspace = jail.policy.workspace
    environment = {**os.environ, "UV_CACHE_DIR": str(tmp_path / "cache"), "UV_LINK_MODE": "hardlink"}
    environment.pop("VIRTUAL_ENV", None)
    for words in (("venv", "-q", "--offline"), ("pip", "install", "-q", "--offline", str(wheel))):
        subprocess.run(["uv", *words], cwd=workspace, env=environment, check=True)
    installed = next(workspace.glob(".venv/lib/python3.*/site-packages/six.py"))
    assert installed.stat().st_nlink > 1
    run(jail, "echo EVIL >> .venv/lib/python3.*/site-packages/six.py")
    assert installed.read_text() == "safe\nEVIL\n"
    assert {path.read_text() for path in (tmp_path / "cache").rglob("six.py")} == {"safe\n"}


def test_a_folder_is_opened_once_for_all_of_its_linked_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        _linked(tmp_path / "cache" / f"f{number}", tmp_path / "work" / "a" / "b" / f"f{number}")
    names: list[object] = []
    open_file = os.open

    def note(path: Any, *arguments: Any, **named: Any) -> int:
        names.append(path)
        return open_file(path, *arguments, **named)

    monkeypatch.setattr(os, "open", note)
    assert WorkspaceLinks((str(tmp_path / "work"),), frozenset()).separate() == 20
    assert names.count("b") == 1
    assert (tmp_path / "cache" / "f7").stat().st_nlink == 1


def test_links_within_the_workspace_stay_links(tmp_path: Path) -> None:
    one, two, three = (tmp_path / "ws" / name for name in ("a/one", "b/two", "b/three"))
    outside = _linked(tmp_path / "out", one)
    two.parent.mkdir()
    os.link(one, two)
    os.link(one, three)
    kept = _linked(tmp_path / "ws/a/kept", tmp_path / "ws/b/kept")
    before = kept.stat()
    one.chmod(0o741)
    os.utime(one, ns=(5, 7))
    links = WorkspaceLinks((str(tmp_path / "ws"),), frozenset())
    assert links.separate() == 3
    assert outside.stat().st_nlink == 1
    assert one.stat().st_nlink == 3 and os.path.samefile(one, two) and os.path.samefile(one, three)
    assert (one.read_text(), one.stat().st_mode & 0o777, one.stat().st_mtime_ns) == ("safe\n", 0o741, 7)
    assert (kept.stat().st_ino, kept.stat().st_nlink) == (before.st_ino, 2)
    assert sorted(path.name for path in (tmp_path / "ws").rglob("*")) == [
        "a",
        "b",
        "kept",
        "kept",
        "one",
        "three",
        "two",
    ]


def test_a_file_that_another_program_links_elsewhere_is_replaced(tmp_path: Path) -> None:
    """`git clone --local`, ccache and pnpm link files of the workspace, which changes no folder in it."""
    own, now = tmp_path / "ws" / "a" / "own", [0.0]
    own.parent.mkdir(parents=True)
    own.write_text("safe\n")
    links = WorkspaceLinks((str(tmp_path / "ws"),), frozenset(), lambda: now[0])
    assert links.separate() == 0
    os.link(own, tmp_path / "clone")
    now[0] = 59.0
    assert links.separate() == 0
    now[0] = 60.0
    assert links.separate() == 1
    assert (tmp_path / "clone").stat().st_nlink == 1 and not os.path.samefile(own, tmp_path / "clone")


def test_no_link_is_followed_out_of_the_workspace(tmp_path: Path) -> None:
    elsewhere = _linked(tmp_path / "cache" / "one", tmp_path / "other" / "one")
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws" / "led").symlink_to(tmp_path / "other")
    assert WorkspaceLinks((str(tmp_path / "ws"),), frozenset()).separate() == 0
    assert elsewhere.stat().st_nlink == 2


def test_a_hidden_folder_of_the_workspace_counts_as_outside(tmp_path: Path) -> None:
    cached = _linked(tmp_path / ".cache" / "six.py", tmp_path / "project" / "six.py")
    links = WorkspaceLinks((str(tmp_path),), frozenset((str(tmp_path / ".cache"),)))
    assert links.separate() == 1
    assert cached.stat().st_nlink == 1


@pytest.mark.parametrize("tool", ["write_file", "patch"])
def test_the_file_tools_leave_the_other_name_as_it_is(tmp_path: Path, tool: str) -> None:
    desk = Desk(tmp_path / "ws")
    outside = _linked(tmp_path / "cache" / "six.py", desk.workspace / "six.py")
    if tool == "write_file":
        desk.text("write_file", path="six.py", content="new\n")
    else:
        desk.text("patch", path="six.py", old_string="safe", new_string="new")
    assert (desk.workspace / "six.py").read_text() == "new\n"
    assert outside.read_text() == "safe\n"


def _linked(outside: Path, inside: Path) -> Path:
    """Make a file with a second name; returns the first."""
    outside.parent.mkdir(parents=True, exist_ok=True)
    inside.parent.mkdir(parents=True, exist_ok=True)
    outside.write_text("safe\n")
    os.link(outside, inside)
    return outside
