"""Read which settings a module names and the value that it gives each, from its source.

A setting can be named by a settings class, a keyword, a dict, an assignment, an environment variable, the
text of a configuration (YAML, JSON, TOML), a `config set` or an option of the command line. A value that the
source does not hold is UNKNOWN. A constant of the program that a module replaces counts as well.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import msgspec

from whet.config.fields import sections
from whet.config.schema import Settings

# Every model here is the practice model; the page says so in its head.
_STAND_IN = frozenset({"provider", "model", "base_url", "format", "api_key_env"})
_DEFAULTS = Settings()
SECTIONS: dict[str, Any] = {
    section: {
        name: value
        for name, value in msgspec.structs.asdict(getattr(_DEFAULTS, section)).items()
        if section != "model" or name not in _STAND_IN
    }
    for section in Settings.__struct_fields__
}
_SECTION_OF = {type(getattr(_DEFAULTS, section)).__name__: section for section in SECTIONS}
# A field that only one section has, in two words or more: a keyword of this name sets it, whoever is called.
_FIELDS = [field for fields in SECTIONS.values() for field in fields if "_" in field]
_SECTION_OF_FIELD = {
    field: section for section, fields in SECTIONS.items() for field in fields if _FIELDS.count(field) == 1
}
# Options of `whet chat`, `goal` and `run` that set something for one call.
_OPTIONS = {
    "--approvals": "approval.mode",
    "--max-steps": "agent.max_steps",
    "--toolsets": "tools.toolsets",
}
UNKNOWN = object()
Named = Iterator[tuple[str, object, int]]

_SECTION = "|".join(SECTIONS)
_BLOCK = re.compile(rf"^([ \t]*)({_SECTION}):[ \t]*\n((?:\1[ \t]+.*(?:\n|$))+)", re.M)
_INLINE = re.compile(rf"[\"']?\b({_SECTION})[\"']?[ \t]*[:=][ \t]*\{{([^{{}}]*)\}}")
_TABLE = re.compile(rf"^\[({_SECTION})\][ \t]*\n((?:[^\[\n].*(?:\n|$))+)", re.M)
_FIELD = re.compile(r"(?:^|,)[ \t]*[\"']?(\w+)[\"']?[ \t]*[:=][ \t]*([^,\n]*)", re.M)
_SET = re.compile(rf"\b((?:{_SECTION})\.\w+)=(\S+)|\bconfig set ((?:{_SECTION})\.\w+) (\S+)")
_VARIABLE = re.compile(r"\b(WHET_[A-Z_]+)=(\S+)")
_OPTION = re.compile(rf"({'|'.join(_OPTIONS)})[= ](\S+)")


@functools.cache
def parse(path: Path) -> ast.Module:
    """Return the syntax tree of a file, read once."""
    return ast.parse(path.read_text("utf-8"))


def is_default(name: str, value: object) -> bool:
    """Return whether a value of the source, or its text, is the setting's default."""
    if value is UNKNOWN:
        return False
    section, _, field = name.partition(".")
    default = SECTIONS[section][field]
    if isinstance(default, bool):
        return str(value).lower() in (("true", "on", "1") if default else ("false", "off", "0"))
    if isinstance(default, (int, float)):
        try:
            return float(str(value)) == default
        except ValueError:
            return False
    if isinstance(default, tuple):
        return isinstance(value, list | tuple) and (*cast("Sequence[object]", value),) == default
    return str(value) == str(default)


