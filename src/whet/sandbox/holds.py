"""The calls for whose time the sandboxes of their session and its helpers stop: those that a person decides
on to run outside, while the question is open and while they run.

Other sessions go on: another person's work must not wait for an answer of this one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from whet.sandbox.policy import SandboxPolicy

if TYPE_CHECKING:
    from whet.sandbox.jail import Jail


class _Hold(msgspec.Struct):
    """What one call stops: the sandboxes of the sessions that `is_related` names."""

    session_id: str
    is_related: Callable[[str], bool]
    jails: list[Jail]


class JobHolds:
    """The calls that stop sandboxes now. `jails` are all of the program, by their owners and policies.
    Thread-safe."""

    def __init__(self, jails: Mapping[tuple[str, SandboxPolicy], Jail]) -> None:
        self._jails = jails
        self._lock = threading.Lock()
        self._holds: dict[tuple[str, str], _Hold] = {}

    def start(self, call: tuple[str, str], is_related: Callable[[str], bool]) -> list[bool | None]:
        """Stop the sandboxes of related sessions until `end`. `call` is a session's id and a call's.

        Returns what `JobStopper.stop` says of each.
        """
        with self._lock:
            if call in self._holds:
                return []
            hold = self._holds[call] = _Hold(call[0], is_related, [])
        jails = [jail for (owner_id, _), jail in list(self._jails.items()) if is_related(owner_id)]
        with self._lock:
            jails = [jail for jail in jails if jail not in hold.jails]
            hold.jails += jails
        return [jail.jobs.stop() for jail in jails]

    def stop_new(self, owner_id: str, jail: Jail) -> None:
        """Stop a new sandbox if a call covers it."""
        with self._lock:
            for hold in self._holds.values():
                if hold.is_related(owner_id):
                    hold.jails.append(jail)
                    jail.jobs.stop()

    def end(self, session_id: str, call_id: str = "") -> None:
        """Let the sandboxes continue that a call stopped, or all calls of a session."""
        with self._lock:
            calls = [call for call in self._holds if call[0] == session_id and call_id in ("", call[1])]
            jails = [jail for call in calls for jail in self._holds.pop(call).jails]
        for jail in jails:
            jail.jobs.resume()

    def is_stopped(self, session_id: str) -> bool:
        """Return whether a call of another session stops the sandboxes of this one."""
        with self._lock:
            holds = self._holds.values()
            return any(hold.session_id != session_id and hold.is_related(session_id) for hold in holds)
