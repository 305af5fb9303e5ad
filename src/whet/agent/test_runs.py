"""Reads the counts that known test runners print: pytest, unittest, jest, go test, cargo test.

The one place where output is read for them. A summary that stands in the command itself is the model's own
text and counts for nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import PurePath

from whet.contract.receipts import TestCounts

_TAIL_CHARS = 12_000
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_BREAKS = re.compile(r"&&|\|\||[;|&\n]")
_PYTEST = re.compile(
    r"^=*[ ]*((?:\d+ (?:passed|failed|errors?|skipped|xfailed|xpassed|deselected|warnings?|rerun)(?:, )?)+)"
    r" in [\d.]+s",
    re.MULTILINE,
)
_COUNT = re.compile(r"(\d+) (\w+)")
_UNITTEST = re.compile(r"^Ran (\d+) tests? in [\d.]+s\s+^(OK|FAILED)(?: \(([^)]*)\))?", re.MULTILINE)
_NAMED = re.compile(r"(failures|errors|skipped|expected failures)=(\d+)")
_JEST = re.compile(r"^Tests:[ ]+((?:\d+ \w+, )*)\d+ total", re.MULTILINE)
_CARGO = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", re.MULTILINE)
_GO_TEST = re.compile(r"^\s*--- (PASS|FAIL|SKIP): ", re.MULTILINE)
_GO_PACKAGE = re.compile(r"^(ok|FAIL)[ ]*\t\S+", re.MULTILINE)
_RUNNERS = {
    "pytest": (("pytest",), ("py.test",)),
    "unittest": (("unittest",),),
    "jest": (("jest",),),
    "go test": (("go", "test"),),
    "cargo test": (("cargo", "test"),),
}
_CARRIERS = re.compile(
    r"(python[\d.]*|uv|run|poetry|pdm|npx|pnpm|yarn|exec|env|time|nice|coverage|-m|[A-Z_]+=\S*)$"
)


def test_counts(command: str, output: str) -> TestCounts | None:
    """Give what a runner printed at the end of a command's output; None where none did."""
    tail = _ESCAPES.sub("", output[-_TAIL_CHARS:])
    for runner, read in _READERS.items():
        found = read(tail)
        if found is None:
            continue
        summary, counts, unit = found
        if summary.strip("= \n") in command:
            return None
        passed, failed, skipped = counts
        return TestCounts(runner, passed, failed, skipped, _names(command, _RUNNERS[runner]), unit)
    return None


def names_runner(command: str) -> bool:
    """Whether a command runs one of the known runners itself."""
    return any(_names(command, runners) for runners in _RUNNERS.values())


def _names(command: str, runners: Sequence[Sequence[str]]) -> bool:
    """Whether a simple command of `command` runs one of these programs, by itself or through a carrier."""
    for simple in _BREAKS.split(command):
        words = simple.split()
        while words and _CARRIERS.match(PurePath(words[0]).name):
            words.pop(0)
        program = [PurePath(words[0]).name, *words[1:]] if words else []
        if any(program[: len(runner)] == list(runner) for runner in runners):
            return True
    return False


_Found = tuple[str, tuple[int, int, int], str] | None


def _pytest(text: str) -> _Found:
    found = _last(_PYTEST, text)
    if found is None:
        return None
    counts = {word.rstrip("s"): int(number) for number, word in _COUNT.findall(found[1])}
    failed = counts.get("failed", 0) + counts.get("error", 0)
    skipped = counts.get("skipped", 0) + counts.get("xfailed", 0)
    return found[0], (counts.get("passed", 0) + counts.get("xpassed", 0), failed, skipped), "tests"


def _unittest(text: str) -> _Found:
    found = _last(_UNITTEST, text)
    if found is None:
        return None
    named = {name: int(number) for name, number in _NAMED.findall(found[3] or "")}
    failed = named.get("failures", 0) + named.get("errors", 0)
    if found[2] == "FAILED":
        failed = max(failed, 1)
    skipped = named.get("skipped", 0)
    return found[0], (max(int(found[1]) - failed - skipped, 0), failed, skipped), "tests"


def _jest(text: str) -> _Found:
    found = _last(_JEST, text)
    if found is None:
        return None
    named = {word: int(number) for number, word in _COUNT.findall(found[1])}
    return found[0], (named.get("passed", 0), named.get("failed", 0), named.get("skipped", 0)), "tests"


def _cargo(text: str) -> _Found:
    found = list(_CARGO.finditer(text))
    if not found:
        return None
    sums = [sum(int(one[at]) for one in found) for at in (1, 2, 3)]
    return found[-1][0], (sums[0], sums[1], sums[2]), "tests"


def _go(text: str) -> _Found:
    packages = list(_GO_PACKAGE.finditer(text))
    if not packages:
        return None
    cases = [match[1] for match in _GO_TEST.finditer(text)]
    failed = sum(one[1] == "FAIL" for one in packages)
    if "PASS" in cases:
        return packages[-1][0], (cases.count("PASS"), cases.count("FAIL"), cases.count("SKIP")), "tests"
    return packages[-1][0], (len(packages) - failed, failed, 0), "packages"


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    found = list(pattern.finditer(text))
    return found[-1] if found else None


_READERS: dict[str, Callable[[str], _Found]] = {
    "pytest": _pytest,
    "unittest": _unittest,
    "jest": _jest,
    "cargo test": _cargo,
    "go test": _go,
}
