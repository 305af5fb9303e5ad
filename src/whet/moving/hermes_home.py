"""Read the files of a Hermes Agent home.

Files are read whole, up to a size limit. Links out of the home are followed only for config.yaml and .env,
which people keep elsewhere. Nothing is written. Source: the folders of hermes-agent 0.19.0.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Any, cast

import msgspec
import yaml

from whet.config import secrets
from whet.contract.errors import ConfigError
from whet.contract.texts import NOT_JSON
from whet.moving import hermes_cron
from whet.moving.hermes_chats import KINDS, parse_paired_people
from whet.moving.hermes_settings import flatten, is_variable
from whet.moving.importing import ImportOutcome
from whet.plugins.manifest import manifest_file
from whet.store.paired import PairedPerson

_PROVIDER = re.compile(r"[a-z][a-z0-9_-]{0,40}")
_MARKERS = ("state.db", "config.yaml", "memories", "skills", "plugins", ".env")
_MAX_FILE_BYTES = 4_000_000
_PAIRING_FOLDERS = ("pairing", "platforms/pairing")


class HermesHome:
    """A folder that Hermes Agent uses. Raises ConfigError if it is not one."""

    def __init__(self, root: Path) -> None:
        if not any((root / name).exists() for name in _MARKERS):
            raise ConfigError(
                f"{root} is not a home of Hermes Agent",
                hint="a Hermes home contains config.yaml or state.db; the default is ~/.hermes",
            )
        self.root = root

    @property
    def database(self) -> Path:
        """The path of its session database."""
        return self.root / "state.db"

    @property
    def memories(self) -> Path:
        """The folder of its memory notes."""
        return self.root / "memories"

    @property
    def skills(self) -> Path:
        """The folder of its skills."""
        return self.root / "skills"

    def is_outside(self, path: Path) -> bool:
        """Return whether a path is a link to somewhere outside the home. Such files are not read."""
        return not path.resolve().is_relative_to(self.root.resolve())

    def report_profiles(self) -> list[ImportOutcome]:
        """Return an outcome for each profile, which is not imported, with the command that imports it."""
        folder = self.root / "profiles"
        folders = sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
        return [
            ImportOutcome(
                f"profiles/{path.name}",
                "left",
                f"a separate home; import it with: whet -p NAME import hermes {path}",
            )
            for path in folders
        ]

    def enabled_plugins(self) -> list[str]:
        """Return the names of its enabled plugins."""
        names = flatten(self.settings()).get("plugins.enabled")
        return [str(name) for name in cast(list[Any], names)] if isinstance(names, list) else []

    def memory_provider(self) -> str:
        """Return the name of its memory provider, or "" if it has only notes."""
        name = flatten(self.settings()).get("memory.provider")
        return name if isinstance(name, str) and _PROVIDER.fullmatch(name) and name != "builtin" else ""

    def settings(self) -> dict[str, Any]:
        """Return its config.yaml, or {} if that is missing. Raises ConfigError if it can't be read."""
        path = self.root / "config.yaml"
        raw = _read(path)
        try:
            values: Any = yaml.safe_load(raw.decode()) if raw is not None else {}
        except (UnicodeDecodeError, yaml.YAMLError, ValueError, RecursionError) as error:
            raise ConfigError(f"{path} can't be read", hint="fix the file, or move it elsewhere") from error
        return cast(dict[str, Any], values) if isinstance(values, dict) else {}

    def env(self) -> dict[str, str]:
        """Return the variables of its .env, and of config.yaml, where they are the upper-case keys.

        .env overrides config.yaml. Raises ConfigError if a file can't be read.
        """
        raw = _read(self.root / ".env")
        variables = secrets.parse_env((raw or b"").decode("utf-8", "replace")).values
        config_variables = {
            key: str(value) for key, value in self.settings().items() if is_variable(key, value)
        }
        return config_variables | {name: value for name, value in variables.items() if value}

    def keys(self) -> dict[str, str]:
        """Return the secrets among its variables, and those of the context engine hermes-lcm (LCM_...).

        Raises ConfigError if a file can't be read.
        """
        return {
            name: value
            for name, value in self.env().items()
            if secrets.is_secret_name(name) or name.startswith("LCM_")
        }

    def soul(self) -> str:
        """Return its persona, or "" if the file is missing. Raises ConfigError if it can't be read."""
        raw = self._read_inside("SOUL.md")
        return (raw or b"").decode("utf-8", "replace").removeprefix("\ufeff")

    def jobs(self) -> list[dict[str, Any]]:
        """Read its scheduled jobs. Raises ConfigError if they can't be read."""
        raw = self._read_inside("cron/jobs.json")
        return hermes_cron.parse(raw) if raw else []

    def read_paired_people(self) -> list[PairedPerson]:
        """Read the people paired by a code. Raises ConfigError if a file can't be read."""
        people: dict[tuple[str, str], PairedPerson] = {}
        for folder in _PAIRING_FOLDERS:
            for kind in KINDS:
                raw = self._read_inside(f"{folder}/{kind}-approved.json")
                try:
                    content: Any = msgspec.json.decode(raw) if raw else {}
                except NOT_JSON as error:
                    raise ConfigError(f"{folder}/{kind}-approved.json is not JSON") from error
                for person in parse_paired_people(kind, content):
                    people[person.channel, person.user] = person
        return list(people.values())

    def plugins(self) -> list[Path]:
        """Return the folders of its plugins, including plugins that are grouped in a folder."""
        folder = self.root / "plugins"
        children = sorted(folder.iterdir()) if folder.is_dir() else []
        folders: list[Path] = []
        for path in children:
            if path.is_dir() and manifest_file(path) is not None:
                folders.append(path)
            elif path.is_dir():
                folders += [
                    child for child in sorted(path.iterdir()) if child.is_dir() and manifest_file(child)
                ]
        # Hermes ships the memory providers with its source, which its installer puts into the home.
        provider = self.root / "hermes-agent" / "plugins" / "memory" / (self.memory_provider() or "-")
        if provider.name not in {path.name for path in folders} and manifest_file(provider) is not None:
            folders.append(provider)
        return folders

    def _read_inside(self, name: str) -> bytes | None:
        """Read a file inside the home. Raises ConfigError if it is a link to the outside."""
        path = self.root / name
        if path.exists() and self.is_outside(path):
            raise ConfigError(f"{name} is a link that leads out of the folder")
        return _read(path)


def _read(path: Path) -> bytes | None:
    """Read a regular file, or return None if it does not exist. Raises ConfigError."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(f"{path} can't be read ({error.strerror})") from error
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ConfigError(f"{path} is not a plain file")
        raw = file.read(_MAX_FILE_BYTES + 1)
    if len(raw) > _MAX_FILE_BYTES:
        raise ConfigError(f"{path} is larger than {_MAX_FILE_BYTES // 1_000_000} MB")
    return raw
