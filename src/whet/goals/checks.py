"""Turn a goal's text into checks: tests pass, a command exits with 0, a file has a given content, a file is
gone.

A text has checks only if it consists of nothing else. Any other goal ends as unproven, even if the model's
claims are true: a claim is compared with its call, but only a check is compared with the goal.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

import msgspec

from whet.agent.test_runs import extract_test_run, parse_own_run, parse_own_task
from whet.config.paths import read_small
from whet.contract.errors import ConfigError
from whet.goals.claims import (
    GoalCall,
    GoalClaim,
    find_doubts,
    find_refusals,
    is_failure_report,
    is_stale,
    text_arguments,
)
from whet.late import late_pattern
from whet.store.goals import GoalState

CheckKind = Literal["tests", "command", "content", "absent"]

_FILE = r"[`'\"]?([\w./-]+\.\w+)[`'\"]?"
_PASS = r"(?:pass|succeed|run green|(?:be |become )?green)(?: again)?"
_TESTS = late_pattern(
    rf"(?:please )?(?:make|get|have) (?:all |every |each |the |of |failing |broken |red |unit )*tests?"
    rf"(?: (?:of|in|from) ({_FILE}(?:(?:, | and |, and ){_FILE})*))? (?:to )?{_PASS}",
    re.IGNORECASE,
)
_TEST_FILE = late_pattern(
    rf"(?:please )?(?:make|get|have) ([`'\"]?[\w./-]*test[\w./-]*\.\w+[`'\"]?) (?:to )?{_PASS}", re.IGNORECASE
)
_SUITE = late_pattern(
    rf"(?:please )?(?:make|get) the (?:whole |entire |full |complete )?test suite (?:to )?{_PASS}",
    re.IGNORECASE,
)
_COMMAND = late_pattern(
    r"(?:please )?(?:make|get) `([^`\n]+)` (?:to )?(?:pass|succeed|exit (?:with )?(?:code )?0|work)",
    re.IGNORECASE,
)
_CONTENT = late_pattern(
    rf"(?:please )?(?:create|write) (?:a |the )?(?:file )?{_FILE}"
    r" (?:with|containing) (?:the )?(?:content |text )?(?:\"([^\"\n]+)\"|'([^'\n]+)'|`([^`\n]+)`)",
    re.IGNORECASE,
)
_ABSENT = late_pattern(
    r"(?<!not )(?<!n't )(?<!n’t )(?<!never )\b(?:remove|delete) (?:the )?(?:files? )?"
    rf"({_FILE}(?:(?:, | and |, and )(?:the )?(?:file )?{_FILE})*)(?=[\s.,;:!)]|$)",
    re.IGNORECASE,
)
_NAMES = late_pattern(_FILE)
_END = ".! \n"
_FLAGS = late_pattern(
    r"-[vqxbfs]+$|--(?:verbose|quiet|exitfirst|failfast|buffer|locals|no-header|color=\w+)$"
)
# Variables other than those of the interpreter and of the output may select fewer tests or make them easier.
_SETTING = late_pattern(
    r"(?:^|\s)(?!(?:PYTHON\w*|LANG|LC_\w+|TERM|COLUMNS|NO_COLOR|FORCE_COLOR)=)[A-Za-z_]\w*="
)
_WHOLE = {"pytest": (".",), "unittest": ("discover", "."), "go test": ("./...",), "jest": (".",)}

_UNCOVERED = "The claims are true, and no check covers the goal."
_REPORTED = "The model reports that the goal is not reached."


class GoalCheck(msgspec.Struct, frozen=True):
    """A condition that must be true at a goal's end. `names` depends on the kind: the test files (empty for
    all tests), the command, the file and its content, or the files to be gone."""

    kind: CheckKind
    names: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The check in words, for the person and the model."""
        if self.kind == "tests":
            return f"the tests of {', '.join(self.names)} pass" if self.names else "all tests pass"
        if self.kind == "command":
            return f"`{self.names[0]}` exits with 0"
        if self.kind == "absent":
            return f"there is no {' and no '.join(self.names)}"
        return f"{self.names[0]} contains exactly the given text"


