"""The practice server's HTTP endpoints: the vendors' paths, and /practice/... for tests.

Each request is recorded, checked against the vendor's rules, counted by the simulated cache, and answered
from the script or by the responder. The model is scripted, not a language model. The code runs on the
server's event loop; `requests` may be read from any thread.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from whet.contract.texts import as_object, from_json
from whet_lab.practice import dialects
from whet_lab.practice.ask import Json, PracticeCall, PracticeRequest
from whet_lab.practice.cache import PrefixCache
from whet_lab.practice.delivery import FaultyResponse, StallGate
from whet_lab.practice.dialects import PracticeDialect
from whet_lab.practice.responder import MODELS, is_offered
from whet_lab.practice.script import Fault, ReplyScript, ScriptedReply, parse_script
from whet_lab.practice.strict import Options, VendorRefusal, openai_error
from whet_lab.practice.wire import AnswerEnvelope, count_output_tokens

BANNER = "Whet's practice model: a scripted stand-in, not a language model."


class RecordedRequest(msgspec.Struct):
    """One request as received, with the exact bytes of its body. `refused` is the error message, or empty."""

    path: str
    headers: dict[str, str]
    body: bytes
    refused: str = ""

    @property
    def json_body(self) -> Any:
        """The body as JSON."""
        return msgspec.json.decode(self.body)


class Practice:
    """The practice server's state: script, cache and recorded requests."""

    def __init__(
        self,
        options: Options,
        seed: int,
        script: Iterable[ScriptedReply] | None,
        responder: Callable[[PracticeRequest], ScriptedReply],
    ) -> None:
        self.options = options
        self._responder = responder
        self.arrived: threading.Condition = threading.Condition()
        self.count: int = 0
        self.stalls: int = 0
        self.gate: StallGate = StallGate(self._count_stall)
        self._seed = seed
        self._script = None if script is None else ReplyScript(script)
        self._cache = PrefixCache()
        self._recorded: deque[RecordedRequest] = deque()
        self._recorded_bytes = 0
        self._dialects: tuple[PracticeDialect, ...] = (
            dialects.chat_completions(),
            dialects.messages(seed),
            dialects.responses(seed),
        )

    @property
    def requests(self) -> list[RecordedRequest]:
        """The model requests since the start or the last reset, oldest first."""
        with self.arrived:
            return list(self._recorded)

    def install(self, script: Iterable[ScriptedReply] | None) -> None:
        """Use this script from the next request on; None returns to the responder."""
        self._script = None if script is None else ReplyScript(script)

    def reset(self) -> None:
        """Discard script, cache and requests."""
        self.install(None)
        self._cache.clear()
        with self.arrived:
            self._recorded.clear()
            self._recorded_bytes = self.count = self.stalls = 0

    def app(self) -> Starlette:
        """Return the ASGI application."""
        paths = ("/v1/chat/completions", "/v1/messages", "/v1/responses")
        routes = [
            Route(path, self._make_endpoint(dialect), methods=["POST"])
            for path, dialect in zip(paths, self._dialects, strict=True)
        ]
        routes += [
            Route("/v1/models", self._models),
            Route("/v1/models/{model:path}", self._model),
            Route("/practice/requests", self._show_requests),
            Route("/practice/script", self._take_script, methods=["POST"]),
            Route("/practice/release", self._release, methods=["POST"]),
            Route("/practice/reset", self._reset, methods=["POST"]),
            Route("/", self._front),
        ]
        return Starlette(routes=routes)

    def _make_endpoint(self, dialect: PracticeDialect) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Response | FaultyResponse:
            body = await request.body()
            recorded = RecordedRequest(request.url.path, dict(request.headers), body)
            self._record(recorded)
            try:
                return self._reply(dialect, recorded)
            except VendorRefusal as refusal:
                recorded.refused = refusal.message
                return _json(dialect.error(refusal), refusal.status)

        return endpoint

    def _reply(self, dialect: PracticeDialect, recorded: RecordedRequest) -> FaultyResponse:
        dialect.check_headers(recorded.headers, self.options)
        body = _parse(recorded.body)
        dialect.check(body, self.options)
        if self._script is None and not is_offered(body["model"]):
            raise _unknown_model(dialect, body["model"])
        tally = dialect.count(body, self._cache)
        if self.options.window_tokens:
            dialect.check_window(tally.prompt, body, self.options.window_tokens)
        request = dialect.read(body)
        reply = self._choose(request, recorded.body)
        fault = reply.fault
        if fault.body is not None:
            return FaultyResponse((fault.body.encode(),), fault.status, "text/plain", fault, self.gate)
        if fault.status >= 400:
            error = dialect.error(VendorRefusal(fault.message, status=fault.status, code=fault.code or None))
            return self._delivery([msgspec.json.encode(error)], "application/json", fault)
        completion, reasoning = count_output_tokens(reply)
        number = zlib.crc32(recorded.body, self._seed)
        wants_usage = bool(as_object(body.get("stream_options")).get("include_usage"))
        envelope = AnswerEnvelope(
            f"practice{number:08x}",
            body["model"],
            int(time.time()),
            tally,
            completion,
            reasoning,
            wants_usage,
            body,
        )
        if not body.get("stream"):
            payload = msgspec.json.encode(dialect.whole(reply, envelope))
            half = len(payload) // 2
            return self._delivery([payload[:half], payload[half:]], "application/json", fault)
        chunks = dialect.stream(reply, envelope)
        error = dialect.error(
            VendorRefusal(fault.message or "Overloaded", status=529, code=fault.code or None)
        )
        return self._delivery(chunks, "text/event-stream; charset=utf-8", fault, dialect.error_event(error))

    def _delivery(
        self, chunks: list[bytes], kind: str, fault: Fault, error_chunk: bytes = b""
    ) -> FaultyResponse:
        if self.options.delay_s and not fault.delay_s:
            fault = msgspec.structs.replace(fault, delay_s=self.options.delay_s)
        is_json = kind == "application/json"
        return FaultyResponse(chunks, fault.status, kind, fault, self.gate, error_chunk, is_json)

    def _choose(self, request: PracticeRequest, body: bytes) -> ScriptedReply:
        if self._script is None:
            reply = self._responder(request)
            if self.options.chunk_chars:
                reply = msgspec.structs.replace(reply, pieces=1 + len(reply.text) // self.options.chunk_chars)
        else:
            scripted = self._script.take(body)
            if scripted is None:
                raise VendorRefusal(
                    self._script.exhausted_message, status=500, code="practice_script_exhausted"
                )
            reply = scripted
        return _with_ids(reply, request)

    def _record(self, recorded: RecordedRequest) -> None:
        with self.arrived:
            self._recorded.append(recorded)
            self._recorded_bytes += len(recorded.body)
            while self._recorded_bytes > self.options.keep_bytes and len(self._recorded) > 1:
                self._recorded_bytes -= len(self._recorded.popleft().body)
            self.count += 1
            self.arrived.notify_all()

    def _count_stall(self) -> None:
        with self.arrived:
            self.stalls += 1
            self.arrived.notify_all()

    async def _models(self, request: Request) -> Response:
        if "anthropic-version" in request.headers:
            rows = [_anthropic_model(name) for name in MODELS]
            ends = {"first_id": MODELS[0], "last_id": MODELS[-1], "has_more": False}
            return _json({"data": rows, **ends})
        return _json({"object": "list", "data": [_openai_model(name) for name in MODELS]})

    async def _model(self, request: Request) -> Response:
        name = str(request.path_params["model"])
        anthropic = "anthropic-version" in request.headers
        if not is_offered(name):
            dialect = self._dialects[1 if anthropic else 0]
            refusal = _unknown_model(dialect, name)
            return _json(dialect.error(refusal), refusal.status)
        return _json(_anthropic_model(name) if anthropic else _openai_model(name))

    async def _show_requests(self, request: Request) -> Response:
        rows = [
            {
                "path": request.path,
                "headers": request.headers,
                "body": request.body.decode("utf-8", "replace"),
                "refused": request.refused,
            }
            for request in self.requests
        ]
        return _json({"count": self.count, "stalls": self.stalls, "requests": rows})

    async def _take_script(self, request: Request) -> Response:
        try:
            replies = parse_script(await request.body())
        except msgspec.DecodeError as error:
            return _json(openai_error(400, f"not a practice script: {error}"), 400)
        self.install(replies)
        return _json({"replies": len(replies)})

    async def _release(self, request: Request) -> Response:
        self.gate.release()
        return _json({"released": True})

    async def _reset(self, request: Request) -> Response:
        self.reset()
        return _json({"reset": True})

    async def _front(self, request: Request) -> Response:
        return PlainTextResponse(
            f"{BANNER}\nIt speaks Chat Completions, Anthropic Messages and OpenAI Responses under /v1.\n"
        )


def _parse(body: bytes) -> Json:
    try:
        return from_json(body, dict[str, Any])
    except msgspec.DecodeError as error:
        raise VendorRefusal(f"We could not parse the JSON body of your request: {error}") from error


def _with_ids(reply: ScriptedReply, request: PracticeRequest) -> ScriptedReply:
    """Fill empty call ids with call_N, where N continues the count of calls in the request."""
    if all(call.id for call in reply.tool_calls):
        return reply
    start = 1 + sum(len(message.calls) for message in request.messages)
    calls = tuple(
        call if call.id else PracticeCall(call.name, call.arguments, f"call_{start + index}")
        for index, call in enumerate(reply.tool_calls)
    )
    return msgspec.structs.replace(reply, tool_calls=calls)


def _unknown_model(dialect: PracticeDialect, name: str) -> VendorRefusal:
    if dialect.format == "anthropic_messages":
        return VendorRefusal(f"model: {name}", status=404)
    return VendorRefusal(
        f"The model `{name}` does not exist or you do not have access to it.",
        status=404,
        code="model_not_found",
    )


def _openai_model(name: str) -> Json:
    return {"id": name, "object": "model", "created": 1_767_225_600, "owned_by": "whet-practice"}


def _anthropic_model(name: str) -> Json:
    title = f"{name} (a scripted stand-in, not a language model)"
    return {"type": "model", "id": name, "display_name": title, "created_at": "2026-01-01T00:00:00Z"}


def _json(data: Json, status: int = 200) -> Response:
    # Vendors' clients retry a 5xx. An exhausted script stays exhausted, so this header stops them.
    headers = {"request-id": "req_practice", "x-should-retry": "false"} if status >= 400 else None
    return Response(msgspec.json.encode(data), status, headers, "application/json")
