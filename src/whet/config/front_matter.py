"""Read the YAML front matter of skills and prompt commands, between the two `---` lines of a Markdown file.

Plain `key: value` lines are parsed here, because many values contain colons, which YAML forbids. Anything
else is parsed as YAML. Anchors, tags and deep nesting are refused, because these files may be untrusted.
"""

from __future__ import annotations

import re
from typing import Any, cast

from whet.contract.errors import ConfigError

_PLAIN = r"([A-Za-z][A-Za-z0-9_-]*):[ \t]+([^\s\"'\[\]{}>|*&!%@`#,?:-][^\n]*|-?\d[\w.]*)$"
_MAX_CHARS = 8_000
_MAX_DEPTH = 5


def split_front_matter(text: str, label: str) -> tuple[str, str]:
    """Return the front matter and the body. Raises ConfigError if the text has no front matter.

    `label` names the text in the message.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() != "---":
        raise ConfigError(f"{label} has no front matter", hint="begin it with ---, name, description, ---")
    for number, line in enumerate(lines[1:], 1):
        if line.rstrip() == "---":
            return "\n".join(lines[1:number]), "\n".join(lines[number + 1 :]).strip("\n")
    raise ConfigError("the front matter has no end", hint="close it with a line ---")


def read_fields(text: str) -> dict[str, Any]:
    """Return the front matter's fields. Raises ConfigError, which names the line if it is not valid YAML."""
    if len(text) > _MAX_CHARS:
        raise ConfigError(f"the front matter has more than {_MAX_CHARS:,} characters")
    parsed: dict[str, Any] = {}
    for line in text.split("\n"):
        if not line.strip():
            continue
        plain = re.match(_PLAIN, line.rstrip())
        if plain is None or plain[1] in parsed or " #" in plain[2]:
            return _parse_yaml(text)
        parsed[plain[1]] = plain[2].strip()
    return parsed


def _parse_yaml(text: str) -> dict[str, Any]:
    from whet.config import yaml_file  # noqa: PLC0415 - 35 ms of CPU, and most files don't need it

    # The front matter begins on the file's second line.
    values: object = yaml_file.load_values(f"\n{text}", "the front matter", _MAX_DEPTH)
    if not isinstance(values, dict):
        raise ConfigError("the front matter must hold fields such as `name: ...`")
    return {str(key): value for key, value in cast("dict[Any, Any]", values).items()}
