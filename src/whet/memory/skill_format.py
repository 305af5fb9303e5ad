"""What makes a folder a skill: files within bounds that hold for strangers' too, a name, and a SKILL.md.

Links, hidden files and anything that is not a plain file don't belong to a skill. SKILL.md begins with YAML
front matter between two `---` lines; plain `key: value` lines are read here, with colons in the value, which
YAML forbids and many write; anything richer goes to YAML, without anchors, tags or depth, since skills come
from strangers. Unknown fields are left alone: nothing here writes a file.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, cast

from whet.contract.errors import ConfigError
from whet.memory import disk
from whet.memory.requests import Refused

NAME = re.compile(r"[a-z0-9](?:[a-z0-9]|-(?!-)){0,62}[a-z0-9]|[a-z0-9]")
MOST_FILES = 200
MOST_BYTES = 5_000_000
_DEEPEST = 6
_PLAIN = r"([A-Za-z][A-Za-z0-9_-]*):[ \t]+([^\s\"'\[\]{}>|*&!%@`#,?:-][^\n]*|-?\d[\w.]*)$"
_LARGEST_CHARS = 8_000
_DEEPEST_YAML = 5
NAME_CHARS = 64
DESCRIPTION_CHARS = 1_024


class BadSkill(Refused):
    """A folder or a SKILL.md that can be no skill; the message says why."""


def files_of(root: Path) -> list[str]:
    """Give the files of a skill's folder as relative paths, SKILL.md first. Raises BadSkill for a folder
    that is too large or leads out of itself."""
    found: list[str] = []
    size = 0
    for folder, folders, names in os.walk(root, followlinks=False):
        here = Path(folder).relative_to(root)
        if len(here.parts) > _DEEPEST:
            raise BadSkill(f"{root.name} is nested deeper than {_DEEPEST} folders")
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in (*folders, *names):
            _refuse_strange(Path(folder) / name, f"{root.name}/{here / name}")
        for name in names:
            if not name.startswith("."):
                size += (Path(folder) / name).stat().st_size
                found.append(str(here / name))
        if len(found) > MOST_FILES:
            raise BadSkill(f"{root.name} has more than {MOST_FILES} files")
        if size > MOST_BYTES:
            raise BadSkill(f"{root.name} is larger than {MOST_BYTES // 1_000_000} MB")
    return sorted(found, key=lambda path: (path != "SKILL.md", path))


def read(root: Path) -> dict[str, bytes]:
    """Give a skill's files by their paths, SKILL.md first. Raises BadSkill, ConfigError."""
    return {path: disk.read(root / path, MOST_BYTES) or b"" for path in files_of(root)}


def _refuse_strange(path: Path, shown: str) -> None:
    if path.is_symlink():
        raise BadSkill(f"{shown} is a symbolic link", hint="put the file or folder itself there")
    if not path.is_file() and not path.is_dir():
        raise BadSkill(f"{shown} is not a plain file")


def good_path(path: str) -> str:
    """Give a file's path within a skill, tidied. Raises BadSkill for one that leads out of the skill."""
    parts = path.replace("\\", "/").split("/")
    if not path or path.startswith(("/", "~")) or ".." in parts or "\0" in path or len(path) > 200:
        raise BadSkill(f"{path!r} is no path inside a skill", hint="e.g. references/api.md, scripts/run.sh")
    kept = [part for part in parts if part not in ("", ".")]
    if not kept or any(part.startswith(".") or not part.isprintable() for part in kept):
        raise BadSkill(f"{path!r} is no path inside a skill", hint="no hidden files or folders")
    if len(kept) > _DEEPEST:
        raise BadSkill(f"{path!r} is nested deeper than {_DEEPEST} folders")
    return "/".join(kept)


def good_name(name: str) -> str:
    """Give a skill's name. Raises BadSkill for one that is not usable as such."""
    if not NAME.fullmatch(name):
        raise BadSkill(
            f"{name[:80]!r} is no skill name", hint="1 to 64 of a-z, 0-9 and single hyphens, e.g. deploy-site"
        )
    return name


def split(text: str) -> tuple[str, str]:
    """Give the front matter and the body. Raises BadSkill where there is no front matter."""
    lines = text.replace("\r\n", "\n").split("\n")
    if not lines or lines[0].rstrip() != "---":
        raise BadSkill("SKILL.md has no front matter", hint="begin it with ---, name, description, ---")
    for number, line in enumerate(lines[1:], 1):
        if line.rstrip() == "---":
            return "\n".join(lines[1:number]), "\n".join(lines[number + 1 :]).strip("\n")
    raise BadSkill("the front matter has no end", hint="close it with a line ---")


def fields(text: str) -> dict[str, Any]:
    """Give the front matter's fields. Raises BadSkill."""
    if len(text) > _LARGEST_CHARS:
        raise BadSkill(f"the front matter has more than {_LARGEST_CHARS:,} characters")
    found: dict[str, Any] = {}
    for line in text.split("\n"):
        if not line.strip():
            continue
        plain = re.match(_PLAIN, line.rstrip())
        if plain is None or plain[1] in found or " #" in plain[2]:
            return _parse(text)
        found[plain[1]] = plain[2].strip()
    return found


def name_and_description(text: str) -> tuple[str, str]:
    """Give a SKILL.md's name and description, checked. Raises BadSkill."""
    head, body = split(text)
    values = fields(head)
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


def _parse(text: str) -> dict[str, Any]:
    """Give the fields of a front matter. Raises BadSkill with the line."""
    from whet.config import yaml_file  # noqa: PLC0415 - 35 ms of CPU, and most skills don't need it

    try:
        # It begins in the file's second line.
        values: object = yaml_file.values(f"\n{text}", "the front matter", _DEEPEST_YAML)
    except ConfigError as error:
        raise BadSkill(error.message, hint=error.hint) from None
    if not isinstance(values, dict):
        raise BadSkill("the front matter must hold fields such as `name: ...`")
    return {str(key): value for key, value in cast("dict[Any, Any]", values).items()}
