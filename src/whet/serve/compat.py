"""The routes that OpenAI's clients know: `/v1/models`, `/v1/chat/completions`, `/v1/responses`.

Whatever model answers behind it, to clients it is the model `whet`; the configured model's name is taken too.
"""

from __future__ import annotations

from collections.abc import Callable

import apsw
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from whet.app.build import App
from whet.contract.events import Emit, TurnEnd
from whet.serve import chat, responses
from whet.serve.answering import SESSION_HEADER, ResponseCodec, TurnResponder
from whet.serve.chat import ChatCodec, ChatRequest
from whet.serve.door import ApiAuth, ApiCaller
from whet.serve.responses import ResponsesCodec, ResponsesRequest
from whet.serve.talks import SessionChoice, SessionTurns
from whet.serve.wire import ApiError, JsonAnswer, read_json
from whet.store import api

MODEL = "whet"
_CHAT_ID = "x-openwebui-chat-id"
_MOST_KEY = 512


class Compat:
    """OpenAI's calls, answered by turns."""

    def __init__(self, app: App, door: ApiAuth, talks: SessionTurns, answering: TurnResponder) -> None:
        self._app = app
        self._door = door
        self._talks = talks
        self._answering = answering

    def routes(self) -> list[Route]:
        """Give the routes."""
        return [
            Route("/v1/models", self.models, methods=["GET"]),
            Route("/v1/models/{name:path}", self.model, methods=["GET"]),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/v1/responses", self.responses, methods=["POST"]),
        ]

    async def models(self, request: Request) -> Response:
        """List the one model that there is."""
        self._door.caller(request)
        return JsonAnswer({"object": "list", "data": [_model(MODEL)]})

    async def model(self, request: Request) -> Response:
        """Show it."""
        self._door.caller(request)
        name = request.path_params["name"]
        self._known(name)
        return JsonAnswer(_model(name))

    async def chat(self, request: Request) -> Response:
        """Answer a chat completion."""
        caller = self._door.caller(request)
        asked = await read_json(request, ChatRequest)
        self._known(asked.model)
        wish = _wish(request, caller, chat.read_said(asked), asked.user)
        wants_usage = bool(asked.stream_options and asked.stream_options.include_usage)
        codec = ChatCodec(self._app.clock.new_id(), asked.model, wants_usage=wants_usage)
        return await self._answer(request, wish, codec, _nothing, is_stream=bool(asked.stream))

    async def responses(self, request: Request) -> Response:
        """Answer a response."""
        caller = self._door.caller(request)
        asked = await read_json(request, ResponsesRequest)
        self._known(asked.model)
        wish = _wish(request, caller, responses.read_said(asked), asked.user, private=asked.store is False)
        if asked.previous_response_id:
            wish = await self._following(wish, asked.previous_response_id)
        response_id = f"resp_{self._app.clock.new_id()}"
        is_kept = asked.store is not False
        session_ids: list[str] = []

        def keep(db: apsw.Connection) -> None:
            if is_kept:
                api.keep_response(db, response_id, session_ids[0])

        codec = ResponsesCodec(response_id, asked)
        is_stream = bool(asked.stream)
        return await self._answer(request, wish, codec, keep, is_stream=is_stream, opened=session_ids.append)

    async def _answer(
        self,
        request: Request,
        wish: SessionChoice,
        codec: ResponseCodec,
        ended: Callable[[apsw.Connection], None],
        *,
        is_stream: bool,
        opened: Callable[[str], object] = str,
    ) -> Response:
        async def work(emit: Emit, name: Callable[[str], None]) -> TurnEnd:
            def both(session_id: str) -> None:
                opened(session_id)
                name(session_id)

            return await self._talks.converse(wish, emit, both, ended)

        if is_stream:
            return self._answering.stream(work, codec, lambda: self._door.is_valid(wish.caller))
        return await self._answering.whole(request, work, codec)

    async def _following(self, wish: SessionChoice, response_id: str) -> SessionChoice:
        found = await self._app.database.read(lambda db: api.response_of(db, response_id))
        if found is None:
            raise ApiError(
                404,
                f"there is no response {response_id[:80]}",
                param="previous_response_id",
                code="not_found",
            )
        session_id, is_last = found
        if not is_last:
            what = "the conversation has gone on since that response; go on from its newest one"
            raise ApiError(409, what, param="previous_response_id", code="not_the_newest")
        if wish.session_id and wish.session_id != session_id:
            raise ApiError(400, f"{SESSION_HEADER} names another session", param="previous_response_id")
        return SessionChoice(wish.caller, wish.said, session_id, private=wish.private)

    def _known(self, name: str) -> None:
        if name not in (MODEL, self._app.settings.model.model, self._app.models.provider.info.model):
            raise ApiError(
                404, f"there is no model {name[:80]!r}; use {MODEL!r}", param="model", code="model_not_found"
            )


def _wish(
    request: Request,
    caller: ApiCaller,
    said: tuple[chat.Utterance, ...],
    user: str | None,
    private: bool = False,
) -> SessionChoice:
    session_id, chat_id = request.headers.get(SESSION_HEADER, ""), request.headers.get(_CHAT_ID, "")
    key = f"user:{user}" if user else f"chat:{chat_id}" if chat_id else ""
    if len(key) > _MOST_KEY:
        raise ApiError(400, "the conversation's name is too long", param="user")
    return SessionChoice(caller, said, session_id, "" if session_id else key, private)


def _model(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "whet"}


def _nothing(db: apsw.Connection) -> None:
    """Store nothing besides."""
