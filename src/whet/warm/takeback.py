"""Decide whether a later call undoes an earlier one or replaces its text, by comparing the two calls.

An edit is undone by the edit that restores its old text, a written file by its former content, a created
file by its removal before it was used, a move by the reverse move, work in git by the commands that drop
it. The person's words are not read. The inputs are two calls and the calls between them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any

from whet.contract.tools import tags_of
from whet.late import late_pattern
from whet.warm.opposites import PARTS, reverses

_DROPS_WORK = late_pattern(r"\bgit\s+(?:stash\b(?!\s+(?:list|show|pop|apply|drop|branch))|reset\s+--hard\b)")
_DROPS_PATHS = late_pattern(r"\bgit\s+(?:checkout|restore(?!\s+--staged))\s+(.*)")
_DROPS_COMMIT = late_pattern(r"\bgit\s+(?:revert\b|reset\s+(?:--\w+\s+)?\S*(?:HEAD[~^@]|[0-9a-f]{7}))")
_COMMITS = late_pattern(r"\bgit\s+commit\b")
_AMENDS = late_pattern(r"\bgit\s+commit\b(?=.*\s--amend\b)(?=.*\s(?:-\w*m|--message)\b)")
_ENDS_PROCESS = late_pattern(r"\s*(?:sudo\s+)?p?kill(?:all)?\b")
_MIN_COMMAND = 6
_BRANCHES = late_pattern(r"\bgit\s+(?:checkout\s+-b|switch\s+-c|branch)\s+([\w./-]+)")
_DROPS_BRANCH = late_pattern(r"\bgit\s+branch\s+(?:-d|-D|--delete)\s+([\w./-]+)")
_EDITS_IN_PLACE = late_pattern(r"\b(?:sed|perl)\s+-\w*i|\s--(?:in-place|write|fix)\b")
_CLEANS = late_pattern(r"\bgit\s+clean\s+-\w*f")
_MAKES = late_pattern(
    r"^\s*(?:mkdir|touch)\s+(?:-\S+\s+)*(\S+)\s*$"
    r"|^\s*(?:cp|ln|git\s+clone)\s+(?:-\S+\s+)*\S+\s+(\S+)\s*$"
)
_WRITES = late_pattern(r"(?<![>&\d])>\s*([^\s>&|;]+)")
_REMOVES = late_pattern(r"^\s*(?:git\s+)?(?:rm|rmdir|unlink)\s+(.+)$")

Arguments = dict[str, Any]


def undoes(old: tuple[str, Arguments], new: tuple[str, Arguments], between: Sequence[Arguments]) -> bool:
    """Return whether `new` (tool, arguments) undoes `old`; `between`: the calls after `old` in new's turn."""
    (was, before), (name, after) = old, new
    old_tags, new_tags = tags_of(was), tags_of(name)
    if "edits" in old_tags and "edits" in new_tags:
        return _restores_edit(before, after)
    if "command" not in new_tags:
        return False
    command = str(after.get("command", ""))
    if "edits" in old_tags:
        path = str(before.get("path", ""))
        is_cleaned = "whole" in old_tags and _CLEANS.search(command) is not None
        return is_cleaned or _drops_changes(command, path) or _removes(command, [path], between)
    if "command" not in old_tags:
        return False
    done = str(before.get("command", ""))
    if "git" in command and _EDITS_IN_PLACE.search(done) and _drops_path_of(before, after):
        return True
    if _undoes_command(done, command):
        return True
    if _removed_paths(command) and _removes(command, _created_paths(done), between):
        return True
    return reverses(done, command, was_used=bool(between))


