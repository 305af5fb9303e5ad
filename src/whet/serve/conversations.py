"""From a client's request to a turn: find its session, find the new part of its messages, and check access.

Requests for one session are answered one after the other, in the order of arrival. Independent of the
client's format.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from weakref import WeakValueDictionary

import apsw
import msgspec

from whet.app.conversations.hosted import TurnWrites
from whet.contract.events import Emit, TurnEnd
from whet.contract.texts import from_json
from whet.contract.tools import ToolSpec
from whet.serve import content, history, identity
from whet.serve.auth import ApiCaller
from whet.serve.client_tools import CallResult, ClientTools, client_call_id
from whet.serve.identity import SessionChoice
from whet.serve.suspended_turn import ApiEvent, SuspendedTurn
from whet.serve.turns import TurnInput, Turns
from whet.serve.wire import ApiError
from whet.store import api, bulk, sessions
from whet.store.database import StateDatabase
from whet.store.jobs import QueuedJob

_CONTINUE_TEXT = "Go on: the results of the calls are above."
Work = Callable[[apsw.Connection], None]


class SessionTurns:
    """Answers requests with turns of sessions. A turn that waits for results is cancelled after `wait_s`."""

    def __init__(self, database: StateDatabase, turns: Turns, wait_s: float = 600.0) -> None:
        self._database = database
        self._turns = turns
        self._wait_s = wait_s
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._held: dict[str, SuspendedTurn] = {}
        self._tools = ClientTools()
        self._tools.asked = self._note_call
        turns.hosted.add_tools(self._tools.tools_for)

    async def converse(
        self,
        wish: SessionChoice,
        emit: Callable[[ApiEvent], None],
        opened: Callable[[str], None],
        ended: Work,
    ) -> TurnEnd:
        """Run the turn of a request until it ends or calls tools of the program.

        `opened` receives the session's id before the turn starts; `ended` runs in the transaction that
        stores the end. Raises WhetError before anything was stored.
        """
        is_aside = wish.is_side_request or await self._is_about_conversation(wish)
        if is_aside:
            wish = msgspec.structs.replace(wish, client_key="", private=True, is_aside=True)
        async with AsyncExitStack() as locks:
            if (name := wish.client_key or next(iter(wish.tips()), "")) and not is_aside:
                lock = self._locks.setdefault(f"{wish.caller.name}\0{name}", asyncio.Lock())
                await locks.enter_async_context(lock)
            located = "" if is_aside else self._locate(wish)
            if located:
                await locks.enter_async_context(self._locks.setdefault(located, asyncio.Lock()))
                await self._wait_for_end(located)
                if self._locate(wish) != located:  # it went on while this request waited
                    located = ""
            session_id = await self._session_with_tools(wish, located)
            suspended = self._held.get(session_id)
            if suspended is not None:
                opened(session_id)
                return await self._continue_turn(suspended, wish, emit, ended)
            stored = await _read_stored(self._database, wish, session_id)
            news = await _find_news(self._database, self._tools, wish, session_id, stored)
            works: list[Work] = []
            if not session_id:
                session_id = await self._begin(wish, news)
                await locks.enter_async_context(self._locks.setdefault(session_id, asyncio.Lock()))
                works.append(lambda db: api.set_owner(db, session_id, wish.caller.name, wish.client_key))
                if is_aside:
                    works.append(lambda db: api.mark_as_helper(db, session_id))
            opened(session_id)
            return await self._run_turn(wish, session_id, news, works, emit, ended)

    async def remember(self, wish: SessionChoice, end: TurnEnd, answer: str) -> None:
        """Remember how a conversation ends now, if its client has no name for it.

        What was asked of one turn alone is part of no history, so such a turn is remembered only for a client
        that says who it is.
        """
        tips = wish.tips(answer)
        if tips and end.turn_id and (wish.client or not wish.once) and not wish.is_side_request:
            await self._database.append(lambda db: api.keep_tips(db, end.session_id, end.turn_id, tips))

    def cancel(self, session_id: str) -> None:
        """Cancel a session's turn."""
        self._turns.keep(asyncio.create_task(self._turns.cancel(session_id)))

    async def _run_turn(
        self,
        wish: SessionChoice,
        session_id: str,
        news: content.NewContent,
        works: list[Work],
        emit: Callable[[ApiEvent], None],
        ended: Work,
    ) -> TurnEnd:
        text = self._turn_text(wish, session_id, news, works)
        done: list[bool] = []

        def store_once(db: apsw.Connection) -> None:
            """Run `ended` once: with the first calls that are handed over, or with the turn's end."""
            if not done:
                done.append(True)
                ended(db)

        writes = TurnWrites(_run_all(works), lambda turn, reason, text: _run_all((store_once,)))
        is_here = bool(wish.tools or news.results)
        turn_input = TurnInput(text, news.images, writes=writes, is_plain=True, is_here=is_here)
        await self._offer(session_id, wish)
        if news.results and not news.history:
            # The results belong to a turn that ended without them or was cut off by a crash. That turn
            # continues.
            self._tools.deliver(session_id, news.results)
            resumed = msgspec.structs.replace(turn_input, text=None, images=())
            session = await self._turns.hosted.open_session(session_id)
            if not text and session.log.live.open_turn is not None:  # a crash cut it off
                return await self._start_turn(session_id, resumed, emit, store_once)
            turn_input = msgspec.structs.replace(turn_input, text=_late_results_text(news.results, text))
        return await self._start_turn(session_id, turn_input, emit, store_once)

    async def _start_turn(
        self, session_id: str, turn_input: TurnInput, emit: Callable[[ApiEvent], None], store: Work
    ) -> TurnEnd:
        suspended = SuspendedTurn(session_id, self._tools, self._wait_s)

        async def work(emit: Emit) -> TurnEnd | None:
            try:
                return await self._turns.run(session_id, turn_input, emit)
            finally:
                if self._held.get(session_id) is suspended:
                    del self._held[session_id]
                self._tools.withdraw(session_id)

        self._held[session_id] = suspended
        suspended.start(work)
        self._turns.keep(suspended.task)
        end = await suspended.run_round(emit)
        if not suspended.task.done():
            await self._database.append(store)
        return end

    async def _continue_turn(
        self, suspended: SuspendedTurn, wish: SessionChoice, emit: Callable[[ApiEvent], None], ended: Work
    ) -> TurnEnd:
        """Continue a turn that waits for results. Any other text in the request is added to the turn."""
        news = await _find_news(self._database, self._tools, wish, suspended.session_id, ())
        self._tools.offer(suspended.session_id, wish.tools, one_by_one=wish.one_by_one)
        if news.text.strip() or news.images:
            turn_input = TurnInput(news.text, news.images, "steer", is_plain=True, is_here=True)
            await self._turns.run(suspended.session_id, turn_input, lambda event: None)
        self._tools.deliver(suspended.session_id, news.results)
        end = await suspended.run_round(emit)
        await self._database.append(ended)
        return end

    def _note_call(self, session_id: str) -> None:
        if (suspended := self._held.get(session_id)) is not None:
            suspended.note_waiting_call()

    async def _offer(self, session_id: str, wish: SessionChoice) -> None:
        """Make the program's tools available to a turn. A session in memory without them is reopened."""
        if not wish.tools:
            return
        self._tools.offer(session_id, wish.tools, one_by_one=wish.one_by_one)
        session = self._turns.hosted.find_open(session_id)
        if session is not None and any(
            (tool := session.tools.get(spec.name)) is None or tool.toolset != "client" for spec in wish.tools
        ):
            await self._turns.hosted.release(session_id)

    async def _wait_for_end(self, session_id: str) -> None:
        """Wait for a turn that no longer waits for results: it was cancelled, and stores its end."""
        suspended = self._held.get(session_id)
        if suspended is not None and not self._tools.waiting_calls(session_id):
            await asyncio.wait((suspended.task,))
            self._held.pop(session_id, None)

    async def _session_with_tools(self, wish: SessionChoice, session_id: str) -> str:
        """Return the session if it was created with the offered tools, because its prefix can't change.

        Returns an empty string if a new session is needed. Raises ApiError if the client names the
        session.
        """
        if not session_id or not wish.tools or session_id in self._held or wish.results:
            return session_id
        _, tools_json = await self._database.read(lambda db: sessions.read_prefix(db, session_id))
        stored_specs = from_json(tools_json or "[]", list[ToolSpec])
        if all(spec in stored_specs for spec in wish.tools):
            return session_id
        if wish.session_id:
            message = "this session was begun with other tools; begin another one"
            raise ApiError(400, message, param="tools", code="tools_differ")
        return ""

    def find_visible(self, caller: ApiCaller, session_id: str) -> sessions.SessionRow:
        """Return a session that the caller may see. Raises NotFound, also for another caller's."""
        # Here and below: one or two index lookups cost less than running them in a thread.
        return self._database.read_now(lambda db: identity.visible_session(db, caller, session_id))

    async def begin(
        self, caller: ApiCaller, *, title: str = "", private: bool = False, warm: str = ""
    ) -> str:
        """Create a session for a caller and return its id."""
        session_id = await self._turns.hosted.new_session(
            title=title, private=private, warm=warm, source="api", profile=caller.profile
        )
        await self._database.append(lambda db: api.set_owner(db, session_id, caller.name))
        return session_id

    async def _begin(self, wish: SessionChoice, news: content.NewContent) -> str:
        # The first message chooses a warm start; a session with a history does not get one.
        warm = "off" if news.history or wish.is_side_request else ""
        texts = [*(message.text for message in news.history if message.speaker == "user"), news.text][:3]
        clock = self._turns.hosted.services.clock
        session_id = clock.new_id()
        if wish.tools:
            self._tools.offer(session_id, wish.tools)
        await self._turns.hosted.new_session(
            title=sessions.make_title("\n".join(texts)),
            private=wish.private,
            warm=warm,
            source="api",
            profile=wish.caller.profile,
            tools=self._tools.tools(wish.tools),
            session_id=session_id,
        )
        if news.history:
            past = list(history.to_past_messages(news.history, clock.unix_ms()))
            await self._database.append(lambda db: bulk.prepend_messages(db, session_id, past))
        return session_id

    async def _is_about_conversation(self, wish: SessionChoice) -> bool:
        if not wish.client_key or wish.tools:
            return False
        return await self._database.read(lambda db: identity.is_about_conversation(db, wish))

    def _turn_text(
        self, wish: SessionChoice, session_id: str, news: content.NewContent, works: list[Work]
    ) -> str:
        """Return the turn's text, after the client's instructions if they are new to the session."""
        text = news.text
        if not text.strip() and not news.images and news.history:
            text = _CONTINUE_TEXT
        if wish.once:
            text = content.with_instructions(wish.once, text)
        instructions = content.instructions_of(wish.said)
        if not instructions or not text:
            return text
        digest = content.digest_of(instructions)
        belonging = self._database.read_now(lambda db: api.find_owner(db, session_id))
        if belonging is not None and belonging.instructions == digest:
            return text
        works.append(lambda db: api.set_instructions(db, session_id, digest))
        return content.with_instructions(instructions, text)

    def _locate(self, wish: SessionChoice) -> str:
        if wish.session_id:
            row = self.find_visible(wish.caller, wish.session_id)
            if row.kind != "chat" and row.id not in self._held:
                raise ApiError(400, f"a session of kind {row.kind} takes no messages", code="invalid_session")
            return row.id
        waiting_ids = {
            call.id
            for session_id in identity.sessions_of_results(wish.results)
            for call in self._tools.waiting_calls(session_id)
        }
        return self._database.read_now(lambda db: identity.proven_session(db, wish, waiting_ids))


