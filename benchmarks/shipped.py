"""Compare the settings that a benchmark runs with against the defaults.

A benchmark's figure holds for a user only if it ran with the settings that ship. `changed_settings` reads the
source of a benchmark and of the modules that it brings (other benchmarks, tests, evaluations), and returns
each setting that they set to something else. `check` refuses to run one that `DIFFERS` does not name.
RESULTS.md prints the declared text beside the figure.
"""

from __future__ import annotations

import ast
import functools
import inspect
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.measure import ROOT
from whet.config import schema
from whet.config.schema import Settings
from whet_lab import evals

# Every model here is the practice model; the page says so in its head.
_STAND_IN = frozenset({"provider", "model", "base_url", "format", "api_key_env"})
_DEFAULTS = Settings()
_SECTIONS: dict[str, Any] = {
    section: {
        name: value
        for name, value in msgspec.structs.asdict(getattr(_DEFAULTS, section)).items()
        if section != "model" or name not in _STAND_IN
    }
    for section in Settings.__struct_fields__
}
_SECTION_OF = {type(getattr(_DEFAULTS, section)).__name__: section for section in _SECTIONS}
# A field that only one section has, in two words or more: a keyword of this name sets it, whoever is called.
_FIELDS = [field for fields in _SECTIONS.values() for field in fields if "_" in field]
_SECTION_OF_FIELD = {
    field: section for section, fields in _SECTIONS.items() for field in fields if _FIELDS.count(field) == 1
}
_EVALS = evals.__name__
_OWN = ("whet", "whet_confirm", "whet_lab")
_UNKNOWN = object()
_CONFIG = re.compile(r"^(\w+):[ \t]*\n((?:[ \t]+.*(?:\n|$))+)", re.M)
_MODULE = re.compile(r"\w+(?:\.\w+)*")
_NAME = re.compile(r"`(\w+\.\w+)`")


class SettingsDiffer(Exception):
    """A benchmark sets something that its declaration does not name, or the other way round."""


def check(benchmark: str, modules: tuple[str, ...], declared: str, root: Path = ROOT) -> None:
    """Refuse a benchmark whose changed settings are not the ones that `declared` names in backquotes.

    `modules` are the benchmark's own and those that it runs as a command. Raises SettingsDiffer.
    """
    changed = set(changed_settings(modules, root))
    named = {name for name in _NAME.findall(declared) if name.split(".")[0] in _SECTIONS}
    if unsaid := sorted(changed - named):
        raise SettingsDiffer(
            f"{benchmark} does not run the shipped settings: {', '.join(unsaid)}. Set none of them, or name "
            "each in DIFFERS in benchmarks/declared.py, which RESULTS.md prints beside the figure."
        )
    if unset := sorted(named - changed):
        raise SettingsDiffer(f"{benchmark} runs with the shipped {', '.join(unset)}: take it out of DIFFERS.")


def changed_settings(modules: tuple[str, ...], root: Path = ROOT) -> dict[str, str]:
    """Return each setting that a benchmark's modules set, by name, with where; defaults are left out."""
    changed: dict[str, str] = {}
    for path in sorted(find_modules(modules, root, is_whole=False)):
        for name, value, line in _settings_of(path):
            section, _, setting = name.partition(".")
            if value is _UNKNOWN or not _is_default(_SECTIONS[section][setting], value):
                changed.setdefault(name, f"{path.relative_to(root).as_posix()}:{line}")
    return changed


def find_modules(modules: tuple[str, ...], root: Path = ROOT, *, is_whole: bool = True) -> set[Path]:
    """Return the files of these modules and of all that they import from this project, at any place.

    Without `is_whole` the program's own modules are left out, except for its evaluations.
    """
    paths: set[Path] = set()
    waiting = list(modules)
    starts = [path for module in modules if (path := _file_of(module, root)) is not None]
    direct = {name for path in starts for name in _imports_of(path, root)}
    while waiting:
        module = waiting.pop()
        if not is_whole and module.startswith("whet") and not module.startswith(_EVALS):
            continue
        path = _file_of(module, root)
        if path is not None and not is_whole and "test_" in path.name and module not in direct:
            continue  # a test's other tests have settings of their own
        if path is not None and path not in paths:
            paths.add(path)
            waiting += _imports_of(path, root)
    return paths


