"""Provide the modules that plugins for Hermes Agent import.

They are in `sys.modules` only while such a plugin is loaded (`Names.open` to `close`). Modules of these names
that were there before are restored. Features that are not supported are absent, because plugins probe for
them and have fallbacks.
"""

from __future__ import annotations

import contextvars
import os
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from whet.contract.context_engine import ContextEngine
from whet.lanes import attempt
from whet.plugins import memory_shims, printing, shims
from whet.plugins.memories import EmptyMemory, RecallStatus, is_trivial_prompt
from whet.plugins.parts import Hook, Problem

PACKAGES = ("agent", "hermes_cli", "gateway", "hermes_constants", "hermes_state", "plugins", "tools", "utils")
MARKS = (
    b"agent.memory_provider",
    b"hermes_constants",
    b"tools.registry",
    b"agent.redact",
    b"agent.context_engine",
    b"agent.auxiliary_client",
    b"hermes_cli",
    b"gateway.session_context",
)
_MAX_FILES = 400
_MAX_BYTES = 2_000_000


class ModelRequest(msgspec.Struct, frozen=True):
    """A plugin's request to the auxiliary model. None and "" mean the host's own choice."""

    task: str
    messages: Sequence[Mapping[str, Any]]
    model: str = ""
    provider: str = ""
    max_tokens: int | None = None
    temperature: float | None = None
    timeout_s: float | None = None


AskModel = Callable[[ModelRequest], str]
"""Answers a request, in the thread of the caller. Raises on failure."""


class _AssistantMessage(msgspec.Struct):
    content: str
    role: str = "assistant"


class _Choice(msgspec.Struct):
    message: _AssistantMessage
    finish_reason: str = "stop"
    index: int = 0


class Completion(msgspec.Struct):
    """An answer in the form that plugins read: `.choices[0].message.content`."""

    choices: list[_Choice]
    model: str = ""


class HookTable:
    """The object that `get_plugin_manager()` returns. Plugins append functions to `_hooks[name]`. `plugins`
    maps module names to plugin names."""

    def __init__(self) -> None:
        self._hooks: dict[str, list[Callable[..., object]]] = {}
        self.plugins: dict[str, str] = {}

    def hooks_named(self, name: str) -> list[Hook]:
        """Return the functions that were added for a hook, each with the plugin of its module."""
        return [Hook(self._owner(function), name, function) for function in [*self._hooks.get(name, ())]]

    def all(self) -> list[Hook]:
        """Return the functions of all hooks."""
        return [hook for name in [*self._hooks] for hook in self.hooks_named(name)]

    def _owner(self, function: Callable[..., object]) -> str:
        module: str = getattr(function, "__module__", None) or "unknown"
        for name, plugin in self.plugins.items():
            if module == name or module.startswith(f"{name}."):
                return plugin
        return module


class SessionAccess(msgspec.Struct, frozen=True):
    """Functions for plugins: `dispatch` runs a tool of a session through the gate, `inject` adds text to a
    session. Both are called on a plugin's thread."""

    dispatch: Callable[[str, str, dict[str, Any]], str]
    inject: Callable[[str, str], bool]


def served_session() -> str:
    """Return the id of the session for which plugin code is called, or ""."""
    return _session.get({}).get("HERMES_SESSION_ID", "")


class Names:
    """One host's use of the modules, with its hooks and its session. The modules call the host that was
    opened last."""

    def __init__(self, home: Path, ask_model: AskModel | None, problems: list[Problem]) -> None:
        self.home = home
        self.ask_model = ask_model
        self.hooks: HookTable = HookTable()
        self.session: SessionAccess | None = None
        self.problems = problems
        self._is_open = False

    def open(self) -> None:
        """Add the modules to `sys.modules`. A second call does nothing."""
        if not self._is_open:
            self._is_open = True
            _holders.append(self)
            if len(_holders) == 1:
                _install()

    def close(self) -> None:
        """Release the claim. When the last host releases it, the modules are removed."""
        if self._is_open:
            self._is_open = False
            _holders.remove(self)
            if not _holders:
                _remove()

    @contextmanager
    def collecting(self) -> Generator[HookTable]:
        """Collect the hooks that a plugin adds in this context in a table of their own."""
        table = HookTable()
        table.plugins = self.hooks.plugins
        token = _table.set(table)
        try:
            yield table
        finally:
            _table.reset(token)


_holders: list[Names] = []
_shadowed: dict[str, ModuleType] = {}
_table: contextvars.ContextVar[HookTable] = contextvars.ContextVar("hermes_hooks")
_session: contextvars.ContextVar[Mapping[str, str]] = contextvars.ContextVar("hermes_session")


