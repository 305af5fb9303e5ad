"""Decide which parts of a sandboxed command need a question: only its needs outside the sandbox.

Effects inside need no question, because the kernel enforces the limits and a rewind brings files back. In a
workspace that is not recorded, dangerous commands need one. Losing something for good, or showing it to the
model for good, always does. This module uses sandboxes only through their Confinement.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from whet.approval.actions import ActionView
from whet.approval.person_request import OPENS, GateCase, JailedCall
from whet.approval.policy import PolicyGrant, Ruling
from whet.contract.errors import WhetError
from whet.contract.protocols import GateCall
from whet.sandbox.policy import ANY_HOST, Opening, SandboxPolicy, read_opening

if TYPE_CHECKING:  # 15 ms, and most turns run no command
    from whet.sandbox.confinement import Confinement
    from whet.sandbox.status import EngineStatus

_MAX_COMMANDS = 1_000
_ANYWHERE = Opening("reach", ANY_HOST)
_STOPPED = "what still runs in the sandbox is stopped until this command is decided on and has run"
_NOT_STOPPED = "some commands in the sandbox can't be stopped here: they can change files while you decide"


class JailGate:
    """The gate's interface to the sandboxes of one program. `confine` creates their Confinement."""

    def __init__(self, confine: Callable[[], Confinement]) -> None:
        self._confine = confine
        self._has_warned = False
        self._ran: OrderedDict[tuple[str, str], str] = OrderedDict()

    async def find_needs(
        self,
        call: GateCall,
        action: ActionView,
        grants: Callable[[], Awaitable[Iterable[PolicyGrant]]],
        *,
        guesses: bool,
    ) -> JailedCall | None:
        """Return the openings that a command needs beyond its sandbox, or None if it runs in none.

        A program that names no host may still need one, but that is a guess. Without `guesses`, it is
        asked about only if the command is dangerous, or failed at the sandbox before and named no host
        there either.
        """
        confinement = self._confine()
        if not (await _status(confinement, call)).holds:
            return None
        granted = tuple(filter(None, (_opening(grant) for grant in await grants() if grant.tool == OPENS)))
        stopped = confinement.denial_of(self._ran.get((call.session_id, action.full_text), ""))
        private = confinement.private_folders(call.session_id)
        guesses = guesses or action.level == "dangerous" or (stopped is not None and not stopped.openings)
        needs = [opening for opening in action.needs if guesses or opening != _ANYWHERE]
        requested = [opening for opening in needs if not _is_private(opening, private)]
        requested += stopped.openings if stopped is not None else ()
        if not requested and not granted:
            return JailedCall((), ())  # building a policy takes several milliseconds
        policy = await asyncio.to_thread(confinement.policy, Path(call.workspace), call.session_id)
        policy, granted = _apply_openings(policy, granted)
        return JailedCall(granted, missing_openings(policy, requested), stopped is not None)

    def open_jail(
        self, call: GateCall, action: ActionView, jailed: JailedCall, *, with_missing: bool
    ) -> bool:
        """Let the call run with its granted openings, and with the missing ones if a person allowed them.

        Openings of other calls are not included. Returns whether the sandbox lets it write only to folders of
        its own.
        """
        openings = jailed.held + (jailed.wanted if with_missing else ())
        confinement = self._confine()
        only_reads = action.level == "safe" and confinement.is_local
        only_reads = only_reads and not any(opening.kind in ("run", "write") for opening in openings)
        confinement.set_call_openings(call.session_id, call.call.id, openings, only_reads=only_reads)
        self._ran[call.session_id, action.full_text] = call.call.id
        while len(self._ran) > _MAX_COMMANDS:
            self._ran.popitem(last=False)
        return only_reads

    async def stop_jobs(self, call: GateCall, is_related: Callable[[str], bool]) -> str:
        """Stop what the session runs in sandboxes, until `resume_jobs`: it could change files under a call
        that will run outside. What related sessions, its helpers, run there goes on.

        Returns a line for the person, empty if nothing ran.
        """
        holds, ids = self._confine().holds, (call.session_id, call.call.id)
        stopping = asyncio.ensure_future(asyncio.to_thread(holds.start, ids, call.workspace, is_related))
        try:
            results = await asyncio.shield(stopping)
        except asyncio.CancelledError:
            stopping.add_done_callback(lambda _: holds.end(*ids))
            raise
        if None in results:
            return _NOT_STOPPED
        return _STOPPED if any(results) else ""

    def resume_jobs(self, session_id: str, call_id: str) -> None:
        """Let the sandboxes continue that a call stopped."""
        self._confine().holds.end(session_id, call_id)

    async def warning(self, call: GateCall) -> str:
        """Return, once, a warning that commands run without a sandbox, or an empty string."""
        if self._has_warned:
            return ""
        self._has_warned = True
        status = await _status(self._confine(), call)
        return "" if status.holds else status.line


