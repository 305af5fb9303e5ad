"""From a client's request to a turn: which session it belongs to, what of it is new, and who may do that.

Requests for one session are answered one after the other, in the order in which they came. Knows neither of
OpenAI's shapes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from weakref import WeakValueDictionary

import apsw
import msgspec

from whet.app.hosted import Receipt
from whet.contract.errors import NotFound
from whet.contract.events import Emit, TurnEnd
from whet.contract.messages import Usage
from whet.serve import content
from whet.serve.content import Utterance
from whet.serve.door import Caller
from whet.serve.turns import Said, Turns
from whet.serve.wire import ApiError
from whet.store import api, bulk, sessions
from whet.store.bulk import PastMessage
from whet.store.database import Database
from whet.store.jobs import Queued

# How requests begin that a front end (Open WebUI) makes for itself: titles, tags, follow-up questions.
_CHORE = "### Task:"


class Wish(msgspec.Struct, frozen=True):
    """What a request asks for: in a session by its id, by the client's own name for it, or in a fresh one."""

    caller: Caller
    said: tuple[Utterance, ...]
    session_id: str = ""
    client_key: str = ""
    private: bool = False

    @property
    def is_chore(self) -> bool:
        """Whether a front end asks for itself, not for a person: that has a private session of its own."""
        spoken = [one for one in self.said if one.speaker in ("user", "assistant")]
        return not self.session_id and len(spoken) == 1 and spoken[0].text.lstrip().startswith(_CHORE)


class Talks:
    """Has requests answered by turns of sessions."""

    def __init__(self, database: Database, turns: Turns) -> None:
        self._database = database
        self._turns = turns
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def converse(
        self, wish: Wish, emit: Emit, opened: Callable[[str], None], ended: Callable[[apsw.Connection], None]
    ) -> TurnEnd:
        """Run the turn that a request asks for. `opened` gets the session's id before it begins; `ended` is
        done in one transaction with its end. Raises WhetError before anything was stored."""
        if wish.is_chore:
            wish = msgspec.structs.replace(wish, client_key="", private=True)
        async with self._lock(wish):
            session_id = await self._locate(wish)
            stored = (
                await self._database.read(lambda db: api.said_by_user(db, session_id)) if session_id else []
            )
            news = content.news_of(wish.said, stored)
            if not session_id:
                session_id = await self._begin(wish, news)
            opened(session_id)
            said = await self._said(wish, session_id, news)
            receipt = Receipt(said.receipt.stored, lambda turn, reason, text: _no_jobs(ended))
            said = msgspec.structs.replace(said, receipt=receipt)
            end = await self._turns.run(session_id, said, emit)
        assert end is not None  # nothing is steered here
        return end

    async def visible(self, caller: Caller, session_id: str) -> sessions.SessionRow:
        """Give a session that the caller may see. Raises NotFound, also for one of somebody else's."""

        def read(db: apsw.Connection) -> sessions.SessionRow:
            row = sessions.get(db, session_id)
            known = None if caller.is_owner else api.belonging(db, session_id)
            if not caller.is_owner and (known is None or known.token != caller.name):
                raise NotFound(f"there is no session {session_id}", hint="GET /api/sessions")
            return row

        return await self._database.read(read)

    async def begin(self, caller: Caller, *, title: str = "", private: bool = False, warm: str = "") -> str:
        """Begin a session for a caller and give its id."""
        session_id = await self._turns.hosted.new_session(
            title=title, private=private, warm=warm, source="api"
        )
        await self._database.append(lambda db: api.adopt(db, session_id, caller.name))
        return session_id

    async def _begin(self, wish: Wish, news: content.News) -> str:
        # A warm start is chosen by the first message; a session with a history has had its own.
        warm = "off" if news.history or wish.is_chore else ""
        first = next((one.text for one in news.history if one.speaker == "user"), news.text)
        session_id = await self._turns.hosted.new_session(
            title=sessions.title_of(first), private=wish.private, warm=warm, source="api"
        )
        past = [PastMessage(content.as_message(one), 0, Usage()) for one in news.history]

        def store(db: apsw.Connection) -> None:
            api.adopt(db, session_id, wish.caller.name, wish.client_key)
            if past:
                now_ms = self._turns.hosted.app.clock.unix_ms()
                bulk.begin_with(db, session_id, [msgspec.structs.replace(one, at_ms=now_ms) for one in past])

        await self._database.append(store)
        return session_id

    async def _said(self, wish: Wish, session_id: str, news: content.News) -> Said:
        instructions = content.instructions_of(wish.said)
        digest = content.digest_of(instructions)
        known = await self._database.read(lambda db: api.belonging(db, session_id))
        if not instructions or (known is not None and known.instructions == digest):
            return Said(news.text, news.images, is_plain=True)
        text = content.with_instructions(instructions, news.text)
        receipt = Receipt(_no_jobs(lambda db: api.set_instructions(db, session_id, digest)))
        return Said(text, news.images, receipt=receipt, is_plain=True)

    async def _locate(self, wish: Wish) -> str:
        if wish.session_id:
            row = await self.visible(wish.caller, wish.session_id)
            if row.kind != "chat":
                raise ApiError(400, f"a session of kind {row.kind} takes no messages", code="invalid_session")
            return row.id
        if not wish.client_key:
            return ""
        return await self._database.read(lambda db: api.session_of(db, wish.caller.name, wish.client_key))

    def _lock(self, wish: Wish) -> asyncio.Lock:
        if not wish.session_id and not wish.client_key:
            return asyncio.Lock()
        name = wish.session_id or f"{wish.caller.name}\0{wish.client_key}"
        return self._locks.setdefault(name, asyncio.Lock())


def _no_jobs(work: Callable[[apsw.Connection], None]) -> Callable[[apsw.Connection], Sequence[Queued]]:
    def done(connection: apsw.Connection) -> Sequence[Queued]:
        work(connection)
        return ()

    return done
