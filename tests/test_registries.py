"""What a module knows does not depend on which other modules were imported before."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import whet

SOURCE = Path(whet.__file__).parent
PACKAGES = ("whet", "whet_confirm", "whet_lab")
SCRIPTS = ("whet.__main__", "whet.sandbox.launcher")  # they begin their work when they are imported
ADDS = ("append", "add", "setdefault", "update", "extend", "insert")
# Functions that store what they return, by their argument: a second call returns the same.
CACHES = {"shared_decoder"}


def _containers(tree: ast.Module) -> set[str]:
    """Return the names of a module's own dicts, lists and sets."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            text = ast.unparse(node.value).partition("(")[0].partition("[")[0]
            is_container = isinstance(node.value, ast.Dict | ast.List | ast.Set)
            if is_container or text in ("dict", "list", "set", "defaultdict"):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names.update(target.id for target in targets if isinstance(target, ast.Name))
    return names


def _filled(function: ast.AST) -> Iterator[str]:
    """Yield the names of the containers that a function adds to."""
    for node in ast.walk(function):
        target: ast.AST | None = None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ADDS:
            target = node.func.value
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            target = node.value
        if isinstance(target, ast.Name):
            yield target.id


def _calls_at_import(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the functions that run at import, decorators included, each with the source of its call."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            parts: list[ast.AST] = list(node.decorator_list)
            for part in parts:
                if not isinstance(part, ast.Call):
                    yield ast.unparse(part), f"@{ast.unparse(part)}"
        else:
            parts = [node]
        for part in parts:
            for call in ast.walk(part):
                if isinstance(call, ast.Call):
                    yield ast.unparse(call.func), ast.unparse(call)


def filled_by_imports(source: Path) -> list[str]:
    """Return the calls at import that add to another module's container."""
    trees = {path: ast.parse(path.read_text("utf-8")) for path in sorted(source.rglob("*.py"))}
    fillers: dict[str, Path] = {}
    for path, tree in trees.items():
        containers = _containers(tree)
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and containers.intersection(_filled(node)):
                fillers[node.name] = path
    return [
        f"{path.relative_to(source).as_posix()}: {text}"
        for path, tree in trees.items()
        for function, text in _calls_at_import(tree)
        if (name := function.rpartition(".")[2]) in fillers and name not in CACHES and fillers[name] != path
    ]


@pytest.mark.slow
def test_no_import_fills_another_modules_registry() -> None:
    assert [filled_by_imports(SOURCE.parent / package) for package in PACKAGES] == [[], [], []], (
        "put the rows into one table that every reader imports"
    )


def grown(source: Path, *words: str) -> list[str]:
    """Return the names of containers that grow after their own module is ready, from a process of its own."""
    script = Path(__file__).with_name("registries.py")
    command = [sys.executable, str(script), str(source), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [line.partition(":")[0] for line in done.stdout.splitlines() if line]


@pytest.mark.slow
def test_nothing_grows_when_the_other_modules_are_imported() -> None:
    assert grown(SOURCE.parent, ",".join(PACKAGES), *SCRIPTS) == ["whet.contract.texts._decoders"], (
        "which is a cache"
    )


FILLED = """
import functools
import click
TAGS, ROWS = {"none": 0}, []
class Registry:
    def __init__(self): self.items = []
    def register(self, item): self.items.append(item)
TOOLS = Registry()
class Tool:
    kinds = []
    def __init_subclass__(cls): Tool.kinds.append(cls)
group = click.Group("x")
handler = None
def register(name): register.known[name] = 1
register.known = {}
@functools.singledispatch
def render(value): ...
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("table.TAGS['read'] = 1", "TAGS"),
        ("table.ROWS += [1]", "ROWS"),
        ("table.TOOLS.register(1)", "TOOLS"),
        ("class Read(table.Tool): ...", "Tool.kinds"),
        ("table.group.command('y')(lambda: None)", "group"),
        ("table.TAGS['none'] = 1", "TAGS"),
        ("table.handler = len", "handler"),
        ("table.register('x')", "register"),
        ("table.render.register(int)(len)", "render"),
        ("table.late = len", "late"),
        ("x = len(table.TAGS)", ""),
    ],
)
def test_a_container_that_another_import_fills_is_found(tmp_path: Path, line: str, name: str) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "__init__.py").touch()
    (tmp_path / "one" / "table.py").write_text(FILLED)
    (tmp_path / "one" / "late.py").write_text(f"from one import table\n{line}\n")
    assert grown(tmp_path, "one") == ([f"one.table.{name}"] if name else [])


def test_a_registry_that_imports_fill_is_found(tmp_path: Path) -> None:
    (tmp_path / "tags.py").write_text("_TAGS = {}\ndef declare(name, tag):\n    _TAGS[name] = tag\n")
    (tmp_path / "tools.py").write_text("from tags import declare\nREAD = declare('read', 'looks')\n")
    (tmp_path / "late.py").write_text("from tags import declare\ndef later():\n    declare('x', 'y')\n")
    assert filled_by_imports(tmp_path) == ["tools.py: declare('read', 'looks')"]


def test_a_decorator_that_fills_a_registry_is_found(tmp_path: Path) -> None:
    text = "_COMMANDS = []\ndef command(work):\n    _COMMANDS.append(work)\n    return work\n"
    (tmp_path / "table.py").write_text(text)
    (tmp_path / "one.py").write_text("import table\n@table.command\ndef one(): ...\n")
    (tmp_path / "two.py").write_text("import table\n@table.command()\ndef two(): ...\n")
    assert filled_by_imports(tmp_path) == ["one.py: @table.command", "two.py: table.command()"]
