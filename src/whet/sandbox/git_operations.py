"""Keep programs that a sandboxed command names out of git's stopped operations.

A rebase, cherry-pick, revert or `git am` that stops writes its steps and options into the git folder. Some of
them are commands or names of programs: `exec` steps, a merge strategy (`git-merge-NAME`), signing options.
A person who continues an operation that a sandboxed command has left would run them with all of their rights.
So files that were there before may stay as they were, and new ones may hold only what git writes for options
that run nothing. Files that git does not write are removed.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from whet.beneath import open_beneath
from whet.late import late_pattern

_MAX_BYTES = 1_000_000
_EXEC = late_pattern(r"[ \t]*(?:exec|x)(?:[ \t\r].*)?")
_STEPS = "steps"
_STRATEGY = "(?:ort|recursive|resolve|octopus|ours|subtree)"
_OPTION = r"[a-z][a-z-]*(?:=[\w%][\w%./-]*)?"
_SIGN = "[A-Za-z0-9@._+]*"
_SETTINGS = (
    r"\[options\]|\t(?:no-commit|edit|allow-empty|allow-empty-message|keep-redundant-commits"
    r"|drop-redundant-commits|signoff|record-origin|allow-ff|mainline|default-msg-cleanup"
    rf"|commit-use-reference|allow-rerere-auto) = [\w-]*|\tstrategy = {_STRATEGY}"
    rf"|\tstrategy-option = {_OPTION}|\tgpg-sign = {_SIGN}"
)
# What each line of a file may be. An empty form stands for any text: git runs nothing of it.
_ANY, _FLAG, _NUMBER, _ID = "", "(?:--?)?[a-z-]*", r"\d+", "(?:[0-9a-f]{40}(?:[0-9a-f]{24})?)?"
_NAME = r"(?!-)(?!.*\.\.)[^\0]*"
_AUTHOR = r"GIT_AUTHOR_(?:NAME|EMAIL|DATE)='.*"
_EITHER = {
    "head-name": _NAME, "onto": _ID, "orig-head": _ID, "autostash": _ID, "author-script": _AUTHOR,
    "strategy": _STRATEGY, "strategy_opts": rf"(?: *(?:'--{_OPTION}'|--{_OPTION}))*",
    "gpg_sign_opt": rf"(?:-S{_SIGN})?",
    "allow_rerere_autoupdate": _FLAG, "quiet": _FLAG, "verbose": _FLAG, "signoff": _FLAG, "patch": _ANY,
}  # fmt: skip
_FORMS = {
    "rebase-merge": _EITHER | dict.fromkeys(("git-rebase-todo", "git-rebase-todo.backup", "done"), _STEPS)
    | dict.fromkeys(("msgnum", "end"), _NUMBER) | dict.fromkeys(("amend", "stopped-sha", "squash-onto"), _ID)
    | dict.fromkeys(("message", "message-squash", "message-fixup"), _ANY)
    | dict.fromkeys(("rewritten-list", "rewritten-pending"), _ANY)
    | dict.fromkeys(("update-refs", "refs-to-delete", "current-fixups"), _NAME)
    | dict.fromkeys(
        (
            "interactive", "keep_redundant_commits", "drop_redundant_commits", "reschedule-failed-exec",
            "no-reschedule-failed-exec", "cdate_is_adate", "ignore_date", "force-rebase", "dropped",
        ),
        _FLAG,
    ),
    "rebase-apply": _EITHER | dict.fromkeys(("next", "last"), _NUMBER)
    | dict.fromkeys(("info", "msg", "msg-clean", "final-commit", "rewritten", "patch-merge-index"), _ANY)
    | dict.fromkeys(
        ("abort-safety", "original-commit", "patch-merge-base"), _ID
    )
    | dict.fromkeys(
        (
            "rebasing", "applying", "threeway", "utf8", "keep", "keepcr", "messageid", "scissors",
            "quoted-cr", "sign", "dirtyindex", "no_inbody_headers",
        ),
        _FLAG,
    )
    | {"apply-opt": r"(?: *'(?:-[pC]\d+|--reject|--ignore-[a-z-]+|--whitespace=[a-z-]+)')*"},
    "sequencer": {"head": _ID, "abort-safety": _ID, "opts": _SETTINGS, "todo": _STEPS},
}  # fmt: skip
_MAIL = late_pattern(r"\d{4,}")
_ALONE = ("MERGE_AUTOSTASH",)


def list_operation_files(gits: Iterable[str]) -> Iterator[str]:
    """Yield the files of stopped operations in these git folders and in their second working trees. A folder
    of an operation that is none, such as a link, is yielded itself."""
    for git in gits:
        trees = f"{git}/worktrees"
        names = os.listdir(trees) if os.path.isdir(trees) and not os.path.islink(trees) else ()
        for folder in (git, *(f"{trees}/{name}" for name in names)):
            yield from (path for name in _ALONE if os.path.lexists(path := f"{folder}/{name}"))
            for operation in _FORMS:
                path = f"{folder}/{operation}"
                if os.path.isdir(path) and not os.path.islink(path):
                    yield from (f"{path}/{name}" for name in os.listdir(path))
                elif os.path.lexists(path):
                    yield path


def read_operation_file(path: str, root: str) -> bytes | None:
    """Return the content of a file, or None if it is no plain file of sensible size below `root`. The content
    of files from which git runs nothing is left out."""
    try:
        with open_beneath(root, os.path.relpath(path, root)) as file:
            data = b"" if _form(path) == _ANY else file.read(_MAX_BYTES + 1)
    except OSError:
        return None
    return data if len(data) <= _MAX_BYTES else None


def keep_harmless(path: str, data: bytes | None, before: bytes | None) -> bytes | None:
    """Return what a file of a stopped operation may hold after a command, or None if it must not be there.
    `before` is its content before the command, or None if there was none."""
    form = _form(path)
    if data == before or data is None or form is None:
        return before
    if form == _STEPS:
        steps, known_steps = _lines(data), _lines(before or b"")
        return "\n".join(_without_new_commands(steps, known_steps)).encode("utf-8", "surrogateescape")
    is_harmless = all(re.fullmatch(form, line) for line in _lines(data) if line) if form else True
    return data if is_harmless else before


def _form(path: str) -> str | None:
    """Return the form of the lines of a file, or None if git writes no such file."""
    above, name = os.path.split(path)
    if name in _ALONE:
        return _ID
    operation = os.path.basename(above)
    if operation == "rebase-apply" and _MAIL.fullmatch(name):
        return _ANY
    return _FORMS.get(operation, {}).get(name)


def _lines(data: bytes) -> list[str]:
    return data.decode("utf-8", "surrogateescape").split("\n")


def _without_new_commands(lines: list[str], before: Iterable[str]) -> list[str]:
    """Return the steps without the commands that are not among those before."""
    left = Counter(line for line in before if _EXEC.fullmatch(line))
    kept: list[str] = []
    for line in lines:
        if _EXEC.fullmatch(line):
            left[line] -= 1
            if left[line] < 0:
                continue
        kept.append(line)
    return kept