async def _status(confinement: Confinement, call: GateCall) -> EngineStatus:
    """Return what confines the command. A session's first command probes in the sandbox that it will run
    in."""
    if (status := confinement.known_status) is not None:
        return status
    return await asyncio.to_thread(confinement.command_status, Path(call.workspace), call.session_id)


def missing_openings(
    policy: SandboxPolicy, openings: Iterable[Opening], private: Iterable[Path] = ()
) -> tuple[Opening, ...]:
    """Return the openings that the policy does not grant, each once. Paths in the `private` folders count as
    granted."""
    return tuple(
        opening
        for opening in dict.fromkeys(openings)
        if not policy.allows(opening) and not _is_private(opening, private)
    )


def _is_private(opening: Opening, folders: Iterable[Path]) -> bool:
    """Return whether a path is in one of the session's own folders. Paths in the person's home never are."""
    path, home = Path(opening.target), os.path.realpath(os.path.expanduser("~"))
    if opening.kind not in ("read", "write") or path.is_relative_to(home):
        return False
    return any(path.is_relative_to(os.path.realpath(folder)) for folder in folders)


def _opening(grant: PolicyGrant) -> Opening | None:
    try:
        return read_opening(grant.pattern)
    except WhetError:
        return None  # stored by another version


def _apply_openings(
    policy: SandboxPolicy, granted: tuple[Opening, ...]
) -> tuple[SandboxPolicy, tuple[Opening, ...]]:
    """Return the policy with those of the openings that are still valid, and these openings."""
    valid: list[Opening] = []
    for opening in granted:
        try:
            policy = policy.with_openings([opening])
        except WhetError:
            continue
        valid.append(opening)
    return policy, tuple(valid)


def judge_jailed(case: GateCase, jailed: JailedCall, first: Ruling) -> Ruling:
    """Return the ruling on a command that has a sandbox, from the ruling on the command alone."""
    if first.verdict == "allow" and not case.action.lasts and _opens_keys(case, jailed):
        return Ruling("ask", "it would open what holds keys to all of the command", lasting=True)
    if first.by_rule:
        return first
    if first.verdict == "ask":
        lasts = case.action.lasts
        inside = not jailed.wanted and not lasts and not jailed.is_lost
        return Ruling("allow") if inside else msgspec.structs.replace(first, lasting=not lasts)
    # Only the person lets a read-only command out of its sandbox.
    leaves = jailed.wanted and (case.action.level == "safe" or jailed.needs_person)
    return Ruling("ask", lasting=True) if leaves else first


def _opens_keys(case: GateCase, jailed: JailedCall) -> bool:
    """Return whether the call would open a path that holds keys, or a folder above one.

    All of a call runs in one sandbox, so even a part that only looks at names would open the keys to the
    rest.
    """
    if not jailed.wanted:
        return False
    from whet.approval.secrets import opens_secrets  # noqa: PLC0415  3 ms with its tables

    return any(
        opens_secrets(opening.target, case.scope)
        for opening in jailed.wanted
        if opening.kind in ("read", "write")
    )
