"""Which containers of a package's modules hold more once all its modules are imported than when their own
module was ready. `python tests/registries.py SOURCE PACKAGE` prints one line for each.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

_DEPTH = 4


def count_items(value: object, depth: int = _DEPTH) -> int:
    """Return how many items a value holds, in containers and in the attributes of objects."""
    if depth == 0 or isinstance(value, str | bytes | ModuleType):
        return 0
    if isinstance(value, dict):
        return sum(1 + count_items(item, depth - 1) for item in [*value.values()])
    if isinstance(value, list | set | tuple | frozenset):
        return sum(1 + count_items(item, depth - 1) for item in [*value])
    fields = getattr(value, "__dict__", None)
    is_ours = isinstance(fields, dict) and not callable(value)
    return count_items(fields, depth - 1) if is_ours else 0


def read_counts(module: ModuleType) -> dict[str, int]:
    """Return the counts of a module's own names, and of the names of its classes."""
    counts: dict[str, int] = {}
    for name, value in [*vars(module).items()]:
        if isinstance(value, type):
            own = vars(value).items() if value.__module__ == module.__name__ else ()
            counts |= {f"{name}.{key}": count_items(item) for key, item in own if not key.startswith("__")}
        elif not name.startswith("__"):
            # a click.Group can be called, but it also holds its commands
            counts[name] = count_items(value) + count_items(getattr(value, "commands", None))
    return counts


def find_filled(source: Path, package: str, left_out: tuple[str, ...] = ()) -> list[str]:
    """Import every module of the package; return the names that grew after their own module was ready."""
    ready: dict[str, dict[str, int]] = {}
    run = SourceFileLoader.exec_module

    def run_and_count(self: Any, module: ModuleType) -> None:
        run(self, module)
        if module.__name__.partition(".")[0] == package:
            ready[module.__name__] = read_counts(module)

    SourceFileLoader.exec_module = run_and_count  # type: ignore[method-assign]
    sys.path.insert(0, str(source))
    for path in sorted((source / package).rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name not in left_out:
            importlib.import_module(name)
    return [
        f"{name}.{key}: {count} items, {now.get(key, count)} after other imports"
        for name, counts in sorted(ready.items())
        for now in [read_counts(sys.modules[name])]
        for key, count in counts.items()
        if now.get(key, count) > count
    ]


if __name__ == "__main__":
    print("\n".join(find_filled(Path(sys.argv[1]), sys.argv[2], tuple(sys.argv[3:]))))
