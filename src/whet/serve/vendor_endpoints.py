"""The endpoints of OpenAI's and Anthropic's clients: models, chat completions, responses, messages.

A client may ask for any model: the agent answers under that name, whichever model it uses. The list of models
contains only `whet`.
"""

from __future__ import annotations

from collections.abc import Callable

import apsw
import msgspec
from starlette.requests import Request
from starlette.responses import Response

from whet.app.parts import web_limits
from whet.app.services import Services
from whet.approval.url_rules import UrlRules
from whet.clock import iso
from whet.contract.events import TextDelta, TurnEnd
from whet.contract.tools import ToolSpec
from whet.serve import chat, content, identity, messages, responses
from whet.serve.attachments import Attachments
from whet.serve.auth import ApiAuth, ApiCaller
from whet.serve.client_tools import HandedOver
from whet.serve.content import Utterance
from whet.serve.conversations import SessionTurns
from whet.serve.forms import AnswerFilter, AnswerForm
from whet.serve.identity import SessionChoice
from whet.serve.messages import MessagesCodec, MessagesRequest
from whet.serve.responses import ResponsesCodec, ResponsesRequest
from whet.serve.suspended_turn import ApiEvent
from whet.serve.turn_responder import SESSION_HEADER, ResponseCodec, TurnResponder
from whet.serve.wire import ApiError, JsonAnswer
from whet.store import api

MODEL = "whet"
_MAX_KEY = 512


def _store_nothing(db: apsw.Connection, session_id: str) -> None:
    """Store nothing else."""


class AnswerRules(msgspec.Struct, frozen=True):
    """The required form of an answer, the texts that end it, and an extra write when the turn ends."""

    form: AnswerForm | None = None
    stops: tuple[str, ...] = ()
    keep: Callable[[apsw.Connection, str], None] = _store_nothing


class _FormedAnswer:
    """Runs one request's turn and checks the form of the answer. `name` is called with the session's id."""

    def __init__(
        self,
        session_turns: SessionTurns,
        choice: SessionChoice,
        rules: AnswerRules,
        emit: Callable[[ApiEvent], None],
        name: Callable[[str], None],
    ) -> None:
        self._session_turns = session_turns
        self._choice = choice
        self._rules = rules
        self._name = name
        self._session_id = ""
        self._is_handed = False
        self._emit = emit
        self.filter: AnswerFilter = AnswerFilter(self._forward, rules.form, rules.stops, self._stop)

    async def run(self) -> TurnEnd:
        """Run the turn. If the answer does not have its form, ask the model once more. Raises WhetError."""
        end = await self._run_turn(self._choice)
        if self.filter.found_stop and end.reason == "cancelled":
            return msgspec.structs.replace(end, reason="answered")
        self.filter.flush()
        form = self._rules.form
        if form is None or end.reason != "answered" or self._is_handed:
            return end
        try:
            self.filter.finish(form)
        except ValueError as problem:
            return await self._retry_form(form, end, str(problem))
        return end

    async def _retry_form(self, form: AnswerForm, first: TurnEnd, problem: str) -> TurnEnd:
        utterances = (Utterance("user", f"Your answer can't be used: {problem}. {form.instructions}"),)
        self.filter.reset()
        again = SessionChoice(self._choice.caller, utterances, self._session_id, tools=self._choice.tools)
        end = await self._run_turn(again)
        end = msgspec.structs.replace(end, usage=first.usage + end.usage)
        if end.reason == "answered" and not self._is_handed:
            try:
                self.filter.finish(form)
            except ValueError as error:
                message = f"the model's answer does not fit the schema: {error}"
                raise ApiError(502, message, code="answer_not_in_form") from None
        return end

    async def _run_turn(self, choice: SessionChoice) -> TurnEnd:
        return await self._session_turns.converse(
            choice, self.filter.event, self._note_session, lambda db: self._rules.keep(db, self._session_id)
        )

    def _note_session(self, session_id: str) -> None:
        self._session_id = session_id
        self._name(session_id)

    def _forward(self, event: ApiEvent) -> None:
        self._is_handed = self._is_handed or isinstance(event, HandedOver)
        self._emit(event)

    def _stop(self) -> None:
        self._session_turns.cancel(self._session_id)


