"""Templates: JSON files of proven calls in the home's `warm/` folder, one per name.

The format is a superset of the plain one {name, description, examples, system_prompt_addendum, tags,
source_session_ids, created_at, version}: files with fewer fields load, and unknown fields are kept. An
invalid file is listed with the reason and hides no other. This module does not know where examples come
from or how they reach a session.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import msgspec

from whet.clock import iso
from whet.config import paths
from whet.config.paths import Home
from whet.context.rows import text_tokens
from whet.contract.errors import ConfigError, NotFound
from whet.contract.texts import NOT_JSON, from_json, from_values, plural
from whet.contract.tools import ToolSpec

VERSION = 1
FRAME_TOKENS = 60
STALE_AFTER_DAYS = 30
_LARGEST_BYTES = 1_000_000
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._ -]{0,62}[A-Za-z0-9_-])?")
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?")
_HINT = "whet warm list shows them"


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """One call that worked, with its result. `why` is one line about the failure before it.

    The rest is provenance: the session and the number of the result's message, the time, the model, the
    hash of the tool's schema at that time, and the folder. Empty if unknown (plain or imported files).
    """

    tool_name: str
    arguments: dict[str, Any] = {}
    result_summary: str = ""
    result_success: bool = True
    context_hint: str = ""
    why: str = ""
    session_id: str = ""
    message_seq: int = 0
    at: str = ""
    model: str = ""
    schema_hash: str = ""
    workspace: str = ""
    chosen_because: str = ""

    @property
    def hash(self) -> str:
        """The hash of the content that the model sees, without provenance."""
        content = (self.tool_name, self.arguments, self.result_summary, self.context_hint, self.why)
        return hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest()[:12]


class Template(msgspec.Struct, frozen=True, kw_only=True):
    """A named set of examples. `max_examples` is the number that a session gets; `imported_at` is set if the
    template was imported, so that its sessions are not looked up here. `extra`: unknown fields."""

    name: str
    description: str = ""
    examples: tuple[Example, ...] = ()
    system_prompt_addendum: str = ""
    tags: tuple[str, ...] = ()
    source_session_ids: tuple[str, ...] = ()
    created_at: str = ""
    version: int | str = VERSION
    max_examples: int = 3
    budget_tokens: int = 1_500
    project: str = ""
    imported_at: str = ""
    extra: dict[str, Any] = {}

    @property
    def default_description(self) -> str:
        """The description of a template that was built without one. It says nothing about a task."""
        sessions = plural(len(self.source_session_ids), "session")
        return f"{plural(len(self.examples), 'example')} from {sessions}"

    @property
    def subject(self) -> str:
        """What a person said it is for, or an empty string."""
        return "" if self.description == self.default_description else self.description

    @property
    def hash(self) -> str:
        """The hash of the content that the model sees: with another hash it is another template, as far as
        proof goes."""
        contents = [
            (e.tool_name, e.arguments, e.result_summary, e.context_hint, e.why) for e in self.examples
        ]
        raw = msgspec.json.encode((contents, self.system_prompt_addendum, self.max_examples), order="sorted")
        return hashlib.sha256(raw).hexdigest()[:16]


class Broken(msgspec.Struct, frozen=True):
    """A file that can't be used as a template, and why."""

    name: str
    reason: str


def check_name(name: str) -> str:
    """Return `name` if it is a valid template name. Raises ConfigError."""
    if not _NAME.fullmatch(name) or _RESERVED.fullmatch(name.lower()):
        short_name = name if len(name) <= 40 else name[:37] + "..."
        raise ConfigError(
            f"{short_name!r} can't name a template",
            hint="1 to 64 letters, digits, dots, dashes, underscores and blanks; a letter or digit first",
        )
    return name


def path_of(home: Home, name: str) -> Path:
    """Return the path of a template's file; nothing is created. Raises ConfigError if the name is invalid."""
    return home.warm / f"{check_name(name)}.json"


def save(home: Home, template: Template) -> Path:
    """Write a template, completely or not at all; it is on disk on return. Raises ConfigError."""
    path = path_of(home, template.name)
    home.ensure()
    paths.replace_file(path, encode(template), mode=0o600)
    return path


def load(home: Home, name: str) -> Template:
    """Read a template. Raises NotFound, or ConfigError if the file is not a template."""
    path = path_of(home, name)
    if not path.exists():
        raise NotFound(f"there is no warm template {name!r}", hint=_HINT)
    return read_file(path)


def delete(home: Home, name: str) -> None:
    """Remove a template, a broken one too. Raises NotFound, ConfigError."""
    path = path_of(home, name)
    try:
        path.unlink()
    except FileNotFoundError:
        raise NotFound(f"there is no warm template {name!r}", hint=_HINT) from None
    except OSError as error:
        raise ConfigError(
            f"can't delete {path}: {error.strerror}", hint="check the folder's owner"
        ) from error


def iter_templates(home: Home) -> Iterator[Template | Broken]:
    """Yield all templates by name; an invalid file is yielded as Broken. Raises ConfigError if the folder
    can't be read."""
    try:
        names = sorted(entry.name for entry in os.scandir(home.warm) if entry.name.endswith(".json"))
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(
            f"can't read {home.warm}: {error.strerror}", hint="check its permissions"
        ) from error
    for file_name in names:
        name = file_name.removesuffix(".json")
        try:
            yield load(home, name)
        except (ConfigError, NotFound) as error:
            yield Broken(name, error.message)


def read_file(path: Path) -> Template:
    """Read a file of the plain format or of ours. Raises NotFound, or ConfigError with the problem."""
    content = paths.read_file_bytes(path, _LARGEST_BYTES)
    if content is None:
        raise NotFound(f"there is no file {path}")
    try:
        raw: Any = msgspec.json.decode(content)
    except NOT_JSON as error:
        raise ConfigError(f"{path} is not JSON: {error}", hint="build it again or delete it") from error
    if not isinstance(raw, dict):
        raise ConfigError(f"{path} holds no JSON object", hint="build it again or delete it")
    return _parse(cast("dict[str, Any]", raw), path)


