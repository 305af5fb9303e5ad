"""Read the counts that known test runners print: pytest, unittest, jest, go test, cargo test.

No other module parses their output. A summary that also occurs in the command was written by the model and is
ignored. A run proves something only if no other program of its command prints or decides the exit status;
from any other command the part that runs tests can be extracted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import PurePath

import msgspec

from whet.contract.receipts import TestCounts
from whet.late import late_pattern

_TAIL_CHARS = 12_000
_ESCAPES = late_pattern(r"\x1b\[[0-9;]*m")
_BREAKS = late_pattern(r"&&|\|\||[;|&\n]")
_PYTEST = late_pattern(
    r"^=*[ ]*(?:\d+ (?:passed|failed|errors?|skipped|xfailed|xpassed|deselected|warnings?|rerun)(?:, )?)+"
    r" in [\d.]+s",
    re.MULTILINE,
)
_COUNT = late_pattern(r"(\d+) (\w+)")
_UNITTEST = late_pattern(r"^Ran (\d+) tests? in [\d.]+s\s+^(OK|FAILED)(?: \(([^)]*)\))?", re.MULTILINE)
_NAMED = late_pattern(r"(failures|errors|skipped|expected failures)=(\d+)")
_JEST = late_pattern(r"^Tests:[ ]+(?:\d+ \w+, )*\d+ total", re.MULTILINE)
_CARGO = late_pattern(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", re.MULTILINE)
_GO_TEST = late_pattern(r"^\s*--- (PASS|FAIL|SKIP): ", re.MULTILINE)
_NONE_RAN = late_pattern(
    r"^(?:Ran 0 tests in |NO TESTS RAN|=*[ ]*no tests ran in |No tests found)", re.MULTILINE
)
_FAILURE = late_pattern(
    r"^(?:FAILED \((?:failures|errors|unexpected)|(?:FAILED|ERROR) \S+\.py\b|--- FAIL: |FAIL[ ]*\t\S)",
    re.MULTILINE,
)
_GO_PACKAGE = late_pattern(r"^(ok|FAIL)[ ]*\t\S+", re.MULTILINE)
_RUNNERS = {
    "pytest": (("pytest",), ("py.test",)),
    "unittest": (("unittest",),),
    "jest": (("jest",),),
    "go test": (("go", "test"),),
    "cargo test": (("cargo", "test"),),
}
# Programs that run tasks named in a file of the workspace; an argument that is not a plain name may be the
# model's own program.
_TASKS = frozenset({"make", "npm", "pnpm", "yarn", "tox", "nox"})
_TASK_ARGUMENT = late_pattern(r"[A-Za-z0-9][\w.:/-]*$|-j\d*$|-[es]$")
_RUNNER_MENTIONS = late_pattern(
    "|".join(r"\b" + r"\W{1,6}".join(words) + r"\b" for known in _RUNNERS.values() for words in known)
    + r"|--test\b"
)
_CARRIERS = late_pattern(
    r"(python[\d.]*|uv|run|poetry|pdm|npx|pnpm|yarn|exec|env|time|timeout|nice|coverage|-m|[A-Z_]+=\S*)$"
)

_QUOTED = late_pattern(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.", re.DOTALL)
_SHELLS_OWN = late_pattern(r"[\s;&|()<>#`$]")
_COMMENT = late_pattern(r"(?:(?<=\s)|^)#[^\n]*", re.MULTILINE)
_PLUMBING = late_pattern(r"\d*[<>]&[\d-]+|&>")
_ONE_BY_ONE = late_pattern(r"&&|[;\n]")
_REDIRECTION = late_pattern(r"(?:\d*|&)(?:>>?|<)(?:&[\d-]+|\s*[^\s;&|]+)?")
_OPAQUE = late_pattern(r"<<|`|\$\(|\(\s*\)|(?:^|[\s;])(?:function|trap|alias|eval)\s")
_MASKING = late_pattern(r"[|&()`]|<<")
_SILENT = frozenset({"cd", "export", "set"})
_SOURCES = frozenset({"source", "."})
_SOURCED_WORDS = 2
_SIMPLE = late_pattern(r"[^;&|()\n]*[^;&|()\s][^;&|()\n]*")
_TASK_WORDS = [[name] for name in sorted(_TASKS)]
_MISLEADING = late_pattern(
    r"(?:PATH|ENV|BASH_ENV|CDPATH|LD_\w+|PYTHONHOME|PYTHONSTARTUP|PYTEST_PLUGINS|PYTEST_ADDOPTS|NODE_OPTIONS)="
)


class OwnRun(msgspec.Struct, frozen=True):
    """A command whose exit status and output are a test runner's own.

    `words` are the runner's command line, including programs that start it (`uv run`). `folders` are the
    folders that the command changes to first, and `sourced` the files that it reads into the shell. `runner`
    is empty if a file of the workspace names the runner (`make test`).
    """

    runner: str
    words: tuple[str, ...]
    folders: tuple[str, ...] = ()
    sourced: tuple[str, ...] = ()


def parse_own_run(command: str) -> OwnRun | None:
    """Parse a command that ends with a known test runner. Returns None for any other command, and if another
    program may print or decide the exit status."""
    run = _parse_last_command(command)
    if run is None:
        return None
    for runner, names in _RUNNERS.items():
        if _runs(run.words, names):
            return msgspec.structs.replace(run, runner=runner)
    return None


def parse_own_task(command: str) -> OwnRun | None:
    """Parse a command that runs a task of the workspace (`make test`) exactly as it is written there. Returns
    None for any other command, and for one with variables, files or options."""
    run = _parse_last_command(command)
    if run is None or run.words[0] not in _TASKS or run.sourced or "=" in command:
        return None
    return run if all(map(_TASK_ARGUMENT.match, run.words)) else None


def _parse_last_command(command: str) -> OwnRun | None:
    """Parse a command's last simple command; None if others print or may decide the exit status."""
    plain = _PLUMBING.sub(" ", _COMMENT.sub("", _QUOTED.sub(_unquote, command)))
    parts = [part.split() for part in _ONE_BY_ONE.split(plain) if part.strip()]
    if not parts or _MASKING.search(plain.replace("&&", "")):
        return None
    if any(_MISLEADING.match(word) for words in parts for word in words):
        return None
    *before, last = parts
    if not all(_is_silent(words) for words in before):
        return None
    folders = tuple(words[1] for words in before if words[0] == "cd" and len(words) > 1)
    sourced = tuple(words[1] for words in before if words[0] in _SOURCES)
    return OwnRun("", tuple(last), folders, sourced)


