"""Traces of turns for OpenTelemetry: the request, the turn, and its model and tool calls.

Spans are computed from the stored turn at its end, so the worker that ends a turn reports all of it, also if
another worker began it. Span ids are derived from the turn's id. Spans contain names, times, token counts and
end reasons, but no messages, arguments or results. Private sessions are not traced. This module and its
packages are imported only if `traces.url` names a collector.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import time
from collections.abc import Mapping

import msgspec
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from whet.agent.session import Session, TurnObserver
from whet.contract.events import TurnEnd
from whet.contract.texts import strip_credentials
from whet.store import spans
from whet.store.database import StateDatabase

_PARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
_OPERATIONS = {"model": "chat", "tool": "execute_tool", "wait": "wait_for_person"}
_SENT_EVERY_MS = 1_000
_PATIENCE_S = 5
_Value = str | int | float
_NS = 1_000_000
_logger = logging.getLogger("whet.traces")


class RequestTrace(msgspec.Struct, frozen=True):
    """A request that began in this process. `header` (W3C trace context) names the parent of other processes'
    spans."""

    header: str
    begun_ns: int


class Tracing(TurnObserver):
    """Sends spans to a collector, by OTLP over HTTP; an observer of every session's turns."""

    def __init__(self, url: str, source: str, database: StateDatabase) -> None:
        self._database = database
        self._resource = Resource.create({"service.name": "whet", "whet.source": source})
        self._sent = BatchSpanProcessor(
            OTLPSpanExporter(endpoint=url, timeout=_PATIENCE_S), schedule_delay_millis=_SENT_EVERY_MS
        )
        self._parents: dict[str, str] = {}
        exporter_logger = logging.getLogger("opentelemetry")
        exporter_logger.propagate = False
        exporter_logger.handlers = [_FailureLog(url)]

    def begin_request(self) -> RequestTrace:
        """Begin a request whose turn runs in another process."""
        return RequestTrace(f"00-{os.urandom(16).hex()}-{os.urandom(8).hex()}-01", time.time_ns())

    def end_request(self, trace: RequestTrace, session_id: str, end: TurnEnd) -> None:
        """Send the span of an answered request."""
        context = _parse_header(trace.header)
        assert context is not None  # it was created here
        facts = {"gen_ai.conversation.id": session_id, "whet.turn.id": end.turn_id}
        times = trace.begun_ns, time.time_ns()
        self._send("request", context, None, times, facts, _error_type(end.reason))

    def set_parent(self, session_id: str, header: str) -> None:
        """Make the session's next turn a child of another process's span."""
        self._parents[session_id] = header

    async def after_turn(self, session: Session, end: TurnEnd) -> None:
        """Send the spans of a turn."""
        parent = _parse_header(self._parents.pop(session.id, ""))
        if session.log.session.private:
            return
        turns = await self._database.read(lambda db: spans.list_turn_spans(db, session.id, 1))
        for turn in turns:
            trace_id = parent.trace_id if parent is not None else _derive_id(end.turn_id, 16)
            context = _make_context(trace_id, end.turn_id)
            facts: dict[str, _Value] = {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.conversation.id": session.id,
                "gen_ai.usage.input_tokens": end.usage.prompt_tokens,
                "gen_ai.usage.output_tokens": end.usage.output_tokens,
                "whet.turn.id": end.turn_id,
                "whet.turn.reason": end.reason,
                "whet.turn.steps": end.steps,
            }
            times = turn.begun_ms * _NS, turn.last_ms * _NS
            self._send("turn", context, parent, times, facts, _error_type(end.reason))
            model = session.link.info.model
            for number, span in enumerate(turn.spans):
                self._send_step(span, _make_context(trace_id, f"{end.turn_id} {number}"), context, model)

    def _send_step(self, span: spans.TurnSpan, context: SpanContext, turn: SpanContext, model: str) -> None:
        """Send the span of a model call, a tool call or a wait for a person."""
        operation = _OPERATIONS[span.kind]
        is_model = span.kind == "model"
        name = model if is_model else span.name
        facts: dict[str, _Value] = {"gen_ai.operation.name": operation}
        facts["gen_ai.request.model" if is_model else "gen_ai.tool.name"] = name
        if span.usage is not None:
            facts["gen_ai.usage.input_tokens"] = span.usage.prompt_tokens
            facts["gen_ai.usage.output_tokens"] = span.usage.output_tokens
        times = span.begun_ms * _NS, max(span.begun_ms, span.ended_ms) * _NS
        self._send(f"{operation} {name}", context, turn, times, facts, span.error_kind)

    def _send(
        self,
        name: str,
        context: SpanContext,
        parent: SpanContext | None,
        times: tuple[int, int],
        facts: Mapping[str, _Value],
        error_type: str,
    ) -> None:
        """Queue a span; a thread sends it. `error_type` is empty if there was no error."""
        attributes = {**facts, "error.type": error_type} if error_type else facts
        span = ReadableSpan(
            name,
            context,
            parent,
            self._resource,
            attributes,
            kind=SpanKind.SERVER if name == "request" else SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR if error_type else StatusCode.UNSET),
            start_time=times[0],
            end_time=times[1],
        )
        self._sent.on_end(span)

    def close(self) -> None:
        """Send pending spans and stop, even if the collector does not answer."""
        self._sent.shutdown()


class _FailureLog(logging.Handler):
    """Logs once that a collector does not answer, instead of the exporter's line for each attempt."""

    def __init__(self, url: str) -> None:
        super().__init__(logging.ERROR)
        self._url = url
        self._is_logged = False

    def emit(self, record: logging.LogRecord) -> None:
        """Log the first failure."""
        if not self._is_logged:
            self._is_logged = True
            _logger.warning(
                "traces can't be sent to %s, and are dropped until it answers", strip_credentials(self._url)
            )


def _error_type(reason: str) -> str:
    return "" if reason in ("answered", "cancelled") else reason


def _derive_id(text: str, size_bytes: int) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:size_bytes], "big") or 1


def _make_context(trace_id: int, text: str) -> SpanContext:
    return SpanContext(trace_id, _derive_id(text, 8), is_remote=False, trace_flags=TraceFlags(1))


def _parse_header(header: str) -> SpanContext | None:
    """Parse a W3C traceparent header. Returns None if it is empty or invalid."""
    match = _PARENT.fullmatch(header)
    if match is None:
        return None
    return SpanContext(int(match[1], 16), int(match[2], 16), is_remote=True, trace_flags=TraceFlags(1))
