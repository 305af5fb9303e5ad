"""A repository's own hooks: `.whet/hooks.json`, run only after the owner has accepted exactly these.

The owner accepts a hash of the file and of every workspace file that its commands name, so a change of
either asks again. Acceptances are stored in Whet's home, out of the repository's reach.
"""

from __future__ import annotations

import hashlib
import shlex
from pathlib import Path

import msgspec

from whet.config.paths import Home, replace_file
from whet.config.schema import HookSettings
from whet.contract.errors import ConfigError
from whet.contract.texts import from_json

HOOKS_PATH = Path(".whet/hooks.json")
_MAX_BYTES = 200_000
_Hooks = dict[str, HookSettings]


class RepositoryHooks(msgspec.Struct, frozen=True):
    """The hooks of a workspace and their hash."""

    workspace: Path
    hooks: _Hooks
    digest: str


def read_repository_hooks(workspace: Path) -> RepositoryHooks | None:
    """Read a workspace's hooks; None if it has none. Raises ConfigError if the file can't be read."""
    path = workspace / HOOKS_PATH
    if not path.is_file():
        return None
    try:
        data = path.read_bytes()[:_MAX_BYTES]
        hooks = from_json(data, _Hooks)
    except (OSError, msgspec.DecodeError, UnicodeError) as error:
        raise ConfigError(f"{path} can't be read: {error}", hint="docs/hooks.md shows its shape") from error
    seal = hashlib.sha256(data)
    for hook in hooks.values():
        for name in _named_files(hook.command):
            file = workspace / name
            if file.is_file() and file.resolve() != path.resolve():
                seal.update(b"\0" + name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return RepositoryHooks(workspace.resolve(), hooks, seal.hexdigest())


def is_accepted(home: Home, repository: RepositoryHooks) -> bool:
    """Return whether the owner has accepted exactly these hooks in this folder."""
    return _read_acceptances(home).get(str(repository.workspace)) == repository.digest


def accept(home: Home, repository: RepositoryHooks) -> None:
    """Accept these hooks; they run from the next session on."""
    acceptances = {**_read_acceptances(home), str(repository.workspace): repository.digest}
    home.ensure()
    replace_file(
        _acceptances_path(home),
        msgspec.json.format(msgspec.json.encode(acceptances)).decode() + "\n",
        mode=0o600,
    )


def refuse(home: Home, workspace: Path) -> bool:
    """Withdraw an acceptance. Return False if there was none."""
    acceptances = _read_acceptances(home)
    was = acceptances.pop(str(workspace.resolve()), None) is not None
    if was:
        replace_file(_acceptances_path(home), msgspec.json.encode(acceptances).decode() + "\n", mode=0o600)
    return was


def _acceptances_path(home: Home) -> Path:
    return home.root / "accepted-hooks.json"


def _read_acceptances(home: Home) -> dict[str, str]:
    try:
        return from_json(_acceptances_path(home).read_bytes(), dict[str, str])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError, UnicodeError):
        return {}  # an unreadable file accepts nothing


def _named_files(command: str) -> list[str]:
    try:
        words = shlex.split(command, comments=False)
    except ValueError:
        words = command.split()
    return [word for word in words if not word.startswith(("-", "/", "~")) and ".." not in Path(word).parts]
