"""Public plugins, unmodified: `PLUGINS=FOLDER python -m benchmarks plugins`, a folder for each in FOLDER.

Each is loaded in a process of its own as `whet plugins doctor` does it: registered, its hooks called, a
memory provider's life run through. It runs strangers' code: give it no network and nothing to lose.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import clean_environment
from benchmarks.table import Row

_GOAL = 20
_TIMEOUT_S = 600


def run(_runs: int, _full: bool) -> list[Row]:
    """Try each plugin once; nothing where no folder is named."""
    folder = os.environ.get("PLUGINS", "")
    if not folder:
        print("plugins: PLUGINS names no folder, so it is left out", file=sys.stderr)
        return []
    with tempfile.TemporaryDirectory() as home:
        shutil.copytree(folder, f"{home}/plugins")
        names = sorted(path.name for path in Path(home, "plugins").iterdir())
        done = subprocess.run(
            [sys.executable, "-m", "whet", "plugins", "doctor", *names, "--json"],
            env=clean_environment(WHET_HOME=home),
            cwd=home,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    looked = json.loads(done.stdout)
    whole = [one for one in looked if one["is_loaded"] and one["has"]]
    details = [f"{one['name']}: {one['problems'][0][:160]}" for one in looked if one not in whole]
    return [
        Row(
            "plugins",
            "public plugins for Hermes Agent, unmodified, that load with what they bring",
            f"≥ {_GOAL} of 25",
            f"{len(whole)} of {len(looked)}",
            "-",
            len(whole) >= _GOAL,
            "python -m benchmarks plugins",
            details=details,
        )
    ]
