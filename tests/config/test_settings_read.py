"""Every setting is read by the program: as an attribute of a value that holds its section."""

from __future__ import annotations

import ast
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

import whet
from whet.config import permission_settings, schema
from whet.config.permission_settings import HookSettings, LanguageServerSettings, McpServerSettings
from whet.config.schema import Settings

pytestmark = pytest.mark.slow

SOURCE = Path(whet.__file__).parent
SCHEMAS = [Path(str(module.__file__)) for module in (permission_settings, schema)]
SECTIONS: dict[str, str] = {field.type.__name__: field.name for field in msgspec.structs.fields(Settings)}
ENTRIES = {struct.__name__: "" for struct in (McpServerSettings, LanguageServerSettings, HookSettings)}


class Names(NamedTuple):
    """The names of a module: (name, annotation), (target, source) of assignments, (owner, attribute) of reads
    and (name, annotation) of classes' fields.

    Two texts side by side count as a read: `load("plugins", "entries")`.
    """

    module: str
    text: str
    annotations: list[tuple[str, str]]
    assignments: list[tuple[str, str]]
    reads: set[tuple[str, str]]
    fields: list[tuple[str, str]]

    def holders(self, struct: str, section: str) -> set[str]:
        """Return the names that hold a section: its own, or by an annotation, a class or an assignment."""
        holders = {section, *(name for name, annotation in self.annotations if struct in annotation)} - {""}
        holders |= {name for module, name in fields_that_hold(struct) if module in self.text}
        while more := {target for target, source in self.assignments if source in holders} - holders:
            holders |= more
        return holders


def last_name(node: ast.expr | None) -> str:
    """Return the last name of `a.b.c`, of `a.b.c()` or of `await a.b.c()`."""
    while isinstance(node, ast.Await | ast.Call):
        node = node.value if isinstance(node, ast.Await) else node.func
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def pairs_of(target: ast.expr, value: ast.expr) -> list[tuple[str, str]]:
    """Return the (target, source) names of an assignment, also of a tuple to a tuple, and of a loop."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        return [(last_name(a), last_name(b)) for a, b in zip(target.elts, value.elts, strict=False)]
    method = value.func if isinstance(value, ast.Call) else None
    if isinstance(method, ast.Attribute) and method.attr in ("items", "values"):
        name = target.elts[-1] if isinstance(target, ast.Tuple) else target
        return [(last_name(name), last_name(method.value))]
    return [(last_name(target), last_name(value))]


def names_of(path: Path) -> Names:
    text = path.read_text("utf-8")
    module = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
    names = Names(module, text, [], [], set(), [])
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.arg) and node.annotation is not None:
            names.annotations.append((node.arg, ast.unparse(node.annotation)))
        elif isinstance(node, ast.AnnAssign):
            names.annotations.append((last_name(node.target), ast.unparse(node.annotation)))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            names.annotations.append((node.name, ast.unparse(node.returns)))
        elif isinstance(node, ast.Assign):
            names.assignments.extend(pairs_of(node.targets[0], node.value))
        elif isinstance(node, ast.For | ast.comprehension):
            names.assignments.extend(pairs_of(node.target, node.iter))
        elif isinstance(node, ast.ClassDef):
            names.fields.extend(
                (last_name(item.target), ast.unparse(item.annotation))
                for item in node.body
                if isinstance(item, ast.AnnAssign)
            )
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            names.reads.add((last_name(node.value), node.attr))
        elif isinstance(node, ast.Call | ast.Tuple):
            parts = node.args if isinstance(node, ast.Call) else node.elts
            texts = [part.value if isinstance(part, ast.Constant) else "" for part in parts]
            names.reads.update((str(owner), str(field)) for owner, field in pairwise(texts))
    return names


@cache
def fields_that_hold(struct: str) -> set[tuple[str, str]]:
    """Return the (module, field) pairs of classes that have the section in a field."""
    fields = ((names.module, *field) for names in modules() for field in names.fields)
    return {(module, name) for module, name, annotation in fields if struct in annotation}


@cache
def modules() -> list[Names]:
    """Return the names of every module but those of the schema."""
    return [names_of(path) for path in sorted(SOURCE.rglob("*.py")) if path not in SCHEMAS]


def schema_text() -> str:
    return "\n".join(path.read_text("utf-8") for path in SCHEMAS)


def unread(text: str) -> set[str]:
    """Return the settings of a schema that no module of the source reads, as Section.field."""
    fields = {
        (node.name, item.target.id)
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef) and node.name != "Settings"
        for item in node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }
    for names in modules():
        for struct, section in (SECTIONS | ENTRIES).items():
            holders = names.holders(struct, section)
            fields -= {(struct, name) for holder, name in names.reads if holder in holders}
    return {f"{struct}.{name}" for struct, name in fields}


def test_every_setting_is_read() -> None:
    assert unread(schema_text()) == set()


PLANTED = """
class AgentSettings(msgspec.Struct):
    max_steps: int = 90
    planted: int = 0

class WarmSettings(msgspec.Struct):
    default: str = ""
    flood_per_minute: int = 0
"""


def test_a_setting_that_only_another_section_reads_counts_as_unread() -> None:
    assert unread(PLANTED) == {"AgentSettings.planted", "WarmSettings.flood_per_minute"}


def test_a_field_more_in_the_schema_is_noticed() -> None:
    text = schema_text()
    planted = text.replace(
        "    max_steps: Count = 90\n", "    max_steps: Count = 90\n    max_words: Count = 90\n"
    )
    assert planted != text and unread(planted) - unread(text) == {"AgentSettings.max_words"}
