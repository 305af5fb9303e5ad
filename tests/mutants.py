"""Change the source at random places, one change at a time, and name those that no test notices.

    python tests/mutants.py memory store --count 40 --seed 7

An area is a folder or module of `src/whet` or `src/whet_lab`, or `confirm`. Its mutants run against its own
test folder, in a copy of the tree: first in forks of one process, with the tests that call the changed
function (`mutant_forks.py`), then, where none noticed, in a process of its own with the whole folder. A run
that hangs counts as noticed. Survivors that change nothing a caller could see are in `mutants_accepted.toml`
with the reason. Exit status 1: more than a tenth of an area's mutants survive. With 20 it is a rough measure,
with 200 a good one.

Not mutmut (one suite for all code, only inside functions, no sampling), nor cosmic-ray (edits the checkout,
one test command, no order of tests): here a mutant meets its own folder only, and a sample takes minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.mutant_forks import NOTICED, PLAN, RECORD, write  # noqa: E402  (run as a file, not from the root)
from tests.mutations import SOURCE, Mutant, sample  # noqa: E402

CEILING = 0.1
_UNNOTICED = (0, 5)  # pytest's exit status where all tests passed, and where none was collected
# Where the tests of an area stand, if not in the folder of its name.
TESTS = {
    "channels": ["tests/gateway", "tests/confirm/notify"],
    "confirm": ["tests/confirm", "tests/team/test_confirm.py"],
    "clock.py": ["tests/agent", "tests/store"],
    "context": ["tests/context", "tests/app/test_contexts.py", "tests/app/test_nested_instructions.py"],
    "contract": ["tests/agent", "tests/tools", "tests/providers"],
    "goals": [
        "tests/app/test_check_subjects.py",
        *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("tests/app/test_goal*.py")),
    ],
    "lanes.py": ["tests/test_lanes.py"],
    "log.py": ["tests/config", "tests/cli/test_output.py"],
    "rpc.py": ["tests/test_rpc.py"],
    "serve": [
        "tests/serve",
        "tests/team/test_faults.py",
        "tests/team/test_broken_databases.py",
        "tests/team/test_serving.py",
        "tests/team/test_streams.py",
    ],
    "sqlite": ["tests/store", "tests/confirm"],
    "stats.py": ["tests/test_stats.py"],
    "shell": ["tests/shell", "tests/approval", "tests/memory/test_bytes.py", "tests/memory/test_steps.py"],
    "store": [
        "tests/store",
        "tests/team/test_clocks.py",
        "tests/team/test_fence.py",
        "tests/team/test_search.py",
    ],
    "vendors": ["tests/gateway", "tests/confirm/notify"],
    "visible.py": ["tests/config", "tests/cli"],
}


class Baseline:
    """What the unchanged source gives: which test runs which function, and how long each takes."""

    def __init__(self, record: dict[str, Any]) -> None:
        self._seconds: dict[str, float] = record["seconds"]
        self._ran = {test: {(path, line) for path, line in rows} for test, rows in record["ran"].items()}
        total = sum(self._seconds.values())
        self.run_s = 60 + 3 * total
        self.test_s = 20 + 3 * max(self._seconds.values())
        self.summary = f"{len(self._seconds)} tests in {total:.0f} s"

    def order(self, mutant: Mutant, tree: Path) -> list[str]:
        """Put the likely killers first: tests that run the function, then those that name the module."""

        def rank(test: str) -> tuple[int, float]:
            ran = (mutant.path, mutant.first_line) in self._ran[test]
            named = _names(tree / test.partition("::")[0], mutant)
            return (0 if ran else 1 if named else 2), self._seconds[test]

        return sorted(self._seconds, key=rank)

    def near(self, mutant: Mutant, tree: Path, tests: Sequence[str]) -> list[str]:
        """Give the files with a test that runs the function or names its module."""
        ran = {
            test.partition("::")[0]
            for test, rows in self._ran.items()
            if (mutant.path, mutant.first_line) in rows
        }
        files = [path for top in tests for path in _test_files(tree / top)]
        return [
            str(path.relative_to(tree))
            for path in files
            if str(path.relative_to(tree)) in ran or _names(path, mutant)
        ]

    def runs(self, mutant: Mutant) -> bool:
        """Whether a test calls the function in its own process."""
        return any((mutant.path, mutant.first_line) in ran for ran in self._ran.values())


def _names(path: Path, mutant: Mutant) -> bool:
    module = mutant.path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    package, _, stem = module.rpartition(".")
    text = path.read_text("utf-8")
    return module in text or (f"from {package} import" in text and stem in text)


def _test_files(top: Path) -> list[Path]:
    return [top] if top.is_file() else sorted(top.rglob("test_*.py"))


class Copy:
    """A copy of the tree in which one mutant at a time runs."""

    def __init__(self, folder: Path) -> None:
        self.tree = folder / "tree"
        left_out = shutil.ignore_patterns(".git", ".venv", ".*_cache", ".bench")
        shutil.copytree(ROOT, self.tree, ignore=left_out, symlinks=True)
        if (ROOT / ".venv").exists():
            (self.tree / ".venv").symlink_to(ROOT / ".venv")
        self._plan = folder / "plan.json"

    def try_forked(self, mutants: Sequence[Mutant], tests: list[str]) -> tuple[Baseline, set[str]]:
        """Learn what the unchanged tests call and try mutants in forks; gives the ids of those noticed.

        A folder that fails by itself is no measure.
        """
        record, noticed = self._plan.with_name("record"), self._plan.with_name("noticed")
        self._plan.write_text(json.dumps([asdict(mutant) for mutant in mutants]), "utf-8")
        noticed.touch()
        files = {PLAN: str(self._plan), RECORD: str(record), NOTICED: str(noticed)}
        for attempt in (1, 2):
            code, out = self._run(tests, 3600 + 60 * len(mutants), files, ["-p", "tests.mutant_forks"])
            if code == 0:
                return Baseline(json.loads(record.read_text("utf-8"))), {*noticed.read_text("utf-8").split()}
            print(f"the unchanged source fails, attempt {attempt}:\n{out[-3000:]}", flush=True)
        sys.exit(2)

    def survives(self, mutant: Mutant, tests: list[str], baseline: Baseline) -> bool:
        """Run the area's tests over one change."""
        path = self.tree / "src" / mutant.path
        before = path.read_bytes()
        self._plan.write_text(json.dumps(baseline.order(mutant, self.tree)), "utf-8")
        write(path, mutant.applied(before))
        limits = ["--timeout", str(baseline.test_s)]
        order = {"MUTANTS_ORDER": str(self._plan)}
        near = baseline.near(mutant, self.tree, tests)
        far = [f"--ignore={path}" for path in near]
        try:
            # Most are noticed by the few files that are near: the others are not even collected then.
            if near and self._run(near, baseline.run_s, order, limits)[0] not in _UNNOTICED:
                return False
            return self._run(tests, baseline.run_s, order, [*limits, *far])[0] in _UNNOTICED
        finally:
            write(path, before)

    def _run(
        self, tests: list[str], limit_s: float, extra: dict[str, str], options: list[str]
    ) -> tuple[int, str]:
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=short", *options, "-p", "tests.mutants"]
        command += ["-p", "no:cacheprovider", "-p", "no:randomly", "-m", "not soak and not live", *tests]
        environ = {**os.environ, **extra, "PYTHONPATH": str(self.tree / "src")}
        with (self.tree.parent / "out").open("w+") as out:
            process = subprocess.Popen(
                command,
                cwd=self.tree,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
            try:
                code = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                code = -1
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            out.seek(0)
            return code, out.read()


def pytest_configure() -> None:
    """As a plugin of such a run: limit its memory, but not its addresses: node reserves many."""
    resource.setrlimit(resource.RLIMIT_DATA, (6 << 30, 6 << 30))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    """As a plugin: put the tests in the order that the file names."""
    yield
    if plan := os.environ.get("MUTANTS_ORDER"):
        rank = {test: i for i, test in enumerate(json.loads(Path(plan).read_text("utf-8")))}
        items.sort(key=lambda item: rank.get(item.nodeid, len(rank)))


def areas() -> list[str]:
    """Give every area that has tests of its own."""
    names = [
        path.name
        for folder in ("whet", "whet_lab")
        for path in sorted((SOURCE / folder).iterdir())
        if path.suffix == ".py" or (path / "__init__.py").exists()
    ]
    return [name for name in dict.fromkeys([*names, "confirm"]) if tests_of(name)]


def find_area(area: str) -> str | None:
    """Return the path of an area below `src`, or None: a folder of `whet` or `whet_lab`, or the service."""
    # `whet_confirm` comes first: `whet/confirm` only passes its client on.
    paths = (f"whet_{area}", f"whet/{area}", f"whet_lab/{area}")
    return next((path for path in paths if (SOURCE / path).exists()), None)


def tests_of(area: str) -> list[str]:
    """Give the folder and files of an area's tests."""
    top = area.split("/")[0]
    return TESTS.get(top, [f"tests/{top}"] if (ROOT / "tests" / top).is_dir() else [])


def measure(area: str, arguments: argparse.Namespace) -> bool:
    """Run an area's sample and print who survives; says whether few enough do."""
    tests = tests_of(area)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies = [Copy(Path(folder) / str(i)) for i in range(arguments.jobs)]
        text, source = find_area(area) or area, copies[0].tree / "src"
        chosen = sample(text, arguments.count, arguments.seed, source)
        if arguments.only:
            chosen = [m for m in sample(text, -1, 0, source) if m.id in arguments.only]
        print(f"{area}: {len(chosen)} mutants against {' '.join(tests)}", flush=True)

        def run(copy: Copy, mine: Sequence[Mutant]) -> int:
            baseline, noticed = copy.try_forked(mine, tests)
            survivors = 0
            for mutant in mine:
                survived = mutant.id not in noticed and copy.survives(mutant, tests, baseline)
                survivors += survived
                if survived or arguments.verbose:
                    print(mutant.told(survived, baseline.runs(mutant)), flush=True)
            return survivors

        with ThreadPoolExecutor(arguments.jobs) as pool:
            shares = [chosen[i :: arguments.jobs] for i in range(arguments.jobs)]
            survivors = sum(pool.map(run, copies, shares))
    share = survivors / max(len(chosen), 1)
    print(f"{area}: {survivors} of {len(chosen)} survive ({share:.0%})", flush=True)
    return share <= CEILING


def main(argv: list[str] | None = None) -> int:
    """Measure the areas named, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "area", nargs="*", help="folder or module of src/whet or src/whet_lab, or confirm; all without one"
    )
    parser.add_argument("--count", type=int, default=20, help="mutants of each area")
    parser.add_argument("--all", action="store_const", const=-1, dest="count", help="every mutant")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--only", nargs="+", metavar="ID", help="these, whatever the seed")
    parser.add_argument("--jobs", type=int, default=1, help="how many run at once, each in a copy of its own")
    parser.add_argument("--verbose", action="store_true", help="print the noticed ones too")
    arguments = parser.parse_args(argv)
    unknown = [area for area in arguments.area if find_area(area) is None or not tests_of(area)]
    if unknown:
        parser.error(f"no such area, or none with tests: {' '.join(unknown)}")
    return 0 if all([measure(area, arguments) for area in arguments.area or areas()]) else 1


if __name__ == "__main__":
    sys.exit(main())
