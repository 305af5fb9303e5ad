"""The index of a folder of many skills: a file unchanged since it was read is not opened again.

Starting a session needs each skill's name and description. The index stores both with the state of SKILL.md
in the file `skills-index.json` beside the folder; a home with few skills has none. It can be deleted at any
time.
"""

from __future__ import annotations

import contextlib
import io
import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from whet.config.paths import is_link_upward, read_file_bytes
from whet.contract.errors import ConfigError
from whet.contract.texts import from_json

_MAX_BYTES = 50_000_000

FileState = tuple[int, int, int, int, int]
"""Device, inode, size, and the times of the last change of the content and of the inode."""


class SkillFolder(msgspec.Struct, frozen=True, gc=False):
    """A folder that may hold a skill: its path below the skills' folder, its source (home, link or group),
    and the state of its SKILL.md, None if there is none or it is behind a link."""

    path: str
    source: str
    state: FileState | None


class SkillSummary(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The contents of a skill that the list of skills shows."""

    state: FileState
    description: str
    hash: str


def list_skill_folders(folder: Path) -> list[SkillFolder]:
    """Return the folders below `folder` that may hold a skill, those in folders of skills first. Nothing is
    opened but folders without a SKILL.md."""
    own: list[SkillFolder] = []
    grouped: list[SkillFolder] = []
    for entry in _scan(folder):
        state = _read_state(entry.path)
        is_link = entry.is_symlink()
        own.append(SkillFolder(entry.name, "link" if is_link else "home", None if is_link else state))
        if state is None and not is_link_upward(entry.path):
            for child in _scan(entry.path):
                if not (child.is_symlink() or child.is_dir()):
                    continue  # a plain file is no skill
                is_safe = not is_link and not child.is_symlink()
                state = _read_state(child.path) if is_safe else None
                grouped.append(SkillFolder(f"{entry.name}/{child.name}", "group", state))
    return grouped + own


def read_summaries(
    folder: Path, folders: Sequence[SkillFolder], read: Callable[[SkillFolder], tuple[str, str] | None]
) -> Mapping[str, SkillSummary]:
    """Return the summaries of the folders with a state, by path. `read` returns description and hash of a
    skill that is new or has changed, or None if it can't be loaded; such a skill is in no index."""
    path = folder.with_name("skills-index.json")
    stored = _load(path)
    summaries: dict[str, SkillSummary] = {}
    changed: list[SkillFolder] = []
    for each in folders:
        summary = stored.get(each.path)
        if summary is not None and summary.state == each.state:
            summaries[each.path] = summary
        elif each.state is not None:
            changed.append(each)
    if not changed and len(summaries) == len(stored):
        return summaries
    with _open_new(path) as (file, began_ns):
        for each in changed:
            if (content := read(each)) is not None and each.state is not None:
                summaries[each.path] = SkillSummary(each.state, *content)
        # A file as new as this one may change again without a new time, so it is read once more next time.
        old = {path: row for path, row in summaries.items() if row.state[-1] < began_ns}
        file.write(msgspec.json.encode(old))
    return summaries


@contextlib.contextmanager
def _open_new(path: Path) -> Generator[tuple[BinaryIO, int]]:
    """Open a new file that replaces `path` at the end, and return it with its time. If the folder can't be
    written, nothing is stored."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{time.monotonic_ns()}")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError:
        yield io.BytesIO(), 0
        return
    try:
        with open(handle, "wb") as file:
            yield file, os.fstat(handle).st_mtime_ns
        os.replace(temporary, path)
    except OSError:
        return  # the next session reads the skills again
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def _load(path: Path) -> dict[str, SkillSummary]:
    """Return the stored summaries. An index that can't be read counts as empty."""
    try:
        raw = read_file_bytes(path, _MAX_BYTES, through_links=False) or b""
        return from_json(raw, dict[str, SkillSummary])
    except (ConfigError, msgspec.DecodeError, UnicodeError):
        return {}


def _scan(folder: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not entry.name.startswith(".")]
    except OSError:
        return []


def _read_state(folder: str) -> FileState | None:
    try:
        facts = os.lstat(f"{folder}/SKILL.md")
    except OSError:
        return None
    return (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
