"""The session API: sessions and their messages, turns with their events, approvals.

A turn that is started here runs even if no client listens. Clients read its events from the session's feed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from whet.agent.session import Session
from whet.app.deleted_sessions import forget_deleted_sessions
from whet.app.services import Services
from whet.contract.messages import ImagePart, Message, to_dict
from whet.contract.texts import parse_typed_number
from whet.log import mask
from whet.serve import content
from whet.serve.auth import ApiAuth, ApiCaller
from whet.serve.conversations import SessionTurns
from whet.serve.questions import PendingQuestion, QuestionReply
from whet.serve.turns import TurnInput, Turns
from whet.serve.wire import ApiError, JsonAnswer, Stream
from whet.store import search, session_deletion, sessions, turns
from whet.store.session_states import find_state

_MAX_LISTED = 200
_MAX_MESSAGES = 1_000
_TOP = 1 << 30


class SessionInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The properties of a new session."""

    title: str = ""
    private: bool = False
    warm: str = ""


class Rename(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The properties of a session that can be changed."""

    title: str


class NewTurn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The input of a new turn. `images` are data: URLs; `busy` says what to do if a turn is running."""

    text: str = ""
    images: tuple[str, ...] = ()
    busy: Literal["refuse", "queue", "steer"] = "refuse"


class Steering(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Text for a running turn."""

    text: str


class QuestionAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An answer to a waiting question.

    `reason` explains a denial, `scope` is the index (from 0) of the scope that a lasting approval covers,
    `arguments` replace the arguments that were shown.
    """

    answer: str
    reason: str = ""
    scope: int = 0
    arguments: dict[str, Any] | None = None


class SessionFacts(sessions.SessionRow, frozen=True, kw_only=True):
    """A session as the API shows it: its row with a masked title, whether a turn is running, and what that
    turn waits for (empty: nothing)."""

    running: bool
    waiting_for: str = ""


class QuestionList(msgspec.Struct, frozen=True):
    """The waiting questions, oldest first."""

    approvals: list[PendingQuestion]


class Native:
    """The calls of the session API."""

    def __init__(self, services: Services, auth: ApiAuth, session_turns: SessionTurns, turns: Turns) -> None:
        self._services = services
        self._auth = auth
        self._session_turns = session_turns
        self._turns = turns

    async def sessions(self, request: Request, caller: ApiCaller) -> Response:
        """List sessions, the last active first."""
        limit = query_number(request, "limit", 50, _MAX_LISTED)
        before, query = request.query_params.get("before", ""), request.query_params.get("q", "")[:200]

        token = "" if caller.is_owner else caller.name
        rows = await self._services.database.read(
            lambda db: sessions.list_sessions(db, limit, before=before, query=query, token=token)
        )
        return JsonAnswer({"sessions": [self._session_facts(row) for row in rows]})

    async def create(self, request: Request, caller: ApiCaller, body: SessionInput) -> Response:
        """Create a session."""
        session_id = await self._session_turns.begin(
            caller, title=mask(body.title[:4_000])[:200], private=body.private, warm=body.warm
        )
        return JsonAnswer(self._session_facts(self._session_turns.find_visible(caller, session_id)), 201)

    async def show(self, request: Request, caller: ApiCaller) -> Response:
        """Show a session."""
        return JsonAnswer(self._session_facts(self._session(request, caller)))

    async def rename(self, request: Request, caller: ApiCaller, body: Rename) -> Response:
        """Rename a session."""
        row = self._session(request, caller)
        title = body.title[:200]
        await self._services.database.write(lambda db: sessions.rename(db, row.id, title))
        return JsonAnswer(self._session_facts(self._session(request, caller)))

    async def delete(self, request: Request, caller: ApiCaller) -> Response:
        """Delete a session with all its messages. 409 while a turn runs."""
        async with self.between_turns(request, caller) as (services, session):
            session.log.close()  # a turn that was cancelled at its start may still hold the session
            deleted_ids = await services.database.write(
                lambda db: session_deletion.delete_session(db, session.id)
            )
            await services.pool.run(forget_deleted_sessions, services.home, services.database, services.clock)
        return JsonAnswer({"deleted": session.id, "sessions": deleted_ids})

    async def messages(self, request: Request, caller: ApiCaller) -> Response:
        """List the messages after a number. They are OpenAI chat dicts with `seq`; secrets are masked.
        `waiting` has the texts that were accepted and that no turn has read yet."""
        row = self._session(request, caller)
        after = query_number(request, "after", 0, _TOP)
        limit = query_number(request, "limit", 100, _MAX_MESSAGES)
        rows, waiting = await self._services.database.read(
            lambda db: (search.read_span(db, row.id, after + 1, _TOP, limit), turns.list_accepted(db, row.id))
        )
        return JsonAnswer(
            {
                "session_id": row.id,
                "messages": [_message_object(seq, message) for seq, message in rows],
                "waiting": [mask(entry.message.text) for entry in waiting],
            }
        )

    async def turn(self, request: Request, caller: ApiCaller, body: NewTurn) -> Response:
        """Start a turn. With Accept: text/event-stream, stream its events."""
        row = self._session(request, caller)
        if row.kind != "chat":
            raise ApiError(400, f"a session of kind {row.kind} takes no messages", code="invalid_session")
        if not body.text.strip() and not body.images:
            raise ApiError(400, "there is no text", param="text")
        if body.busy == "refuse" and self._turns.is_busy(row.id):
            raise ApiError(409, "a turn is running in this session", code="session_busy")
        images = tuple(_image(address, number) for number, address in enumerate(body.images))
        last_id = await self._turns.feeds.last_id(row.id)
        started = await self._turns.begin(row.id, TurnInput(body.text, images, body.busy))
        if "text/event-stream" in request.headers.get("accept", ""):
            started.add_done_callback(lambda _: self._turns.feeds.wake(row.id))
            return self._listen(caller, row.id, last_id, started)
        return JsonAnswer(
            {"session_id": row.id, "events": f"/api/sessions/{row.id}/events", "last_event_id": last_id}, 202
        )

    async def events(self, request: Request, caller: ApiCaller) -> Response:
        """Stream a session's events. The stream starts after Last-Event-ID (or `after`)."""
        row = self._session(request, caller)
        last_id = request.headers.get("last-event-id") or request.query_params.get("after", "")
        return self._listen(caller, row.id, last_id)

    async def cancel(self, request: Request, caller: ApiCaller) -> Response:
        """Cancel the running turn."""
        row = self._session(request, caller)
        return JsonAnswer({"cancelled": await self._turns.cancel(row.id)})

    async def steer(self, request: Request, caller: ApiCaller, body: Steering) -> Response:
        """Add text to the running turn. 409 if none runs."""
        row = self._session(request, caller)
        if not body.text.strip():
            raise ApiError(400, "there is no text", param="text")
        if not self._turns.is_running(row.id):
            raise ApiError(409, "no turn is running in this session", code="session_idle")
        await self._turns.begin(row.id, TurnInput(body.text, busy="steer"))
        return JsonAnswer({"steered": True}, 202)

    async def approvals(self, request: Request, caller: ApiCaller) -> Response:
        """List the questions that wait for the owner."""
        return JsonAnswer(QuestionList(self._turns.questions.pending()))

    async def answer(self, request: Request, caller: ApiCaller, body: QuestionAnswer) -> Response:
        """Answer a question."""
        reply = QuestionReply("", body.reason, body.scope, body.arguments)
        question = await self._turns.questions.answer(request.path_params["id"], body.answer, reply)
        return JsonAnswer({"answered": question.id, "answer": body.answer})

    def _listen(
        self, caller: ApiCaller, session_id: str, last_id: str, started: asyncio.Task[bool] | None = None
    ) -> Response:
        """Stream the session's events. With `started`, the stream ends with that turn."""
        feeds = self._turns.feeds

        async def source(gone: asyncio.Future[None]) -> AsyncGenerator[bytes]:
            has_ended = False

            def is_over() -> bool:
                if started is None or not started.done():
                    return False
                was_taken = not started.cancelled() and not started.exception() and not started.result()
                return has_ended or not was_taken  # text that a running turn took ends with that turn

            def may_go_on() -> bool:
                return self._auth.is_valid(caller)

            async for piece in feeds.listen(session_id, last_id, gone, may_go_on, is_over):
                has_ended = has_ended or b"\nevent: turn_end\n" in piece
                yield piece

        return Stream(source)

    async def open_session(self, request: Request, caller: ApiCaller) -> tuple[Services, Session]:
        """Return the services and the opened session of a request. A turn of it may be running."""
        row, hosted = self._session(request, caller), self._turns.hosted
        return self._services, hosted.find_open(row.id) or await hosted.open_session(row.id)

    @asynccontextmanager
    async def between_turns(
        self, request: Request, caller: ApiCaller
    ) -> AsyncGenerator[tuple[Services, Session]]:
        """Yield the services and the opened session. No turn of it can start inside the block. Raises
        ApiError (409) if one is running."""
        row = self._session(request, caller)
        if self._turns.is_busy(row.id):
            raise ApiError(409, "a turn is running in this session; cancel it first", code="session_busy")
        async with self._turns.hosted.using(row.id) as session:
            yield self._services, session

    def _session(self, request: Request, caller: ApiCaller) -> sessions.SessionRow:
        return self._session_turns.find_visible(caller, request.path_params["id"])

    def _session_facts(self, row: sessions.SessionRow) -> dict[str, Any]:
        facts: dict[str, Any] = msgspec.to_builtins(row)
        usage = {**facts["usage"], "cache_hit_ratio": round(row.usage.cache_hit_ratio, 4)}
        is_running = self._turns.is_running(row.id)
        return {
            **facts,
            "title": mask(row.title),
            "usage": usage,
            "running": is_running,
            "waiting_for": self._read_wait(row.id) if is_running else "",
        }

    def _read_wait(self, session_id: str) -> str:
        now = self._services.clock.now()
        state = self._services.database.read_now(lambda db: find_state(db, session_id, now))
        return state.detail if state is not None and state.state == "waiting" else ""


def _message_object(seq: int, message: Message) -> dict[str, Any]:
    row = to_dict(msgspec.structs.replace(message, note=""))
    if isinstance(row["content"], str):
        row["content"] = mask(row["content"])
    else:
        row["content"] = [
            {**part, "text": mask(part["text"])} if part["type"] == "text" else part
            for part in row["content"]
        ]
    if "reasoning" in row:
        row["reasoning"] = mask(row["reasoning"])
    for call in row.get("tool_calls", ()):
        call["function"]["arguments"] = mask(call["function"]["arguments"])
    if message.is_error:
        row["is_error"] = True
    return {"seq": seq, **row}


def _image(address: str, number: int) -> ImagePart:
    part = {"type": "image_url", "image_url": address}
    return content.read_utterance("user", [part], f"images[{number}]").images[0]


def query_number(request: Request, name: str, default: int, maximum: int) -> int:
    """Return a number from a request's query, at most `maximum`. Raises ApiError (400)."""
    text = request.query_params.get(name, "")
    if not text:
        return default
    number = parse_typed_number(text)
    if number is None:
        raise ApiError(400, f"{name} must be a whole number", param=name)
    return min(number, maximum)
