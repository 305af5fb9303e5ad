"""Try Whet with the newest version of programs of others, and print a matrix.

    python -m benchmarks.newest                     all, one after the other
    python -m benchmarks.newest openai mcp-server   those whose kind or name contains one of the words
    python -m benchmarks.newest --json --keep       as JSON, with the versions that are installed already

Each program is installed from PyPI or npm into an environment of its own below `.bench/newest`. One that
can't be had is in the matrix with the reason. Exits with 1 if one is wrong. A scripted stand-in takes the
model's place.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import msgspec

from benchmarks.newest import agents, editors, frameworks, servers
from benchmarks.newest.install import DEFAULT_CACHE, Cache
from benchmarks.newest.row import Result, Trial, format_table, try_it

TRIALS: list[Trial] = [*frameworks.TRIALS, *servers.TRIALS, *editors.TRIALS, *agents.TRIALS]


def main() -> int:
    """Run the chosen trials in turn and print their results."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.newest", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("words", nargs="*", metavar="WORD", help="a part of a name, or a kind")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    parser.add_argument("--keep", action="store_true", help="upgrade nothing that is installed already")
    parser.add_argument("--cache", type=Path, default=DEFAULT_CACHE, help="where the programs are installed")
    options = parser.parse_args()
    chosen = [trial for trial in TRIALS if _is_chosen(trial, options.words)]
    if not chosen:
        parser.error(f"no name contains {' or '.join(options.words)}; --list prints them")
    if options.list:
        print("\n".join(f"{trial.kind}: {trial.name}" for trial in chosen))
        return 0
    cache = Cache(options.cache, upgrade=not options.keep)
    results = [_run(trial, cache) for trial in chosen]
    print(msgspec.json.encode([_shown(result) for result in results]).decode()) if options.json else print(
        format_table(results)
    )
    counts = {
        word: sum(result.verdict == word for result in results) for word in ("right", "wrong", "not had")
    }
    print(", ".join(f"{count} {word}" for word, count in counts.items()), file=sys.stderr)
    return 1 if counts["wrong"] else 0


def _is_chosen(trial: Trial, words: list[str]) -> bool:
    return not words or any(word in trial.name or word == trial.kind for word in words)


def _run(trial: Trial, cache: Cache) -> Result:
    print(f"{trial.name} ...", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        result = try_it(trial, cache, Path(folder))
    print(f"  {result.verdict} ({result.seconds} s) {result.reason}", file=sys.stderr, flush=True)
    for fault in result.faults:
        print(f"    {fault}", file=sys.stderr, flush=True)
    return result


def _shown(result: Result) -> dict[str, object]:
    return {**msgspec.to_builtins(result), "verdict": result.verdict}


if __name__ == "__main__":
    sys.exit(main())
