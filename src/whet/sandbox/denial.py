"""Explain why the sandbox made a command fail, and name the opening that would allow it.

The program receives only an error number from the kernel, so this module reads the program's output: a
path or host next to the error text. A path counts only if the policy really refuses it, an unresolved name
only if there is no network. Failures that can't be attributed to the sandbox are not denials.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from whet.contract.errors import ToolDenied
from whet.late import late_pattern
from whet.sandbox.path_rules import NO_RULES, PathRules
from whet.sandbox.policy import TEMPORARY, Opening, SandboxPolicy, is_below

_OUTPUT_CHARS = 40_000
_MAX_OPENINGS = 3
_BUSY = "Device or resource busy"
"""The kernel's words if a file is renamed over one that the sandbox holds."""
_REFUSED = late_pattern(
    rf"Permission denied|Read-only file system|Operation not permitted|{_BUSY}"
    r"|EACCES|EROFS|EPERM|PermissionError"
)
_NO_REPOSITORY = "not a git repository: "
"""Git's words before the folder that a `.git` file names, if it can't be read."""
_MISSING = ("No such file or directory", "ENOENT", "FileNotFoundError", "cannot find", "not found")
_NO_NETWORK = late_pattern(
    r"Network is unreachable|ENETUNREACH|Could not resolve host|Temporary failure in name resolution"
    r"|Name or service not known|EAI_AGAIN|getaddrinfo|Failed to resolve|NameResolutionError"
    r"|Couldn't connect to server|unable to resolve host address|Could not resolve hostname"
    r"|dns error|failed to lookup address|no such host",
    re.IGNORECASE,
)
_WRITES = late_pattern(r"create|mkdir|write|touch|open for writing|Read-only|remove|move|mkstemp")
_QUOTED = late_pattern(r"['\"`‘“]([^'\"`’”\n]{1,400})['\"`’”]")
_ABSOLUTE = late_pattern(r"(?<![\w.])(~?/[^\s:'\"`’”,;()]+)")
_SHELL_NAME = late_pattern(r"^\S+: (?:line )?(?=\d+: )")
"""The name by which a shell begins its own errors: "/usr/bin/bash: line 1: "."""
_TARGET = late_pattern(r">\|?\s*['\"]?([^\s'\"|&;<>()]+)")
_WORD = late_pattern(r"[^\s'\"`|&;<>()=]+")
_BEFORE_COLON = late_pattern(r"(?:^|\s)([^\s:'\"]+):(?=\s)")
_HOST_IN_URL = late_pattern(
    r"\b[a-z][a-z0-9+.-]*://(?:[^/@\s]*@)?([A-Za-z0-9.-]+\.[A-Za-z]{2,}|\d+(?:\.\d+){3})"
)
_HOST_AFTER = late_pattern(
    r"(?:host(?:name)?(?: address)?|lookup|resolve|getaddrinfo\s+\w+|connect to)[\s:'\"=(]+"
    r"([A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)+)",
    re.IGNORECASE,
)
_SCP = late_pattern(r"\b[\w.-]+@([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+):")


class Denial(msgspec.Struct, frozen=True):
    """An access that the sandbox stopped. `openings` are exact, most likely first; empty if no opening would
    help."""

    what: str
    openings: tuple[Opening, ...] = ()

    @property
    def line(self) -> str:
        """The line that the model and the person read after the command's own output."""
        offer = " or ".join(f'"{opening.words}"' for opening in self.openings)
        return f"[the sandbox stopped this: {self.what}" + (f"; it would need {offer}]" if offer else "]")


def explain(
    policy: SandboxPolicy,
    command: str,
    output: str,
    cwd: Path,
    refused: Sequence[str] = (),
    rules: PathRules = NO_RULES,
) -> Denial | None:
    """Explain how the sandbox stopped a failed command, from its output and the hosts that the proxy refused.

    For a file that one of the deny `rules` protects, it names the rule, because no opening helps. Returns
    None if the sandbox was not the cause.
    """
    if refused:
        hosts = tuple(Opening("reach", host) for host in dict.fromkeys(refused))[:_MAX_OPENINGS]
        return Denial("no network to " + ", ".join(item.target for item in hosts), hosts)
    lines = output[-_OUTPUT_CHARS:].splitlines()
    paths: dict[Opening, None] = {}
    for line in lines:
        for opening in _find_refused_paths(policy, line, (command, cwd)):
            paths[opening] = None
    if not paths and any(_BUSY in line for line in lines):
        paths = dict.fromkeys(_find_fixed_files(policy, command, cwd))
    if paths:
        refused_openings = tuple(paths)[:_MAX_OPENINGS]
        rules_of = {item: _find_rule(policy, item, rules) for item in refused_openings}
        offered = [_offer(policy, item) for item, rule in rules_of.items() if not rule]
        reason = "no permission to " + ", ".join(
            f"{item.words} (the rule deny: {rule} forbids it)" if rule else item.words
            for item, rule in rules_of.items()
        )
        return Denial(reason, tuple(opening for opening in dict.fromkeys(offered) if opening is not None))
    return _explain_network(policy, command, lines)


def _find_rule(policy: SandboxPolicy, opening: Opening, rules: PathRules) -> str:
    """Return the deny rule that protects a path which a command could not open, or an empty string.

    A rule may name it from the workspace, which is only readable for a command that writes nothing.
    """
    kinds = (False, True) if opening.kind == "write" else (False,)
    path = Path(opening.target)
    tops = [policy.workspace, *(top for top in (*policy.write, *policy.read) if is_below(path, top))]
    matches = (rules.find(path, top, writes=writes) for top in tops for writes in kinds)
    return next(filter(None, matches), "")


