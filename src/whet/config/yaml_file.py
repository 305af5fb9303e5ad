"""Parse config.yaml into (section, field) entries with their lines and the positions of their values.

Two levels of plain mappings without YAML's types: a value is its text or a list of texts, and
`config/fields.py` interprets it. Tables (mcp.servers) may hold mappings of their own and become JSON text.
Anchors, tags and deep nesting have no use in a settings file, nor in one from elsewhere (`values`), and
are refused before anything is expanded. Imported only if a config.yaml exists: yaml costs 35 ms of CPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec
import yaml

from whet.contract.errors import ConfigError

# PyYAML is untyped; these two names keep that out of the rest of the code.
_yaml: Any = yaml
_loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MAX_DEPTH = 8


class Span(msgspec.Struct, frozen=True):
    """A range of the file: lines and columns from 0, the end exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int


class YamlEntry(msgspec.Struct, frozen=True):
    """A key and its value: text, list of texts, or None if there is no value. A table's value is the text of
    its JSON, every scalar as text, and `parts` are its entries. `is_flow`: it is written as {a: b}."""

    name: str
    value: str | tuple[str, ...] | None
    key: Span
    span: Span
    parts: tuple[YamlEntry, ...] = ()
    is_flow: bool = False

    @property
    def line(self) -> int:
        """The key's line, from 1."""
        return self.key.line + 1


class SectionNode(msgspec.Struct, frozen=True):
    """A section of the file. `is_flow`: it is written as {a: b}."""

    name: str
    key: Span
    span: Span
    is_flow: bool
    entries: tuple[YamlEntry, ...]


def parse(
    text: str, where: str, tables: Collection[str] = (), typed: Collection[str] = ()
) -> tuple[SectionNode, ...]:
    """Return the sections of `text`. `where` names the file in errors, `tables` the keys (section.name) that
    have entries of their own, `typed` those of them in which numbers, true and false are not texts. Raises
    ConfigError with the line."""
    try:
        _refuse_advanced_yaml(text, where, _MAX_DEPTH)
        root: Any = _yaml.compose(text, Loader=_loader)
    except yaml.YAMLError as error:
        raise _syntax_error(error, where) from error
    if root is None or _is_null(root):
        return ()
    if not isinstance(root, yaml.MappingNode):
        raise _node_error(where, root, "the file must hold sections such as `model:`")
    kinds = {key: key in typed for key in tables}
    return tuple(_section(key, node, where, kinds) for key, node in _pairs(root, where, ""))


def load_values(text: str, where: str, deepest: int) -> Any:
    """Parse another program's YAML, with YAML's types, nested no deeper than `deepest`. Raises ConfigError
    with the line."""
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


def _section(key: Any, node: Any, where: str, tables: Mapping[str, bool]) -> SectionNode:
    name = str(key.value)
    if _is_null(node):
        return SectionNode(name, _span(key), _span(node), False, ())
    if not isinstance(node, yaml.MappingNode):
        raise _node_error(where, node, f"`{name}` must be a section with fields below it, not a value")
    entries = tuple(
        _table(k, v, f"{name}.{k.value}", where, is_typed=tables[f"{name}.{k.value}"])
        if f"{name}.{k.value}" in tables and isinstance(v, yaml.MappingNode)
        else _entry(k, v, f"{name}.", where)
        for k, v in _pairs(node, where, f"{name}.")
    )
    return SectionNode(name, _span(key), _span(node), bool(node.flow_style), entries)


def _entry(key: Any, node: Any, prefix: str, where: str) -> YamlEntry:
    value: str | tuple[str, ...] | None
    if _is_null(node):
        value = None
    elif isinstance(node, yaml.ScalarNode):
        value = str(node.value)
    elif isinstance(node, yaml.SequenceNode):
        items: list[Any] = node.value
        for item in items:
            if not isinstance(item, yaml.ScalarNode):
                raise _node_error(where, item, f"`{prefix}{key.value}` holds a list of texts, nothing nested")
        value = tuple(str(item.value) for item in items)
    else:
        raise _node_error(
            where, node, f"`{prefix}{key.value}` takes a value or a list, not fields of its own"
        )
    return YamlEntry(str(key.value), value, _span(key), _span(node))


def _table(key: Any, node: Any, name: str, where: str, *, is_typed: bool) -> YamlEntry:
    pairs = _pairs(node, where, f"{name}.")
    parts = tuple(YamlEntry(str(k.value), None, _span(k), _span(v)) for k, v in pairs)
    text = msgspec.json.encode(_plain(node, where, name, _read_scalar if is_typed else _read_word)).decode()
    return YamlEntry(str(key.value), text, _span(key), _span(node), parts, bool(node.flow_style))


def _plain(node: Any, where: str, name: str, read: Callable[[Any], Any]) -> Any:
    """Return a node as JSON values. Null counts as not set."""
    if isinstance(node, yaml.MappingNode):
        pairs = _pairs(node, where, f"{name}.")
        values = ((str(k.value), _plain(v, where, f"{name}.{k.value}", read)) for k, v in pairs)
        return {key: value for key, value in values if value is not None}
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, where, name, read) for item in node.value]
    return None if _is_null(node) else read(node)


def _read_word(node: Any) -> str:
    return str(node.value)


def _read_scalar(node: Any) -> Any:
    """Return a value without quotes as JSON reads it, and any other as text."""
    if not node.style:
        with contextlib.suppress(msgspec.DecodeError):
            return msgspec.json.decode(str(node.value).encode())
    return str(node.value)


def _pairs(node: Any, where: str, prefix: str) -> list[tuple[Any, Any]]:
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
