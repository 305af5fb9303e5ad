"""Parse config.yaml into sections and entries, with the positions of keys and values.

The file has two levels of mappings without YAML's types: a value is its text or a list of texts, which
`config/fields.py` parses. A table such as mcp.servers may contain mappings and becomes JSON text. Anchors,
tags and deep nesting are refused before anything is expanded. Import this module only if there is YAML to
parse: yaml costs 35 ms of CPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from typing import Any

import msgspec
import yaml

from whet.contract.errors import ConfigError

# PyYAML is untyped; these two names keep that out of the rest of the code.
_yaml: Any = yaml
_loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MAX_DEPTH = 8


class Span(msgspec.Struct, frozen=True):
    """A range of the file. Lines and columns count from 0; the end is exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int


class YamlEntry(msgspec.Struct, frozen=True):
    """A key and its value: a text, texts, or None.

    The value of a table is the text of a JSON object, and `parts` are the table's entries. `is_flow` is True
    if the table is written as {a: b}. `fault` is set, and the value is a placeholder, if the entry can't be
    read.
    """

    name: str
    value: str | tuple[str, ...] | None
    key: Span
    span: Span
    parts: tuple[YamlEntry, ...] = ()
    is_flow: bool = False
    fault: ConfigError | None = None

    @property
    def line(self) -> int:
        """The key's line, from 1."""
        return self.key.line + 1


class SectionNode(msgspec.Struct, frozen=True):
    """A section of the file. `is_flow` is True if it is written as {a: b}."""

    name: str
    key: Span
    span: Span
    is_flow: bool
    entries: tuple[YamlEntry, ...]


def parse(
    text: str, where: str, tables: Collection[str] = (), typed: Collection[str] = ()
) -> tuple[SectionNode, ...]:
    """Return the sections of `text`. An entry that can't be read has a `fault`.

    `where` names the file in errors. `tables` are the keys (section.name) of tables. `typed` are the tables
    whose numbers, true and false are not read as texts. Raises ConfigError, which names the line, if the
    sections can't be read.
    """
    try:
        _refuse_advanced_yaml(text, where, _MAX_DEPTH)
        root: Any = _yaml.compose(text, Loader=_loader)
    except yaml.YAMLError as error:
        raise _syntax_error(error, where) from error
    if root is None or _is_null(root):
        return ()
    if not isinstance(root, yaml.MappingNode):
        raise _node_error(where, root, "the file must hold sections such as `model:`")
    typed_tables = {key: key in typed for key in tables}
    return tuple(_read_section(key, node, where, typed_tables) for key, node in _pairs(root, where, ""))


def load_values(text: str, where: str, deepest: int) -> Any:
    """Parse YAML with YAML's types. Raises ConfigError if it is invalid or nested deeper than `deepest`."""
    try:
        _refuse_advanced_yaml(text, where, deepest)
        return _yaml.load(text, Loader=_loader)
    except yaml.YAMLError as error:
        raise _syntax_error(error, where) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where} can't be read: {error}") from error


def _refuse_advanced_yaml(text: str, where: str, deepest: int) -> None:
    depth = documents = 0
    for event in _yaml.parse(text, Loader=_loader):
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise _node_error(where, event, "anchors and aliases (& and *) are not read; quote the value")
        if getattr(event, "tag", None):
            raise _node_error(where, event, "tags (!) are not read; quote the value")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > deepest:
            raise _node_error(where, event, f"nested too deeply; {deepest} levels are read")
        if documents > 1:
            raise _node_error(where, event, "a second document (---) starts here; one is read")


def _read_section(key: Any, node: Any, where: str, typed_tables: Mapping[str, bool]) -> SectionNode:
    name = str(key.value)
    if _is_null(node):
        return SectionNode(name, _span(key), _span(node), False, ())
    if not isinstance(node, yaml.MappingNode):
        raise _node_error(where, node, f"`{name}` must be a section with fields below it, not a value")
    entries: list[YamlEntry] = []
    for entry_key, value in _pairs(node, where, f"{name}."):
        path = f"{name}.{entry_key.value}"
        try:
            if path in typed_tables and isinstance(value, yaml.MappingNode):
                entry = _read_table(entry_key, value, path, where, is_typed=typed_tables[path])
            else:
                entry = _read_entry(entry_key, value, path, where)
        except ConfigError as fault:
            entry = YamlEntry(str(entry_key.value), "{...}", _span(entry_key), _span(value), fault=fault)
        entries.append(entry)
    return SectionNode(name, _span(key), _span(node), bool(node.flow_style), tuple(entries))