class _TestSelection(msgspec.Struct, frozen=True):
    """The tests that a run selects. `targets` are the paths of files or modules, empty for all tests, or None
    if the run leaves out tests in another way."""

    folder: str
    targets: tuple[str, ...] | None


def read_checks(text: str) -> tuple[GoalCheck, ...]:
    """Return the checks that a goal's text consists of, or an empty tuple if it contains anything else."""
    text = text.strip().rstrip(_END)
    if match := _TESTS.fullmatch(text):
        return (GoalCheck("tests", tuple(_NAMES.findall(match[1] or ""))),)
    if match := _TEST_FILE.fullmatch(text):
        return (GoalCheck("tests", (match[1].strip("`'\""),)),)
    if _SUITE.fullmatch(text):
        return (GoalCheck("tests"),)
    if match := _COMMAND.fullmatch(text):
        return (GoalCheck("command", (match[1].strip(),)),)
    if match := _CONTENT.fullmatch(text):
        return (GoalCheck("content", (match[1], match[2] or match[3] or match[4])),)
    if match := _ABSENT.fullmatch(re.sub(r"^please ", "", text, flags=re.IGNORECASE)):
        return (GoalCheck("absent", _list_removed(match)),)
    return ()


def find_removed_names(text: str) -> frozenset[str]:
    """Return the files that a goal's text wants removed. It may want other things too."""
    return frozenset(name for match in _ABSENT.finditer(text) for name in _list_removed(match))


def _list_removed(match: re.Match[str]) -> tuple[str, ...]:
    return tuple(name.removeprefix("./") for name in _NAMES.findall(match[1]))


def command_of(text: str) -> str:
    """Return the command that a goal's text wants to exit with 0, or an empty string."""
    return next((check.names[0] for check in read_checks(text) if check.kind == "command"), "")


def describe_checks(text: str) -> str:
    """Return the line for the person about how a goal without a verifier is judged."""
    if checks := read_checks(text):
        return "checked at the end: " + "; ".join(check.text for check in checks)
    return "no check covers this text, so it ends as unproven at best; --verify CMD proves it"


class WeighedClaims(msgspec.Struct, frozen=True):
    """The state of a goal after its claims, the reason, and the calls that prove its checks."""

    state: GoalState
    text: str = ""
    proofs: tuple[GoalCall, ...] = ()


def weigh_claims(
    text: str, claims: Sequence[GoalClaim], session_calls: Sequence[GoalCall], workspace: Path
) -> WeighedClaims:
    """Compare a model's claims with its calls, and the calls with the checks of the goal's text.

    The state is "running" if the goal can't end yet: a claim is false, or a check is not met and the model
    does not report a failure.
    """
    if refusals := find_refusals(claims, session_calls):
        return WeighedClaims("running", "\n".join(refusals))
    doubts = find_doubts(claims, session_calls)
    checks = read_checks(text)
    if not checks:
        return WeighedClaims("unproven", "\n".join((_UNCOVERED, *doubts)))
    unmet, proofs = _find_unmet(checks, session_calls, workspace)
    if not unmet:
        return WeighedClaims("achieved", proofs=tuple(proofs))
    if is_failure_report(claims, session_calls):
        return WeighedClaims("unproven", "\n".join((_REPORTED, *doubts)))
    return WeighedClaims("running", "\n".join((*unmet, *doubts)))


def _find_unmet(
    checks: Sequence[GoalCheck], calls: Sequence[GoalCall], workspace: Path
) -> tuple[list[str], list[GoalCall]]:
    """Return the reasons of the checks that are not met, and the calls that prove the others."""
    reasons: list[str] = []
    proofs: list[GoalCall] = []
    for check in checks:
        if check.kind in ("content", "absent"):
            is_met = _has_content if check.kind == "content" else _is_absent
            if not is_met(check, workspace):
                reasons.append(f"not true: {check.text}")
        elif call := _find_proof(check, calls, workspace):
            proofs.append(call)
        else:
            reasons.append(
                f"not shown: {check.text}. Run exactly that, by itself, without variables that you set, after"
                " your last change"
            )
    return reasons, proofs


