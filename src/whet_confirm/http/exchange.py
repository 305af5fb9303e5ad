"""One call of the API: its caller, its parameters, and the objects that all calls share."""

from __future__ import annotations

from collections import Counter
from typing import Any

import apsw
import msgspec

from whet.contract.texts import parse_typed_number
from whet_confirm.http.answers import record
from whet_confirm.http.guard import ApiGuard
from whet_confirm.http.heartbeat import Heartbeats
from whet_confirm.http.held_calls import HeldCalls
from whet_confirm.http.wire import Headers, HttpRefusal, Scope, Send, encode, header, query
from whet_confirm.names import REQUEST_ID
from whet_confirm.notify import deliveries
from whet_confirm.records import Caller, ConfirmRequest
from whet_confirm.service import ConfirmService
from whet_confirm.sight import Assessment
from whet_confirm.whitelist import list_running

Answer = tuple[int, Any] | tuple[int, Any, Headers]
NO_CALLER = Caller("", "submit")
_MAX_ENCODED_BYTES = 2_000_000
_DAY_S = 86_400.0


class Metrics:
    """Counts this process's answers and renders the service's metrics."""

    def __init__(self) -> None:
        self._answers: Counter[int] = Counter()

    def count(self, status: int) -> None:
        """Count an answer."""
        self._answers[status] += 1

    async def render(self, service: ConfirmService) -> str:
        """Return the metrics in Prometheus text format."""
        state, now_s = service.log.state(), service.timeline.now_s()
        stored = await service.database.read_long(lambda db: _count_stored(db, now_s))
        lines = ["# TYPE whet_confirm_http_responses_total counter"]
        for status, count in sorted(self._answers.items()):
            lines.append(f'whet_confirm_http_responses_total{{status="{status}"}} {count}')
        lines.append("# TYPE whet_confirm_events_total counter")
        for kind, count in sorted(service.log.event_counts.items()):
            lines.append(f'whet_confirm_events_total{{kind="{kind}"}} {count}')
        gauges = {
            "pending_requests": service.count_pending(),
            "waiting_clients": service.hub.waiting,
            **stored.gauges,
            "audit_events": state.size,
            "audit_checkpoint_size": state.checkpoint_size,
            "policy_is_broken": int(bool(service.policy_file.error)),
        }
        for name, value in gauges.items():
            lines += [f"# TYPE whet_confirm_{name} gauge", f"whet_confirm_{name} {value}"]
        lines.append("# TYPE whet_confirm_deliveries gauge")
        for channel, status, count in stored.deliveries:
            lines.append(f'whet_confirm_deliveries{{channel="{channel}",status="{status}"}} {count}')
        lines.append("# TYPE whet_confirm_undecided_in_a_day gauge")
        for reason, count in stored.undecided:
            lines.append(f'whet_confirm_undecided_in_a_day{{reason="{reason}"}} {count}')
        return "\n".join(lines) + "\n"


class StoredCounts(msgspec.Struct, frozen=True):
    """The metrics that are counted in the database."""

    gauges: dict[str, int]
    deliveries: list[tuple[str, str, int]]
    """Channel, status and number of the deliveries of pending requests."""
    undecided: list[tuple[str, int]]
    """Reason and number of the requests that expired within a day."""


def _count_stored(db: apsw.Connection, now_s: float) -> StoredCounts:
    """Count in one state of the database. Takes a tenth of a second for 30,000 expired requests."""
    gauges = {
        "unreached_requests": deliveries.count_unreached(db, now_s),
        "unacknowledged_requests": deliveries.count_unacknowledged(db, now_s),
        "running_grants": len(list_running(db, now_s)),
        "untold_news": deliveries.count_pending_events(db),
    }
    undecided = deliveries.count_undecided(db, now_s - _DAY_S)
    return StoredCounts(gauges, deliveries.count_states(db, now_s), undecided)


class Backend:
    """The objects that calls are answered from. `page_url` is the page where people decide, or empty."""

    def __init__(self, service: ConfirmService, guard: ApiGuard, page_url: str) -> None:
        self.service = service
        self.guard = guard
        self.page_url = page_url
        self.metrics: Metrics = Metrics()
        self.held_calls: HeldCalls = HeldCalls()
        self.heartbeats: Heartbeats = Heartbeats(guard)
        self._encoded: dict[str, tuple[ConfirmRequest, Assessment, bytes]] = {}
        self._encoded_bytes = 0

    def record(self, request: ConfirmRequest, assessment: Assessment) -> bytes:
        """Return a record as JSON, encoded once for all readers until it changes."""
        cached = self._encoded.get(request.id)
        if cached is not None and cached[0] is request and cached[1] == assessment:
            return cached[2]
        body = encode(record(request, assessment))
        self._encoded_bytes += len(body)
        if self._encoded_bytes > _MAX_ENCODED_BYTES:
            self._encoded.clear()
            self._encoded_bytes: int = len(body)
        self._encoded[request.id] = (request, assessment, body)
        return body


class Exchange:
    """A call and its caller. `fields` is the decoded body, for checks that cover all of it.

    `is_cache_current` means that the token was looked up in the database's current state, and that the call
    has awaited nothing since.
    """

    __slots__ = (
        "_value",
        "backend",
        "caller",
        "fields",
        "is_cache_current",
        "scope",
        "send",
        "service",
        "size_bytes",
    )

    def __init__(self, backend: Backend, scope: Scope, send: Send, value: bytes) -> None:
        self.backend: Backend = backend
        self.service: ConfirmService = backend.service
        self.scope: Scope = scope
        self.send: Send = send
        self.caller: Caller = NO_CALLER
        self.fields: dict[str, Any] = {}
        self.size_bytes: int = 0
        self.is_cache_current: bool = False
        self._value = value

    @property
    def request_id(self) -> str:
        """The request id in the path. Raises HttpRefusal (404) if it is not a valid id."""
        text = self._value.decode("latin-1")
        if not REQUEST_ID.fullmatch(text):
            raise HttpRefusal(404, "there is no such request")
        return text

    @property
    def number(self) -> int:
        """The row number in the path, or 0, which no row has, if it is not a number."""
        return parse_typed_number(self._value.decode("latin-1")) or 0

    @property
    def query(self) -> dict[str, str]:
        """The query's parameters."""
        return query(self.scope)

    def header(self, name: bytes) -> str:
        """Return a header's value, or an empty string if it is absent."""
        return header(self.scope, name)
