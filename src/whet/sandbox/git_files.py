"""Find the files in a working tree that its repository's git runs or reads as settings.

These are hooks reached by links or `core.hooksPath`, included settings, and programs that settings name. A
sandboxed command can't change the settings, so it must not change these files either. Git itself is not
used; scripts that a hook calls are not followed.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from whet.late import late_pattern
from whet.regular import read_regular_text
from whet.sandbox.protected_names import GIT_RUNS

_MAX_BYTES, _MAX_LINKS, _MAX_DEPTH = 1_000_000, 200, 3
_SECTION = late_pattern(r"^\s*\[\s*([A-Za-z0-9.-]+)")
_SETTING = late_pattern(r"^\s*(?:\[[^\]]*\])?\s*([A-Za-z][A-Za-z0-9-]*)\s*=\s*(.*?)\s*$")
# These sections name branches, addresses and patterns, or files that git only reads.
_NO_PROGRAM = frozenset({"branch", "remote", "submodule", "url", "user", "extensions"})
_READ_ONLY = frozenset({"excludesfile", "attributesfile", "worktree", "template", "bare"})


def find_execution_paths(tree: Path, git: Path) -> list[Path]:
    """Return the files and folders below `tree` that the settings and hooks of the git folder `git` point to.
    None of them is a link.

    All paths are resolved.
    """
    paths = dict.fromkeys(
        [*_linked_hooks(git / "hooks"), *_configured_paths(tree, git / "config", _MAX_DEPTH)]
    )
    if not paths:  # as in most repositories; each edit asks
        return []
    protected = [git / name for name in GIT_RUNS]
    return [
        path
        for path in paths
        if path not in (tree, git)
        and path.is_relative_to(tree)
        and not any(path.is_relative_to(name) for name in protected)
    ]


def _linked_hooks(hooks: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        if hooks.is_symlink() and hooks.exists():
            yield hooks.resolve()
        with os.scandir(hooks) as entries:
            links = sorted(entry.path for entry in entries if entry.is_symlink())
        yield from (Path(path).resolve() for path in links[:_MAX_LINKS] if os.path.exists(path))


def _configured_paths(tree: Path, config: Path, deep: int) -> Iterator[Path]:
    for section, key, value in read_settings(config):
        if key == "hookspath":
            yield from _hook_folders(tree, value)
        elif section.startswith("include") and key == "path":
            included = _resolve_path(config.parent, value)
            yield from included
            for settings_file in included if deep else ():
                yield from _configured_paths(tree, settings_file, deep - 1)
        elif section not in _NO_PROGRAM and key not in _READ_ONLY:
            for word in _words(value.removeprefix("!")):
                if not word or ("/" not in word and not os.path.lexists(os.path.join(tree, word))):
                    continue  # a word such as `true`, of which no file has the name
                targets = _resolve_path(tree, word)
                yield from (path for path in targets if path.is_file() or ("/" in word and not path.exists()))


def _words(command: str) -> set[str]:
    """Return the programs and files that a command names."""
    if not re.search(r"[\s'\"$]", command):
        return {command}
    from whet.shell.reading import read  # noqa: PLC0415 - the parser costs 50 ms, and few settings are commands

    reading = read(command)
    return {word for word in (*reading.programs, *reading.files) if not re.search(r"[*?\[$`]", word)}


def _hook_folders(tree: Path, value: str) -> list[Path]:
    """Return the folder of hooks. If it is inside a hidden folder, return that folder, because hooks call
    files next to them."""
    folders = _resolve_path(tree, value)
    for path in folders:
        if (
            path.is_relative_to(tree)
            and (inside := path.relative_to(tree).parts)
            and inside[0].startswith(".")
            and inside[0] != ".git"
        ):
            return [tree / inside[0]] if not (tree / inside[0]).is_symlink() else folders
    return folders


def _resolve_path(folder: Path, value: str) -> list[Path]:
    try:
        return [Path(os.path.realpath(folder / os.path.expanduser(value)))] if value else []
    except (OSError, ValueError):
        return []


def read_settings(config: Path) -> Iterator[tuple[str, str, str]]:
    """Yield (section, key, value) with names in lower case. Quotes inside a value are kept."""
    try:
        text = read_regular_text(config, _MAX_BYTES)
    except OSError:
        return
    section = ""
    for line in text.replace("\\\n", "").splitlines():
        if (match := _SECTION.match(line)) is not None:
            section = match[1].lower()
        if (match := _SETTING.match(line)) is not None:
            value = match[2].replace('\\"', '"')
            yield (
                section.partition(".")[0],
                match[1].lower(),
                value.strip('"') if value.count('"') == 2 else value,
            )
