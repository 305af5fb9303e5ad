"""Reads SKILL.md: YAML front matter between two `---` lines, then Markdown.

Plain `key: value` lines are read here, with colons in the value, which YAML forbids and many write; anything
richer goes to YAML, without anchors, tags or depth, since
skills come from strangers. Unknown fields are left alone: nothing here writes a file.
"""

from __future__ import annotations

import re
from typing import Any, cast

from whet.contract.errors import ConfigError
from whet.memory.folders import BadSkill as BadSkill

_PLAIN = r"([A-Za-z][A-Za-z0-9_-]*):[ \t]+([^\s\"'\[\]{}>|*&!%@`#,?:-][^\n]*|-?\d[\w.]*)$"
_LARGEST_CHARS = 8_000
_DEEPEST_YAML = 5
NAME_CHARS = 64
DESCRIPTION_CHARS = 1_024


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
