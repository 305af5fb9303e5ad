"""Fail when a module, class or function outgrows its limit, or a public class name stands for two classes.

Run by `make check`. Limits: module 500 lines, `agent/loop.py` 150, class 250 lines and 15 public methods,
function 60 lines; no exceptions list. Classes and functions are measured without their docstrings, so that
no limit makes a docstring shorter than it should be. A file of tests has 500 lines at most, too.
"""

import ast
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "whet"
FORBIDDEN = {"utils", "common", "manager", "helpers", "misc"}


def main() -> int:
    """Print each offence and a count of modules per layer."""
    offences: list[str] = []
    layers: dict[str, int] = {}
    classes: dict[str, str] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE)
        text = path.read_text("utf-8")
        lines = text.count("\n")
        limit = 150 if str(name) == "agent/loop.py" else 500
        if lines > limit:
            offences.append(f"{name}: {lines} lines, limit {limit}")
        if path.stem in FORBIDDEN:
            offences.append(f"{name}: a name that says nothing")
        tree = ast.parse(text)
        if not ast.get_docstring(tree):
            offences.append(f"{name}: no module docstring")
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = _count_code_lines(node)
                if length > 60:
                    offences.append(f"{name}:{node.lineno} {node.name}: {length} lines, limit 60")
            elif isinstance(node, ast.ClassDef):
                offences += [f"{name}:{node.lineno} {node.name}: {what}" for what in _too_large(node)]
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                other = classes.setdefault(node.name, str(name))
                if other != str(name):
                    offences.append(f"{name}:{node.lineno} {node.name} is a class in {other} already")
        layers[name.parts[0]] = layers.get(name.parts[0], 0) + 1
    for path in sorted(Path(__file__).parent.rglob("test_*.py")):
        lines = path.read_text("utf-8").count("\n")
        if lines > 500:
            offences.append(f"{path.relative_to(SOURCE.parents[1])}: {lines} lines, limit 500")
    print("modules:", sum(layers.values()), " ".join(f"{k}={v}" for k, v in sorted(layers.items())))
    for offence in offences:
        print(offence)
    return 1 if offences else 0


def _too_large(node: ast.ClassDef) -> list[str]:
    """Say which limits of a class this one passes."""
    lines = _count_code_lines(node)
    functions = [item for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)]
    public = sum(not function.name.startswith("_") for function in functions)
    found = [f"{lines} lines, limit 250"] if lines > 250 else []
    return found + ([f"{public} public methods, limit 15"] if public > 15 else [])


def _count_code_lines(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the number of lines of a class or function without the docstrings in it."""
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    definitions = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for inner in ast.walk(node):
        if isinstance(inner, definitions) and ast.get_docstring(inner):
            docstring = inner.body[0]
            lines -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    return lines


if __name__ == "__main__":
    sys.exit(main())