def _file_of(module: str, root: Path) -> Path | None:
    base = root / "src" if module.split(".")[0] in _OWN else root
    path = base / module.replace(".", "/")
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if os.path.isfile(file):  # False for a string that is too long for a name
            return file
    return None


@functools.cache
def _imports_of(path: Path, root: Path) -> tuple[str, ...]:
    names: list[str] = []
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # A script that the benchmark starts as a process of its own.
            names.append(node.value if "." in node.value else f"benchmarks.loops.{node.value}")
            names.append(f"benchmarks.loops.{node.value.removesuffix('.py')}")
    roots = (*_OWN, "benchmarks", "tests")
    return tuple(name for name in names if name.split(".")[0] in roots and _MODULE.fullmatch(name))


@functools.cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def _settings_of(path: Path) -> Iterator[tuple[str, object, int]]:
    """Yield each setting that a module names, its value (_UNKNOWN if computed), and its line."""
    tree = _tree(path)
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from _of_call(node)
        elif isinstance(node, ast.Dict):
            yield from _of_dict(node)
        elif isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and id(node) not in inside):
            yield from _of_text(node)


def _of_call(node: ast.Call) -> Iterator[tuple[str, object, int]]:
    """Yield what `ReviewSettings(share=1)` sets, and what a keyword does: `WHET_REVIEW_SHARE="1"`."""
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    section = _SECTION_OF.get(called, "")
    if section:
        fields = list(inspect.signature(getattr(schema, called)).parameters)
        for field, argument in zip(fields, node.args, strict=False):
            if field in _SECTIONS[section]:
                yield f"{section}.{field}", _value(argument), node.lineno
    for keyword in node.keywords:
        if isinstance(keyword.value, ast.Attribute) and keyword.value.attr == keyword.arg:
            continue  # the setting itself, handed on
        if section and keyword.arg in _SECTIONS[section]:
            yield f"{section}.{keyword.arg}", _value(keyword.value), node.lineno
        elif owner := _SECTION_OF_FIELD.get(keyword.arg or ""):
            yield f"{owner}.{keyword.arg}", _value(keyword.value), node.lineno
        elif name := _of_variable(keyword.arg or ""):
            yield name, _value(keyword.value), node.lineno


def _of_dict(node: ast.Dict) -> Iterator[tuple[str, object, int]]:
    """Yield what `{"review.share": 1}`, `{"review": {"share": 1}}` and `{"WHET_REVIEW_SHARE": "1"}` set."""
    for key, value in zip(node.keys, node.values, strict=True):
        if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
            continue
        name = key.value
        section, _, field = name.partition(".")
        if field in _SECTIONS.get(section, ()):
            yield name, _value(value), key.lineno
        elif variable := _of_variable(name):
            yield variable, _value(value), key.lineno
        elif section in _SECTIONS and isinstance(value, ast.Dict):
            for inner, content in zip(value.keys, value.values, strict=True):
                if isinstance(inner, ast.Constant) and inner.value in _SECTIONS[section]:
                    yield f"{section}.{inner.value}", _value(content), inner.lineno


def _of_text(node: ast.JoinedStr | ast.Constant) -> Iterator[tuple[str, object, int]]:
    """Yield what the text of a config.yaml sets; a computed part of it has an unknown value."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    text = "".join(
        part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else "\0"
        for part in parts
    )
    for header in _CONFIG.finditer(text):
        section = header[1]
        for field, value in re.findall(r"^[ \t]+(\w+):[ \t]*(.*)$", header[2], re.M):
            if field in _SECTIONS.get(section, ()):
                is_open = "\0" in value or not value
                yield f"{section}.{field}", _UNKNOWN if is_open else value.strip("'\""), node.lineno


def _of_variable(name: str) -> str:
    section, _, field = name.removeprefix("WHET_").lower().partition("_")
    is_setting = name.startswith("WHET_") and field in _SECTIONS.get(section, ())
    return f"{section}.{field}" if is_setting else ""


def _value(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return _UNKNOWN


def _is_default(default: object, value: object) -> bool:
    """Return whether a value of the source, or its text, is the default."""
    if isinstance(default, bool):
        return str(value).lower() in (("true", "on", "1") if default else ("false", "off", "0"))
    if isinstance(default, (int, float)):
        try:
            return float(str(value)) == default
        except ValueError:
            return False
    if isinstance(default, tuple):
        return isinstance(value, (list, tuple)) and tuple(value) == default
    return str(value) == str(default)
