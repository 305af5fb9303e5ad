"""Translate a policy into Landlock rules.

Landlock can only grant: nothing can be excluded from a granted folder. A folder that holds something
hidden is therefore granted entry by entry: it can be listed, but nothing new can be created directly in
it. Rights are the kernel's bits.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from whet.sandbox.policy import SandboxPolicy

OLDEST_ABI = 3  # earlier versions let a read-only file be truncated
_EXECUTE, _WRITE, _READ, _LIST = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _DEVICE_REQUESTS = 1 << 14, 1 << 15
_LAST_RIGHT_OF_ABI = {3: 14, 4: 14, 5: 15}
_READING = _EXECUTE | _READ | _LIST
_FILE_RIGHTS = _EXECUTE | _WRITE | _READ | _TRUNCATE | _DEVICE_REQUESTS
_NODES = (1 << 6) | (1 << 11)  # character and block devices must never be created
_TCP = 0b11
_SCOPES = 0b11  # abstract sockets, signals
_CREATE_RULESET = 444
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "fd", "stdin", "stdout", "stderr")
_KERNEL_FACTS = ("/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/kernel/mm", "/sys/fs/cgroup")


class LandlockRules(msgspec.Struct, frozen=True):
    """The rules that the launcher passes to the kernel.

    `handled` are the restricted rights (files, TCP), `granted` are (path, rights), and `scoped` confines
    signals and abstract sockets to the sandbox.
    """

    handled: tuple[int, int, int]
    granted: tuple[tuple[str, int], ...]
    scoped: int


def landlock_abi() -> int:
    """Return the kernel's Landlock version, or 0 if it has none."""
    try:
        return max(0, ctypes.CDLL(None).syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(1)))
    except (OSError, AttributeError):
        return 0


def landlock_rules(
    policy: SandboxPolicy, abi: int, private: Iterable[Path], *, own_network: bool
) -> LandlockRules:
    """Build the rules. `private` are the sandbox's own folders, granted entirely.

    With its own network, a sandbox may use TCP and its own terminals.
    """
    every = (1 << (_LAST_RIGHT_OF_ABI.get(min(abi, 5), 14) + 1)) - 1
    writing = every & ~_NODES & ~_DEVICE_REQUESTS
    granted: dict[str, int] = {}

    def grant(path: Path, rights: int, hidden: Sequence[Path] = policy.hidden_paths()) -> None:
        names = frozenset(map(str, hidden))
        above = frozenset(str(parent) for hidden_path in hidden for parent in hidden_path.parents)
        for granted_path, fitting in _grants_without_hidden(str(path), rights, names, above):
            granted[granted_path] = granted.get(granted_path, 0) | (fitting & every)

    for path in policy.read:
        grant(path, _READING)
    for path in (policy.workspace, *policy.write):
        grant(path, writing)
    # A private folder has nothing of the folder that it replaces but the grants below that.
    for path in private:
        grant(path, writing, policy.hidden_inside())
    for name in _DEVICES:
        grant(Path("/dev") / name, _READ | _WRITE | _DEVICE_REQUESTS)
    if own_network:  # the terminals are the sandbox's own; otherwise they belong to people who type there
        grant(Path("/dev/pts"), _READ | _WRITE | _LIST | _DEVICE_REQUESTS)
    grant(Path("/proc"), _READ | _LIST)
    for name in _KERNEL_FACTS:
        grant(Path(name), _READ | _LIST)
    return LandlockRules(
        (every, _TCP if abi >= 4 and not own_network else 0, 0),
        tuple(granted.items()),
        _SCOPES if abi >= 6 else 0,
    )


def _grants_without_hidden(
    path: str, rights: int, hidden: frozenset[str], above: frozenset[str]
) -> Iterator[tuple[str, int]]:
    """Yield the rules that grant a path without the hidden paths below it. Links are not followed.

    `above` are the folders that hold something hidden.
    """
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return
    if stat.S_ISLNK(mode) or path in hidden:
        return
    if not stat.S_ISDIR(mode):
        yield path, rights & _FILE_RIGHTS
    elif path not in above:
        yield path, rights
    else:
        yield path, rights & _LIST
        for name in sorted(os.listdir(path)):
            yield from _grants_without_hidden(os.path.join(path, name), rights, hidden, above)
