"""Find the data files that a check is about: to change such a file is the goal.

`grep -q ready state.txt` is about state.txt. `make run | diff - want.txt` is about a program, which it
compares with want.txt, so want.txt must not change. `test ! -e build.log` wants build.log removed; a check
that only happens to pass without its file does not.

Only a simple check counts: each of its scripts runs at most one other, the last one runs no program of the
workspace, and a statement names one data file and nothing that the file could be compared with.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import PurePosixPath

from whet.agent.test_runs import mentions_runner, names_runner
from whet.late import late_pattern

_PATHS = re.compile(r"[\w./~+@-]+")
_COMMENTS = re.compile(r"(?:^|(?<=\s))#[^\n]*")
_STATEMENTS = re.compile(r"\n|;|&&|\|\||(?<!>)&(?!>)")
_QUIET = re.compile(r"(?:\d|&)?>>?\s*(?:/dev/null|&\d)")
_RUNS = re.compile(r"(?:^|[\s/(])(?:\w*sh|source|\.|exec|eval|xargs|python[\d.]*|perl|ruby|node|php|lua)\s")
_STARTS_PROGRAMS = re.compile(
    r"\b(?:subprocess|system|popen|spawn\w*|exec\w*|child_process|__import__|import_module|runpy|\w+\.run)\b",
    re.IGNORECASE,
)
_MAX_SCRIPTS = 4
_FAILS = r"(?:then|&&)\s*(?:echo\b[^;&|\n]*;\s*)?exit\s+[1-9]"
# Statements that fail if a file exists: negated tests that nothing follows by `||`, tests before an exit, and
# assertions of Python.
_ABSENCES = late_pattern(
    r"(?:^|;|&&|\bif\b)[ \t]*(?:"
    r"(?:!\s*(?:test|\[\[?)\s+-[aefsL]|(?:test|\[\[?)\s+!\s*-[aefsL])\s+(?P<negated>[^\s;&|\]]+)"
    r"(?:\s*\]\]?)?[ \t]*(?=$|;|&&)(?!;\s*then)"
    rf"|(?:test|\[\[?)\s+-[aefsL]\s+(?P<fails>[^\s;&|\]]+)(?:\s*\]\]?)?\s*;?\s*{_FAILS}"
    r"|assert\s+not\b(?=[^\n]*\b(?:l?exists|is_?file)\b)[^\n'\"]*['\"](?P<python>[^'\"\n]+)['\"])",
    re.MULTILINE,
)


def subject_files(
    command: str, exists: Callable[[str], bool], read: Callable[[str], str], is_script: Callable[[str], bool]
) -> frozenset[str]:
    """Return the data files that a check is about, or an empty set if it is not a simple check.

    `exists` and `read` take a path of the workspace. `is_script` returns whether a file name is that of a
    script.
    """
    text, name, files = _find_last_script(command, exists, read, is_script)
    return frozenset(_code_subjects(text, files) if _is_code(name) else _shell_subjects(text, exists))


def absent_files(
    command: str, exists: Callable[[str], bool], read: Callable[[str], str], is_script: Callable[[str], bool]
) -> frozenset[str]:
    """Return the files that must be gone for a check to pass."""
    text, _, _ = _find_last_script(command, exists, read, is_script)
    paths = ("".join(filter(None, match.groups())).strip("'\"") for match in _ABSENCES.finditer(text))
    return frozenset(path.removeprefix("./") for path in paths)


def _find_last_script(
    command: str, exists: Callable[[str], bool], read: Callable[[str], str], is_script: Callable[[str], bool]
) -> tuple[str, str, set[str]]:
    """Follow a command to the last script that it runs. Returns that script's text, its name (empty for the
    command itself) and the files that it names. All are empty if one of the texts starts tests or more than
    one script."""
    text, name = command, ""
    visited: set[str] = set()
    while len(visited) < _MAX_SCRIPTS:
        text = _QUIET.sub("", _COMMENTS.sub("", text))
        paths = {path.removeprefix("./") for path in _PATHS.findall(text)}
        files = {path for path in paths if path and exists(path)} - {name}
        scripts = {path for path in files if is_script(path) or read(path).startswith("#!")}
        scripts |= {path for part in _STATEMENTS.split(text) if _RUNS.search(part) for path in files
                    if path in _names(part)}  # fmt: skip
        if mentions_runner(text) or names_runner(text):
            break
        if not scripts:
            return text, name, files
        if len(scripts) > 1 or files != scripts or scripts & visited:
            break
        (name,) = scripts
        visited.add(name)
        text = read(name)
    return "", "", set()


def _is_code(name: str) -> bool:
    return PurePosixPath(name).suffix not in ("", ".sh", ".bash")


def _code_subjects(text: str, files: set[str]) -> set[str]:
    return files if len(files) == 1 and not _STARTS_PROGRAMS.search(text) else set()


def _shell_subjects(text: str, exists: Callable[[str], bool]) -> set[str]:
    """Return the files of statements that name one file. Returns an empty set if any statement writes a file
    or names several, because files may then be compared with each other."""
    subjects: set[str] = set()
    for statement in _STATEMENTS.split(text):
        names = {name for name in _names(statement) if exists(name)}
        others = {name for name in _names(statement) - names if "/" in name or PurePosixPath(name).suffix}
        if ">" in statement or "<(" in statement:
            return set()
        if not names:
            continue
        first = statement.partition("|")[0]
        substituted = statement.count("$(") + statement.count("`") / 2
        is_plain = substituted <= 1 and not re.search(r"\$(?!\()", statement)
        if len(names) > 1 or others or not is_plain or not names <= _names(first):
            return set()
        if substituted and not names <= _names(re.split(r"\$\(|`", first)[1].partition(")")[0]):
            return set()
        subjects |= names
    return subjects


def _names(text: str) -> set[str]:
    return {path.removeprefix("./") for path in _PATHS.findall(text)}
