"""Run the verifier of a goal, which is a command in the sandbox, and hash the files that it consists of."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from whet.agent.test_runs import names_runner, read_counts, shows_failure
from whet.contract.tools import ToolContext, ToolOutput
from whet.regular import open_regular
from whet.sandbox.policy import Opening
from whet.tools.confined import Confined
from whet.tools.session_processes import open_session_processes
from whet.tools.shell import Shell, command_spec
from whet.tools.toolsets.terminal import ShellLimits

if TYPE_CHECKING:
    from whet.app.services import Services
    from whet.store.goals import GoalRow

_MAX_FILES = 2_000
_MAX_DEPTH = 8
_PATHS = re.compile(r"[\w./~+@-]+")
_TAKES_PROGRAM = re.compile(
    r"(?:^|[\s/])(?:python[\d.]*|pypy[\d.]*|perl|ruby|node|php|lua)\s(?:\S+\s)*-\w*[cerE]$"
)
_OUTPUT_CHARS = 4_000
_QUIET = re.compile(
    r"[>|]|\s-\w*q\w*q|\s-q\s+-q|--co\b|--collect-only|--no-summary|--silent|--quiet|--version|--help"
)
_ALWAYS_ZERO = re.compile(r"(?:\|\||;|\n)\s*(?:true|:|exit\s+0)\s*;?\s*$")
_NEGATED = re.compile(r"(?:^|[;&|(\n]|\b(?:if|then|do|else))\s*!\s", re.MULTILINE)
_READS_ALL = re.compile(r"(?<!\|)\|&?(?!\|)\s*(?:(?:tail|tee|cat)\b|(?P<other>))")
_PIPEFAIL = "(set -o pipefail) 2>/dev/null && set -o pipefail\n"  # a plain POSIX shell goes on without
# Compiled files beside the sources are not trusted: the interpreter looks for them in a folder that does not
# exist.
_OWN_BYTECODE = {"PYTHONPYCACHEPREFIX": "/dev/null/bytecode", "PYTHONDONTWRITEBYTECODE": "1"}
_VARYING = re.compile(r"0x[0-9a-f]+|\d+(?:\.\d+)?\s*(?:ms|s|seconds?)\b")


def hash_guarded_files(verify: str, workspace: Path, more: Sequence[str] = ()) -> dict[str, str]:
    """Return the hashes of the files that a verifier names, and of those in `more`. For a folder of the
    workspace, all its files are hashed.

    Keys are paths relative to the workspace, or absolute paths outside of it.
    """
    hashes: dict[str, str] = {}
    root = workspace.resolve()
    paths = [path for path in _PATHS.findall(verify) if (root / path).is_file()]
    for word in (*_list_names(verify), *paths, *more):
        target = (root / os.path.expanduser(word)).resolve()
        if not target.is_relative_to(root) and target.is_file():
            hashes[str(target)] = _hash(target)
        elif target != root and target.is_relative_to(root):
            for path in _list_files(target):
                hashes[os.path.relpath(path, root)] = _hash(path)
    return dict(sorted(hashes.items())[:_MAX_FILES])


def _list_names(command: str, depth: int = 0) -> list[str]:
    """Return the words of a command, and those of the commands in its words (`sh -c "..."`). A program for an
    interpreter (`python -c "..."`) has no words."""
    try:
        words = shlex.split(command, comments=True)
    except ValueError:
        words = command.split()
    names: list[str] = []
    for index, word in enumerate(words):
        if depth < _MAX_DEPTH and word != command and re.search(r"[\s'\"`]", word):
            is_program = _TAKES_PROGRAM.search(" ".join(words[:index])) is not None
            names += [] if is_program else _list_names(word, depth + 1)
        names += [part for part in re.split(r"[;&|<>()=`]|::", word) if part]
    return names


def find_changed_files(guarded: dict[str, str], workspace: Path) -> list[str]:
    """Return the verifier's files that differ from their recorded hashes."""
    root = workspace.resolve()
    return [path for path, digest in guarded.items() if _hash(root / path) != digest]


