"""A repository's own hooks (`.whet/hooks.json`), which run only after the owner has accepted them.

The owner accepts a hash of the file and of every workspace file that its commands are known to run. If one of
them changes, even during a session, the owner must accept again. A command can run files that are not found,
so these hooks run only in the sandbox, and write to the workspace only if the owner has accepted that.
Acceptances are stored in Whet's home, which the repository can't change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import msgspec

from whet.config.paths import Home, lock_folder, replace_file
from whet.config.permission_settings import HookSettings
from whet.contract.errors import ConfigError
from whet.contract.texts import from_json
from whet.hooks.files import HookFile, hash_files, read_files
from whet.regular import read_regular

HOOKS_PATH = Path(".whet/hooks.json")
_MAX_BYTES = 200_000
_HINT = 'a hook is "NAME": {"event": "PostToolUse", "tools": "patch", "command": "sh ./check.sh"}'


class RepositoryHook(HookSettings, frozen=True, forbid_unknown_fields=True):
    """A hook of a repository. `writes`: it may change files of the workspace."""

    writes: bool = False


_Hooks = dict[str, RepositoryHook]


class RepositoryHooks(msgspec.Struct, frozen=True, dict=True):
    """The hooks of a workspace, and the bytes of the file that holds them."""

    workspace: Path
    hooks: _Hooks
    data: bytes

    @cached_property
    def digest(self) -> str:
        """The hash of the file and of the files that its commands run, computed once."""
        return hashlib.sha256(self.data + hash_files(self.files).encode()).hexdigest()

    @cached_property
    def files(self) -> list[HookFile]:
        """The files that the commands run, read once."""
        return read_files(self.workspace, [hook.command for hook in self.hooks.values()])


def read_repository_hooks(workspace: Path) -> RepositoryHooks | None:
    """Read a workspace's hooks, but not yet the files that they run. Returns None if there are no hooks.
    Raises ConfigError if the file can't be read."""
    path = workspace / HOOKS_PATH
    if not path.is_file():
        return None
    try:
        data = read_regular(path, _MAX_BYTES, workspace)
        hooks = from_json(data, _Hooks)
    except (OSError, msgspec.DecodeError, UnicodeError) as error:
        raise ConfigError(f"{path} can't be read: {error}", hint=_HINT) from error
    return RepositoryHooks(workspace.resolve(), hooks, data)


def is_accepted(home: Home, repository: RepositoryHooks) -> bool:
    """Return whether the owner has accepted exactly these hooks in this folder."""
    accepted = _read_acceptances(home).get(str(repository.workspace))
    return accepted is not None and accepted == repository.digest


def has_acceptance(home: Home, repository: RepositoryHooks) -> bool:
    """Return whether the owner has accepted hooks of this folder, possibly earlier ones."""
    return str(repository.workspace) in _read_acceptances(home)


def accept(home: Home, repository: RepositoryHooks) -> None:
    """Accept these hooks; they run from the next session on."""
    with lock_folder(home.root):
        acceptances = {**_read_acceptances(home), str(repository.workspace): repository.digest}
        _store_acceptances(home, acceptances)


def refuse(home: Home, workspace: Path) -> bool:
    """Withdraw an acceptance. Returns False if there was none."""
    with lock_folder(home.root):
        acceptances = _read_acceptances(home)
        was_accepted = acceptances.pop(str(workspace.resolve()), None) is not None
        if was_accepted:
            _store_acceptances(home, acceptances)
    return was_accepted


def _store_acceptances(home: Home, acceptances: Mapping[str, str]) -> None:
    text = msgspec.json.format(msgspec.json.encode(acceptances)).decode()
    replace_file(_acceptances_path(home), text + "\n", mode=0o600)


def _acceptances_path(home: Home) -> Path:
    return home.root / "accepted-hooks.json"


def _read_acceptances(home: Home) -> dict[str, str]:
    try:
        return from_json(_acceptances_path(home).read_bytes(), dict[str, str])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError, UnicodeError):
        return {}  # an unreadable file accepts nothing
