"""The programs that Whet itself runs: which of them run outside the sandbox, and why a repository can't make
them run or read something else. A call that is in neither table fails the test."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

import pytest

from tests.tools.calls import Desk
from whet.searchpath import find_trusted_program

SRC = Path(__file__).parents[2] / "src"
STARTS = {
    "create_subprocess_exec", "create_subprocess_shell", "Popen", "run", "check_output", "check_call", "call",
    "posix_spawn", "posix_spawnp", "execv", "execve", "execvp", "execvpe", "system", "popen", "fork",
}  # fmt: skip
MODULES = {"subprocess", "asyncio", "os", "pty"}

CONFINED = {
    "whet/sandbox/jail.py": "starts the sandbox itself: bwrap or our launcher",
    "whet/sandbox/launcher.py": "is the sandbox's inside",
    "whet/sandbox/remote_sandboxes.py": "docker or podman, and ssh: programs outside the workspace",
    "whet/sandbox/remote.py": "the same, in a process of its own",
    "whet/sandbox/tree_gate.py": "this interpreter, isolated, with our own text: takes off a mount",
    "whet/sandbox/syncing.py": "ssh: the same command line as the sandbox's",
    "whet/tools/spawn.py": "a command, in its session's sandbox",
    "whet/mcp/stdio.py": "an MCP server, in its own sandbox; the person's settings name it",
    "whet/hooks/runs.py": "a hook: the owner's as they wrote it, an accepted repository's in the sandbox",
}
"""Files that start programs in a sandbox, or start the sandbox."""
OUTSIDE = {
    "whet/tools/search_process.py": "rg with --no-config, no --pre, no --search-zip; our own search as -I",
    "whet/gateway/voice.py": "the owner's own command for recordings, outside of the workspace's settings",
    "whet/tools/document_process.py": "our own reader of documents, with limits",
    "whet/tools/guardian.py": "a shell with a fixed text that ends processes",
    "whet/foreign_regex.py": "our own matcher of patterns, with limits",
    "whet/moving/zstd.py": "zstd, from outside the current folder, which reads and writes pipes only",
    "whet/app/helpers/repository_git.py": "git, with every setting that runs something overridden",
    "whet/approval/repository.py": "git config --list, which runs nothing",
    "whet/goals/roles.py": "git, with the same settings overridden",
    "whet/sandbox/hosts.py": "pip and npm, from / and not from the workspace, to read their settings",
    "whet/app/learning/reviews.py": "whet worker itself",
    "whet/cli/successor.py": "a fork of this process, which runs nothing else",
    "whet/terminal/clipboard.py": "the desktop's clipboard, for the person's own key",
    "whet/terminal/editor.py": "the person's own EDITOR",
    "whet/cli/mcp_servers/browser.py": "npm, when a person adds a browser",
    "whet/plugins/install.py": "git clone, when a person installs a plugin or a skill",
    "whet/plugins/probe.py": "a plugin that a person installed, tried in a process of its own",
    "whet/terminal/pager.py": "the person's own PAGER or less, found outside the workspace",
    "whet/cli/interactive/own_programs.py": "whet itself, for slash commands",
    "whet_confirm/gateway/program.py": "the MCP server that the person names on the command line",
    "whet_confirm/commands/install.py": "the commands of an install that root confirms",
    "whet_confirm/commands/background.py": "the service that a person starts with setup",
    "whet_confirm/commands/resume.py": "the agent that a person continues with --run",
}
"""Files that start programs outside a sandbox, and why that is safe in a hostile workspace."""
ATTEMPTS = [
    "RIPGREP_CONFIG_PATH with --pre", "RIPGREP_CONFIG_PATH with --follow", "a .ripgreprc",
    "an rg in the workspace", "an rg in a folder of PATH below the workspace",
    "a .rgignore of a million stars", "an .ignore that is a link", "a pattern that begins with --pre",
    "a path that begins with --pre", "a glob with --pre", "a file that is a link outside", "a gzip file",
    "a python in the workspace", "a sitecustomize.py", "a git in the workspace",
]  # fmt: skip


def _starts(path: Path) -> bool:
    """Whether a file calls something that starts a program."""
    text = path.read_text()
    if not re.search(r"\b(?:subprocess|posix_spawn|exec[vl]|fork|popen|system)", text):
        return False
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in STARTS:
            owner = node.func.value
            if (
                isinstance(owner, ast.Name)
                and owner.id in MODULES
                and (owner.id, node.func.attr) != ("asyncio", "run")
            ):
                return True
    return False


@pytest.mark.slow
def test_every_file_that_starts_programs_is_in_a_table() -> None:
    starting = {
        str(path.relative_to(SRC))
        for part in ("whet", "whet_confirm")
        for path in (SRC / part).rglob("*.py")
        if _starts(path)
    }
    assert starting == CONFINED.keys() | OUTSIDE.keys()


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace that does all it can to have a search run `evil` or read outside."""
    folder = tmp_path / "work"
    (folder / "bin").mkdir(parents=True)
    (tmp_path / "secret.txt").write_text("needle outside\n")
    (folder / "a.txt").write_text("needle here\n")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    for name in ("evil", "rg", "git", "python3", "python", "gzip", "bin/rg", "bin/python3"):
        (folder / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/made\n")
        (folder / name).chmod(0o755)
    config = f"--pre={folder}/evil\n--follow\n--search-zip\n--hostname-bin={folder}/evil\n"
    for name in (".ripgreprc", "ripgreprc", ".rgrc"):
        (folder / name).write_text(config)
    (folder / ".rgignore").write_text("*a" * 5_000 + "\n" + "**/" * 5_000 + "\n")
    (folder / "sub").mkdir()
    (folder / "sub" / ".ignore").symlink_to(tmp_path / "secret.txt")
    (folder / "sub" / "b.txt").write_text("needle there\n")
    (folder / "x.gz").write_bytes(b"\x1f\x8bneedle")
    (folder / "sitecustomize.py").write_text(f"open('{tmp_path}/made', 'w')\n")
    (folder / "--pre=evil").write_text("needle in a name\n")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(folder / ".ripgreprc"))
    monkeypatch.setenv("PATH", f"{folder}:{folder}/bin:{os.environ['PATH']}")
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("ripgrep", ["rg", None])
def test_a_workspace_makes_a_search_run_and_read_nothing_else(work: Path, ripgrep: str | None) -> None:
    desk = Desk(work, ripgrep=ripgrep)
    calls: list[dict[str, object]] = [
        {"pattern": "needle"},
        {"pattern": "--pre=./evil"},
        {"pattern": "-f/etc/passwd"},
        {"pattern": "needle", "path": "--pre=evil"},
        {"pattern": "needle", "path": "sub"},
        {"pattern": "needle", "glob": "--pre=evil"},
        {"pattern": "needle", "glob": "*.txt --pre evil"},
    ]
    texts: list[str] = []
    for arguments in calls:
        try:
            texts.append(desk.text("search_files", **arguments))
        except Exception as error:  # noqa: BLE001 refused, which is as good
            texts.append(str(error))
    assert "needle here" in texts[0] and not any("outside" in text for text in texts)
    assert not (work.parent / "made").exists()


@pytest.mark.parametrize("name", ["rg", "git", "python3", "gzip"])
def test_a_program_in_the_workspace_is_not_the_one_that_whet_runs(work: Path, name: str) -> None:
    program = find_trusted_program(name, work)
    assert program is None or not Path(program).is_relative_to(work)