async def run_verifier(
    services: Services, workspace: Path, command: str, goal: GoalRow, copy: Path | None = None
) -> ToolOutput:
    """Run the verifier in the sandbox, in the workspace or in a `copy` of it, and return its output. Raises
    ToolError if it can't be run."""
    settings = services.settings
    limits = ShellLimits(
        settings.tools.terminal_timeout_s, settings.tools.output_cap_chars, settings.sandbox.variables
    )
    folder, environment = workspace, dict(os.environ)
    owner = f"goal {goal.id}"
    if copy is not None:
        folder, source, target = copy, str(workspace), str(copy)
        command = _replace_folder(command, source, target)
        environment = {name: _replace_folder(value, source, target) for name, value in environment.items()}
        owner += " as it was"
        services.confinement.get().add_openings(owner, [Opening("read", source)])
    environment |= _OWN_BYTECODE
    if _may_fail_in_pipe(command):
        command = _PIPEFAIL + command
    context = ToolContext(owner, "", "verify", folder, lambda text: None, _give_no_answer)
    confined = Confined(services.confinement.get(), context)
    shell_job = await confined.add_jail(
        command_spec(folder, command, "", ("", False, False), (limits, environment))
    )
    processes = await open_session_processes(services.processes, goal.session)
    output = await Shell(processes, limits).run(shell_job, limits.timeout_s, context.output)
    return confined.explain_failure(shell_job, output)


def is_pass(command: str, output: ToolOutput, scripts: str) -> bool:
    """Return whether the verifier passed.

    The exit code must be 0. If the command or one of its `scripts` names a known test runner, the output must
    also show passed tests, because a program may end the runner's process with 0. If such a command hides the
    summary, the exit code must not be forced to 0, and the output must not show a failure.
    """
    if output.is_error or output.exit_code != 0:
        return False
    text = f"{command}\n{scripts}"
    if not names_runner(text):
        return bool(_NEGATED.search(text)) or not shows_failure(command, output.text)
    counts = read_counts(command, output.text)
    if counts is None and _QUIET.search(text):
        return not _ALWAYS_ZERO.search(command) and not shows_failure(command, output.text)
    return counts is not None and counts.passed > 0 and not counts.failed


def _may_fail_in_pipe(command: str) -> bool:
    """Return whether the command fails if a program in one of its pipes fails: if it pipes tests, and only
    into programs that read to the end. Other programs may close the pipe early (`head`, `grep -q`), and then
    the tests' exit code means nothing."""
    pipes = [match["other"] is None for match in _READS_ALL.finditer(command)]
    return bool(pipes) and all(pipes) and names_runner(command)


def output_end(output: ToolOutput) -> str:
    """Return the end of a verifier's output, as the model reads it."""
    return output.text[-_OUTPUT_CHARS:]


def hash_output(text: str) -> str:
    """Return a hash of an output, ignoring durations and addresses."""
    return hashlib.sha256(_VARYING.sub("", text).encode("utf-8", "replace")).hexdigest()[:16]


async def _give_no_answer(question: str, choices: Sequence[str]) -> str | None:
    return None


def _replace_folder(text: str, source: str, target: str) -> str:
    """Replace paths below one folder by paths below another in a text."""
    return re.sub(re.escape(source) + r"(?![\w.-])", lambda _: target, text)


def _list_files(root: Path) -> list[Path]:
    if root.is_file():
        return [root]
    if not root.is_dir():
        return []
    hidden = (".", "__pycache__")
    return [
        path
        for path in sorted(root.rglob("*"))
        if path.is_file() and not any(part.startswith(hidden) for part in path.relative_to(root).parts)
    ][:_MAX_FILES]


def _hash(path: Path) -> str:
    try:
        with open_regular(path) as file:  # reading a pipe would never end
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""
