"""A host that is not honest: its `find` and `tar` are the attacker's, as a command there can make them.

The program that stands in for ssh runs here what it is told to run there: the whole protocol is the real one.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.sandbox.test_elsewhere import run
from whet.sandbox.backend import CommandBackend, ConfinementSettings
from whet.sandbox.confinement import Confinement
from whet.sandbox.jail import Jail

_SSH = """#!/bin/sh
echo "$@" >> {log}
for last; do :; done
case " $* " in *" -N "*|*" -O "*) exit 0 ;; esac
PATH={there}:$PATH exec sh -c "$last"
"""
_LIAR = """#!/bin/sh
case " $* " in *" {word} "*) [ -e "{said}" ] && {{ {before} cat "{said}"; exit; }} ;; esac
exec {real} "$@"
"""
Member = tuple[str, bytes, str]
"""A name, a type of tar's, and what it holds or where it leads."""


class Host:
    """What the attacker's host says beside the truth, once something is told."""

    def __init__(self, folder: Path) -> None:
        self._list, self._packed = folder / "listing", folder / "packed"
        self.log: Path = folder / "log"
        self.tools: Path = folder / "tools"
        there = folder / "there-bin"
        for tools in (self.tools, there):
            tools.mkdir()
        given = {"there": there, "log": self.log}
        real = shutil.which("find")
        find = {"said": self._list, "word": "-printf", "before": f'{real} "$@";', "real": real}
        tar = {"said": self._packed, "word": "-c", "before": "", "real": shutil.which("tar")}
        for path, text, more in (
            (self.tools / "ssh", _SSH, {}),
            (there / "find", _LIAR, find),
            (there / "tar", _LIAR, tar),
        ):
            path.write_text(text.format_map({**given, **more}))
            path.chmod(0o755)

    def tell(self, listed: list[tuple[str, str]], members: list[Member]) -> None:
        """Have it list these, too (path, kind), and answer with this archive."""
        lines = "".join(f"{path}\0{kind}\0{4}\0{1.5}\0{755}\0{'t'}\0" for path, kind in listed)
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for name, kind, text in members:
                member = tarfile.TarInfo(name)
                member.type, member.mode = kind, 0o4755
                member.linkname = text if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""
                data = text.encode() if kind == tarfile.REGTYPE else b""
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
        self._packed.write_bytes(packed.getvalue())
        self._list.write_bytes(os.fsencode(lines))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Host, Jail, Path]]:
    """Give the host, what commands run in, and the workspace, beside which lies what nobody may change."""
    host = Host(tmp_path)
    monkeypatch.setenv("PATH", f"{host.tools}:{os.environ['PATH']}")
    workspace = tmp_path / "around" / "work"
    for folder in (workspace / "sub", workspace / ".vscode", tmp_path / "around" / "outside"):
        folder.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", "--template=", workspace], check=True)
    (workspace / ".vscode" / "tasks.json").write_text("{}")
    (tmp_path / "around" / "outside" / "notes").write_text("mine")
    settings = ConfinementSettings(
        "auto", tmp_path / "home", backend=CommandBackend("ssh", "box", str(tmp_path / "there"))
    )
    confinement = Confinement(settings)
    jail = confinement.shell_jail(workspace, "s")
    assert jail is not None
    assert run(jail, workspace, "true") == (0, "")
    yield host, jail, workspace
    confinement.close()


def watched(workspace: Path) -> dict[str, str]:
    """Give what no host may change: all beside the workspace, and what starts programs in it."""
    states: dict[str, str] = {}
    starts = [workspace / name for name in (".vscode", ".git", ".envrc", ".config")]
    for top in (workspace.parent / "outside", *starts):
        for path in (top, *sorted(top.rglob("*"))):
            if path.is_symlink():
                states[str(path)] = f"link {path.readlink()}"
            elif path.is_file():
                state = path.stat()
                states[str(path)] = f"{state.st_nlink} {hashlib.sha256(path.read_bytes()).hexdigest()}"
            elif path.exists():
                states[str(path)] = "folder"
    return states


