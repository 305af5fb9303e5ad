"""One row of the matrix: a program of others, and how Whet is tried with it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from benchmarks.newest.install import Cache, NotInstalled

Cells = Mapping[str, str]
"""For each thing that was tried: "yes", "no: " and why, or "— " and why the program does not offer it."""


class Trial(msgspec.Struct, frozen=True):
    """A program that is not installed yet. `run` installs and drives it; it returns its version and cells."""

    kind: str
    name: str
    run: Callable[[Cache, Path], tuple[str, Cells]]


class Result(msgspec.Struct, frozen=True):
    """What came of a trial. `reason` says why it could not be had; `cells` is empty then."""

    kind: str
    name: str
    version: str
    cells: dict[str, str]
    seconds: float
    reason: str = ""

    @property
    def faults(self) -> list[str]:
        """The cells that are wrong."""
        return [f"{feature}: {cell[4:]}" for feature, cell in self.cells.items() if cell.startswith("no:")]

    @property
    def verdict(self) -> str:
        """ "right", "wrong" or "not had"."""
        if self.reason:
            return "not had"
        return "wrong" if self.faults or "yes" not in self.cells.values() else "right"


def try_it(trial: Trial, cache: Cache, folder: Path) -> Result:
    """Install and drive one program in an empty folder. A program that fails is a result, too."""
    began = time.monotonic()
    version, cells, reason = "", {}, ""
    try:
        version, tried = trial.run(cache, folder)
        cells = dict(tried)
    except NotInstalled as error:
        reason = str(error)
    except Exception as error:  # noqa: BLE001 - one row that breaks must not end the others
        cells = {"trial": f"no: {type(error).__name__}: {error}"[:300]}
    return Result(trial.kind, trial.name, version, cells, round(time.monotonic() - began, 1), reason)


def format_table(results: list[Result]) -> str:
    """Return the matrix as a Markdown table."""
    lines = ["| kind | program | exercised | result | s |", "|---|---|---|---|--:|"]
    for result in results:
        shown = [name for name, cell in result.cells.items() if not cell.startswith("—")]
        verdict = result.verdict
        with contextlib.suppress(IndexError):
            verdict += f": {(result.faults or [result.reason])[0]}" if verdict != "right" else ""
        if result.kind == "agent":
            verdict += "".join(
                f"; {name}: {cell}" for name, cell in result.cells.items() if name not in shown
            )
        verdict = " ".join(verdict.split())
        name = f"{result.name} {result.version}".strip()
        lines.append(
            f"| {result.kind} | {name} | {', '.join(shown) or '-'} | {verdict} | {result.seconds:.0f} |"
        )
    return "\n".join(lines)