def _read_entry(key: Any, node: Any, path: str, where: str) -> YamlEntry:
    value: str | tuple[str, ...] | None
    if _is_null(node):
        value = None
    elif isinstance(node, yaml.ScalarNode):
        value = str(node.value)
    elif isinstance(node, yaml.SequenceNode):
        items: list[Any] = node.value
        for item in items:
            if not isinstance(item, yaml.ScalarNode):
                raise _node_error(where, item, f"`{path}` holds a list of texts, nothing nested")
        value = tuple(str(item.value) for item in items)
    else:
        raise _node_error(where, node, f"`{path}` takes a value or a list, not fields of its own")
    return YamlEntry(str(key.value), value, _span(key), _span(node))


def _read_table(key: Any, node: Any, path: str, where: str, *, is_typed: bool) -> YamlEntry:
    pairs = _pairs(node, where, f"{path}.")
    parts = tuple(YamlEntry(str(name.value), None, _span(name), _span(value)) for name, value in pairs)
    text = msgspec.json.encode(_to_json(node, where, path, is_typed=is_typed)).decode()
    return YamlEntry(str(key.value), text, _span(key), _span(node), parts, bool(node.flow_style))


def _to_json(node: Any, where: str, path: str, *, is_typed: bool) -> Any:
    """Return a node as JSON values. Fields that are null are left out."""
    if isinstance(node, yaml.MappingNode):
        values: dict[str, Any] = {}
        for key, value in _pairs(node, where, f"{path}."):
            values[str(key.value)] = _to_json(value, where, f"{path}.{key.value}", is_typed=is_typed)
        return {key: value for key, value in values.items() if value is not None}
    if isinstance(node, yaml.SequenceNode):
        return [_to_json(item, where, path, is_typed=is_typed) for item in node.value]
    return None if _is_null(node) else _read_scalar(node, is_typed=is_typed)


def _read_scalar(node: Any, *, is_typed: bool) -> Any:
    """Return a scalar as text, or if `is_typed` and it has no quotes, as JSON reads it."""
    if is_typed and not node.style:
        with contextlib.suppress(msgspec.DecodeError):
            return msgspec.json.decode(str(node.value).encode())
    return str(node.value)


def _pairs(node: Any, where: str, prefix: str) -> list[tuple[Any, Any]]:
    """Return the keys and values of a mapping. Raises ConfigError for a key that is nested or set twice."""
    lines_by_name: dict[str, int] = {}
    pairs: list[tuple[Any, Any]] = list(node.value)
    for key, _ in pairs:
        if not isinstance(key, yaml.ScalarNode):
            raise _node_error(where, key, "a key must be a plain word")
        name = str(key.value)
        if name in lines_by_name:
            raise _node_error(where, key, f"`{prefix}{name}` is already set in line {lines_by_name[name]}")
        lines_by_name[name] = key.start_mark.line + 1
    return pairs


def _is_null(node: Any) -> bool:
    return bool(node.tag == "tag:yaml.org,2002:null")


def _span(node: Any) -> Span:
    start, end = node.start_mark, node.end_mark
    return Span(start.line, start.column, end.line, end.column)


def _node_error(where: str, node: Any, problem: str) -> ConfigError:
    return ConfigError(f"{where} line {node.start_mark.line + 1}: {problem}", hint=f"edit {where}")


def _syntax_error(error: yaml.YAMLError, where: str) -> ConfigError:
    mark: Any = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = str(getattr(error, "problem", None) or getattr(error, "reason", None) or error).splitlines()[0]
    position = f" line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    hint = "a value with `: `, ` #` or a leading special character needs quotes; indent with spaces"
    return ConfigError(f"{where}{position} is not valid YAML: {problem}", hint=hint)
