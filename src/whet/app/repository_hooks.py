"""A repository's own hooks: `.whet/hooks.json`, run only after the owner has accepted exactly these.

The owner accepts a hash of the file and of every workspace file that its commands name, so a change of
either asks again. Acceptances are stored in Whet's home, out of the repository's reach.
"""

from __future__ import annotations

import hashlib
import shlex
from pathlib import Path

import msgspec

from whet.config.paths import Home, replace
from whet.config.schema import HookSettings
from whet.contract.errors import ConfigError
from whet.contract.texts import from_json

PLACE = Path(".whet/hooks.json")
_MOST_BYTES = 200_000
_Hooks = dict[str, HookSettings]


class RepositoryHooks(msgspec.Struct, frozen=True):
    """The hooks of a workspace and their hash."""

    workspace: Path
    hooks: _Hooks
    digest: str


def repository_hooks(workspace: Path) -> RepositoryHooks | None:
    """Read a workspace's hooks; None if it has none. Raises ConfigError if the file can't be read."""
    path = workspace / PLACE
    if not path.is_file():
        return None
    try:
        data = path.read_bytes()[:_MOST_BYTES]
        hooks = from_json(data, _Hooks)
    except (OSError, msgspec.DecodeError, UnicodeError) as error:
        raise ConfigError(f"{path} can't be read: {error}", hint="docs/hooks.md shows its shape") from error
    seal = hashlib.sha256(data)
    for hook in hooks.values():
        for name in _named(hook.command):
            file = workspace / name
            if file.is_file() and file.resolve() != path.resolve():
                seal.update(b"\0" + name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return RepositoryHooks(workspace.resolve(), hooks, seal.hexdigest())


def is_accepted(home: Home, found: RepositoryHooks) -> bool:
    """Return whether the owner has accepted exactly these hooks in this folder."""
    return _accepted(home).get(str(found.workspace)) == found.digest


def accept(home: Home, found: RepositoryHooks) -> None:
    """Accept these hooks; they run from the next session on."""
    acceptances = {**_accepted(home), str(found.workspace): found.digest}
    home.ensure()
    replace(_place(home), msgspec.json.format(msgspec.json.encode(acceptances)).decode() + "\n", mode=0o600)


def refuse(home: Home, workspace: Path) -> bool:
    """Withdraw an acceptance. Return False if there was none."""
    acceptances = _accepted(home)
    was = acceptances.pop(str(workspace.resolve()), None) is not None
    if was:
        replace(_place(home), msgspec.json.encode(acceptances).decode() + "\n", mode=0o600)
    return was


def _place(home: Home) -> Path:
    return home.root / "accepted-hooks.json"


def _accepted(home: Home) -> dict[str, str]:
    try:
        return from_json(_place(home).read_bytes(), dict[str, str])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError, UnicodeError):
        return {}  # an unreadable file accepts nothing


def _named(command: str) -> list[str]:
    try:
        words = shlex.split(command, comments=False)
    except ValueError:
        words = command.split()
    return [word for word in words if not word.startswith(("-", "/", "~")) and ".." not in Path(word).parts]
