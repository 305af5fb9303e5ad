"""Install the newest version of a program from PyPI or npm into an environment of its own, in a cache folder.

The clients are uv (or pip) and npm, at the indexes that they are set to. A second run upgrades what is there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure import ROOT

DEFAULT_CACHE = ROOT / ".bench" / "newest"
NODE = "node@24"
"""Many of these programs need a newer node than distributions ship; npm has it as a package."""
_TIMEOUT_S = 540


class NotInstalled(Exception):
    """A program could not be installed; the text is the last line of the installer's complaint."""


class Cache:
    """The folder of environments. `upgrade` False uses what is there and installs only what is missing."""

    def __init__(self, folder: Path = DEFAULT_CACHE, *, upgrade: bool = True) -> None:
        self.folder = folder
        self.upgrade = upgrade

    def python(self, name: str, packages: Sequence[str]) -> Path:
        """Return the interpreter of an environment with the packages. Raises NotInstalled."""
        folder = self.folder / name
        python = folder / "bin" / "python"
        if (folder / ".installed").exists() and not self.upgrade:
            return python
        uv = shutil.which("uv")
        if not python.exists():
            make = [uv, "venv", "--quiet", str(folder)] if uv else [sys.executable, "-m", "venv", str(folder)]
            _run(make)
        pip = [uv, "pip", "install", "--python", str(python)] if uv else [str(python), "-m", "pip", "install"]
        _run([*pip, "--quiet", "--upgrade", *packages])
        (folder / ".installed").touch()
        return python

    def npm(self, name: str, packages: Sequence[str]) -> Path:
        """Return a folder whose node_modules holds the packages. Raises NotInstalled."""
        npm = shutil.which("npm")
        if npm is None:
            raise NotInstalled("npm is not installed")
        folder = self.folder / name
        if (folder / ".installed").exists() and not self.upgrade:
            return folder
        folder.mkdir(parents=True, exist_ok=True)
        named = [package if "@" in package[1:] else f"{package}@latest" for package in packages]
        # Some packages refuse to be installed by an older node.
        first = "" if name == "node" else f"{self.node()}{os.pathsep}"
        path = f"{first}{os.environ['PATH']}"
        _run([npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), *named], path)
        (folder / ".installed").touch()
        return folder

    def node(self) -> Path:
        """Return the folder of node and its npx."""
        return self.npm("node", [NODE]) / "node_modules" / ".bin"


def version_of(environment: Path, package: str) -> str:
    """Return the installed version of a package; `environment` is an interpreter or an npm folder."""
    if environment.is_dir():
        file = environment / "node_modules" / package / "package.json"
        return json.loads(file.read_text())["version"]
    code = f"import importlib.metadata as m; print(m.version({package.partition('[')[0]!r}))"
    command = [str(environment), "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _run(command: Sequence[str], path: str = os.environ["PATH"]) -> None:
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "PATH": path, "PUPPETEER_SKIP_DOWNLOAD": "1"},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"{Path(command[0]).name} took more than {_TIMEOUT_S} s") from None
    if done.returncode:
        printed = (done.stdout + done.stderr).splitlines()
        lines = [line for line in printed if line.strip() and "complete log" not in line]
        raise NotInstalled(lines[-1][:200] if lines else f"{Path(command[0]).name} failed")
