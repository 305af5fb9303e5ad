"""A Hermes Agent home: its settings, keys and plugins, mapped to ours where there is a counterpart.

What has none is listed, by name; values of secrets are never shown. The home is only read. Source: the
config.yaml of hermes-agent 0.19.0.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias, cast

import yaml

from whet.config import edit, load, secrets
from whet.config.paths import Home
from whet.contract.errors import ConfigError, WhetError
from whet.moving.taken import Taken
from whet.plugins.manifest import manifest_file, read_manifest
from whet.providers.catalog import SERVERS

_FOLDERS = ("state.db", "config.yaml", "memories", "skills", "plugins", ".env")
_SPOKEN = {"google": "gemini", "x-ai": "xai", "together-ai": "together", "lm-studio": "lmstudio"}
OWN_KEY = "CUSTOM_API_KEY"
"""The variable for a key whose server has no name of its own."""
_MODES = {"manual": "ask", "smart": "ask", "ask": "ask"}


class HermesHome:
    """A folder that Hermes Agent uses. Raises ConfigError where it is none."""

    def __init__(self, root: Path) -> None:
        if not any((root / name).exists() for name in _FOLDERS):
            raise ConfigError(
                f"{root} is no home of Hermes Agent",
                hint="it has a config.yaml or a state.db; ~/.hermes by default",
            )
        self.root = root

    @property
    def database(self) -> Path:
        """Its sessions."""
        return self.root / "state.db"

    @property
    def memories(self) -> Path:
        """The folder of its notes."""
        return self.root / "memories"

    @property
    def skills(self) -> Path:
        """The folder of its skills."""
        return self.root / "skills"

    def leads_out(self, folder: Path) -> bool:
        """Say whether a folder of the home is a link to somewhere else; such a one is not read."""
        return not folder.resolve().is_relative_to(self.root.resolve())

    def untouched(self) -> list[Taken]:
        """List what has no place here: its persona, its schedules."""
        hints = {
            "SOUL.md": "standing words to the agent are agent.instructions here",
            "cron/jobs.json": "schedules are not taken over; whet cron add makes one",
        }
        return [Taken(name, "left", why) for name, why in hints.items() if (self.root / name).is_file()]

    def enabled_plugins(self) -> list[str]:
        """Give the names of the plugins that it loads."""
        found = flat(self.settings()).get("plugins.enabled")
        return [str(name) for name in cast(list[Any], found)] if isinstance(found, list) else []

    def settings(self) -> dict[str, Any]:
        """Read its config.yaml; empty without one. Raises ConfigError where it can't be read."""
        path = self.root / "config.yaml"
        try:
            found: Any = yaml.safe_load(path.read_text("utf-8")) if path.is_file() else {}
        except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
            raise ConfigError(f"{path} can't be read", hint="mend it, or move it away") from error
        return cast(dict[str, Any], found) if isinstance(found, dict) else {}

    def keys(self) -> dict[str, str]:
        """Give the secrets in its .env by name, and what its plugins read there."""
        path = self.root / ".env"
        try:
            text = path.read_text("utf-8", "replace") if path.is_file() else ""
        except OSError as error:
            raise ConfigError(f"{path} can't be read ({error.strerror})") from error
        found = secrets.parse_env(text).values
        return {
            name: value
            for name, value in found.items()
            if value and (secrets.is_secret_name(name) or name.startswith("LCM_"))
        }

    def plugins(self) -> list[Path]:
        """Give the folders of its plugins, one level of categories deep."""
        folder = self.root / "plugins"
        near = sorted(folder.iterdir()) if folder.is_dir() else []
        found: list[Path] = []
        for path in near:
            if path.is_dir() and manifest_file(path) is not None:
                found.append(path)
            elif path.is_dir():
                found += [deep for deep in sorted(path.iterdir()) if deep.is_dir() and manifest_file(deep)]
        return found


def own_key(settings: Mapping[str, Any]) -> tuple[str, str] | None:
    """Give the key that stands in config.yaml itself, with the variable that holds it here."""
    theirs = flat(settings)
    key = theirs.get("model.api_key")
    if not isinstance(key, str) or not key or key.startswith("$"):
        return None
    provider = _SPOKEN.get(str(theirs.get("model.provider")), str(theirs.get("model.provider")))
    server = SERVERS.get(provider)
    return (server.keys[0] if server and server.keys else OWN_KEY), key


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Give nested settings as dotted keys."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and value:
            found.update(flat(cast(dict[str, Any], value), f"{key}."))
        else:
            found[key] = value
    return found


