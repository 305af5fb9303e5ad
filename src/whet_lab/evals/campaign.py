"""Runs many worlds on the machine's cores and stores each result, so that a campaign can be resumed.

A stored run is not repeated. A folder holds the runs of one set of settings and one version of the program.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

import msgspec

from whet import __version__
from whet.contract.texts import from_json
from whet_lab.evals import task_folder
from whet_lab.evals.arms import ARMS, Arm
from whet_lab.evals.records import WorldResult
from whet_lab.evals.world import FactWorld, Shape
from whet_lab.evals.world_run import run_world
from whet_lab.practice.gated_model import Habits

_TICK_S = 0.5


class CampaignSettings(msgspec.Struct, frozen=True):
    """The settings that all runs of a campaign share."""

    shape: Shape = Shape()
    habits: Habits = Habits()
    version: str = __version__


class EvalCampaign:
    """Runs of `arms` over seeds 0 to `seeds` - 1 in `folder`, which is created.

    Raises ConfigError if the folder holds runs with other settings.
    """

    def __init__(
        self, folder: Path, arms: Sequence[Arm], seeds: int, settings: CampaignSettings | None = None
    ) -> None:
        self.folder = folder
        self.settings: CampaignSettings = settings or CampaignSettings()
        self._runs = [(arm.name, seed) for seed in range(seeds) for arm in arms]
        task_folder.claim_folder(folder, self.settings, "runs with other settings or of another version")

    @property
    def missing(self) -> list[tuple[str, int]]:
        """The runs that are not stored yet, as (arm, seed)."""
        return [(arm, seed) for arm, seed in self._runs if not self._path(arm, seed).exists()]

    @property
    def size(self) -> int:
        """The number of runs in all."""
        return len(self._runs)

    def read_runs(self) -> list[WorldResult]:
        """Read the stored runs, in the order of the arms."""
        paths = [self._path(arm, seed) for arm, seed in self._runs]
        return [from_json(path.read_bytes(), WorldResult) for path in paths if path.exists()]

    def run_missing(self, workers: int, progress: Callable[[int, str], None]) -> None:
        """Run the missing worlds. `progress` is called with the number of stored runs and the last ones.

        Ctrl-C ends it; finished runs stay stored. With one worker everything runs in this process.
        """
        missing = self.missing
        stored = self.size - len(missing)
        progress(stored, "")
        if workers <= 1:
            for arm, seed in missing:
                _run(self.folder, arm, seed, self.settings)
                stored += 1
                progress(stored, f"{arm}, seed {seed}")
            return
        for done in _run_in_processes(self.folder, missing, self.settings, workers):
            stored += len(done)
            progress(stored, ", ".join(f"{arm} {seed}" for arm, seed in done))

    def _path(self, arm: str, seed: int) -> Path:
        return run_path(self.folder, arm, seed)


def run_path(folder: Path, arm: str, seed: int) -> Path:
    """Return the file of one run."""
    return folder / "runs" / f"{arm}-{seed}.json"


def _run_in_processes(
    folder: Path, missing: Sequence[tuple[str, int]], settings: CampaignSettings, workers: int
) -> Iterator[list[tuple[str, int]]]:
    """Yield the runs finished since the last time; sometimes the list is empty."""
    # Spawned: a fork of a process with threads may deadlock.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(workers, len(missing) or 1), context, initializer=_ignore_interrupt)
    try:
        open_runs: dict[Future[None], tuple[str, int]] = {
            pool.submit(_run, folder, arm, seed, settings): (arm, seed) for arm, seed in missing
        }
        while open_runs:
            done, _ = wait(open_runs, _TICK_S, FIRST_COMPLETED)
            for future in done:
                future.result()
            yield [open_runs.pop(future) for future in done]
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _ignore_interrupt() -> None:
    # Ctrl-C goes to the whole process group. The parent handles it, and started runs are finished and stored.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _run(folder: Path, arm: str, seed: int, settings: CampaignSettings) -> None:
    with tempfile.TemporaryDirectory(prefix="whet-world-") as scratch:
        world = FactWorld(seed, settings.shape)
        run = asyncio.run(run_world(world, ARMS[arm], Path(scratch), settings.habits))
    task_folder.store_result(run_path(folder, arm, seed), run)