def _find_refused_paths(policy: SandboxPolicy, line: str, attempt: tuple[str, Path]) -> list[Opening]:
    """Return what the policy refuses of the paths in a line with an error. A path that can't be read is why
    the others, which may be names of programs, can't be written."""
    command, cwd = attempt
    is_git = _NO_REPOSITORY in line
    refused = _REFUSED.search(line) is not None
    if not refused and not is_git and not any(word in line for word in _MISSING):
        return []
    unreadable: list[Opening] = []
    unwritable: list[Opening] = []
    for text in _candidates(_SHELL_NAME.sub("", line)):
        path = _resolve(text, cwd)
        if path is None or path == Path("/") or path.is_relative_to("/proc") or path.is_relative_to("/dev"):
            continue
        is_written = is_git or _WRITES.search(line) is not None or _is_target(path, command, cwd)
        must_exist = path.parent if is_written and not is_git else path
        if not policy.may_read(path) and (refused or os.path.exists(must_exist)):
            unreadable.append(Opening("write" if is_written else "read", str(path)))
        elif refused and not policy.may_write(path):
            unwritable.append(Opening("write", str(path)))
    return unreadable or unwritable


def _find_fixed_files(policy: SandboxPolicy, command: str, cwd: Path) -> list[Opening]:
    """Return the files named in a command that stay as they are in a folder that it may change. A program
    that renames a new file over one of them, as `sed -i`, reports only the new file's name."""
    paths = (_resolve(word, cwd) for word in _WORD.findall(command))
    return [
        Opening("write", str(path))
        for path in dict.fromkeys(filter(None, paths))
        if os.path.isfile(path) and policy.may_write(path.parent) and not policy.may_write(path)
    ]


def _resolve(text: str, cwd: Path) -> Path | None:
    """Return the resolved path, or None if no file can have that name: it has a NUL or half of a surrogate
    pair."""
    try:
        return Path(os.path.realpath(cwd / os.path.expanduser(text)))
    except ValueError:
        return None


def _is_target(path: Path, command: str, cwd: Path) -> bool:
    """Return whether a command's output goes to that file."""
    return any(_resolve(match.group(1), cwd) == path for match in _TARGET.finditer(command))


def _candidates(line: str) -> list[str]:
    """Return the texts in a line that may be paths; a program's own name before them is none."""
    texts: list[str] = []
    program = ""
    for pattern in (_QUOTED, _ABSOLUTE, _BEFORE_COLON):
        for match in pattern.finditer(line):
            text = match.group(1).strip()
            if pattern is _BEFORE_COLON and not match.start() and "/" not in text:
                program = text
            elif "/" in text or pattern is not _ABSOLUTE:
                texts.append(text)
    return texts or [program] if program else texts


def _offer(policy: SandboxPolicy, opening: Opening) -> Opening | None:
    """Return the opening that would allow this one. A missing path needs the nearest existing folder above
    it.

    Returns None for the whole home, for folders that contain it, and for what the policy opens to nobody, as
    Whet's own home.
    """
    path = Path(opening.target)
    while not os.path.exists(path):  # Path.exists raises for a name that is too long
        path = path.parent
    person = Path(os.path.realpath(os.path.expanduser("~")))
    offer = Opening(opening.kind, str(path))
    try:
        policy.with_openings([offer])
    except ToolDenied:
        return None
    return None if person.is_relative_to(path) else offer


def _explain_network(policy: SandboxPolicy, command: str, lines: list[str]) -> Denial | None:
    failures = [line for line in lines if _NO_NETWORK.search(line)]
    if not failures:
        return None
    hosts: dict[str, None] = {}
    for text in (*failures, command, *lines):
        for pattern in (_HOST_AFTER, _HOST_IN_URL, _SCP):
            for match in pattern.finditer(text):
                hosts[match.group(1).lower().rstrip(".")] = None
        if hosts and text == command:
            break
    openings = tuple(Opening("reach", host) for host in hosts if not _is_loopback(host))
    new = tuple(opening for opening in openings if not policy.allows(opening))[:_MAX_OPENINGS]
    if new:
        return Denial("no network to " + ", ".join(opening.target for opening in new), new)
    return Denial("there is no network")


def _is_loopback(host: str) -> bool:
    return host == "localhost" or host.startswith("127.")


def needed_openings(policy: SandboxPolicy, command: str, cwd: Path) -> tuple[Opening, ...]:
    """Return the openings that a command needs beyond the policy, judged by its text alone.

    Finds paths to read or write (`>` before a path means write) and hosts in addresses. The command may
    need more than it names.
    """
    openings: dict[Opening, None] = {}
    for match in _ABSOLUTE.finditer(command):
        path = _resolve(match.group(1), cwd)
        if path is None:
            continue
        is_written = command[: match.start()].rstrip().endswith(">")
        granted = policy.may_write(path) if is_written else policy.may_read(path)
        is_private = any(path.is_relative_to(folder) for folder in _PRIVATE)
        if not granted and not is_private and not command[: match.start()].endswith((":/", ":")):
            offer = _offer(policy, Opening("write" if is_written else "read", str(path)))
            openings |= {offer: None} if offer is not None else {}
    for pattern in (_HOST_IN_URL, _SCP):
        for match in pattern.finditer(command):
            opening = Opening("reach", match.group(1).lower())
            if not policy.allows(opening) and not _is_loopback(opening.target):
                openings[opening] = None
    return tuple(openings)


_PRIVATE = (*TEMPORARY, Path("/dev"), Path("/proc"))
