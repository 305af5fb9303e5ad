"""Which names of packages' modules hold more or other items once all modules are imported than when their own
module was ready. `python tests/registries.py SOURCE PACKAGE,...` prints one line for each.
"""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, cast

_DEPTH = 4


def list_items(value: object, depth: int = _DEPTH) -> list[object]:
    """Return the items that a value holds, in containers and in the attributes of objects."""
    if depth == 0 or isinstance(value, str | bytes | ModuleType):
        return []
    if isinstance(value, dict):
        items: list[object] = [*value.values()]
    elif isinstance(value, list | set | tuple | frozenset):
        items = [*value]
    else:
        fields: Any = getattr(value, "__dict__", None)
        is_ours = isinstance(fields, dict) and not callable(value)
        return list_items(cast("object", fields), depth - 1) if is_ours else []
    return [*items, *(inner for item in items for inner in list_items(item, depth - 1))]


def read_items(module: ModuleType) -> dict[str, list[object]]:
    """Return the values of a module's own names, and of the names of its classes, with the items in them."""
    items: dict[str, list[object]] = {}
    for name, value in [*vars(module).items()]:
        if isinstance(value, type):
            own = vars(value).items() if value.__module__ == module.__name__ else ()
            items |= {f"{name}.{key}": list_items(item) for key, item in own if not key.startswith("__")}
        elif not name.startswith("__") and not isinstance(value, ModuleType):
            items[name] = [value, *list_items(value), *read_registered(value)]
    return items


def read_registered(value: object) -> list[object]:
    """Return what a callable value holds: a click.Group its commands, a function what it registers."""
    held: list[Any] = [getattr(value, name, None) for name in ("commands", "registry")]
    held += [vars(value)] if isinstance(value, FunctionType) else []
    mappings = [cast("Mapping[object, object]", one) for one in held if isinstance(one, Mapping)]
    return [item for mapping in mappings for item in list_items({**mapping})]


def count_added(before: list[object], after: list[object]) -> int:
    """Return how many items of the later list are not, as the same objects, in the earlier one."""
    return (Counter(map(id, after)) - Counter(map(id, before))).total()


def find_filled(source: Path, packages: list[str], left_out: tuple[str, ...] = ()) -> list[str]:
    """Import every module of the packages; return the names that changed after their own module was ready."""
    ready: dict[str, dict[str, list[object]]] = {}
    run = SourceFileLoader.exec_module

    def run_and_count(self: Any, module: ModuleType) -> None:
        run(self, module)
        if module.__name__.partition(".")[0] in packages:
            ready[module.__name__] = read_items(module)

    SourceFileLoader.exec_module = run_and_count  # type: ignore[method-assign]
    sys.path.insert(0, str(source))
    for path in sorted(path for package in packages for path in (source / package).rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name not in left_out:
            importlib.import_module(name)
    return [
        f"{name}.{key}: {added} more or other items after other imports"
        for name, items in sorted(ready.items())
        for key, now in read_items(sys.modules[name]).items()
        if (added := count_added(items.get(key, []), now))
    ]


if __name__ == "__main__":
    print("\n".join(find_filled(Path(sys.argv[1]), sys.argv[2].split(","), tuple(sys.argv[3:]))))
