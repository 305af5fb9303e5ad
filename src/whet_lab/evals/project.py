"""A real project for the simulated workplace: a git repository of the standard library's own modules.

The ordinary commands of a task run in it, so that their output has the size of daily work. What a command
prints depends on the Python version; no output is made up or padded.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from random import Random

from whet.contract.errors import NotFound

_MODULES = (
    "argparse",
    "configparser",
    "csv",
    "difflib",
    "fractions",
    "heapq",
    "mailbox",
    "shlex",
    "statistics",
    "tarfile",
    "textwrap",
    "zipfile",
)
_TESTED = ("difflib", "fractions", "heapq", "statistics")
"""Modules with doctests."""
_PYTHON = "./python"
_COMMITTER = "Ana Huber"


def draw_commands(rng: Random, count: int) -> tuple[str, ...]:
    """Draw different ordinary commands: reading, searching, history, tests, a build."""
    module, tested = rng.choice(_MODULES), rng.choice(_TESTED)
    line = rng.randrange(1, 400, 40)
    commands = (
        f"sed -n {line},{line + 150}p src/{module}.py",
        f"grep -n 'raise ' src/{module}.py src/{tested}.py",
        f"git log --stat -5 -- src/{module}.py src/{tested}.py",
        "git status && git log --oneline && ls -la src",
        f"git show HEAD~{rng.randrange(len(_MODULES))} | head -200",
        f"{_PYTHON} -m doctest -v src/{tested}.py | tail -120",
        f"{_PYTHON} -m compileall -f src",
    )
    return tuple(rng.sample(commands, count))


def write_project(folder: Path) -> None:
    """Write the modules into `folder` and commit them one by one, with fixed dates.

    Raises NotFound if git is not installed.
    """
    if shutil.which("git") is None:
        raise NotFound("git is not installed", hint="install git; the project of --project is a repository")
    source = folder / "src"
    source.mkdir(parents=True)
    (folder / _PYTHON).symlink_to(sys.executable)
    (folder / ".gitignore").write_text("__pycache__/\npython\nops*\nAGENTS.md\n", "utf-8")
    _git(folder, 0, "init", "-q")
    for day, module in enumerate(_MODULES, start=1):
        spec = find_spec(module)
        assert spec is not None and spec.origin is not None, module
        shutil.copyfile(spec.origin, source / f"{module}.py")
        _git(folder, day, "add", "-A")
        _git(folder, day, "commit", "-q", "-m", f"Add {module}")


def _git(folder: Path, day: int, *arguments: str) -> None:
    date = f"2026-03-{day + 1:02d}T09:00:00+00:00"
    person = {"NAME": _COMMITTER, "EMAIL": "ana@example.com", "DATE": date}
    identity = {
        f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in person.items()
    }
    isolated = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    environment = {**os.environ, **isolated, **identity}
    subprocess.run(["git", "-C", str(folder), *arguments], env=environment, check=True)