def _is_silent(words: Sequence[str]) -> bool:
    """Return whether a simple command prints nothing and only sets the folder or variables of the next."""
    if words and words[0] in _SOURCES:
        return len(words) == _SOURCED_WORDS and PurePath(words[1]).name == "activate"
    return bool(words) and words[0] in _SILENT


def extract_test_run(command: str) -> str:
    """Return the part of a command that runs tests, with the folder changes before it, as a command whose
    exit status and output are the runner's. Returns an empty string if there is no such part."""
    plain = _QUOTED.sub(lambda match: "_" * len(match[0]), command)
    plain = _COMMENT.sub(lambda match: " " * len(match[0]), plain)
    if _OPAQUE.search(plain):
        return ""
    plain = _REDIRECTION.sub(lambda match: " " * len(match[0]), plain)
    parts: list[str] = []
    before: list[str] = []
    for match in _SIMPLE.finditer(plain):
        text = "".join(
            original if masked != " " else " "
            for masked, original in zip(match[0], command[slice(*match.span())], strict=True)
        ).strip()
        if _is_silent(text.split()):
            before.append(text)
        elif (
            any(_runs(text.split(), names) for names in _RUNNERS.values()) or text.split()[:1] in _TASK_WORDS
        ):
            parts = [*before, text]
    test_command = " && ".join(parts)
    return test_command if parse_own_run(test_command) or parse_own_task(test_command) else ""


def _unquote(match: re.Match[str]) -> str:
    """Return a quoted text as one plain word."""
    text = match[0]
    if text == "\\\n":
        return " "
    return _SHELLS_OWN.sub("_", text[1:] if text[0] == "\\" else text[1:-1])


def read_counts(command: str, output: str) -> TestCounts | None:
    """Return the counts that a runner printed at the end of a command's output, or None."""
    tail = output[-_TAIL_CHARS:]
    tail = _ESCAPES.sub("", tail) if "\x1b" in tail else tail
    for runner, (marker, read_summary) in _READERS.items():
        summary = read_summary(tail) if marker in tail else None
        if summary is None:
            continue
        if summary.text.strip("= \n") in command:
            return None
        run = parse_own_run(command)
        is_own = run is not None and run.runner == runner
        return TestCounts(runner, summary.passed, summary.failed, summary.skipped, is_own, summary.unit)
    return None