class VendorEndpoints:
    """Answers OpenAI's and Anthropic's requests with turns."""

    def __init__(
        self, services: Services, auth: ApiAuth, session_turns: SessionTurns, answering: TurnResponder
    ) -> None:
        self._services = services
        self._auth = auth
        self._session_turns = session_turns
        self._responder = answering
        rules = UrlRules(services.settings.approval)
        self._attachments = Attachments(services.pool, web_limits(services.settings.tools), rules.refusal)

    async def models(self, request: Request, caller: ApiCaller) -> Response:
        """List the models. There is one, `whet`."""
        ends = {"first_id": MODEL, "last_id": MODEL, "has_more": False}
        return JsonAnswer({"object": "list", "data": [_model_object(MODEL)], **ends})

    async def model(self, request: Request, caller: ApiCaller) -> Response:
        """Show a model: `whet`, or the configured one by its name."""
        name, models = request.path_params["name"], self._services.models
        if name not in (MODEL, models.settings.model, models.provider.info.model):
            message = f"there is no model {name[:80]!r}; use {MODEL!r}"
            raise ApiError(404, message, param="model", code="model_not_found")
        return JsonAnswer(_model_object(name))

    async def chat(self, request: Request, caller: ApiCaller, body: chat.ChatRequest) -> Response:
        """Answer a chat completion."""
        await self._attachments.include(body.messages, "messages")
        client = identity.client_name(request.headers, body.safety_identifier)
        choice = _session_choice(request, caller, chat.read_messages(body), body.user, client)
        tools = chat.read_tools(body)
        choice = _with_tools(choice, tools, body.tool_choice, parallel=body.parallel_tool_calls)
        form = AnswerRules(chat.read_form(body), chat.read_stops(body))
        wants_usage = bool(body.stream_options and body.stream_options.include_usage)
        codec = chat.ChatCodec(self._services.clock.new_id(), body.model, wants_usage=wants_usage)
        return await self._answer(request, choice, codec, form, is_stream=bool(body.stream))

    async def responses(self, request: Request, caller: ApiCaller, body: ResponsesRequest) -> Response:
        """Answer a response."""
        await self._attachments.include(body.input, "input")
        client = identity.client_name(request.headers, body.safety_identifier)
        is_private = body.store is False
        choice = _session_choice(
            request, caller, responses.read_messages(body), body.user, client, private=is_private
        )
        tools = responses.tools_of(body)
        choice = _with_tools(choice, tools.specs, body.tool_choice, parallel=body.parallel_tool_calls)
        answer_form = responses.read_form(body)
        if body.previous_response_id:
            choice = await self._continue_response(choice, body.previous_response_id)
        number = self._services.clock.new_id()
        response_id = f"resp_{number}"

        def store_response(db: apsw.Connection, session_id: str) -> None:
            # A response that the client does not want stored still proves, by its items, whose session it is.
            api.store_response(db, f"item_{number}" if is_private else response_id, session_id)

        codec = ResponsesCodec(response_id, body, tools)
        form = AnswerRules(answer_form, (), store_response)
        return await self._answer(request, choice, codec, form, is_stream=bool(body.stream))

    async def messages(self, request: Request, caller: ApiCaller, body: MessagesRequest) -> Response:
        """Answer a message as Anthropic's API does."""
        await self._attachments.include(body.messages, "messages")
        client = identity.client_name(request.headers, (body.metadata or {}).get("user_id"))
        choice = _session_choice(request, caller, messages.read_messages(body), None, client)
        tools = messages.read_tools(body)
        choice = _with_tools(choice, tools, body.tool_choice, parallel=body.parallel_tool_calls)
        codec = MessagesCodec(self._services.clock.new_id(), body)
        form = AnswerRules(messages.read_form(body), messages.read_stops(body))
        return await self._answer(request, choice, codec, form, is_stream=bool(body.stream))

    async def count_tokens(self, request: Request, caller: ApiCaller, body: MessagesRequest) -> Response:
        """Estimate the tokens of a message."""
        await self._attachments.include(body.messages, "messages")
        utterances, tools = messages.read_messages(body), messages.read_tools(body)
        return JsonAnswer({"input_tokens": max(1, content.estimate_tokens(utterances, tools))})

    async def _answer(
        self,
        request: Request,
        choice: SessionChoice,
        codec: ResponseCodec,
        rules: AnswerRules,
        *,
        is_stream: bool,
    ) -> Response:
        if rules.form is not None:
            choice = msgspec.structs.replace(
                choice, once=f"{choice.once}\n\n{rules.form.instructions}".strip()
            )

        async def work(emit: Callable[[ApiEvent], None], name: Callable[[str], None]) -> TurnEnd:
            answering = _FormedAnswer(self._session_turns, choice, rules, emit, name)
            end = await answering.run()
            if isinstance(codec, MessagesCodec):
                codec.stopped_by = answering.filter.found_stop
            return end

        async def run_and_remember(emit: Callable[[ApiEvent], None], name: Callable[[str], None]) -> TurnEnd:
            texts: list[str] = []

            def collect(event: ApiEvent) -> None:
                if isinstance(event, TextDelta):
                    texts.append(event.text)
                emit(event)

            end = await work(collect, name)
            if end.reason in ("answered", "budget"):
                await self._session_turns.remember(choice, end, "".join(texts))
            return end

        if is_stream:
            return self._responder.stream(run_and_remember, codec, lambda: self._auth.is_valid(choice.caller))
        return await self._responder.respond(request, run_and_remember, codec)

    async def _continue_response(self, choice: SessionChoice, response_id: str) -> SessionChoice:
        stored = None
        if response_id.startswith("resp_"):
            stored = await self._services.database.read(lambda db: api.find_response(db, response_id))
        if stored is None:
            raise ApiError(
                400,
                f"there is no response {response_id[:80]}",
                param="previous_response_id",
                code="previous_response_not_found",
            )
        session_id, is_last = stored
        if choice.session_id and choice.session_id != session_id:
            raise ApiError(400, f"{SESSION_HEADER} names another session", param="previous_response_id")
        if not is_last:
            session_id = await self._fork(choice.caller, session_id, response_id)
        return msgspec.structs.replace(choice, session_id=session_id, client_key="")

    async def _fork(self, caller: ApiCaller, session_id: str, response_id: str) -> str:
        """Copy a session up to an older response, and return the copy's id. Raises NotFound."""
        from whet.store import forks  # noqa: PLC0415 - few clients go back

        self._session_turns.find_visible(caller, session_id)
        clock = self._services.clock
        new_id, now = clock.new_id(), iso(clock.now())

        def copy(db: apsw.Connection) -> None:
            forks.fork(db, session_id, api.read_response_turn(db, response_id), new_id, now)
            api.set_owner(db, new_id, caller.name)

        await self._services.database.write(copy)
        return new_id


def _session_choice(
    request: Request,
    caller: ApiCaller,
    utterances: tuple[chat.Utterance, ...],
    user: str | None,
    client: str,
    private: bool = False,
) -> SessionChoice:
    session_id = request.headers.get(SESSION_HEADER, "")
    key = "" if session_id else identity.conversation_name(request.headers, user)
    if len(key) > _MAX_KEY:
        raise ApiError(400, "the conversation's name is too long", param="user")
    utterances = content.with_continuation(utterances)
    return SessionChoice(caller, utterances, session_id, key, private, client=client)


def _with_tools(
    choice: SessionChoice, tools: tuple[ToolSpec, ...], tool_choice: object, *, parallel: bool | None
) -> SessionChoice:
    instruction = chat.choice_instruction(tool_choice, tools)
    return msgspec.structs.replace(choice, tools=tools, once=instruction, one_by_one=parallel is False)


def _model_object(name: str) -> dict[str, object]:
    """Return a model with the fields of both vendors' clients."""
    ours = {"type": "model", "display_name": name, "created_at": "1970-01-01T00:00:00Z"}
    return {"id": name, "object": "model", "created": 0, "owned_by": "whet", **ours}
