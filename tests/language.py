"""Fail if names and prose of the source fall back into a private dialect.

Run by `make check`. Three measures over `src`: the share of assignments to an anonymous word, the share of
functions whose name is a participle, and odd constructions per 10,000 words of docstrings and comments. The
words are examples of habits, measured to see a trend; prose that avoids them is not yet good prose. A fourth
check finds docstrings that name, in backticks, a field or function that no longer exists.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
MAX_ANONYMOUS_PERCENT = 1.0
MAX_PARTICIPLE_PERCENT = 4.0
MAX_ODD_PER_10_000 = 30.0
_ANONYMOUS = """
found one told said made given here asked kept known about rest waiting place places own named whole seen
shown held back came left taken once what whose who wanted meant heard read
"""
ANONYMOUS = frozenset(_ANONYMOUS.split())
PARTICIPLES = ("told", "said", "made", "held", "kept", "meant", "found", "known", "shown", "put")
_BARE = r"(?:is|was|are|were|a|an|the|it|they|of|no|has|had|can|came|comes|stands?|can't|may|others?|people)"
ODD = re.compile(
    rf"\b[Gg]ives?\b|\b[Ww]hat(?:ever)?\s+{_BARE}\b|\b[Ww]hat(?:ever)?\s+(?:no|some)body\b"
    r"|\bwhere (?:there|it|that|one|nobody|somebody|nothing|none|they|this|no|all|a|the|an)\b"
    r"|\bstands?\b|\btold\b|\btells?\b|\b(?:some|no)body(?:'s)?\b|\bfor none\b|\bis none\b"
)
WORD = re.compile(r"[A-Za-z']+")
QUOTED_NAME = re.compile(r"`([a-z]+_[a-z0-9_]+)`")


def main() -> int:
    """Print figures and stale names; return 1 if a figure passes its limit or a name is stale."""
    names: set[str] = set()
    quoted_names: list[tuple[str, str]] = []
    assignments = anonymous = functions = participles = words = odd = 0
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text("utf-8")
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                assignments += 1
                anonymous += node.id in ANONYMOUS
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions += 1
                participles += _is_participle(node.name)
        names |= _find_names(tree)
        names.add(path.stem)
        quoted_names += _find_quoted_names(tree, path)
        for prose in _read_prose(text, tree):
            words += len(WORD.findall(prose))
            odd += len(ODD.findall(prose))
    figures = (
        ("% of assignments go to an anonymous word", 100 * anonymous / assignments, MAX_ANONYMOUS_PERCENT),
        ("% of functions are named by a participle", 100 * participles / functions, MAX_PARTICIPLE_PERCENT),
        ("odd constructions per 10,000 words of prose", 1e4 * odd / words, MAX_ODD_PER_10_000),
    )
    for text, figure, limit in figures:
        print(f"{figure:.2f} {text}, limit {limit:g}")
    stale_names = [f"{place} `{name}`" for name, place in quoted_names if name not in names]
    for line in stale_names:
        print(f"{line}: no such name in the source")
    return int(bool(stale_names) or any(figure > limit for _, figure, limit in figures))


def _is_participle(name: str) -> bool:
    words = name.lstrip("_").split("_")
    return words[-1].endswith(("ed", "en")) or words[0] in PARTICIPLES


def _find_quoted_names(tree: ast.AST, path: Path) -> Iterator[tuple[str, str]]:
    """Yield the names of several words that docstrings of classes and functions have in backticks, with the
    line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for name in QUOTED_NAME.findall(ast.get_docstring(node) or ""):
                yield name, f"{path.relative_to(SOURCE)}:{node.lineno}"


def _find_names(tree: ast.AST) -> set[str]:
    """Return the names that a module defines or uses, and the words of its strings, except for docstrings."""
    names: set[str] = set()
    docstrings: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            docstrings.add(id(node.value))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            names.update(re.findall(r"\w+", node.value))
        else:
            names.update(
                value
                for field in ("id", "attr", "arg", "name", "asname")
                if isinstance(value := getattr(node, field, None), str)
            )
    return names


def _read_prose(text: str, tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


if __name__ == "__main__":
    sys.exit(main())
