"""Front matter that needs YAML, parsed safely: no aliases, tags or depth. Imported on demand."""

from __future__ import annotations

from typing import Any, cast

import yaml

from whet.memory.frontmatter import BadSkill

_yaml: Any = yaml
_loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DEEPEST = 5


def parse(text: str) -> dict[str, Any]:
    """Give the fields of a front matter. Raises BadSkill with the line."""
    try:
        _refuse_bombs(text)
        values: Any = _yaml.load(text, Loader=_loader)
    except yaml.YAMLError as error:
        if plain := _plain(text):
            return plain
        mark: Any = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 2}" if mark else ""
        problem = str(getattr(error, "problem", None) or error).splitlines()[0]
        raise BadSkill(
            f"the front matter{where} is not valid YAML: {problem}", hint="quote values with `: `"
        ) from None
    except (ValueError, RecursionError) as error:
        raise BadSkill(f"the front matter can't be read: {error}") from None
    if not isinstance(values, dict):
        raise BadSkill("the front matter must hold fields such as `name: ...`")
    return {str(key): value for key, value in cast("dict[Any, Any]", values).items()}


def _plain(text: str) -> dict[str, Any]:
    """Read what many write though YAML forbids it: `description: How to deploy: the site`. Nothing where a
    line is anything but a key and its text."""
    found: dict[str, Any] = {}
    for line in filter(str.strip, text.split("\n")):
        key, colon, value = line.partition(": ")
        if not colon or not key.replace("-", "").replace("_", "").isalnum() or value.strip()[:1] in "|>&*![{":
            return {}
        found[key] = value.strip()
    return found


def _refuse_bombs(text: str) -> None:
    depth = 0
    for event in _yaml.parse(text, Loader=_loader):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise BadSkill("the front matter uses YAML anchors or aliases, which are not read")
        if getattr(event, "tag", None):
            raise BadSkill("the front matter uses YAML tags, which are not read")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise BadSkill("the front matter is nested too deeply")
