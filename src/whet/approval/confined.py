"""What is asked about a command that runs in a jail: only what it needs outside of it.

What stays inside needs no question: the kernel holds it, and files can be taken back. What would be lost
for good, or shown to the model for good, is still asked about. It knows jails by their confinement only.
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
from whet.approval.policy import PolicyGrant
from whet.contract.errors import WhetError
from whet.contract.protocols import GateCall, GrantScope
from whet.sandbox.policy import ANY_HOST, Opening, SandboxPolicy, read_opening

if TYPE_CHECKING:  # 15 ms, and most turns run no command
    from whet.sandbox.confinement import Confinement
    from whet.sandbox.status import EngineStatus

OPENS = "sandbox"
"""The tool under whose name openings are kept as grants."""
_MOST_COMMANDS = 1_000
_ANYWHERE = Opening("reach", ANY_HOST)


class JailedCall(msgspec.Struct, frozen=True):
    """A call that will run in a jail. `held` was opened for it before, `wanted` would have to be. `stopped`:
    it failed at the wall before, and says by what it printed what it wants."""

    held: tuple[Opening, ...]
    wanted: tuple[Opening, ...]
    stopped: bool = False

    @property
    def words(self) -> str:
        """What would be opened, as a person reads it."""
        return ", ".join(one.words for one in self.wanted)

    @property
    def leaves(self) -> bool:
        """Whether it would have to run with all rights."""
        return any(one.kind == "run" for one in self.wanted)

    @property
    def needs_person(self) -> bool:
        """Whether no mode lets it out: what is written outside, and what the command itself has asked for."""
        return bool(self.wanted) and (
            self.stopped or any(one.kind in ("run", "write") for one in self.wanted)
        )

    @property
    def scopes(self) -> tuple[GrantScope, ...]:
        """What a lasting yes would cover; nothing lasts for what runs outside."""
        if not self.wanted or self.leaves:
            return ()
        return (GrantScope(OPENS, tuple(f"{one.kind} {one.target}" for one in self.wanted)),)


class JailGate:
    """The gate's side of the jails of one program; `confine` makes them."""

    def __init__(self, confine: Callable[[], Confinement]) -> None:
        self._confine = confine
        self._told = False
        self._ran: OrderedDict[tuple[str, str], str] = OrderedDict()

    async def look(
        self,
        call: GateCall,
        action: ActionView,
        grants: Callable[[], Awaitable[Iterable[PolicyGrant]]],
        *,
        guesses: bool,
    ) -> JailedCall | None:
        """Say what `call`, a command, needs beyond its jail; None where it runs in none. That a program which
        names no host may want one is a guess: without `guesses` only what would change things, or has failed
        at the wall and named none there either, is asked about it."""
        confinement = self._confine()
        if not (await _status(confinement, call)).holds:
            return None
        held = tuple(filter(None, (_opening(grant) for grant in await grants() if grant.tool == OPENS)))
        stopped = confinement.denied(self._ran.get((call.session_id, action.whole), ""))
        private = confinement.private(call.session_id)
        guesses = guesses or action.level == "dangerous" or (stopped is not None and not stopped.openings)
        needs = [one for one in action.needs if guesses or one != _ANYWHERE]
        named = [one for one in needs if not _is_private(one, private)]
        wanted = (*named, *(stopped.openings if stopped is not None else ()))
        if not wanted and not held:
            return JailedCall((), ())  # a policy costs several milliseconds
        policy = await asyncio.to_thread(confinement.policy, Path(call.workspace), call.session_id)
        policy, held = _with(policy, held)
        needed = tuple(one for one in dict.fromkeys(wanted) if one.kind == "run" or not policy.allows(one))
        return JailedCall(held, needed, stopped is not None)

    def opens(self, call: GateCall, action: ActionView, jailed: JailedCall, *, wanted: bool) -> None:
        """Let the call run with what is open for it, and with what it `wanted` after a yes; nothing of
        another."""
        openings = jailed.held + (jailed.wanted if wanted else ())
        self._confine().open_call(call.session_id, call.call.id, openings)
        self._ran[call.session_id, action.whole] = call.call.id
        while len(self._ran) > _MOST_COMMANDS:
            self._ran.popitem(last=False)

    async def warning(self, call: GateCall) -> str:
        """Say once that nothing holds but reading, where that is so."""
        if self._told:
            return ""
        self._told = True
        status = await _status(self._confine(), call)
        return "" if status.holds else status.line


async def _status(confinement: Confinement, call: GateCall) -> EngineStatus:
    """Say what holds; the session's first command finds out in the jail that it will run in."""
    if (known := confinement.settled) is not None:
        return known
    return await asyncio.to_thread(confinement.standing, Path(call.workspace), call.session_id)


def _is_private(opening: Opening, folders: Iterable[Path]) -> bool:
    """Whether a path is in one of the session's own folders. What the home holds is not, wherever that is."""
    path, home = Path(opening.target), os.path.realpath(os.path.expanduser("~"))
    if opening.kind not in ("read", "write") or path.is_relative_to(home):
        return False
    return any(path.is_relative_to(os.path.realpath(one)) for one in folders)


def _opening(grant: PolicyGrant) -> Opening | None:
    try:
        return read_opening(grant.pattern)
    except WhetError:
        return None  # kept by another version


def _with(policy: SandboxPolicy, held: tuple[Opening, ...]) -> tuple[SandboxPolicy, tuple[Opening, ...]]:
    """Give the policy with what can still be opened of `held`."""
    kept: list[Opening] = []
    for one in held:
        try:
            policy = policy.opened([one])
        except WhetError:
            continue
        kept.append(one)
    return policy, tuple(kept)
