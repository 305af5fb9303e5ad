"""No name leads out of the workspace, whatever it looks like and whenever links appear."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
from pathlib import Path

import pytest

from tests.tools.calls import Desk
from whet.contract.errors import BadInput, ToolDenied
from whet.tools.paths import (
    ConfinedPath,
    folder_of,
    kind,
    missing_error,
    open_file,
    printable,
    resolve,
    system_error,
)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "inside.txt").write_text("in")
    (tmp_path / "outside.txt").write_text("secret")
    (tmp_path / "work-too").mkdir()
    return folder


@pytest.mark.parametrize(
    "name",
    ["../outside.txt", "sub/../../outside.txt", "/etc/passwd", "../work-too/x", "~/x",
     "/proc/self/environ", "/dev/null", "link/outside.txt", "link-to-file", "dangling"],
)  # fmt: skip
def test_a_way_out_is_denied(workspace: Path, name: str) -> None:
    (workspace / "link").symlink_to(workspace.parent)
    (workspace / "link-to-file").symlink_to("../outside.txt")
    (workspace / "dangling").symlink_to(workspace.parent / "not-yet")
    with pytest.raises(ToolDenied):
        resolve(name, workspace)


@pytest.mark.parametrize("name", ["", "  ", "a\0b", "x" * 5000, "\ud800"])
def test_what_can_be_no_path_is_bad_input(workspace: Path, name: str) -> None:
    with pytest.raises(BadInput):
        open_file(resolve(name, workspace))


def test_inside_names_are_found(workspace: Path) -> None:
    (workspace / "alias").symlink_to("inside.txt")
    for name in ("inside.txt", "./inside.txt", str(workspace / "inside.txt"), "alias", "x/../inside.txt"):
        target = resolve(name, workspace)
        assert (target.shown, kind(target)) == ("inside.txt", "file")
    assert resolve(".", workspace).shown == "."
    assert kind(resolve("nothing", workspace)) == ""


def test_a_workspace_behind_a_link_works(workspace: Path) -> None:
    alias = workspace.parent / "alias"
    alias.symlink_to(workspace)
    for name in ("inside.txt", str(alias / "inside.txt"), "./inside.txt"):
        target = resolve(name, alias)
        assert (target.path, target.link_name) == (workspace / "inside.txt", "")


def test_allowed_folders_are_reached_and_only_they(workspace: Path) -> None:
    new, allowed = str(workspace.parent / "work-too/new"), [workspace.parent / "work-too"]
    assert resolve(new, workspace, allowed).shown == new
    with pytest.raises(ToolDenied):
        resolve(str(workspace.parent / "outside.txt"), workspace, allowed)


def test_system_files_stay_closed_even_when_the_workspace_is_the_root() -> None:
    for name in ("/proc/self/environ", "/sys/kernel", "/dev/zero"):
        with pytest.raises(ToolDenied, match="system path"):
            resolve(name, Path("/"))


def test_home_is_expanded(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(workspace))
    assert resolve("~/inside.txt", workspace).shown == "inside.txt"


def test_a_link_planted_after_the_check_is_not_followed(workspace: Path) -> None:
    (workspace / "sub").mkdir()
    (workspace / "sub/file").write_text("in")
    file, folder = resolve("inside.txt", workspace), resolve("sub/file", workspace)
    (workspace / "inside.txt").unlink()
    (workspace / "inside.txt").symlink_to("../outside.txt")
    (workspace / "sub").rename(workspace / "moved")
    (workspace / "sub").symlink_to(workspace.parent)
    with pytest.raises((ToolDenied, BadInput)):
        open_file(file)
    with pytest.raises(OSError), folder_of(folder):
        pass
    deep = ConfinedPath(folder.root, folder.path.parent / "new/deep", "new/deep")
    with pytest.raises(OSError), folder_of(deep, make=True):
        pass
    assert not (workspace.parent / "new").exists()


def test_a_circle_of_links_ends(workspace: Path) -> None:
    (workspace / "a").symlink_to("b")
    (workspace / "b").symlink_to("a")
    with pytest.raises((ToolDenied, BadInput)):
        open_file(resolve("a", workspace))


def test_special_files_are_named_and_never_opened(workspace: Path) -> None:
    os.mkfifo(workspace / "pipe")
    with pytest.raises(BadInput, match="FIFO"):
        open_file(resolve("pipe", workspace))
    if os.geteuid() == 0:
        try:
            os.mknod(workspace / "zero", stat.S_IFCHR | 0o600, os.makedev(1, 5))
        except PermissionError:
            return
        with pytest.raises(BadInput, match="device"):
            open_file(resolve("zero", workspace))


def test_odd_names_are_shown_on_one_line_and_found_again(workspace: Path) -> None:
    for raw in (b"new\nline", b"caf\xe9", b"tab\there", "日本 語".encode()):
        path = os.path.join(os.fsencode(workspace), raw)
        Path(os.fsdecode(path)).write_text("x")
        shown = printable(os.fsdecode(raw))
        shown.encode()
        assert "\n" not in shown
        target = resolve(shown, workspace)
        assert os.fsencode(target.path) == os.path.realpath(path)
        os.close(open_file(target))


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a b.txt", "a b.txt"),
        ("a\nb\rc\td", "a\\nb\\rc\\td"),
        ("\x1bÿ\xad", "\\x1bÿ\\xad"),
        ("\u200b", "\\u200b"),
        ("\udc80\udcff", "\\x80\\xff"),
        ("\udc7f\udd00", "\\udc7f\\udd00"),
    ],
)
def test_what_is_not_seen_in_a_name_is_spelled_out(name: str, shown: str) -> None:
    assert printable(name) == shown


def test_where_the_nearest_name_is_looked_for_is_said(workspace: Path) -> None:
    (workspace / "src/deep").mkdir(parents=True)
    (workspace / "src/Main.py").write_text("")
    for name, hint in (
        ("insid.txt", "in the workspace there is: inside.txt"),
        ("src/main.pi", "in src there is: Main.py"),
        ("src/dep/x", "in src (the folders below it don't exist) there is: deep"),
        ("q", "list the folder"),
    ):
        assert missing_error(resolve(name, workspace)).hint == hint
    other = workspace.parent / "work-too"
    (other / "one").write_text("")
    assert missing_error(resolve(str(other / "on"), workspace, [other])).hint == f"in {other} there is: one"


@pytest.mark.parametrize("name", ["d/pre-commit", "v/tasks.json", "h/x"])
def test_no_link_leads_a_write_to_what_starts_programs(tmp_path: Path, name: str) -> None:
    """A command that was left running can make it between the gate's look and the write."""
    subprocess.run(["git", "init", "-q", "--template=", tmp_path], check=True)
    subprocess.run(["git", "config", "core.hooksPath", "tools/hooks"], cwd=tmp_path, check=True)
    for folder in (".git/hooks", ".vscode", "src", "tools/hooks"):
        (tmp_path / folder).mkdir(parents=True)
    for link, leads in (("d", ".git/hooks"), ("v", ".vscode"), ("s", "src"), ("h", "tools/hooks")):
        (tmp_path / link).symlink_to(leads)
    desk = Desk(tmp_path)
    assert "link leads" in desk.error("write_file", path=name, content="x").message
    assert desk.text("write_file", path="s/x", content="x")
    assert not [path for path in tmp_path.rglob("*") if path.name in ("pre-commit", "tasks.json")]


