"""Functions that replace the modules of Hermes Agent that its memory providers import.

They concern texts, files, locks and past sessions. docs/plugins.md lists the providers that were tried.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from whet.config.paths import replace_file
from whet.contract.texts import as_object
from whet.plugins import shims

T = TypeVar("T")
_FENCES = re.compile(r"<(memory-context|memory_context)>.*?</\1>|</?memory[-_]context>", re.DOTALL)
_SECRET_NAMES = frozenset({"auth.json", ".anthropic_oauth.json"})


def sanitize_context(text: str) -> str:
    """Return a text without the blocks of memory that a program inserted."""
    return _FENCES.sub("", text)


def flatten_message_text(content: Any, *, sep: str = "\n") -> str:
    """Return the text of a message, whose content is text or a list of parts."""
    if isinstance(content, list):
        parts = (flatten_message_text(part) for part in cast("list[Any]", content))
        return sep.join(part for part in parts if part)
    if isinstance(content, dict):
        text = as_object(cast("object", content)).get("text")
        return text if isinstance(text, str) else ""
    return "" if content is None else str(content)


def get_read_block_error(path: str) -> str | None:
    """Return the reason if a file holds keys, so that a provider may not read it; otherwise None."""
    target = Path(path).expanduser().resolve()
    is_secret = target.name in _SECRET_NAMES or (
        target.name.startswith(".env") and target.name != ".env.example"
    )
    return f"{target} holds keys and is not read" if is_secret else None


def raise_if_read_blocked(path: str) -> None:
    """Raise ValueError if the file holds keys."""
    if reason := get_read_block_error(path):
        raise ValueError(reason)


def user_instruction(content: Any) -> str | None:
    """Return a message's content if it is text, otherwise None. Messages here contain no text of skills."""
    return content if isinstance(content, str) else None


def atomic_json_write(path: Any, data: Any, **options: Any) -> None:
    """Replace a JSON file in one step, readable by its owner only."""
    indent = options.get("indent", 2)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    replace_file(target, json.dumps(data, indent=indent, ensure_ascii=False, default=str), mode=0o600)


def env_var_enabled(name: str, default: str = "") -> bool:
    """Return whether an environment variable is on: 1, true, yes or on."""
    return os.environ.get(name, default).strip().lower() in ("1", "true", "yes", "on")


class FeatureUnavailable(RuntimeError):
    """Raised by Hermes Agent if a plugin's package is missing. Never raised here."""


def ensure(feature: str, **options: Any) -> None:
    """Do nothing. The plugin's own import then fails and names the missing package."""
    del feature, options


class SingletonSlot(Generic[T]):
    """Holds an object that is made at first use, only once even if several threads ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: list[T] = []

    def get(self, factory: Callable[[], T]) -> T:
        """Return the object, made by `factory` at the first call. An error of the factory is not kept."""
        with self._lock:
            if not self._values:
                self._values.append(factory())
            return self._values[0]

    def peek(self) -> T | None:
        """Return the object, or None if there is none yet."""
        return self._values[0] if self._values else None

    def reset(self) -> None:
        """Forget the object."""
        with self._lock:
            self._values.clear()


def apply_wal_with_fallback(connection: sqlite3.Connection, **options: Any) -> str:
    """Set the write-ahead log of an SQLite database if its file system allows it. Returns the mode."""
    del options
    try:
        return str(connection.execute("PRAGMA journal_mode=WAL").fetchone()[0])
    except sqlite3.OperationalError:
        return str(connection.execute("PRAGMA journal_mode=DELETE").fetchone()[0])


def rewrite_memory_query(user_message: str) -> str:
    """Return "", so that the provider searches for the message itself."""
    del user_message
    return ""


def session_database(*arguments: Any, **options: Any) -> object:
    """Open the sessions of the home, to read only."""
    from whet.plugins.past_sessions import PastSessions  # noqa: PLC0415 - few plugins read past sessions

    del arguments, options
    return PastSessions(shims.home())


MODULES: dict[str, dict[str, object]] = {
    "agent.memory_manager": {"sanitize_context": sanitize_context},
    "agent.message_content": {"flatten_message_text": flatten_message_text},
    "agent.file_safety": {
        "get_read_block_error": get_read_block_error,
        "raise_if_read_blocked": raise_if_read_blocked,
    },
    "agent.skill_commands": {"extract_user_instruction_from_skill_message": user_instruction},
    "utils": {"atomic_json_write": atomic_json_write, "env_var_enabled": env_var_enabled},
    "hermes_cli.profiles": {
        "get_active_profile_name": lambda: "default",
        "_get_default_hermes_home": shims.home,
    },
    "tools.lazy_deps": {"ensure": ensure, "FeatureUnavailable": FeatureUnavailable},
    "hermes_state": {"SessionDB": session_database, "apply_wal_with_fallback": apply_wal_with_fallback},
    "plugins": {},
    "plugins.plugin_utils": {"SingletonSlot": SingletonSlot},
    "plugins.memory": {"__path__": []},
    "plugins.memory.query_rewrite": {"rewrite_memory_query": rewrite_memory_query},
}
