"""Warm starts of sessions: which template was asked for, and the way to it.

What a warm start needs is imported when one is asked for: a cold session pays for this module only.
"""

from __future__ import annotations

import asyncio
import pkgutil
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from whet.agent.session import Session
from whet.clock import Clock, iso
from whet.config.paths import Home
from whet.config.schema import WarmSettings
from whet.contract.events import TurnEnd
from whet.contract.messages import Message
from whet.contract.protocols import ModelLink
from whet.contract.tools import ToolSpec
from whet.store import sessions, warm
from whet.store.database import StateDatabase

OFF = "off"
AUTO = "auto"


class WarmWish(msgspec.Struct, frozen=True):
    """What a new session is to start with: a template's name, auto or off, and who says so."""

    name: str = OFF
    chosen_by: str = "default"


class Opening(msgspec.Struct, frozen=True):
    """What a warm start changes: how the session's link is opened for a system prompt, that prompt, the tools
    on offer, and how the context counts what is added."""

    open_link: Callable[[str], ModelLink]
    prompt: str
    specs: Sequence[ToolSpec]
    lengthen: Callable[[int], None]


class WarmStarts(msgspec.Struct, frozen=True):
    """The warm starts of one process."""

    home: Home
    settings: WarmSettings
    database: StateDatabase
    clock: Clock

    async def wanted(self, asked: str, workspace: str) -> WarmWish:
        """Say what a new session starts with: what was asked for now, what `load` had asked for before, or
        the setting. Raises NotFound and ConfigError where a template was asked for that can't be had."""
        if asked:
            if asked not in (OFF, AUTO):
                pkgutil.resolve_name("whet.warm.template:load")(self.home, asked)
            return WarmWish(asked, "auto" if asked == AUTO else "name")
        waiting = self.database.read_now(lambda db: warm.next_of(db, workspace))
        if waiting:
            await self.database.write(lambda db: warm.forget_next(db, workspace))
            return WarmWish(waiting, "next")
        return WarmWish(self.settings.default, "default")

    def arrange(self, session: Session, wanted: WarmWish, opening: Opening) -> None:
        """Let the first message of a new session decide, before it is stored."""
        if wanted.name == OFF:
            return
        before: Callable[[Message], Awaitable[Message]] = session.before_turn

        async def first(message: Message) -> Message:
            session.before_turn = before
            start = pkgutil.resolve_name("whet.app.warm_start:start")
            await start(self, session, wanted, opening, message.text)
            return await before(message)

        session.before_turn = first

    async def reopened(self, session_id: str, link: ModelLink) -> tuple[ModelLink, str]:
        """Give a stored session's link with the examples that it was started with, and those as text."""
        text = self.database.read_now(lambda db: sessions.prime_of(db, session_id))
        if not text:
            return link, ""
        opening = pkgutil.resolve_name("whet.warm.prime:decode_prime")(text)
        return pkgutil.resolve_name("whet.warm.prime:PrimedLink")(link, opening), text

    def watch(self, session: Session) -> None:
        """Judge the calls of each turn once its end was shown, behind the writes."""
        after: Callable[[TurnEnd], Awaitable[None]] = session.after_turn
        seen = [session.log.session.tool_calls]

        async def then(end: TurnEnd) -> None:
            await after(end)
            if session.log.session.tool_calls > seen[0]:
                seen[0] = session.log.session.tool_calls
                asyncio.get_running_loop().call_soon(judge)

        def judge() -> None:
            label_soon = pkgutil.resolve_name("whet.warm.label:label_soon")
            label_soon(self.database, session.id, iso(self.clock.now()))

        session.after_turn = then