@contextmanager
def session_scope(session_id: str, conversation_id: str = "") -> Generator[None]:
    """Make this session visible in `get_session_env` to plugin code that is called inside."""
    key = conversation_id or session_id
    token = _session.set({"HERMES_SESSION_ID": session_id, "HERMES_SESSION_KEY": key})
    try:
        with printing.by_plugin():
            yield
    finally:
        _session.reset(token)


def await_real_usage(engine: ContextEngine, tokens: int) -> None:
    """Set the attributes that an engine expects on itself after a compaction: no token counts until the next
    answer, and the estimated size of the next request. If some can't be set, the first error is raised at the
    end."""
    attributes: dict[str, object] = {
        "last_prompt_tokens": -1,
        "last_completion_tokens": 0,
        "awaiting_real_usage_after_compression": True,
        "last_compression_rough_tokens": tokens,
    }
    outcomes = [attempt(lambda item=item: setattr(engine, *item)) for item in attributes.items()]
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error


def is_hermes_plugin(folder: Path) -> bool:
    """Return whether a plugin's own sources, apart from its tests, name modules of Hermes Agent."""
    for count, path in enumerate(folder.rglob("*.py")):
        if count == _MAX_FILES:
            break
        if "tests" in path.relative_to(folder).parts:
            continue
        try:
            with path.open("rb") as file:
                text = file.read(_MAX_BYTES)
        except OSError:
            continue
        if any(mark in text for mark in MARKS):
            return True
    return False


def call_llm(  # noqa: PLR0913 - the signature of Hermes Agent, which plugins call by keyword
    *,
    task: str = "",
    messages: Sequence[Mapping[str, Any]],
    model: str | None = None,
    provider: str | None = None,
    max_tokens: int | None = None,
    temperature: float | None = None,
    timeout: float | None = None,
) -> Completion:
    """Ask the host's model and return its answer. Raises RuntimeError if the host has no model for plugins,
    and any error of the host."""
    ask = next((holder.ask_model for holder in reversed(_holders) if holder.ask_model), None)
    if ask is None:
        raise RuntimeError("no model is available to plugins")
    request = ModelRequest(
        task=task or "",
        messages=messages,
        model=model or "",
        provider=provider or "",
        max_tokens=max_tokens,
        temperature=temperature,
        timeout_s=timeout,
    )
    return Completion([_Choice(_AssistantMessage(ask(request)))], model or "")


def get_hermes_home() -> Path:
    """Return HERMES_HOME, which is Whet's home while plugins are loaded, or the home of the last host."""
    return Path(os.environ.get("HERMES_HOME") or _holders[-1].home)


def get_session_env(name: str, default: str = "") -> str:
    """Return a fact of the current session, or the environment variable of that name."""
    return _session.get({}).get(name) or os.environ.get(name, default)


def get_plugin_manager() -> HookTable:
    """Return the table of hooks that plugins may add to."""
    return _table.get(_holders[-1].hooks)


_MODULES: dict[str, dict[str, object]] = {
    "agent": {},
    "agent.context_engine": {"ContextEngine": ContextEngine},
    "agent.auxiliary_client": {"call_llm": call_llm},
    "hermes_cli": {},
    "agent.memory_provider": {
        "MemoryProvider": EmptyMemory,
        "RecallStatus": RecallStatus,
        "INDICATOR_GLYPH": RecallStatus("", 0).glyph,
        "PRE_COMPRESS_CHECKPOINT_API_VERSION": 2,
        "is_trivial_prompt": is_trivial_prompt,
    },
    "hermes_cli.config": {"get_hermes_home": get_hermes_home, **shims.CONFIG},
    "hermes_cli.plugins": {"get_plugin_manager": get_plugin_manager},
    "gateway": {},
    "gateway.session_context": {"get_session_env": get_session_env},
    **shims.MODULES,
    **memory_shims.MODULES,
}


def _install() -> None:
    for name in [*sys.modules]:
        if name.partition(".")[0] in PACKAGES:
            _shadowed[name] = sys.modules.pop(name)
    for name, content in _MODULES.items():
        add_module(name, content, is_package="." not in name and not content)


def _remove() -> None:
    for name in [*sys.modules]:
        if name.partition(".")[0] in PACKAGES:
            del sys.modules[name]
    sys.modules.update(_shadowed)
    _shadowed.clear()


def add_module(name: str, content: Mapping[str, object], *, is_package: bool) -> ModuleType:
    """Create a module, and add it to `sys.modules` and to its parent."""
    module = module_from_spec(ModuleSpec(name, None, is_package=is_package))
    module.__doc__ = "Provided by Whet for plugins that expect it."
    for attribute, value in content.items():
        setattr(module, attribute, value)
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)
    return module
