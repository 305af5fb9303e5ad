"""Reads the counts that known test runners print: pytest, unittest, jest, go test, cargo test.

The one place where output is read for them. A summary that stands in the command itself is the model's own
text and counts for nothing. A run answers for itself where nothing else of its command prints or decides the
exit status; of any other command the part that runs tests can be taken out, to be run by itself.
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
_GO_PACKAGE = late_pattern(r"^(ok|FAIL)[ ]*\t\S+", re.MULTILINE)
_RUNNERS = {
    "pytest": (("pytest",), ("py.test",)),
    "unittest": (("unittest",),),
    "jest": (("jest",),),
    "go test": (("go", "test"),),
    "cargo test": (("cargo", "test"),),
}
# Programs that run what a file of the workspace names; an argument of theirs that is no plain name may be
# the model's own program.
_TASKS = frozenset({"make", "npm", "pnpm", "yarn", "tox", "nox"})
_TASK_ARGUMENT = late_pattern(r"[A-Za-z0-9][\w.:/-]*$|-j\d*$|-[es]$")
_MENTIONS = late_pattern(
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
    """A command whose exit status and output are a test runner's own: its words with those that carry it, the
    folders that it goes to first and the files that it reads into the shell. `runner` is empty where a file
    of the workspace names it."""

    runner: str
    words: tuple[str, ...]
    folders: tuple[str, ...] = ()
    sourced: tuple[str, ...] = ()


def own_run(command: str) -> OwnRun | None:
    """Give how a command runs a known runner last, after nothing that prints; None where it does not, or
    where its exit status may be another's."""
    run = _own_end(command)
    if run is None:
        return None
    runner = next((name for name, known in _RUNNERS.items() if _runs(run.words, known)), "")
    return msgspec.structs.replace(run, runner=runner) if runner else None


def own_task(command: str) -> OwnRun | None:
    """Give how a command runs a task of the workspace (`make test`) in the same way, and as that is written
    there: with no variables, files or options of its own."""
    run = _own_end(command)
    if run is None or run.words[0] not in _TASKS or run.sourced or "=" in command:
        return None
    return run if all(map(_TASK_ARGUMENT.match, run.words)) else None


def _own_end(command: str) -> OwnRun | None:
    plain = _PLUMBING.sub(" ", _COMMENT.sub("", _QUOTED.sub(_unquoted, command)))
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
    """Whether a simple command prints nothing, and says only where and with what the next one runs."""
    if words and words[0] in _SOURCES:
        return len(words) == _SOURCED_WORDS and PurePath(words[1]).name == "activate"
    return bool(words) and words[0] in _SILENT


def alone(command: str) -> str:
    """Give the part of a command that runs tests, with what says where it runs, as a command of its own whose
    end and output are the runner's; empty where it has none."""
    plain = _QUOTED.sub(lambda found: "_" * len(found[0]), command)
    plain = _COMMENT.sub(lambda found: " " * len(found[0]), plain)
    if _OPAQUE.search(plain):
        return ""
    plain = _REDIRECTION.sub(lambda found: " " * len(found[0]), plain)
    kept: list[str] = []
    before: list[str] = []
    for found in _SIMPLE.finditer(plain):
        text = "".join(
            there if here != " " else " "
            for here, there in zip(found[0], command[slice(*found.span())], strict=True)
        ).strip()
        if _is_silent(text.split()):
            before.append(text)
        elif (
            any(_runs(text.split(), known) for known in _RUNNERS.values()) or text.split()[:1] in _TASK_WORDS
        ):
            kept = [*before, text]
    wanted = " && ".join(kept)
    return wanted if wanted and (own_run(wanted) or own_task(wanted)) else ""


def _unquoted(found: re.Match[str]) -> str:
    """Give a quoted text as one plain word."""
    text = found[0]
    if text == "\\\n":
        return " "
    return _SHELLS_OWN.sub("_", text[1:] if text[0] == "\\" else text[1:-1])


def test_counts(command: str, output: str) -> TestCounts | None:
    """Give what a runner printed at the end of a command's output; None where none did."""
    tail = output[-_TAIL_CHARS:]
    tail = _ESCAPES.sub("", tail) if "\x1b" in tail else tail
    for runner, (sign, read) in _READERS.items():
        found = read(tail) if sign in tail else None
        if found is None:
            continue
        summary, counts, unit = found
        if summary.strip("= \n") in command:
            return None
        passed, failed, skipped = counts
        own = own_run(command)
        return TestCounts(runner, passed, failed, skipped, own is not None and own.runner == runner, unit)
    return None


def mentions_runner(text: str) -> bool:
    """Whether a program's source speaks of a known runner, as one that starts it does."""
    return _MENTIONS.search(text) is not None


def names_runner(command: str) -> bool:
    """Whether a command runs one of the known runners itself."""
    return any(_names(command, runners) for runners in _RUNNERS.values())


def _names(command: str, runners: Sequence[Sequence[str]]) -> bool:
    """Whether a simple command of `command` runs one of these programs, by itself or through a carrier."""
    return any(_runs(simple.split(), runners) for simple in _BREAKS.split(command))


def _runs(words: Sequence[str], runners: Sequence[Sequence[str]]) -> bool:
    at = 0
    while at < len(words) and _CARRIERS.match(PurePath(words[at]).name):
        at += 1 + (words[at] == "timeout")
    program = [PurePath(words[at]).name, *words[at + 1 :]] if at < len(words) else []
    return any(program[: len(runner)] == list(runner) for runner in runners)


_Found = tuple[str, tuple[int, int, int], str] | None


def _pytest(text: str) -> _Found:
    found = _last(_PYTEST, text)
    if found is None:
        return None
    counts = Counter({word.rstrip("s"): int(number) for number, word in _COUNT.findall(found[0])})
    failed = counts["failed"] + counts["error"]
    skipped = counts["skipped"] + counts["xfailed"]
    return found[0], (counts["passed"] + counts["xpassed"], failed, skipped), "tests"


def _unittest(text: str) -> _Found:
    found = _last(_UNITTEST, text)
    if found is None:
        return None
    named = Counter({name: int(number) for name, number in _NAMED.findall(found[3] or "")})
    failed = named["failures"] + named["errors"]
    if found[2] == "FAILED":
        failed = max(failed, 1)
    skipped = named["skipped"] + named["expected failures"]
    return found[0], (max(int(found[1]) - failed - skipped, 0), failed, skipped), "tests"


def _jest(text: str) -> _Found:
    found = _last(_JEST, text)
    if found is None:
        return None
    named = Counter({word: int(number) for number, word in _COUNT.findall(found[0])})
    return found[0], (named["passed"], named["failed"], named["skipped"]), "tests"


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
    last, failed = packages[-1][0], sum(one[1] == "FAIL" for one in packages)
    if "PASS" in cases:
        return last, (cases.count("PASS"), cases.count("FAIL"), cases.count("SKIP")), "tests"
    return last, (len(packages) - failed, failed, 0), "packages"


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    found = list(pattern.finditer(text))
    return found[-1] if found else None


# Each with what its summary always holds: most outputs hold none of these, and need no pattern.
_READERS: dict[str, tuple[str, Callable[[str], _Found]]] = {
    "pytest": (" in ", _pytest),
    "unittest": ("Ran ", _unittest),
    "jest": ("Tests:", _jest),
    "cargo test": ("test result: ", _cargo),
    "go test": ("\t", _go),
}
