"""Check the format of a skill: files within limits, also for skills from strangers, a name, and a SKILL.md.

Links, hidden files and anything that is not a plain file don't belong to a skill. Unknown fields of the
front matter are left alone, because nothing here writes a file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from whet.config import front_matter
from whet.contract.errors import ConfigError
from whet.memory import disk
from whet.memory.requests import Refused

T = TypeVar("T")
NAME = re.compile(r"[a-z0-9](?:[a-z0-9]|-(?!-)){0,62}[a-z0-9]|[a-z0-9]")
MAX_FILES = 200
MAX_BYTES = 5_000_000
_MAX_DEPTH = 6
NAME_CHARS = 64
DESCRIPTION_CHARS = 1_024


class BadSkill(Refused):
    """A folder or a SKILL.md that is not a valid skill. The message is the reason."""


def list_files(root: Path) -> list[str]:
    """Return the files of a skill's folder as relative paths, SKILL.md first.

    Raises BadSkill if the folder is too large, contains a link or can't be read.
    """
    try:
        return sorted(_walk(root), key=lambda path: (path != "SKILL.md", path))
    except OSError as error:
        raise BadSkill(
            f"{error.filename or root} can't be read: {error.strerror}", hint="check its owner and its rights"
        ) from error


def _walk(root: Path) -> list[str]:
    paths: list[str] = []
    size = 0
    for folder, folders, names in os.walk(root, onerror=_refuse_unreadable, followlinks=False):
        relative = Path(folder).relative_to(root)
        if len(relative.parts) > _MAX_DEPTH:
            raise BadSkill(f"{root.name} is nested deeper than {_MAX_DEPTH} folders")
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in (*folders, *names):
            _refuse_strange(Path(folder) / name, f"{root.name}/{relative / name}")
        for name in names:
            if not name.startswith("."):
                size += (Path(folder) / name).stat().st_size
                paths.append(check_path(str(relative / name)))
        if len(paths) > MAX_FILES:
            raise BadSkill(f"{root.name} has more than {MAX_FILES} files")
        if size > MAX_BYTES:
            raise BadSkill(f"{root.name} is larger than {MAX_BYTES // 1_000_000} MB")
    return paths


def _refuse_unreadable(error: OSError) -> None:
    """Raise the error unless the folder does not exist: a part of a skill is not a skill."""
    if not isinstance(error, FileNotFoundError):
        raise error


def read(root: Path) -> dict[str, bytes]:
    """Return a skill's files by path, SKILL.md first. Raises BadSkill, ConfigError."""
    return {path: disk.read(root / path, MAX_BYTES) or b"" for path in list_files(root)}


def _refuse_strange(path: Path, label: str) -> None:
    if path.is_symlink():
        raise BadSkill(f"{label} is a symbolic link", hint="put the file or folder itself there")
    if not path.is_file() and not path.is_dir():
        raise BadSkill(f"{label} is not a plain file")


def check_path(path: str) -> str:
    """Return a file's path within a skill, normalised. Raises BadSkill if it leads out of the skill."""
    parts = path.replace("\\", "/").split("/")
    if not path or path.startswith(("/", "~")) or ".." in parts or "\0" in path or len(path) > 200:
        raise BadSkill(
            f"{path!r} is not a path inside a skill", hint="e.g. references/api.md, scripts/run.sh"
        )
    clean_parts = [part for part in parts if part not in ("", ".")]
    if not clean_parts or any(part.startswith(".") or not part.isprintable() for part in clean_parts):
        raise BadSkill(f"{path!r} is not a path inside a skill", hint="no hidden files or folders")
    if len(clean_parts) > _MAX_DEPTH:
        raise BadSkill(f"{path!r} is nested deeper than {_MAX_DEPTH} folders")
    return "/".join(clean_parts)


def check_name(name: str) -> str:
    """Return a skill's name unchanged. Raises BadSkill if it is not valid."""
    if not NAME.fullmatch(name):
        raise BadSkill(
            f"{name[:80]!r} is not a skill name",
            hint="1 to 64 of a-z, 0-9 and single hyphens, e.g. deploy-site",
        )
    return name


def split(text: str) -> tuple[str, str]:
    """Return the front matter of a SKILL.md and its body. Raises BadSkill."""
    return _convert_errors(lambda: front_matter.split_front_matter(text, "SKILL.md"))


def name_and_description(text: str) -> tuple[str, str]:
    """Return a SKILL.md's name and description, checked. Raises BadSkill."""
    head, body = split(text)
    values = _convert_errors(lambda: front_matter.read_fields(head))
    name, description = values.get("name"), values.get("description")
    if not isinstance(name, str) or not name.strip():
        raise BadSkill("the front matter has no name", hint="name: deploy-site")
    if not isinstance(description, str) or not description.strip():
        raise BadSkill(
            "the front matter has no description", hint="description: What it does and when to use it."
        )
    name, description = name.strip(), " ".join(description.split())
    if len(name) > NAME_CHARS:
        raise BadSkill(f"the name has {len(name)} characters; at most {NAME_CHARS}")
    if len(description) > DESCRIPTION_CHARS:
        raise BadSkill(f"the description has {len(description):,} characters; at most {DESCRIPTION_CHARS:,}")
    if not body.strip():
        raise BadSkill("SKILL.md says nothing after its front matter", hint="write the steps below it")
    return name, description


def _convert_errors(parse: Callable[[], T]) -> T:
    try:
        return parse()
    except ConfigError as error:
        raise BadSkill(error.message, hint=error.hint) from None
