"""Read the counts that known test runners print: pytest, unittest, jest, go test, cargo test.

No other module parses their output. A summary that the command itself contains is the model's own text and
is ignored. A run counts on its own if nothing else in its command prints or decides the exit status; from
any other command the part that runs tests can be extracted.
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

    `words` includes the programs that carry the runner, `folders` are those it changes to first, and
    `sourced` are the files read into the shell. `runner` is empty if a file of the workspace names it.
    """

    runner: str
    words: tuple[str, ...]
    folders: tuple[str, ...] = ()
    sourced: tuple[str, ...] = ()


def own_run(command: str) -> OwnRun | None:
    """Return how a command ends with a known test runner, if nothing before it prints.

    Returns None if it does not, or if its exit status may be another program's.
    """
    run = _own_end(command)
    if run is None:
        return None
    runner = next((name for name, names in _RUNNERS.items() if _runs(run.words, names)), "")
    return msgspec.structs.replace(run, runner=runner) if runner else None


def own_task(command: str) -> OwnRun | None:
    """Return how a command runs a task of the workspace (`make test`) exactly as written there, without
    variables, files or options of its own; else None."""
    run = _own_end(command)
    if run is None or run.words[0] not in _TASKS or run.sourced or "=" in command:
        return None
    return run if all(map(_TASK_ARGUMENT.match, run.words)) else None


def _own_end(command: str) -> OwnRun | None:
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
    """Return whether a simple command prints nothing and only decides where and with what the next one
    runs."""
    if words and words[0] in _SOURCES:
        return len(words) == _SOURCED_WORDS and PurePath(words[1]).name == "activate"
    return bool(words) and words[0] in _SILENT


def extract_test_run(command: str) -> str:
    """Return the part of a command that runs tests, with the folder changes before it, as a command of its
    own.

    Its exit status and output are then the runner's. Returns an empty string if there is no such part.
    """
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
    return test_command if test_command and (own_run(test_command) or own_task(test_command)) else ""


def _unquote(match: re.Match[str]) -> str:
    """Return a quoted text as one plain word."""
    text = match[0]
    if text == "\\\n":
        return " "
    return _SHELLS_OWN.sub("_", text[1:] if text[0] == "\\" else text[1:-1])


def test_counts(command: str, output: str) -> TestCounts | None:
    """Return the counts that a runner printed at the end of a command's output, or None."""
    tail = output[-_TAIL_CHARS:]
    tail = _ESCAPES.sub("", tail) if "\x1b" in tail else tail
    for runner, (sign, read_summary) in _READERS.items():
        reading = read_summary(tail) if sign in tail else None
        if reading is None:
            continue
        summary, counts, unit = reading
        if summary.strip("= \n") in command:
            return None
        passed, failed, skipped = counts
        run = own_run(command)
        return TestCounts(runner, passed, failed, skipped, run is not None and run.runner == runner, unit)
    return None


def shows_failure(command: str, output: str) -> bool:
    """Return whether a command's output shows failed tests, or a run in which no test passed.

    An output without anything that a runner prints shows neither.
    """
    counts = test_counts(command, output)
    if counts is not None:
        return bool(counts.failed) or not counts.passed
    tail = _ESCAPES.sub("", output[-_TAIL_CHARS:])
    return _NONE_RAN.search(tail) is not None or _FAILURE.search(tail) is not None


def mentions_runner(text: str) -> bool:
    """Return whether a program's source mentions a known runner as if it started one."""
    return _RUNNER_MENTIONS.search(text) is not None


def names_runner(command: str) -> bool:
    """Return whether a command runs a known runner directly."""
    return any(_names(command, runners) for runners in _RUNNERS.values())


def _names(command: str, runners: Sequence[Sequence[str]]) -> bool:
    """Return whether a simple command of `command` runs one of these programs, directly or through a
    carrier."""
    return any(_runs(simple.split(), runners) for simple in _BREAKS.split(command))


def _runs(words: Sequence[str], runners: Sequence[Sequence[str]]) -> bool:
    at = 0
    while at < len(words) and _CARRIERS.match(PurePath(words[at]).name):
        at += 1 + (words[at] == "timeout")
    program = [PurePath(words[at]).name, *words[at + 1 :]] if at < len(words) else []
    return any(program[: len(runner)] == list(runner) for runner in runners)


_Summary = tuple[str, tuple[int, int, int], str] | None


def _pytest(text: str) -> _Summary:
    match = _last(_PYTEST, text)
    if match is None:
        return None
    counts = Counter({word.rstrip("s"): int(number) for number, word in _COUNT.findall(match[0])})
    failed = counts["failed"] + counts["error"]
    skipped = counts["skipped"] + counts["xfailed"]
    return match[0], (counts["passed"] + counts["xpassed"], failed, skipped), "tests"


def _unittest(text: str) -> _Summary:
    match = _last(_UNITTEST, text)
    if match is None:
        return None
    counts = Counter({name: int(number) for name, number in _NAMED.findall(match[3] or "")})
    failed = counts["failures"] + counts["errors"]
    if match[2] == "FAILED":
        failed = max(failed, 1)
    skipped = counts["skipped"] + counts["expected failures"]
    return match[0], (max(int(match[1]) - failed - skipped, 0), failed, skipped), "tests"


def _jest(text: str) -> _Summary:
    match = _last(_JEST, text)
    if match is None:
        return None
    counts = Counter({word: int(number) for number, word in _COUNT.findall(match[0])})
    return match[0], (counts["passed"], counts["failed"], counts["skipped"]), "tests"


def _cargo(text: str) -> _Summary:
    matches = list(_CARGO.finditer(text))
    if not matches:
        return None
    sums = [sum(int(match[at]) for match in matches) for at in (1, 2, 3)]
    return matches[-1][0], (sums[0], sums[1], sums[2]), "tests"


def _go(text: str) -> _Summary:
    packages = list(_GO_PACKAGE.finditer(text))
    if not packages:
        return None
    cases = [match[1] for match in _GO_TEST.finditer(text)]
    last, failed = packages[-1][0], sum(package[1] == "FAIL" for package in packages)
    if "PASS" in cases:
        return last, (cases.count("PASS"), cases.count("FAIL"), cases.count("SKIP")), "tests"
    return last, (len(packages) - failed, failed, 0), "packages"


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    matches = list(pattern.finditer(text))
    return matches[-1] if matches else None


# Each reader with a string that its summary always contains: most outputs contain none, and need no pattern.
_READERS: dict[str, tuple[str, Callable[[str], _Summary]]] = {
    "pytest": (" in ", _pytest),
    "unittest": ("Ran ", _unittest),
    "jest": ("Tests:", _jest),
    "cargo test": ("test result: ", _cargo),
    "go test": ("\t", _go),
}
