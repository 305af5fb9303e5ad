"""Stop a session's sandboxes while a person decides on a call that would run outside.

Nothing waits for a stopped sandbox: a new command there lets it continue, and then the call is refused. Other
sessions continue: their work must not wait for an answer that may never come.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from whet.sandbox.policy import SandboxPolicy

if TYPE_CHECKING:
    from whet.sandbox.jail import Jail


class _Hold(msgspec.Struct):
    """The sandboxes that a call stops, each with the number of commands that had started there."""

    workspace: str
    jails: list[tuple[Jail, int]]
    is_whole: bool = True

    def is_endangered_by(self, policy: SandboxPolicy) -> bool:
        """Return whether a command with this policy may change files of the call: those that only read have
        a folder of their own as workspace."""
        return bool(policy.write) or os.path.realpath(policy.workspace) == self.workspace


class JobHolds:
    """The calls that stop sandboxes now. `jails` are all of the program, by their owners and policies.
    Thread-safe."""

    def __init__(self, jails: Mapping[tuple[str, SandboxPolicy], Jail]) -> None:
        self._jails = jails
        self._lock = threading.Lock()
        self._holds: dict[tuple[str, str], _Hold] = {}

    def start(
        self, call: tuple[str, str], workspace: str, is_related: Callable[[str], bool]
    ) -> list[bool | None]:
        """Stop the sandboxes of a session until `end`. `call` is the session's id and the call's.

        Returns what `JobStopper.stop` returns for each, and None for each sandbox of a related session (a
        helper's) in which something continues to run.
        """
        with self._lock:
            if call in self._holds:
                return []
            hold = self._holds[call] = _Hold(os.path.realpath(workspace), [])
            results: list[bool | None] = []
            for (owner_id, _), jail in list(self._jails.items()):
                if owner_id == call[0]:
                    hold.jails.append((jail, jail.jobs.starts))
                    results.append(jail.jobs.stop())
                elif is_related(owner_id) and jail.is_busy:
                    results.append(None)
            return results

    def note_new(self, owner_id: str, policy: SandboxPolicy) -> None:
        """Note that a session has a new sandbox: what runs there is not stopped."""
        with self._lock:
            for (session_id, _), hold in self._holds.items():
                if session_id == owner_id and hold.is_endangered_by(policy):
                    hold.is_whole = False

    def is_whole(self, session_id: str, call_id: str) -> bool:
        """Return whether no command of the session has started since a call stopped the others."""
        with self._lock:
            hold = self._holds.get((session_id, call_id))
            if hold is None:
                return True
            counts = ((jail, count) for jail, count in hold.jails if hold.is_endangered_by(jail.policy))
            return hold.is_whole and all(jail.jobs.starts == count for jail, count in counts)

    def end(self, session_id: str, call_id: str) -> None:
        """Let the sandboxes continue that a call stopped."""
        with self._lock:
            hold = self._holds.pop((session_id, call_id), None)
        for jail, _ in hold.jails if hold is not None else ():
            jail.jobs.resume()
