"""Programs and libraries of npm for a benchmark, in a folder of their own that is kept."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure import ROOT


def installed(name: str, packages: Sequence[str]) -> Path | None:
    """Give the folder that has these packages; None where there is no npm."""
    npm = shutil.which("npm")
    if npm is None:
        return None
    folder = ROOT / ".bench" / name
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "node_modules").is_dir():
        command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), *packages]
        subprocess.run(command, check=True, stdout=sys.stderr)
    return folder
