"""Functions that replace the modules of Hermes Agent that its plugins import.

They concern the home's paths, the settings, the tool registry and masking.
"""

from __future__ import annotations

import contextvars
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import yaml

from whet.contract.texts import as_object
from whet.log import mask

_MAX_CONFIG_BYTES = 1_000_000


class ToolHolder(Protocol):
    """Registers and runs tools for the plugin that is being loaded or called."""

    def register_tool(
        self, name: str, toolset: str, schema: Mapping[str, Any], handler: Callable[..., object], **more: Any
    ) -> None:
        """Add a tool."""
        ...

    def dispatch_tool(self, tool_name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Run a tool."""
        ...


holder: contextvars.ContextVar[ToolHolder | None] = contextvars.ContextVar("tool_holder", default=None)


class ToolTable:
    """`tools.registry.registry`: registers tools for the plugin that is being loaded."""

    def register(
        self, name: str, toolset: str, schema: Mapping[str, Any], handler: Callable[..., object], **more: Any
    ) -> None:
        """Add a tool of the plugin that is being loaded."""
        current = holder.get()
        if current is None:
            raise RuntimeError("tools are registered while their plugin is loaded")
        current.register_tool(name, toolset, schema, handler, **more)

    def dispatch(self, name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Run a tool of the current session through the gate."""
        current = holder.get()
        return tool_error("no session is served") if current is None else current.dispatch_tool(name, args)


registry: ToolTable = ToolTable()


def tool_error(message: object, **extra: Any) -> str:
    """Return a tool's failure as JSON text."""
    return json.dumps({"error": str(message), **extra}, ensure_ascii=False, default=str)


def tool_result(data: object = None, **fields: Any) -> str:
    """Return a tool's result as JSON text."""
    return json.dumps(fields if data is None else data, ensure_ascii=False, default=str)


def redact_sensitive_text(text: Any, **options: Any) -> Any:
    """Mask secrets in a text; return any other value unchanged."""
    del options
    return mask(text) if isinstance(text, str) else text


def mask_secret(value: str | None, **options: Any) -> str:
    """Return a shortened form of a secret that a person can recognise but nobody can use."""
    del options
    return "***" if not value or len(value) < 12 else f"{value[:4]}...{value[-4:]}"


def home() -> Path:
    """Return the home folder."""
    return Path(os.environ.get("HERMES_HOME") or os.environ.get("WHET_HOME") or Path.home() / ".whet")


def display_home() -> str:
    """Return the home folder as a person reads it."""
    text, user_home = str(home()), str(Path.home())
    return f"~{text[len(user_home) :]}" if text == user_home or text.startswith(f"{user_home}/") else text


def subpath(new: str, old: str = "") -> Path:
    """Return a folder of the home. If one with the old name exists, return that one."""
    return home() / old if old and (home() / old).exists() else home() / new


def load_config() -> dict[str, Any]:
    """Return the home's settings as written, or an empty dict if they can't be read."""
    try:
        with (home() / "config.yaml").open("rb") as file:
            return as_object(yaml.safe_load(file.read(_MAX_CONFIG_BYTES)))
    except (OSError, yaml.YAMLError, ValueError, RecursionError):
        return {}


def env_value(name: str, default: str | None = None) -> str | None:
    """Return an environment variable. Those of .env are set while plugins are loaded."""
    return os.environ.get(name) or default


def setting(config: Mapping[str, Any] | None, *path: str, default: Any = None) -> Any:
    """Return the value at a path of the settings, or `default`."""
    value: Any = config
    for name in path:
        fields = as_object(value)
        if name not in fields:
            return default
        value = fields[name]
    return value


def entry_setting(plugin: str, key: str, default: Any = None) -> Any:
    """Return `plugins.entries.PLUGIN.settings.KEY` (or `config`); dots in the key separate levels."""
    missing = object()
    for part in ("settings", "config"):
        path = ("plugins", "entries", plugin, part, *key.split("."))
        value = setting(load_config(), *path, default=missing)
        if value is not missing:
            return value
    return default


MODULES: dict[str, dict[str, object]] = {
    "hermes_constants": {
        "get_hermes_home": home,
        "display_hermes_home": display_home,
        "get_hermes_dir": subpath,
        "get_config_path": lambda: home() / "config.yaml",
        "get_env_path": lambda: home() / ".env",
        "get_skills_dir": lambda: home() / "skills",
    },
    "tools": {},
    "tools.registry": {"registry": registry, "tool_error": tool_error, "tool_result": tool_result},
    "agent.redact": {"redact_sensitive_text": redact_sensitive_text, "mask_secret": mask_secret},
}
CONFIG: dict[str, object] = {
    "load_config": load_config,
    "load_config_readonly": load_config,
    "read_raw_config": load_config,
    "get_env_value": env_value,
    "get_env_path": lambda: home() / ".env",
    "get_config_path": lambda: home() / "config.yaml",
    "cfg_get": setting,
}
