"""What a reader meets between `whet chat -q hi` and the first byte to the model: files, functions, modules.

A profile function notes every function of ours that is called, in all threads, until the first connection is
opened. `python -m benchmarks reading-path` prints the files with their functions.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import ROOT, clean_environment
from benchmarks.recorder import Recorder
from benchmarks.table import Row

GOAL_FILES = 60
GOAL_MODULES = 145
_FUNCTION = 0x2  # a code object's flag; the bodies of modules and classes have it not
_TRACE = f"""
import sys, threading
top, out, url = sys.argv[1:]
seen = set()
def note(frame, event, _):
    code = frame.f_code
    if event == "call" and code.co_flags & {_FUNCTION} and code.co_filename.startswith(top):
        seen.add((code.co_filename[len(top) + 1:], code.co_firstlineno, code.co_qualname))
def left(event, _):
    if event == "socket.connect" and seen:
        sys.setprofile(None)
        threading.setprofile(None)
        modules = list(sys.modules)
        import json
        with open(out, "w") as file:
            json.dump({{"functions": sorted(seen), "modules": modules}}, file)
        seen.clear()
sys.addaudithook(left)
threading.setprofile(note)
sys.setprofile(note)
from whet.cli.main import main
sys.argv = ["whet", "chat", "-q", "hi", "--provider", "bench", "--model", "m", "--base-url", url]
main()
"""


@dataclass(frozen=True)
class ReadingPath:
    """The functions of each file that ran, the package's modules and all modules that were loaded."""

    files: dict[str, list[str]]
    own_modules: list[str]
    all_modules: int

    @property
    def functions(self) -> int:
        """How many functions ran."""
        return sum(map(len, self.files.values()))


def measure() -> ReadingPath:
    """Run the one-shot in a new home and give what ran before the first connection."""
    source = ROOT / "src"
    with tempfile.TemporaryDirectory() as folder, Recorder() as recorder:
        out = Path(folder) / "path.json"
        done = subprocess.run(
            [sys.executable, "-c", _TRACE, str(source / "whet"), str(out), recorder.base_url],
            env=clean_environment(WHET_HOME=f"{folder}/home", PYTHONPATH=str(source)),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        if done.returncode or not out.exists():
            raise RuntimeError(f"the one-shot failed: {done.stderr[-500:]}")
        found = json.loads(out.read_text("utf-8"))
    files: dict[str, list[str]] = {}
    for file, _, name in found["functions"]:
        files.setdefault(file, []).append(name)
    own = [name for name in found["modules"] if name == "whet" or name.startswith("whet.")]
    return ReadingPath(files, own, len(found["modules"]))


def run(runs: int, full: bool) -> list[Row]:
    """One row; the count is the same in every run."""
    path = measure()
    for file, names in path.files.items():
        print(f"  {file}: {', '.join(names)}")
    loaded = len(path.own_modules)
    return [
        Row(
            "reading-path",
            "own files that run a function before the first byte of `chat -q hi`; own modules loaded",
            f"≤ {GOAL_FILES}; ≤ {GOAL_MODULES}",
            f"{len(path.files)} files, {path.functions} functions; {loaded} modules of {path.all_modules}",
            "llm 8 files, 77 functions; mini-swe-agent 10, 24",
            len(path.files) <= GOAL_FILES and loaded <= GOAL_MODULES,
            "python -m benchmarks reading-path",
        )
    ]