def _parse(row: dict[str, Any], path: Path) -> Template:
    row = {key: value for key, value in row.items() if value is not None}
    examples: Any = row.get("examples", [])
    if not isinstance(examples, list):
        raise ConfigError(f"{path}: examples is not a list", hint="build it again or delete it")
    if isinstance(row.get("created_at"), int | float):
        row["created_at"] = _format_time(row["created_at"])
    known_fields = set(Template.__struct_fields__) - {"extra"}
    fields = {key: value for key, value in row.items() if key in known_fields} | {"name": path.stem}
    try:
        fields["examples"] = tuple(_example(item) for item in cast("list[Any]", examples))
        template = from_values(fields, Template)
    except (msgspec.ValidationError, ValueError) as error:
        raise ConfigError(f"{path}: {error}", hint="build it again or delete it") from error
    if not 1 <= template.max_examples <= 20 or not 100 <= template.budget_tokens <= 20_000:
        raise ConfigError(
            f"{path}: max_examples or budget_tokens is out of range", hint="1-20 and 100-20,000"
        )
    extra = {key: value for key, value in row.items() if key not in known_fields}
    return msgspec.structs.replace(template, extra=extra)


def _example(item: Any) -> Any:
    if not isinstance(item, dict):
        raise ValueError("an example is not an object")
    row = {key: value for key, value in cast("dict[str, Any]", item).items() if value is not None}
    if isinstance(row.get("arguments"), str):
        row["arguments"] = from_json(cast("str", row["arguments"]).encode(), dict[str, Any])
    example = from_values(row, Example)
    if not example.tool_name:
        raise ValueError("an example names no tool")
    return example


def encode(template: Template) -> str:
    """Write a template as JSON; unknown fields come last."""
    row: dict[str, Any] = msgspec.to_builtins(template)
    extra = row.pop("extra")
    row["examples"] = [
        {key: value for key, value in example.items() if value or key == "arguments"}
        for example in row["examples"]
    ]
    return msgspec.json.format(msgspec.json.encode({**row, **extra}), indent=2).decode() + "\n"


def import_file(home: Home, source: Path, name: str, now: datetime) -> Template:
    """Import a template from a file into the home, marked as imported; an existing one is not changed.

    Raises NotFound, ConfigError.
    """
    imported = msgspec.structs.replace(
        read_file(source), name=check_name(name or source.stem.lower()), imported_at=iso(now)
    )
    if path_of(home, imported.name).exists():
        raise ConfigError(
            f"there is a template {imported.name} already",
            hint=f"--name OTHER, or whet warm delete {imported.name}",
        )
    save(home, imported)
    return imported


def example_tokens(example: Example) -> int:
    """Estimate the tokens that an example adds to a request."""
    texts = (example.context_hint, example.result_summary, example.why, example.tool_name)
    arguments = msgspec.json.encode(example.arguments).decode()
    return FRAME_TOKENS + sum(map(text_tokens, texts)) + text_tokens(arguments)


def schema_hash(spec: ToolSpec) -> str:
    """Return a hash that distinguishes versions of a tool's schema."""
    return hashlib.sha256(msgspec.json.encode(spec)).hexdigest()[:12]


def staleness(
    example: Example, tools: Mapping[str, ToolSpec] | None, now: datetime, last_win: str = ""
) -> str:
    """Return why an example should no longer be shown, or an empty string.

    The tool or a file that it names no longer exists, the tool's schema has changed, or the example is 30
    days old and its template has not helped since (`last_win`). `tools` None: the session's tools are
    unknown.
    """
    if tools is not None and (changed := _schema_problem(example, tools.get(example.tool_name))):
        return changed
    path = example.arguments.get("path")
    if example.workspace and isinstance(path, str) and _is_missing(example.workspace, path):
        return f"{path} is gone"
    used = max(example.at, last_win)
    if used and (now - _parse_time(used)).days >= STALE_AFTER_DAYS:
        return f"{STALE_AFTER_DAYS} days without a win"
    return ""


def _schema_problem(example: Example, spec: ToolSpec | None) -> str:
    if spec is None:
        return f"this session has no tool {example.tool_name}"
    if example.schema_hash and example.schema_hash != schema_hash(spec):
        return f"the schema of {example.tool_name} has changed"
    if not example.schema_hash and not fits(example.arguments, spec):
        return f"its arguments don't fit {example.tool_name}"
    return ""


def fits(arguments: Mapping[str, Any], spec: ToolSpec) -> bool:
    """Return whether a tool's schema has all these arguments, and they include all required ones."""
    properties: Any = spec.parameters.get("properties") or {}
    required: Any = spec.parameters.get("required") or []
    return set(arguments) <= set(properties) and set(required) <= set(arguments)


def _is_missing(workspace: str, path: str) -> bool:
    try:
        # os.path keeps a `~` with an unknown user's name; pathlib raises RuntimeError.
        full_path = os.path.join(os.path.expanduser(workspace), os.path.expanduser(path))
        return not os.path.exists(full_path)
    except ValueError:  # a NUL after the ~
        return True


def _format_time(seconds: float) -> str:
    """Format Unix time as ISO; an empty string if it is out of range."""
    try:
        return iso(datetime.fromtimestamp(seconds, UTC))
    except (ValueError, OverflowError, OSError):
        return ""


def _parse_time(moment: str) -> datetime:
    try:
        time = datetime.fromisoformat(moment)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
    return time if time.tzinfo else time.replace(tzinfo=UTC)