async def _find_news(
    database: StateDatabase, tools: ClientTools, wish: SessionChoice, session_id: str, stored: Sequence[str]
) -> content.NewContent:
    """Return what a request adds to a session, "" for a new one. Raises ApiError if a result belongs to no
    call of a begun session, nor of the request itself."""
    news = content.find_new_content(wish.said, stored, is_begun=bool(session_id))
    known_ids = {call.id for message in wish.said for call in message.calls}
    known_ids |= {call.id for call in tools.waiting_calls(session_id)}
    result_ids = {result.call_id for result in news.results}
    if session_id and not result_ids <= known_ids:
        calls = await database.read(lambda db: api.list_call_ids(db, session_id))
        if not result_ids <= known_ids | {client_call_id(session_id, *call) for call in calls}:
            raise content.no_such_call()
    return news


async def _read_stored(database: StateDatabase, wish: SessionChoice, session_id: str) -> list[str]:
    """Return the person's stored messages. Not needed, and empty, if the request has only one message."""
    is_named = bool(wish.client_key or wish.session_id)
    if not session_id or not is_named or sum(message.speaker != "system" for message in wish.said) == 1:
        return []
    return await database.read(lambda db: api.list_user_texts(db, session_id))


def _late_results_text(results: Sequence[CallResult], text: str) -> str:
    """Return the results as text for a message, for results whose calls no longer wait."""
    result_texts = "\n\n".join(result.text for result in results)
    head = "The program's results for calls of the turn before, which had ended without them:"
    return f"{text}\n\n{head}\n\n{result_texts}".strip()


def _run_all(works: Sequence[Work]) -> Callable[[apsw.Connection], Sequence[QueuedJob]]:
    def run(connection: apsw.Connection) -> Sequence[QueuedJob]:
        for work in works:
            work(connection)
        return ()

    return run
