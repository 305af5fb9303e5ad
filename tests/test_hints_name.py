"""What a person reads names what they have: an installed Whet has no docs/ folder."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src"
PAGES = {page.name for page in (SRC.parent / "docs").glob("*.md")}
_PAGE = re.compile(r"docs/([\w-]+\.md)")


def _docstrings(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield texts that stand alone: docstrings, also those of fields."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value


@pytest.mark.parametrize("package", ["whet", "whet_confirm", "whet_lab"])
def test_no_text_names_a_page_that_an_installation_lacks(package: str) -> None:
    hits: list[str] = []
    for path in sorted((SRC / package).rglob("*.py")):
        source = path.read_text()
        if not _PAGE.search(source):
            continue
        tree = ast.parse(source)
        skipped = {id(node) for node in _docstrings(tree)}
        for node in ast.walk(tree):
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in skipped:
                continue
            if _PAGE.fullmatch(node.value):
                continue  # a source, as in a table, and no line for a person
            names = PAGES.intersection(_PAGE.findall(node.value))
            hits += [f"{path.relative_to(SRC)}:{node.lineno} {name}" for name in sorted(names)]
    assert hits == []
