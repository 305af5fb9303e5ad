"""Warm starts of sessions: start or reopen a session with a template.

The modules of a warm start are imported only when one is requested: a cold session pays for this module
only.
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
from whet.store import sessions
from whet.store.database import StateDatabase

OFF = "off"
AUTO = "auto"


class WarmWish(msgspec.Struct, frozen=True):
    """The requested start of a new session: a template's name, auto or off, and who chose it."""

    name: str = OFF
    chosen_by: str = "default"


class SessionOpening(msgspec.Struct, frozen=True):
    """The parts of a session that a warm start changes: how to open a link for a system prompt, how to hand
    it to the session, that prompt, the available tools, and how the context counts added tokens."""

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

    async def reopen_link(self, session_id: str, link: ModelLink) -> ModelLink:
        """Return a stored session's link with the examples that it was started with."""
        text = await self.database.look(lambda db: sessions.read_prime(db, session_id))
        return add_examples(link, text) if text else link


def add_examples(link: ModelLink, text: str) -> ModelLink:
    """Return a link that sends these examples."""
    from whet.warm.prime import PrimedLink, decode_prime  # noqa: PLC0415 - a cold session does without

    return PrimedLink(link, decode_prime(text))


class WarmStartObserver(TurnObserver):
    """Lets the first message of a new session decide its start, before the message is stored."""

    def __init__(self, warmth: WarmStarts, wish: WarmWish, opening: SessionOpening) -> None:
        self._warmth = warmth
        self._wanted = wish
        self._opening: SessionOpening | None = opening

    async def before(self, session: Session, message: Message) -> Message:
        """Start the session at its first message; errors start it cold."""
        if self._opening is not None:
            opening, self._opening = self._opening, None
            from whet.warm.start import start_warm  # noqa: PLC0415 - a cold session does without

            await start_warm(self._warmth, session, self._wanted, opening, message.text)
        return message


class WarmLabelObserver(TurnObserver):
    """Judges the calls of each turn of one session after its end was shown, behind the writes."""

    def __init__(self, warmth: WarmStarts, tool_calls: int) -> None:
        self._warmth = warmth
        self._seen = tool_calls

    async def after_turn(self, session: Session, end: TurnEnd) -> None:
        """Schedule the judging if the turn has made calls."""
        if session.log.session.tool_calls > self._seen:
            self._seen = session.log.session.tool_calls
            asyncio.get_running_loop().call_soon(self._judge, session.id)

    def _judge(self, session_id: str) -> None:
        from whet.warm.label import label_soon  # noqa: PLC0415 - after the first turn with calls

        label_soon(self._warmth.database, session_id, iso(self._warmth.clock.now()))