FILE, LINK, HARD = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
LIES: dict[str, tuple[list[tuple[str, str]], list[Member]]] = {
    "the folder above, as a file": ([("..", "f")], [("..", FILE, "evil")]),
    "above by a folder": ([("sub/../..", "f")], [("sub/../..", FILE, "evil")]),
    "beside, as a file": ([("../outside", "f")], [("../outside", FILE, "evil")]),
    "beside, by a folder": ([("sub/../../outside/notes", "f")], [("sub/../../outside/notes", FILE, "evil")]),
    "a whole path": ([("/{}/outside/notes", "f")], [("/{}/outside/notes", FILE, "evil")]),
    "what was not asked for": (
        [("fine", "f"), (".git/hooks/pre-commit", "f")],
        [("fine", FILE, "fine"), (".git/hooks/pre-commit", FILE, "evil")],
    ),
    "what was not listed": ([("fine", "f")], [("fine", FILE, "fine"), (".envrc", FILE, "evil")]),
    "a protected name, another way": (
        [("sub/../.vscode/tasks.json", "f")],
        [("sub/../.vscode/tasks.json", FILE, "evil")],
    ),
    "a protected name with a dot": (
        [("././.vscode/tasks.json", "f")],
        [("././.vscode/tasks.json", FILE, "evil")],
    ),
    "a protected name with slashes": (
        [(".vscode//tasks.json", "f")],
        [(".vscode//tasks.json", FILE, "evil")],
    ),
    "in large letters": ([(".GIT/hooks/x", "f"), (".VSCode/x", "f")], [(".GIT/hooks/x", FILE, "evil")]),
    "through a link to git": (
        [("x", "l"), ("x/hooks/pre-commit", "f")],
        [("x", LINK, ".git"), ("x/hooks/pre-commit", FILE, "evil")],
    ),
    "through a link to settings": (
        [("x", "l"), ("x/tasks.json", "f")],
        [("x", LINK, ".vscode"), ("x/tasks.json", FILE, "evil")],
    ),
    "through a link out": (
        [("x", "l"), ("x/notes", "f")],
        [("x", LINK, "../outside"), ("x/notes", FILE, "evil")],
    ),
    "a link out in a file's place": ([("x", "f")], [("x", LINK, "../outside/notes")]),
    "a whole link": ([("x", "l")], [("x", LINK, "/etc/passwd")]),
    "a link above a protected name": (
        [("e/mise/config.toml", "f"), (".config", "l")],
        [("e/mise/config.toml", FILE, "evil"), (".config", LINK, "e")],
    ),
    "a link in git's own folder": (
        [("e/config", "f"), (".git/modules", "l"), (".git/modules/m", "l"), (".git/worktrees", "l")],
        [("e/config", FILE, "evil"), (".git/modules", LINK, "../e"), (".git/modules/m", LINK, "../../e")],
    ),
    "a hard link to settings": ([("y", "f")], [("y", HARD, ".git/config")]),
    "a hard link to what lies beside": ([("y", "f")], [("y", HARD, "../outside/notes")]),
    "a hard link, then a file": ([("y", "f")], [("y", HARD, ".git/config"), ("y", FILE, "evil")]),
    "a file in git's place": ([(".git", "f")], [(".git", FILE, "gitdir: e")]),
    "a device": ([("x", "f")], [("x", tarfile.CHRTYPE, "")]),
    "a pipe": ([("x", "f")], [("x", tarfile.FIFOTYPE, "")]),
}


@pytest.mark.slow
@pytest.mark.parametrize("lie", LIES)
def test_a_host_that_lies_changes_nothing_but_the_workspace(place: tuple[Host, Jail, Path], lie: str) -> None:
    host, jail, workspace = place
    before = watched(workspace)
    listed, members = LIES[lie]
    around = str(workspace.parent).strip("/")
    host.tell(
        [(path.replace("{}", around), kind) for path, kind in listed],
        [(name.replace("{}", around), kind, text) for name, kind, text in members],
    )
    code, output = run(jail, workspace, "true")
    assert watched(workspace) == before
    assert code in (0, 255) and "Traceback" not in output
    if ("fine", "f") in listed:
        assert (workspace / "fine").read_text() == "fine"
    paths = [path for path in workspace.rglob("*") if not path.is_symlink() and not path.is_dir()]
    assert not [path for path in paths if path.stat().st_mode & 0o6000 or not path.is_file()]


def _no_list(host: Host) -> None:
    host.tell([], [])
    (host.tools.parent / "listing").write_bytes(b"a\0b\0c\0")


def _no_archive(host: Host) -> None:
    host.tell([("x", "f")], [])
    (host.tools.parent / "packed").write_bytes(b"no archive at all")


@pytest.mark.slow
@pytest.mark.parametrize("say", [_no_list, _no_archive])
def test_a_host_that_makes_no_sense_is_told_of(
    place: tuple[Host, Jail, Path], say: Callable[[Host], None]
) -> None:
    host, jail, workspace = place
    say(host)
    code, output = run(jail, workspace, "true")
    assert code == 255 and output.startswith("[the workspace can't be brought over: ")


@pytest.mark.slow
def test_a_host_gets_no_agent_screen_or_port_of_this_machine(place: tuple[Host, Jail, Path]) -> None:
    host = place[0]
    lines = host.log.read_text().splitlines()
    assert lines
    for line in lines:
        for setting in ("ForwardAgent=no", "ForwardX11=no", "ClearAllForwardings=yes"):
            assert f"-o {setting}" in line.partition(" -- ")[0]
