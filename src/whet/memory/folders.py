"""A skill's folder as it is on disk: which files belong to it, within bounds that hold for strangers' too.

Links, hidden files and anything that is not a plain file don't belong to a skill. It does not know what
the files say.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from whet.contract.errors import WhetError

NAME = re.compile(r"[a-z0-9](?:[a-z0-9]|-(?!-)){0,62}[a-z0-9]|[a-z0-9]")
MOST_FILES = 200
MOST_BYTES = 5_000_000
_DEEPEST = 6


class BadFolder(WhetError):
    """A folder that can't be a skill; the message says why."""


def files_of(root: Path) -> list[str]:
    """Give the files of a skill's folder as relative paths, SKILL.md first. Raises BadFolder for a folder
    that is too large or leads out of itself."""
    found: list[str] = []
    size = 0
    for folder, folders, names in os.walk(root, followlinks=False):
        here = Path(folder).relative_to(root)
        if len(here.parts) > _DEEPEST:
            raise BadFolder(f"{root.name} is nested deeper than {_DEEPEST} folders")
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in (*folders, *names):
            _refuse_strange(Path(folder) / name, f"{root.name}/{here / name}")
        for name in names:
            if not name.startswith("."):
                size += (Path(folder) / name).stat().st_size
                found.append(str(here / name))
        if len(found) > MOST_FILES:
            raise BadFolder(f"{root.name} has more than {MOST_FILES} files")
        if size > MOST_BYTES:
            raise BadFolder(f"{root.name} is larger than {MOST_BYTES // 1_000_000} MB")
    return sorted(found, key=lambda path: (path != "SKILL.md", path))


def _refuse_strange(path: Path, shown: str) -> None:
    if path.is_symlink():
        raise BadFolder(f"{shown} is a symbolic link", hint="put the file or folder itself there")
    if not path.is_file() and not path.is_dir():
        raise BadFolder(f"{shown} is not a plain file")


def good_path(path: str) -> str:
    """Give a file's path within a skill, tidied. Raises BadFolder for one that leads out of the skill."""
    parts = path.replace("\\", "/").split("/")
    if not path or path.startswith(("/", "~")) or ".." in parts or "\0" in path or len(path) > 200:
        raise BadFolder(f"{path!r} is no path inside a skill", hint="e.g. references/api.md, scripts/run.sh")
    kept = [part for part in parts if part not in ("", ".")]
    if not kept or any(part.startswith(".") or not part.isprintable() for part in kept):
        raise BadFolder(f"{path!r} is no path inside a skill", hint="no hidden files or folders")
    if len(kept) > _DEEPEST:
        raise BadFolder(f"{path!r} is nested deeper than {_DEEPEST} folders")
    return "/".join(kept)


def good_name(name: str) -> str:
    """Give a skill's name. Raises BadFolder for one that is not usable as such."""
    if not NAME.fullmatch(name):
        raise BadFolder(
            f"{name[:80]!r} is no skill name", hint="1 to 64 of a-z, 0-9 and single hyphens, e.g. deploy-site"
        )
    return name