def _has_content(check: GoalCheck, workspace: Path) -> bool:
    path, content = check.names
    try:
        return (read_small(workspace / path) or "").strip() == content.strip()
    except ConfigError:
        return False


def _is_absent(check: GoalCheck, workspace: Path) -> bool:
    return not any(os.path.lexists(workspace / name) for name in check.names)


def _find_proof(check: GoalCheck, calls: Sequence[GoalCall], workspace: Path) -> GoalCall | None:
    """Return the call that proves a check: the last one that ran its command or tests. Returns None if there
    is none, or if it failed or is stale."""
    for call in reversed(calls):
        command = text_arguments(call.arguments).get("command", "") if call.facts.command else ""
        if not command:
            continue
        if check.kind == "command":
            if command.removesuffix("2>&1").rstrip() == check.names[0]:
                is_success = call.exit_code == 0 and not call.error_kind
                return call if is_success and not is_stale(call, calls) else None
        elif _runs_tests_of(check, call, command, workspace):
            return call if _is_passing_run(call, calls) else None
    return None


def _is_passing_run(call: GoalCall, calls: Sequence[GoalCall]) -> bool:
    if call.unfit_reason:
        return False
    tests = call.facts.tests
    if tests is not None and (tests.failed or not tests.passed):
        return False
    if call.test_command:
        return True  # Whet runs it again if this run proves nothing
    return tests is not None and tests.direct and call.exit_code == 0 and not is_stale(call, calls)


def _runs_tests_of(check: GoalCheck, call: GoalCall, command: str, workspace: Path) -> bool:
    """Return whether a command runs all tests of a check."""
    run_command = call.test_command or extract_test_run(command) or command
    if parse_own_run(run_command) is None:
        return not check.names and parse_own_task(run_command) is not None
    selection = _read_selection(run_command, workspace)
    if selection.targets is None:
        return False
    if not selection.targets:
        return selection.folder == "" and all(_is_named(call, name) for name in check.names)
    targets = {os.path.normpath(os.path.join(selection.folder, target)) for target in selection.targets}
    return bool(check.names) and all(
        targets & {os.path.normpath(name), os.path.normpath(os.path.splitext(name)[0])}
        for name in check.names
    )


def _is_named(call: GoalCall, name: str) -> bool:
    """Return whether a run of all tests included a file's tests: its output names the file, or unittest
    discovers a file with such a name."""
    if Path(name).stem in call.result:
        return True
    is_unittest = call.facts.tests is not None and call.facts.tests.runner == "unittest"
    return is_unittest and fnmatchcase(name, "test*.py") and "/" not in name


def _read_selection(command: str, workspace: Path) -> _TestSelection:
    run = parse_own_run(command)
    if run is None or _SETTING.search(command):
        return _TestSelection("", None)
    folder = ""
    for inner in run.folders:
        folder = os.path.join(folder, os.path.expanduser(inner))
    if os.path.isabs(folder):
        folder = os.path.relpath(os.path.realpath(folder), workspace.resolve())
    program = run.runner.split()[-1]
    names = [word.rpartition("/")[2] for word in run.words]
    start = names.index(program) + 1 if program in names else len(names)
    targets: list[str] = []
    previous = ""
    for word in run.words[start:]:
        # A plugin's file is judged separately; for unittest, -p is a pattern of file names.
        is_plugin = run.runner == "pytest" and "-p" in (previous, word)
        previous = word
        if _FLAGS.match(word) or word in _WHOLE.get(run.runner, ()) or is_plugin:
            continue
        if word.startswith("-") or "::" in word or "=" in word:
            return _TestSelection(folder, None)
        is_module = run.runner == "unittest" and not word.endswith(".py")
        targets.append(word.replace(".", "/") if is_module else word)
    return _TestSelection("" if folder in ("", ".") else folder, tuple(targets))