def mapped(settings: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Give our settings as text by key, and why each of theirs that has no counterpart was left."""
    ours, left = dict[str, str](), dict[str, str]()
    theirs = flat(settings)
    if isinstance(theirs.get("model"), str):
        theirs["model.default"] = theirs.pop("model")
    for key, value in theirs.items():
        put = _MAP.get(key)
        if value in (None, "", [], {}) or (key.startswith("_") and put is None):
            continue
        if key == "model.api_key":
            continue  # a secret: `own_key` finds it
        answer = put(value) if put is not None else "has no counterpart"
        if isinstance(answer, str):
            left[key] = answer
        else:
            ours.update(answer)
    own = own_key(settings)
    if own is not None and own[0] == OWN_KEY:
        ours["model.api_key_env"] = OWN_KEY
    if ours.get("model.provider") == "custom" and "model.base_url" not in ours:
        left["model.provider"] = "custom without a base_url"
        del ours["model.provider"]
    return ours, left


_Put: TypeAlias = Callable[[Any], "dict[str, str] | str"]
"""Takes a value of theirs and gives ours by key, or why it was left."""


def _as(key: str) -> _Put:
    return lambda value: {key: str(value)}


def _provider(value: Any) -> dict[str, str] | str:
    name = _SPOKEN.get(str(value), str(value))
    if name in SERVERS or name == "custom":
        return {"model.provider": name}
    return f"the provider {name} is not known here; set model.base_url"


def _mode(value: Any) -> dict[str, str] | str:
    mode = _MODES.get(str(value))
    return {"approval.mode": mode} if mode else "turning approvals off is yours to decide: approval.mode"


def _engine(value: Any) -> dict[str, str] | str:
    return {"context.engine": str(value)}


_MAP: dict[str, _Put] = {
    "model.default": _as("model.model"),
    "model.model": _as("model.model"),
    "model.provider": _provider,
    "model.base_url": _as("model.base_url"),
    "model.context_length": _as("model.window_tokens"),
    "model.max_tokens": _as("model.max_output_tokens"),
    "agent.max_turns": _as("agent.max_steps"),
    "agent.reasoning_effort": _as("model.reasoning_effort"),
    "terminal.timeout": _as("tools.terminal_timeout_s"),
    "approvals.mode": _mode,
    "context.engine": _engine,
    "display.show_reasoning": lambda value: {"ui.show_reasoning": "true" if value else "false"},
}


def take_settings(home: Home, theirs: Mapping[str, Any], *, dry: bool) -> list[Taken]:
    """Write what has a counterpart into our config.yaml; what is set here already stays."""
    ours, left = mapped(theirs)
    loaded = load.load(home, environ={})
    taken: list[Taken] = []
    for key, text in ours.items():
        if loaded.origins[key] != "default":
            taken.append(Taken(key, "kept", "set here already"))
            continue
        try:
            if not dry:
                edit.set_value(home, key, text)
            taken.append(Taken(key, "set", text))
        except WhetError as error:
            taken.append(Taken(key, "left", error.message))
    return taken + [Taken(key, "left", why) for key, why in sorted(left.items())]


def take_keys(home: Home, keys: Mapping[str, str], *, dry: bool) -> list[Taken]:
    """Write their secrets into our .env; names that are there already stay."""
    have = secrets.read_env(home).values
    taken: list[Taken] = []
    for name, value in sorted(keys.items()):
        if name in have:
            taken.append(Taken(name, "kept", "set here already"))
            continue
        if not dry:
            secrets.set_secret(home, name, value)
        taken.append(Taken(name, "set"))
    return taken


def take_plugins(home: Home, found: list[Path], enabled: list[str], *, dry: bool) -> list[Taken]:
    """Copy their plugins; those that were enabled there are enabled here. Nothing of ours is replaced."""
    taken: list[Taken] = []
    on: list[str] = []
    for folder in found:
        target = home.root / "plugins" / folder.name
        if target.exists():
            taken.append(Taken(folder.name, "kept", "a plugin of that name is here already"))
            continue
        try:
            manifest = read_manifest(folder)
            if not dry:
                _copy(folder, target)
        except (WhetError, OSError, shutil.Error) as error:
            taken.append(Taken(folder.name, "left", str(error)))
            continue
        is_on = manifest.name in enabled or folder.name in enabled
        on += [manifest.name] if is_on else []
        taken.append(Taken(folder.name, "copied", "enabled, as it was there" if is_on else "not enabled"))
    if on and not dry:
        before = load.load(home, environ={}).settings.plugins.enabled
        edit.set_value(home, "plugins.enabled", ", ".join(dict.fromkeys([*before, *on])))
    return taken


def _copy(folder: Path, target: Path) -> None:
    """Copy a plugin's folder, whole or not at all; what links lead to is copied, caches are not."""
    half = target.with_name(f".{target.name}.half")
    shutil.rmtree(half, ignore_errors=True)
    half.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(folder, half, ignore=shutil.ignore_patterns("__pycache__", ".git"))
    half.rename(target)
