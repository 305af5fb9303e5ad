"""Warm starts of sessions: which template was asked for, and the way to it.

What a warm start needs is imported when one is asked for: a cold session pays for this module only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from whet.agent.session import Session, TurnObserver
from whet.clock import Clock, iso
from whet.config.paths import Home
from whet.config.schema import WarmSettings
from whet.contract.events import TurnEnd
from whet.contract.messages import Message
from whet.contract.protocols import Context, ModelLink
from whet.contract.tools import ToolSpec
from whet.store import sessions, starts
from whet.store.database import StateDatabase

OFF = "off"
AUTO = "auto"


class WarmWish(msgspec.Struct, frozen=True):
    """What a new session is to start with: a template's name, auto or off, and who says so."""

    name: str = OFF
    chosen_by: str = "default"


class SessionOpening(msgspec.Struct, frozen=True):
    """What a warm start changes: how a link is opened for a system prompt, how the session takes it, that
    prompt, the tools on offer, and how the context counts what is added."""

    open_link: Callable[[str], ModelLink]
    use_link: Callable[[ModelLink], None]
    prompt: str
    specs: Sequence[ToolSpec]
    lengthen: Callable[[Context, int], None]


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
                from whet.warm.template import load  # noqa: PLC0415 - a cold session does without

                load(self.home, asked)
            return WarmWish(asked, "auto" if asked == AUTO else "name")
        waiting = self.database.read_now(lambda db: starts.next_of(db, workspace))
        if waiting:
            await self.database.write(lambda db: starts.forget_next(db, workspace))
            return WarmWish(waiting, "next")
        return WarmWish(self.settings.default, "default")

    async def reopened(self, session_id: str, link: ModelLink) -> tuple[ModelLink, str]:
        """Give a stored session's link with the examples that it was started with, and those as text."""
        text = self.database.read_now(lambda db: sessions.prime_of(db, session_id))
        if not text:
            return link, ""
        from whet.warm.prime import PrimedLink, decode_prime  # noqa: PLC0415 - a cold session does without

        return PrimedLink(link, decode_prime(text)), text


class WarmStartObserver(TurnObserver):
    """Lets the first message of a new session decide what it starts with, before the message is stored."""

    def __init__(self, warmth: WarmStarts, wanted: WarmWish, opening: SessionOpening) -> None:
        self._warmth = warmth
        self._wanted = wanted
        self._opening: SessionOpening | None = opening

    async def before(self, session: Session, message: Message) -> Message:
        """Start the session at its first message; what goes wrong starts it cold."""
        if self._opening is not None:
            opening, self._opening = self._opening, None
            from whet.app.warm_start import start  # noqa: PLC0415 - a cold session does without

            await start(self._warmth, session, self._wanted, opening, message.text)
        return message


class WarmLabelObserver(TurnObserver):
    """Judges the calls of each turn of one session once its end was shown, behind the writes."""

    def __init__(self, warmth: WarmStarts, tool_calls: int) -> None:
        self._warmth = warmth
        self._seen = tool_calls

    async def ended(self, session: Session, end: TurnEnd) -> None:
        """Judge soon, where the turn has made calls."""
        if session.log.session.tool_calls > self._seen:
            self._seen = session.log.session.tool_calls
            asyncio.get_running_loop().call_soon(self._judge, session.id)

    def _judge(self, session_id: str) -> None:
        from whet.warm.label import label_soon  # noqa: PLC0415 - after the first turn with calls

        label_soon(self._warmth.database, session_id, iso(self._warmth.clock.now()))
