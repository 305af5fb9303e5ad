"""The calls for whose time all sandboxes stop that can write where their own could: those that a person
decides on to run outside, while the question is open and while they run."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from whet.sandbox.policy import SandboxPolicy

if TYPE_CHECKING:
    from whet.sandbox.jail import Jail


class _Hold(msgspec.Struct):
    """What one call stops: the sandboxes of its session, and those that can write in `folders`."""

    session_id: str
    folders: tuple[Path, ...]
    jails: list[Jail]

    def covers(self, owner_id: str, policy: SandboxPolicy) -> bool:
        """Return whether the call stops a sandbox of this owner with this policy."""
        return owner_id == self.session_id or any(map(self.has, _writable(policy)))

    def has(self, folder: Path) -> bool:
        """Return whether the session's commands can write in a folder, or in a part of it."""
        return any(folder.is_relative_to(own) or own.is_relative_to(folder) for own in self.folders)


class JobHolds:
    """The calls that stop sandboxes now. `jails` are all of the program, by their owners and policies.
    Thread-safe."""

    def __init__(self, jails: Mapping[tuple[str, SandboxPolicy], Jail]) -> None:
        self._jails = jails
        self._lock = threading.Lock()
        self._holds: dict[tuple[str, str], _Hold] = {}

    def start(self, call: tuple[str, str], policy: SandboxPolicy) -> list[bool | None]:
        """Stop every sandbox that a call covers, which is its session's id and its own, until `end`.

        `policy` is that of the session's commands. Returns what `JobStopper.stop` says of each.
        """
        with self._lock:
            if call in self._holds:
                return []
            hold = self._holds[call] = _Hold(call[0], _writable(policy), [])
        jails = [
            jail for (owner_id, _), jail in list(self._jails.items()) if hold.covers(owner_id, jail.policy)
        ]
        with self._lock:
            jails = [jail for jail in jails if jail not in hold.jails]
            hold.jails += jails
        return [jail.jobs.stop() for jail in jails]

    def stop_new(self, owner_id: str, jail: Jail) -> None:
        """Stop a new sandbox if a call covers it."""
        with self._lock:
            for hold in self._holds.values():
                if hold.covers(owner_id, jail.policy):
                    hold.jails.append(jail)
                    jail.jobs.stop()

    def end(self, session_id: str, call_id: str = "") -> None:
        """Let the sandboxes continue that a call stopped, or all calls of a session."""
        with self._lock:
            calls = [call for call in self._holds if call[0] == session_id and call_id in ("", call[1])]
            jails = [jail for call in calls for jail in self._holds.pop(call).jails]
        for jail in jails:
            jail.jobs.resume()

    def others_hold(self, session_id: str, folder: Path) -> bool:
        """Return whether a call of another session stops the sandboxes that can write in a folder."""
        with self._lock:
            return any(hold.session_id != session_id and hold.has(folder) for hold in self._holds.values())


def _writable(policy: SandboxPolicy) -> tuple[Path, ...]:
    return (policy.workspace, *policy.write)
