"""Compare the settings that a benchmark runs with against the defaults.

A benchmark's figure holds for a user only if it ran with the settings that ship. `changed_settings` reads the
source of a benchmark and of the modules that it brings (other benchmarks, tests, evaluations), and returns
each setting that they set to something else. `check` refuses to run one that `DIFFERS` does not name.
RESULTS.md prints the declared text beside the figure.
"""

from __future__ import annotations

import ast
import functools
import os
import re
from contextlib import suppress
from pathlib import Path

from benchmarks.measure import ROOT
from benchmarks.named_settings import SECTIONS, is_default, named_settings, parse
from whet_lab import evals

_EVALS = evals.__name__
_OWN = ("whet", "whet_confirm", "whet_lab")
_MODULE = re.compile(r"\w+(?:\.\w+)*")
_NAME = re.compile(r"`(\w+\.\w+)`")
_RUN_MODULE = re.compile(r"-m (\w+(?:\.\w+)+)")


class SettingsDiffer(Exception):
    """A benchmark sets something that its declaration does not name, or the other way round."""


def check(benchmark: str, modules: tuple[str, ...], declared: str, root: Path = ROOT) -> None:
    """Refuse a benchmark whose changed settings are not the ones that `declared` names in backquotes.

    `modules` are the benchmark's own and those that it runs as a command. Raises SettingsDiffer.
    """
    changed = set(changed_settings(modules, root))
    names = _NAME.findall(declared)
    named = {name for name in names if name.split(".")[0] in SECTIONS or name.split(".")[1].isupper()}
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
        for name, value, line in named_settings(path):
            if not is_default(name, value):
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


@functools.cache
def _file_of(module: str, root: Path) -> Path | None:
    base = root / "src" if module.split(".")[0] in _OWN else root
    path = base / module.replace(".", "/")
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if os.path.isfile(file):  # False for a string that is too long for a name
            return file
    return None


@functools.cache
def _imports_of(path: Path, root: Path) -> tuple[str, ...]:
    roots = (*_OWN, "benchmarks", "tests")
    names = _names_in(parse(path))
    return tuple(name for name in names if name.split(".")[0] in roots and _MODULE.fullmatch(name))


def _names_in(tree: ast.AST) -> list[str]:
    """Return what a program imports and what it may start as a process: a script, a module, or a program that
    is written as a text."""
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
            names.append(text if "." in text else f"benchmarks.loops.{text}")
            names.append(f"benchmarks.loops.{text.removesuffix('.py')}")
            names += _RUN_MODULE.findall(text)
            if "import " in text:
                with suppress(SyntaxError):
                    names += _names_in(ast.parse(text))
    return names
