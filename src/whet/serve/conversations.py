"""Turn a client's request into a turn: find its session, check access, and find the new part of its messages.

Requests for one session are answered one after the other, in the order of arrival.
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
Write = Callable[[apsw.Connection], None]
EmitEvent = Callable[[ApiEvent], None]


class SessionTurns:
    """Answers requests with turns of sessions. A turn that waits for results is cancelled after `wait_s`."""

    def __init__(self, database: StateDatabase, turns: Turns, wait_s: float = 600.0) -> None:
        self._database = database
        self._turns = turns
        self._wait_s = wait_s
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._suspended: dict[str, SuspendedTurn] = {}
        self._tools = ClientTools()
        self._tools.on_call = self._note_call
        turns.hosted.add_tools(self._tools.tools_for)

    async def converse(
        self, choice: SessionChoice, emit: EmitEvent, on_open: Callable[[str], None], store_end: Write
    ) -> TurnEnd:
        """Run the turn of a request until it ends or calls tools of the program. `on_open` is called with the
        session's id before the turn starts. `store_end` is called in the transaction that stores the end.
        Raises WhetError before anything is stored."""
        is_aside = choice.is_side_request or await self._is_about_conversation(choice)
        if is_aside:
            choice = msgspec.structs.replace(choice, client_key="", private=True, is_aside=True)
        async with AsyncExitStack() as locks:
            if (name := choice.client_key or next(iter(choice.tips()), "")) and not is_aside:
                lock = self._locks.setdefault(f"{choice.caller.name}\0{name}", asyncio.Lock())
                await locks.enter_async_context(lock)
            existing_id = "" if is_aside else self._find_session(choice)
            if existing_id:
                await locks.enter_async_context(self._locks.setdefault(existing_id, asyncio.Lock()))
                await self._wait_for_end(existing_id)
                if self._find_session(choice) != existing_id:  # the session continued meanwhile
                    existing_id = ""
            session_id = await self._session_with_tools(choice, existing_id)
            suspended = self._suspended.get(session_id)
            if suspended is not None:
                on_open(session_id)
                return await self._continue_turn(suspended, choice, emit, store_end)
            stored = await _read_stored(self._database, choice, session_id)
            added = await _find_new_content(self._database, self._tools, choice, session_id, stored)
            writes: list[Write] = []
            if not session_id:
                session_id = await self._create(choice, added)
                await locks.enter_async_context(self._locks.setdefault(session_id, asyncio.Lock()))
                writes.append(lambda db: api.set_owner(db, session_id, choice.caller.name, choice.client_key))
                if is_aside:
                    writes.append(lambda db: api.mark_as_helper(db, session_id))
            on_open(session_id)
            return await self._run_turn(choice, session_id, added, writes, emit, store_end)

    async def remember(self, choice: SessionChoice, end: TurnEnd, answer: str) -> None:
        """Store the fingerprints of a conversation, if its client has no name for it. Instructions for one
        turn alone are not part of the client's history. So after such a turn, they are stored only for a
        client that names itself."""
        tips = choice.tips(answer)
        if tips and end.turn_id and (choice.client or not choice.once) and not choice.is_side_request:
            await self._database.append(lambda db: api.keep_tips(db, end.session_id, end.turn_id, tips))

    def cancel(self, session_id: str) -> None:
        """Cancel a session's turn."""
        self._turns.keep(asyncio.create_task(self._turns.cancel(session_id)))

    async def _run_turn(
        self,
        choice: SessionChoice,
        session_id: str,
        added: content.NewContent,
        writes: list[Write],
        emit: EmitEvent,
        store_end: Write,
    ) -> TurnEnd:
        text = self._turn_text(choice, session_id, added, writes)
        is_stored: list[bool] = []

        def store_once(db: apsw.Connection) -> None:
            """Call `store_end` once: with the first calls that are handed over, or with the turn's end."""
            if not is_stored:
                is_stored.append(True)
                store_end(db)

        turn_writes = TurnWrites(_run_all(writes), lambda turn, reason, text: _run_all((store_once,)))
        is_here = bool(choice.tools or added.results)
        turn_input = TurnInput(text, added.images, writes=turn_writes, is_plain=True, is_here=is_here)
        await self._offer_tools(session_id, choice)
        if added.results and not added.history:
            # The results belong to a turn that ended without them, or that a crash interrupted. The
            # interrupted turn continues.
            self._tools.deliver(session_id, added.results)
            resumed = msgspec.structs.replace(turn_input, text=None, images=())
            session = await self._turns.hosted.open_session(session_id)
            if not text and session.log.live.open_turn is not None:  # a crash interrupted it
                return await self._start_turn(session_id, resumed, emit, store_once)
            turn_input = msgspec.structs.replace(turn_input, text=_late_results_text(added.results, text))
        return await self._start_turn(session_id, turn_input, emit, store_once)

    async def _start_turn(
        self, session_id: str, turn_input: TurnInput, emit: EmitEvent, store: Write
    ) -> TurnEnd:
        suspended = SuspendedTurn(session_id, self._tools, self._wait_s)

        async def work(emit: Emit) -> TurnEnd | None:
            try:
                return await self._turns.run(session_id, turn_input, emit)
            finally:
                if self._suspended.get(session_id) is suspended:
                    del self._suspended[session_id]
                self._tools.withdraw(session_id)

        self._suspended[session_id] = suspended
        suspended.start(work)
        self._turns.keep(suspended.task)
        end = await suspended.run_round(emit)
        if not suspended.task.done():
            await self._database.append(store)
        return end

    async def _continue_turn(
        self, suspended: SuspendedTurn, choice: SessionChoice, emit: EmitEvent, store_end: Write
    ) -> TurnEnd:
        """Continue a turn that waits for results. Any other text in the request is added to the turn."""
        added = await _find_new_content(self._database, self._tools, choice, suspended.session_id, ())
        self._tools.offer(suspended.session_id, choice.tools, one_by_one=choice.one_by_one)
        if added.text.strip() or added.images:
            turn_input = TurnInput(added.text, added.images, "steer", is_plain=True, is_here=True)
            await self._turns.run(suspended.session_id, turn_input, lambda event: None)
        self._tools.deliver(suspended.session_id, added.results)
        end = await suspended.run_round(emit)
        await self._database.append(store_end)
        return end

    def _note_call(self, session_id: str) -> None:
        if (suspended := self._suspended.get(session_id)) is not None:
            suspended.note_waiting_call()

    async def _offer_tools(self, session_id: str, choice: SessionChoice) -> None:
        """Make the program's tools available to a turn. Reopens a session in memory that lacks them."""
        if not choice.tools:
            return
        self._tools.offer(session_id, choice.tools, one_by_one=choice.one_by_one)
        session = self._turns.hosted.find_open(session_id)
        if session is not None and any(
            (tool := session.tools.get(spec.name)) is None or tool.toolset != "client"
            for spec in choice.tools
        ):
            await self._turns.hosted.release(session_id)

    async def _wait_for_end(self, session_id: str) -> None:
        """Wait for the end of a cancelled turn, which no longer waits for results."""
        suspended = self._suspended.get(session_id)
        if suspended is not None and not self._tools.waiting_calls(session_id):
            await asyncio.wait((suspended.task,))
            self._suspended.pop(session_id, None)

    async def _session_with_tools(self, choice: SessionChoice, session_id: str) -> str:
        """Return the session's id if it was created with the offered tools, because its prefix can't change.
        Otherwise returns an empty string, or raises ApiError if the client named the session."""
        if not session_id or not choice.tools or session_id in self._suspended or choice.results:
            return session_id
        _, tools_json = await self._database.read(lambda db: sessions.read_prefix(db, session_id))
        stored_specs = from_json(tools_json or "[]", list[ToolSpec])
        if all(spec in stored_specs for spec in choice.tools):
            return session_id
        if choice.session_id:
            message = "this session was begun with other tools; begin another one"
            raise ApiError(400, message, param="tools", code="tools_differ")
        return ""

    def find_visible(self, caller: ApiCaller, session_id: str) -> sessions.SessionRow:
        """Return a session that the caller may see. Raises NotFound, also for another caller's session."""
        # Here and below: one or two index lookups take less time than a thread would.
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

    async def _create(self, choice: SessionChoice, added: content.NewContent) -> str:
        # A session with a history gets no warm start, because its first message would choose it.
        warm = "off" if added.history or choice.is_side_request else ""
        asked = (message.text for message in added.history if message.speaker == "user")
        texts = [*asked, added.text][:3]
        clock = self._turns.hosted.services.clock
        session_id = clock.new_id()
        if choice.tools:
            self._tools.offer(session_id, choice.tools)
        await self._turns.hosted.new_session(
            title=sessions.make_title("\n".join(texts)),
            private=choice.private,
            warm=warm,
            source="api",
            profile=choice.caller.profile,
            tools=self._tools.tools(choice.tools),
            session_id=session_id,
        )
        if added.history:
            past = list(history.to_past_messages(added.history, clock.unix_ms()))
            await self._database.append(lambda db: bulk.prepend_messages(db, session_id, past))
        return session_id

    async def _is_about_conversation(self, choice: SessionChoice) -> bool:
        if not choice.client_key or choice.tools:
            return False
        return await self._database.read(lambda db: identity.is_about_conversation(db, choice))

    def _turn_text(
        self, choice: SessionChoice, session_id: str, added: content.NewContent, writes: list[Write]
    ) -> str:
        """Return the turn's text, with the client's instructions before it if they are new to the session.
        Then a write that stores their hash is added to `writes`."""
        text = added.text
        if not text.strip() and not added.images and added.history:
            text = _CONTINUE_TEXT
        if choice.once:
            text = content.with_instructions(choice.once, text)
        instructions = content.instructions_of(choice.messages)
        if not instructions or not text:
            return text
        digest = content.digest_of(instructions)
        belonging = self._database.read_now(lambda db: api.find_owner(db, session_id))
        if belonging is not None and belonging.instructions == digest:
            return text
        writes.append(lambda db: api.set_instructions(db, session_id, digest))
        return content.with_instructions(instructions, text)

    def _find_session(self, choice: SessionChoice) -> str:
        if choice.session_id:
            row = self.find_visible(choice.caller, choice.session_id)
            if row.kind != "chat" and row.id not in self._suspended:
                raise ApiError(400, f"a session of kind {row.kind} takes no messages", code="invalid_session")
            return row.id
        waiting_ids = {
            call.id
            for session_id in identity.sessions_of_results(choice.results)
            for call in self._tools.waiting_calls(session_id)
        }
        return self._database.read_now(lambda db: identity.proven_session(db, choice, waiting_ids))