def replaces_text(before: Arguments, after: Arguments) -> bool:
    """Return whether an edit replaces what another one wrote, and does not only add to it."""
    if not before.get("path") or before.get("path") != after.get("path"):
        return False
    if "content" in before and "content" in after:
        lines = iter(str(after["content"]).splitlines())
        return not all(line in lines for line in str(before["content"]).splitlines())
    raw = str(before.get("new_string") or "")
    wrote = raw.strip()
    gone, put = str(after.get("old_string") or ""), str(after.get("new_string") or "")
    is_respaced = raw in gone and raw not in put
    if not wrote:
        return False
    # A part of the written text that was not there before goes away again.
    is_part_gone = bool(gone.strip()) and gone in raw and gone not in str(before.get("old_string") or "")
    return (wrote in gone and (wrote not in put or is_respaced)) or (is_part_gone and gone not in put)


def ends_or_amends(before: Arguments, after: Arguments) -> bool:
    """Return whether a command ends the process of an earlier one by its words, or writes its commit
    again."""
    done, command = (str(arguments.get("command", "")).strip(" &") for arguments in (before, after))
    is_ended = len(done) >= _MIN_COMMAND and done in command and _ENDS_PROCESS.match(command) is not None
    return is_ended or (_COMMITS.search(done) is not None and _AMENDS.search(command) is not None)


def restores_content(contents: Sequence[str]) -> bool:
    """Return whether the last of a file's contents equals an earlier one, with another one between."""
    return bool(contents) and contents[-1] in contents[:-2] and contents[-1] != contents[-2]


def _restores_edit(before: Arguments, after: Arguments) -> bool:
    (was, put), reverse = (
        (str(edit.get("old_string") or ""), str(edit.get("new_string") or "")) for edit in (before, after)
    )
    same = bool(before.get("path")) and before.get("path") == after.get("path")
    if not same or not (was or put):
        return False
    gone, back = reverse
    return reverse == (put, was) or bool(
        (gone and gone in put and put.replace(gone, back, 1) == was)
        or (put and put in gone and gone.replace(put, was, 1) == back)
    )


def _drops_changes(command: str, path: str) -> bool:
    """Return whether git discards the changes of a file."""
    if not path:
        return False
    if _DROPS_WORK.search(command):
        return True
    return any(word == "." or is_inside(path, word) for word in _dropped_paths(command))


def _dropped_paths(command: str) -> list[str]:
    """Return the words after `git checkout` or `git restore`, mostly paths."""
    return [word for words in _DROPS_PATHS.findall(command) for word in re.split(r"[\s;&|]+", words) if word]


def is_inside(path: str, folder: str) -> bool:
    """Return whether a path is that one, or in that folder."""
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def _drops_path_of(before: Arguments, after: Arguments) -> bool:
    """Return whether git discards the changes of a file that an earlier command named, or of one in a folder
    that it named."""
    named = str(before.get("command", "")).split()
    dropped = _dropped_paths(str(after.get("command", "")))
    return any(is_inside(path, word) for path in dropped for word in named[1:])


def _undoes_command(done: str, command: str) -> bool:
    if "git" not in command:
        return False
    if _COMMITS.search(done) and _DROPS_COMMIT.search(command):
        return True
    return bool(set(_BRANCHES.findall(done)) & set(_DROPS_BRANCH.findall(command)))


@lru_cache(maxsize=256)
def _created_paths(command: str) -> list[str]:
    paths = [
        match.group(1) or match.group(2) for part in PARTS.split(command) if (match := _MAKES.match(part))
    ]
    return paths + _WRITES.findall(command)


@lru_cache(maxsize=256)
def _removed_paths(command: str) -> frozenset[str]:
    return frozenset(
        word.rstrip("/")
        for part in PARTS.split(command)
        if (match := _REMOVES.match(part))
        for word in match[1].split()
    )


def _removes(command: str, created: Collection[str], between: Sequence[Arguments]) -> bool:
    """Return whether a created file is removed unused: a file that was run or read before its removal was a
    tool of the work."""
    gone = _removed_paths(command) if created else ()
    for path in filter(None, created if gone else ()):
        name = PurePosixPath(path).name
        if path.rstrip("/") in gone and not any(
            name in str(value) for arguments in between for value in arguments.values()
        ):
            return True
    return False
