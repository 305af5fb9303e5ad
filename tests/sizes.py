"""Fail when a module or function outgrows its limit, or a folder loses its one-line description.

Run by `make check`. Limits: module 500 lines, function 60, `agent/loop.py` 150; no exceptions list.
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
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > 60:
                    offences.append(f"{name}:{node.lineno} {node.name}: {length} lines, limit 60")
        layers[name.parts[0]] = layers.get(name.parts[0], 0) + 1
    print("modules:", sum(layers.values()), " ".join(f"{k}={v}" for k, v in sorted(layers.items())))
    for offence in offences:
        print(offence)
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