async def _find_new_content(
    database: StateDatabase, tools: ClientTools, choice: SessionChoice, session_id: str, stored: Sequence[str]
) -> content.NewContent:
    """Return the content that a request adds to a session ("" for a new one). Raises ApiError if a result
    belongs neither to a call of the session nor to one in the request."""
    added = content.find_new_content(choice.messages, stored, is_begun=bool(session_id))
    known_ids = {call.id for message in choice.messages for call in message.calls}
    known_ids |= {call.id for call in tools.waiting_calls(session_id)}
    result_ids = {result.call_id for result in added.results}
    if session_id and not result_ids <= known_ids:
        calls = await database.read(lambda db: api.list_call_ids(db, session_id))
        if not result_ids <= known_ids | {client_call_id(session_id, *call) for call in calls}:
            raise content.no_such_call()
    return added


async def _read_stored(database: StateDatabase, choice: SessionChoice, session_id: str) -> list[str]:
    """Return the person's stored messages, or [] if they are not needed, as for a request with one
    message."""
    is_named = bool(choice.client_key or choice.session_id)
    if not session_id or not is_named or sum(message.speaker != "system" for message in choice.messages) == 1:
        return []
    return await database.read(lambda db: api.list_user_texts(db, session_id))


def _late_results_text(results: Sequence[CallResult], text: str) -> str:
    """Return a message with the results of calls that no longer wait."""
    result_texts = "\n\n".join(result.text for result in results)
    head = "The program's results for calls of the turn before, which had ended without them:"
    return f"{text}\n\n{head}\n\n{result_texts}".strip()


def _run_all(writes: Sequence[Write]) -> Callable[[apsw.Connection], Sequence[QueuedJob]]:
    def run(connection: apsw.Connection) -> Sequence[QueuedJob]:
        for work in writes:
            work(connection)
        return ()

    return run
