"""Read the manifest of a plugin's folder: `plugin.yaml` or `plugin.yml`.

Unknown fields are ignored, because other programs share the format. Reading a manifest runs none of the
plugin's code.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import msgspec
import yaml

from whet.contract.errors import PluginError

NAMES = ("plugin.yaml", "plugin.yml")
_LARGEST_BYTES = 64 * 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Manifest(msgspec.Struct, frozen=True):
    """A plugin's name and description of itself. `provides_tools` is a claim, not a registration."""

    name: str
    version: str = ""
    description: str = ""
    author: str = ""
    provides_tools: tuple[str, ...] = ()


def manifest_file(folder: Path) -> Path | None:
    """Return the path of a folder's manifest, or None."""
    return next((path for name in NAMES if (path := folder / name).is_file()), None)


def read_manifest(folder: Path) -> Manifest:
    """Read a folder's manifest. Without one, the plugin has the folder's name. Raises PluginError."""
    path = manifest_file(folder)
    if path is None:
        return Manifest(_check_name(folder.name, folder.name))
    try:
        with path.open("rb") as file:
            raw = file.read(_LARGEST_BYTES + 1)
        if len(raw) > _LARGEST_BYTES:
            raise PluginError(f"{path.name} is larger than 64 KB", plugin=folder.name)
        content: Any = yaml.load(raw, Loader=_loader)
    except (OSError, yaml.YAMLError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise PluginError(f"{path.name} can't be read: {reason}", plugin=folder.name) from error
    if not isinstance(content, dict):
        raise PluginError(f"{path.name} must hold fields such as `name:`", plugin=folder.name)
    fields = cast("dict[Any, Any]", content)
    tools = fields.get("provides_tools")
    return Manifest(
        name=_check_name(_to_text(fields.get("name")) or folder.name, folder.name),
        version=_to_text(fields.get("version")),
        description=_to_text(fields.get("description")),
        author=_to_text(fields.get("author")),
        provides_tools=tuple(map(_to_text, cast("list[Any]", tools))) if isinstance(tools, list) else (),
    )


def slug_of(key: str) -> str:
    """Return the module name for a plugin's key: `-` becomes `_`, `/` becomes `__`."""
    slug = re.sub(r"[^A-Za-z0-9_]", "_", key.replace("/", "__"))
    return f"_{slug}" if slug[:1].isdigit() else slug


def _to_text(value: object) -> str:
    return " ".join(str(value).split())[:400] if isinstance(value, (str, int, float)) else ""


def _check_name(name: str, folder: str) -> str:
    if not _NAME.fullmatch(name):
        raise PluginError(
            f"the name {name[:80]!r} is not usable", plugin=folder, hint="letters, digits, . _ and - only"
        )
    return name