def named_settings(path: Path) -> Named:
    """Yield each setting that a module names, its value (UNKNOWN if computed), and its line."""
    tree = parse(path)
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    inside = {id(part) for text in texts for part in text.values}
    classes = _read_classes(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from _of_call(node, classes)
            yield from _of_sequence(node.args)
        elif isinstance(node, ast.Dict):
            yield from _of_dict(node)
        elif isinstance(node, ast.List | ast.Tuple):
            yield from _of_sequence(node.elts)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _of_target(target, node.value)
                if isinstance(target, ast.Attribute) and target.attr.isupper():
                    yield from _of_constant(target.value, target.attr)
        elif isinstance(node, ast.JoinedStr | ast.Constant) and id(node) not in inside:
            yield from _of_text(_text_of(node), node.lineno)


def _read_classes(tree: ast.Module) -> Mapping[str, str]:
    """Return the section of each settings class by the name that it has in this module."""
    renamed = {
        alias.asname: _SECTION_OF[alias.name]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname and alias.name in _SECTION_OF
    }
    return _SECTION_OF | renamed


def _of_call(node: ast.Call, classes: Mapping[str, str]) -> Named:
    """Yield what `ReviewSettings(share=1)` and `replace(settings.review, share=1)` set, and what a keyword
    does: `WHET_REVIEW_SHARE="1"`, `review={"share": 1}`.
    """
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    section = classes.get(called, "")
    first = node.args[0] if node.args else None
    if section:
        fields = list(inspect.signature(sections()[section]).parameters)
        for field, argument in zip(fields, node.args, strict=False):
            yield from _one(f"{section}.{field}", argument, node.lineno)
    elif called == "replace" and isinstance(first, ast.Attribute) and first.attr in SECTIONS:
        section = first.attr
    elif (
        called == "join" and isinstance(first, ast.List | ast.Tuple) and isinstance(node.func, ast.Attribute)
    ):
        yield from _of_text(_text_of(node.func.value).join(map(_text_of, first.elts)), node.lineno)
    elif called == "setattr" and len(node.args) > 1 and (name := _text_of(node.args[1])).isupper():
        yield from _of_constant(node.args[0], name)
    for keyword in node.keywords:
        name, value = keyword.arg or "", keyword.value
        if isinstance(value, ast.Attribute) and value.attr == name:
            continue  # the setting itself, handed on
        if section and name in SECTIONS[section]:
            yield f"{section}.{name}", _value(value), node.lineno
        elif owner := _SECTION_OF_FIELD.get(name):
            yield f"{owner}.{name}", _value(value), node.lineno
        else:
            yield from _one(name, value, node.lineno)


def _of_dict(node: ast.Dict) -> Named:
    """Yield what `{"review.share": 1}`, `{"review": {"share": 1}}` and `{"WHET_REVIEW_SHARE": "1"}` set."""
    for key, value in zip(node.keys, node.values, strict=True):
        if isinstance(key, ast.Constant):
            yield from _one(str(key.value), value, key.lineno)


def _of_target(target: ast.expr, value: ast.expr) -> Named:
    """Yield what `config["review"]["share"] = 1`, `settings.review.share = 1` and an assignment to an
    environment variable set.
    """
    parts: list[str] = []
    node = target
    while isinstance(node, ast.Subscript | ast.Attribute):
        part = node.attr if isinstance(node, ast.Attribute) else getattr(node.slice, "value", "")
        parts.insert(0, str(part))
        node = node.value
    if parts:
        yield from _one(parts[-1], value, target.lineno)
        yield from _one(".".join(parts[-2:]), value, target.lineno)


def _of_constant(owner: ast.expr, name: str) -> Named:
    """Yield a constant of another module that is replaced: `budget.FREE_TOKENS = 1`."""
    module = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
    if module not in ("self", "cls"):
        yield f"{module}.{name}", UNKNOWN, owner.lineno


def _of_sequence(items: Sequence[ast.expr]) -> Named:
    """Yield what the words of a command set: `"config", "set", "review.share", "1"`, `"--approvals", "auto"`,
    and the name and value of a variable.
    """
    for item, following in pairwise(items):
        if isinstance(item, ast.Constant) and isinstance(item.value, str):
            yield from _one(_OPTIONS.get(item.value, item.value), following, item.lineno)
    words = {item.value for item in items if isinstance(item, ast.Constant) and isinstance(item.value, str)}
    if "--yes" in words and words & {"chat", "goal", "run"}:
        yield "approval.mode", "auto", items[0].lineno


def _one(name: str, value: ast.expr, line: int) -> Named:
    """Yield the setting of a dotted name or a variable; of a section's name, the fields of its value."""
    section, _, field = name.partition(".")
    if field in SECTIONS.get(section, ()):
        yield name, _value(value), line
    elif variable := _of_variable(name):
        yield variable, _value(value), line
    elif section in SECTIONS and not field:
        if isinstance(value, ast.Dict):
            for inner, content in zip(value.keys, value.values, strict=True):
                if isinstance(inner, ast.Constant) and inner.value in SECTIONS[section]:
                    yield f"{section}.{inner.value}", _value(content), inner.lineno
        elif isinstance(value, ast.Call) and getattr(value.func, "id", "") == "dict":
            for keyword in value.keywords:
                if keyword.arg in SECTIONS[section]:
                    yield f"{section}.{keyword.arg}", _value(keyword.value), line


def _of_text(text: str, line: int) -> Named:
    """Yield what a text sets: a configuration in YAML, JSON or TOML, or a command line.

    A computed part of the text, "\\0", has an unknown value.
    """
    blocks = [(match[2], match[3]) for match in _BLOCK.finditer(text)]
    blocks += [(match[1], match[2]) for pattern in (_INLINE, _TABLE) for match in pattern.finditer(text)]
    settings = [
        (f"{section}.{field}", value) for section, body in blocks for field, value in _FIELD.findall(body)
    ]
    for match in _SET.finditer(text):
        settings.append((match[1] or match[3], match[2] or match[4]))
    settings += [(_of_variable(name), value) for name, value in _VARIABLE.findall(text)]
    settings += [(_OPTIONS[option], value) for option, value in _OPTION.findall(text)]
    if re.search(r"\bwhet (?:chat|goal|run)\b.* --yes\b", text):
        settings.append(("approval.mode", "auto"))
    for name, value in settings:
        section, _, field = name.partition(".")
        plain = value.strip().strip("'\"")
        if field in SECTIONS.get(section, ()):
            yield name, UNKNOWN if "\0" in value or not plain else plain, line


def _text_of(node: ast.expr) -> str:
    """Return the text of a string, with "\\0" for each computed part."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return "".join(
        part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else "\0"
        for part in parts
    )


def _of_variable(name: str) -> str:
    section, _, field = name.removeprefix("WHET_").lower().partition("_")
    is_setting = name.startswith("WHET_") and field in SECTIONS.get(section, ())
    return f"{section}.{field}" if is_setting else ""


def _value(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return UNKNOWN
