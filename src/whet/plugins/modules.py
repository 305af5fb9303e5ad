"""Import folders of plugins as Python packages, `hermes_plugins.<slug>`, once for the process.

All sessions of the process share a folder's module, so that modules that a plugin imports later match the
code that it started with. The last `release` removes it from `sys.modules`.
"""

from __future__ import annotations

import importlib
import logging
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import msgspec

from whet.contract.errors import PluginError
from whet.plugins.calls import attribute_errors
from whet.plugins.hermes import add_module


class _LoadedModule(msgspec.Struct):
    folder: Path
    module: ModuleType
    count: int = 1


_loaded_modules: dict[str, _LoadedModule] = {}
_parents: set[str] = set()


def acquire(plugin: str, name: str, folder: Path) -> ModuleType:
    """Import `folder` as the package `name`, or return the imported one.

    Raises PluginError if the import fails or another folder has that name.
    """
    folder = folder.resolve()
    entry = _loaded_modules.get(name)
    if entry is not None and entry.folder != folder:
        raise PluginError(f"another plugin is loaded as {name}, from {entry.folder}", plugin=plugin)
    if entry is not None:
        entry.count += 1
        return entry.module
    module = _import(plugin, name, folder)
    _loaded_modules[name] = _LoadedModule(folder, module)
    return module


def release(name: str) -> None:
    """Release a module that `acquire` returned. The last release forgets it."""
    entry = _loaded_modules.get(name)
    if entry is None:
        return
    entry.count -= 1
    if entry.count == 0:
        del _loaded_modules[name]
        _forget(name)


def _import(plugin: str, name: str, folder: Path) -> ModuleType:
    start = folder / "__init__.py"
    spec = spec_from_file_location(name, start, submodule_search_locations=[str(folder)])
    if spec is None or spec.loader is None or not start.is_file():
        raise PluginError("it has no __init__.py", plugin=plugin, hook="import")
    importlib.invalidate_caches()
    _make_parents(name)
    shared = sys.modules.get("plugins.memory")
    if shared is not None and str(folder.parent) not in shared.__path__:
        # Memory providers of Hermes Agent's set-up import their own modules as plugins.memory.NAME.
        shared.__path__.append(str(folder.parent))
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        with attribute_errors(plugin, "import"):
            spec.loader.exec_module(module)
    except BaseException:
        _forget(name)
        raise
    return module


def _make_parents(name: str) -> None:
    parts = name.split(".")[:-1]
    for end in range(1, len(parts) + 1):
        parent = ".".join(parts[:end])
        if parent not in sys.modules:
            add_module(parent, {}, is_package=True)
            _parents.add(parent)
    _send_records(parts[0])


def _forget(name: str) -> None:
    for loaded in [*sys.modules]:
        if loaded == name or loaded.startswith(f"{name}."):
            del sys.modules[loaded]
    parent = name.rpartition(".")[0]
    while parent in _parents and not any(loaded.startswith(f"{parent}.") for loaded in sys.modules):
        _parents.discard(parent)
        del sys.modules[parent]
        parent = parent.rpartition(".")[0]


class _LogForwarder(logging.Handler):
    """Sends plugins' log records to our log file. Otherwise they would appear on the person's screen."""

    def emit(self, record: logging.LogRecord) -> None:
        """Pass the record on."""
        ours = logging.getLogger("whet.plugins")
        if ours.isEnabledFor(record.levelno):
            ours.handle(record)


def _send_records(package: str) -> None:
    logger = logging.getLogger(package)
    if not any(isinstance(handler, _LogForwarder) for handler in logger.handlers):
        logger.addHandler(_LogForwarder())
        logger.propagate = False
