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
from whet.serve.door import ApiCaller
from whet.serve.turns import TurnInput, Turns
from whet.serve.wire import ApiError
from whet.store import api, bulk, sessions
from whet.store.bulk import PastMessage
from whet.store.database import StateDatabase
from whet.store.jobs import Queued

# What a front end (Open WebUI) asks for itself: titles, tags, follow-up questions, search words. A person may
# begin with the first of these words too, but hardly goes on with the others.
_CHORE = "### Task:"
_CHORE_MARKS = ("<chat_history>", "### Guidelines", "### Output", "### **Output")
Work = Callable[[apsw.Connection], None]


class SessionChoice(msgspec.Struct, frozen=True):
    """What a request asks for: in a session by its id, by the client's own name for it, or in a fresh one."""

    caller: ApiCaller
    said: tuple[Utterance, ...]
    session_id: str = ""
    client_key: str = ""
    private: bool = False

    @property
    def is_chore(self) -> bool:
        """Whether a front end asks for itself, not for a person: that has a private session of its own."""
        spoken = [one for one in self.said if one.speaker in ("user", "assistant")]
        if self.session_id or len(spoken) != 1 or not spoken[0].text.lstrip().startswith(_CHORE):
            return False
        return any(mark in spoken[0].text for mark in _CHORE_MARKS)


class SessionTurns:
    """Has requests answered by turns of sessions."""

    def __init__(self, database: StateDatabase, turns: Turns) -> None:
        self._database = database
        self._turns = turns
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def converse(
        self, wish: SessionChoice, emit: Emit, opened: Callable[[str], None], ended: Work
    ) -> TurnEnd:
        """Run the turn that a request asks for. `opened` gets the session's id before it begins; `ended` is
        done in one transaction with its end. Raises WhetError before anything was stored."""
        if wish.is_chore:
            wish = msgspec.structs.replace(wish, client_key="", private=True)
        async with self._lock(wish):
            session_id = self._locate(wish)
            news = content.news_of(wish.said, await self._stored(wish, session_id))
            stored: list[Work] = []
            if not session_id:
                session_id = await self._begin(wish, news)
                stored.append(lambda db: api.adopt(db, session_id, wish.caller.name, wish.client_key))
                if wish.is_chore:
                    stored.append(lambda db: api.set_aside(db, session_id))
            opened(session_id)
            text = self._text(wish, session_id, news, stored)
            receipt = Receipt(_all(stored), lambda turn, reason, text: _all((ended,)))
            said = TurnInput(text, news.images, receipt=receipt, is_plain=True)
            end = await self._turns.run(session_id, said, emit)
        assert end is not None  # nothing is steered here
        return end

    def visible(self, caller: ApiCaller, session_id: str) -> sessions.SessionRow:
        """Give a session that the caller may see. Raises NotFound, also for one of somebody else's."""

        def read(db: apsw.Connection) -> sessions.SessionRow:
            row = sessions.get(db, session_id)
            known = None if caller.is_owner else api.belonging(db, session_id)
            if not caller.is_owner and (known is None or known.token != caller.name):
                raise NotFound(f"there is no session {session_id}", hint="GET /api/sessions")
            return row

        # Here and below: a look at an index or two costs less than a thread's way there and back.
        return self._database.read_now(read)

    async def begin(
        self, caller: ApiCaller, *, title: str = "", private: bool = False, warm: str = ""
    ) -> str:
        """Begin a session for a caller and give its id."""
        session_id = await self._turns.hosted.new_session(
            title=title, private=private, warm=warm, source="api", profile=caller.profile
        )
        await self._database.append(lambda db: api.adopt(db, session_id, caller.name))
        return session_id

    async def _begin(self, wish: SessionChoice, news: content.NewContent) -> str:
        # A warm start is chosen by the first message; a session with a history has had its own.
        warm = "off" if news.history or wish.is_chore else ""
        first = next((one.text for one in news.history if one.speaker == "user"), news.text)
        session_id = await self._turns.hosted.new_session(
            title=sessions.title_of(first),
            private=wish.private,
            warm=warm,
            source="api",
            profile=wish.caller.profile,
        )
        if news.history:
            now_ms = self._turns.hosted.app.clock.unix_ms()
            past = [PastMessage(content.as_message(one), now_ms, Usage()) for one in news.history]
            await self._database.append(lambda db: bulk.begin_with(db, session_id, past))
        return session_id

    async def _stored(self, wish: SessionChoice, session_id: str) -> list[str]:
        """Give what the person said in the session; with one message in the request it does not matter."""
        if not session_id or sum(one.speaker in ("user", "assistant") for one in wish.said) == 1:
            return []
        return await self._database.read(lambda db: api.said_by_user(db, session_id))

    def _text(
        self, wish: SessionChoice, session_id: str, news: content.NewContent, stored: list[Work]
    ) -> str:
        """Give what is said, after the client's instructions where the model does not know these yet."""
        instructions = content.instructions_of(wish.said)
        if not instructions:
            return news.text
        digest = content.digest_of(instructions)
        known = self._database.read_now(lambda db: api.belonging(db, session_id))
        if known is not None and known.instructions == digest:
            return news.text
        stored.append(lambda db: api.set_instructions(db, session_id, digest))
        return content.with_instructions(instructions, news.text)

    def _locate(self, wish: SessionChoice) -> str:
        if wish.session_id:
            row = self.visible(wish.caller, wish.session_id)
            if row.kind != "chat":
                raise ApiError(400, f"a session of kind {row.kind} takes no messages", code="invalid_session")
            return row.id
        if not wish.client_key:
            return ""
        return self._database.read_now(lambda db: api.session_of(db, wish.caller.name, wish.client_key))

    def _lock(self, wish: SessionChoice) -> asyncio.Lock:
        if not wish.session_id and not wish.client_key:
            return asyncio.Lock()
        name = wish.session_id or f"{wish.caller.name}\0{wish.client_key}"
        return self._locks.setdefault(name, asyncio.Lock())


def _all(works: Sequence[Work]) -> Callable[[apsw.Connection], Sequence[Queued]]:
    def done(connection: apsw.Connection) -> Sequence[Queued]:
        for work in works:
            work(connection)
        return ()

    return done