@pytest.mark.parametrize(
    ("number", "said", "hint"),
    [
        (errno.ENOSPC, "can't write a.txt: no space left on device", "free disk space"),
        (errno.EDQUOT, "can't write a.txt: disk quota exceeded", "free disk space"),
        (errno.EIO, "can't write a.txt: input/output error", ""),
    ],
)
def test_a_full_disk_is_told_what_to_do_about(tmp_path: Path, number: int, said: str, hint: str) -> None:
    error = system_error("write", resolve("a.txt", tmp_path), OSError(number, os.strerror(number)))
    assert (error.message, error.hint) == (said, hint)


@pytest.mark.parametrize(
    ("existing", "named"),
    [
        ("Shot 3.00\u202fPM.png", "Shot 3.00 PM.png"),
        ("Snimek\u00a0v 13.txt", "Snimek v 13.txt"),
        ("e\u0301tude.txt", "\u00e9tude.txt"),
        ("\u00e9tude.txt", "e\u0301tude.txt"),
        ("my\u2009folder/a\u3000b.txt", "my folder/a b.txt"),
        ("plain name.txt", "plain\u202fname.txt"),
    ],
)
def test_a_file_is_found_by_a_name_that_looks_the_same(tmp_path: Path, existing: str, named: str) -> None:
    path = tmp_path / existing
    path.parent.mkdir(exist_ok=True)
    path.write_text("x")
    assert resolve(named, tmp_path).path == path
    assert resolve(str(tmp_path / named), tmp_path).path == path


def test_a_name_that_looks_like_two_files_is_refused(tmp_path: Path) -> None:
    for name in ("a\u202fb", "a\u00a0b"):
        (tmp_path / name).write_text("x")
    with pytest.raises(BadInput, match=r"a b could be any of 2 files: 'a\\xa0b', 'a\\u202fb'"):
        resolve("a b", tmp_path)
    assert resolve("a\\u202fb", tmp_path).path == tmp_path / "a\u202fb"
    (tmp_path / "a b").write_text("x")
    assert resolve("a b", tmp_path).path == tmp_path / "a b"


def test_a_new_file_gets_exactly_its_name(tmp_path: Path) -> None:
    assert resolve("new\u202ffile", tmp_path).path == tmp_path / "new\u202ffile"