def shows_failure(command: str, output: str) -> bool:
    """Return whether a command's output shows failed tests, or a run in which no test passed.

    Returns False if the output contains nothing that a runner prints.
    """
    counts = read_counts(command, output)
    if counts is not None:
        return bool(counts.failed) or not counts.passed
    tail = _ESCAPES.sub("", output[-_TAIL_CHARS:])
    return _NONE_RAN.search(tail) is not None or _FAILURE.search(tail) is not None


def mentions_runner(text: str) -> bool:
    """Return whether a program's source mentions a known runner as if it started one."""
    return _RUNNER_MENTIONS.search(text) is not None


def names_runner(command: str) -> bool:
    """Return whether a command runs a known runner directly."""
    commands = [simple.split() for simple in _BREAKS.split(command)]
    return any(_runs(words, runners) for words in commands for runners in _RUNNERS.values())


def _runs(words: Sequence[str], runners: Sequence[Sequence[str]]) -> bool:
    """Return whether a simple command runs one of these programs, itself or through a program like `uv`."""
    start = 0
    while start < len(words) and _CARRIERS.match(PurePath(words[start]).name):
        start += 2 if words[start] == "timeout" else 1
    if start >= len(words):
        return False
    program = [PurePath(words[start]).name, *words[start + 1 :]]
    return any(program[: len(runner)] == list(runner) for runner in runners)


class _Summary(msgspec.Struct, frozen=True):
    """The counts that a runner printed, with its text."""

    text: str
    passed: int
    failed: int
    skipped: int
    unit: str = "tests"


def _read_pytest(text: str) -> _Summary | None:
    match = _find_last(_PYTEST, text)
    if match is None:
        return None
    counts = Counter({word.rstrip("s"): int(number) for number, word in _COUNT.findall(match[0])})
    failed = counts["failed"] + counts["error"]
    skipped = counts["skipped"] + counts["xfailed"]
    return _Summary(match[0], counts["passed"] + counts["xpassed"], failed, skipped)


def _read_unittest(text: str) -> _Summary | None:
    match = _find_last(_UNITTEST, text)
    if match is None:
        return None
    counts = Counter({name: int(number) for name, number in _NAMED.findall(match[3] or "")})
    failed = counts["failures"] + counts["errors"]
    if match[2] == "FAILED":
        failed = max(failed, 1)
    skipped = counts["skipped"] + counts["expected failures"]
    return _Summary(match[0], max(int(match[1]) - failed - skipped, 0), failed, skipped)


def _read_jest(text: str) -> _Summary | None:
    match = _find_last(_JEST, text)
    if match is None:
        return None
    counts = Counter({word: int(number) for number, word in _COUNT.findall(match[0])})
    return _Summary(match[0], counts["passed"], counts["failed"], counts["skipped"])


def _read_cargo(text: str) -> _Summary | None:
    matches = list(_CARGO.finditer(text))
    if not matches:
        return None
    passed, failed, skipped = (sum(int(match[group]) for match in matches) for group in (1, 2, 3))
    return _Summary(matches[-1][0], passed, failed, skipped)


def _read_go(text: str) -> _Summary | None:
    packages = list(_GO_PACKAGE.finditer(text))
    if not packages:
        return None
    cases = [match[1] for match in _GO_TEST.finditer(text)]
    last, failed = packages[-1][0], sum(package[1] == "FAIL" for package in packages)
    if "PASS" in cases:
        return _Summary(last, cases.count("PASS"), cases.count("FAIL"), cases.count("SKIP"))
    return _Summary(last, len(packages) - failed, failed, 0, "packages")


def _find_last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    matches = list(pattern.finditer(text))
    return matches[-1] if matches else None


# Each reader with a string that its summary always contains: most outputs contain none and need no pattern.
_READERS: dict[str, tuple[str, Callable[[str], _Summary | None]]] = {
    "pytest": (" in ", _read_pytest),
    "unittest": ("Ran ", _read_unittest),
    "jest": ("Tests:", _read_jest),
    "cargo test": ("test result: ", _read_cargo),
    "go test": ("\t", _read_go),
}
