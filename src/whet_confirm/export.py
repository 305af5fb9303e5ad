"""Send the audit log on as it grows: to an OpenTelemetry collector (OTLP, HTTP/JSON) or to syslog (RFC 5424).

The position of each destination is stored in the database: after an outage it gets the missed events in
order. After a crash a few events may arrive twice, with the same number. UDP and the local syslog don't
confirm arrival. No other work waits for a destination.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Protocol
from urllib.parse import unquote, urlsplit

import httpx2
import msgspec

from whet.contract.errors import ConfigError, StoreError
from whet.trust import context_for_url
from whet_confirm.ledger import Tx
from whet_confirm.records import AuditEvent
from whet_confirm.service import ConfirmService

_TIMEOUT_S = 10.0
_GATHER_S = 0.25
_MAX_WAIT_S = 60.0
_SAVE_EVERY_S = 5.0
_DATAGRAM_BYTES = 8_000
_FACILITY = 13  # log audit
_INFO, _WARNING = 6, 4
_ALARMING = frozenset(
    {"tampering", "digest_mismatch", "consume_refused", "login_failed", "refused", "press_refused"}
)
_logger = logging.getLogger("whet_confirm.export")


class LogDestination(Protocol):
    """Where events are sent."""

    async def send(self, events: Sequence[AuditEvent]) -> None:
        """Send events, oldest first. Raises OSError if they did not arrive."""
        ...

    async def aclose(self) -> None:
        """Close open connections."""
        ...


def parse_destination(address: str, variables: Mapping[str, str]) -> LogDestination:
    """Parse an address from the command line. Raises ConfigError."""
    kind, _, target = address.partition(":")
    parts = urlsplit(address)
    try:
        port = parts.port
    except ValueError:
        kind = ""
        port = None
    if kind == "otlp" and target.startswith(("http://", "https://")) and urlsplit(target).hostname:
        return OtlpLogs(target, _headers(variables.get("OTEL_EXPORTER_OTLP_HEADERS", "")))
    if kind == "syslog+tcp" and parts.hostname:
        return SyslogStream(parts.hostname, port or 601)
    if kind == "syslog+udp" and parts.hostname:
        return SyslogDatagrams((parts.hostname, port or 514))
    if kind == "syslog+unix" and target.startswith("/"):
        return SyslogDatagrams(f"/{target.lstrip('/')}")
    raise ConfigError(
        f"{address!r} is not a destination of the log",
        hint="otlp:http://127.0.0.1:4318/v1/logs, syslog+udp://host:514, syslog+tcp://host:601,"
        " syslog+unix:/dev/log",
    )


def _headers(text: str) -> dict[str, str]:
    pairs = (pair.partition("=") for pair in text.split(",") if "=" in pair)
    return {name.strip().lower(): unquote(value.strip()) for name, _, value in pairs}


class OtlpLogs:
    """A collector that accepts OTLP over HTTP as JSON."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._url = url
        self._client = httpx2.AsyncClient(
            timeout=_TIMEOUT_S, headers=dict(headers), verify=context_for_url(url), trust_env=False
        )

    async def send(self, events: Sequence[AuditEvent]) -> None:
        """Post the events as one request."""
        body = msgspec.json.encode(otlp_logs(events))
        try:
            answer = await self._client.post(
                self._url, content=body, headers={"content-type": "application/json"}
            )
        except httpx2.HTTPError as error:
            raise OSError(f"{type(error).__name__}: {error}") from error
        if not answer.is_success:
            raise OSError(f"it answered {answer.status_code}")
        if b"rejectedLogRecords" in answer.content:
            _logger.warning("%s did not keep all events: %s", self._url, answer.text[:300])

    async def aclose(self) -> None:
        """Close the client's connections."""
        await self._client.aclose()


def otlp_logs(events: Sequence[AuditEvent]) -> object:
    """Return the body of an OTLP logs request."""
    resource = {"attributes": [_attribute("service.name", "whet-confirm")]}
    scope = {"name": "whet.confirm.audit"}
    records = [_record(event) for event in events]
    return {"resourceLogs": [{"resource": resource, "scopeLogs": [{"scope": scope, "logRecords": records}]}]}


def _record(event: AuditEvent) -> dict[str, object]:
    is_alarming = event.kind in _ALARMING
    attributes = {
        "event.name": f"whet.confirm.{event.kind}",
        "whet.confirm.event_id": event.id,
        "whet.confirm.request_id": event.request_id,
        "whet.confirm.owner": event.owner,
        "whet.confirm.hash": event.hash.hex(),
        "enduser.id": event.principal,
    }
    nanoseconds = str(round(event.at * 1000) * 1_000_000)
    return {
        "timeUnixNano": nanoseconds,
        "observedTimeUnixNano": nanoseconds,
        "severityNumber": 13 if is_alarming else 9,
        "severityText": "WARN" if is_alarming else "INFO",
        "body": {"stringValue": event.data},
        "attributes": [_attribute(name, value) for name, value in attributes.items() if value != ""],
    }


def _attribute(key: str, value: str | int) -> dict[str, object]:
    kind = {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}
    return {"key": key, "value": kind}


class SyslogStream:
    """A syslog server over TCP, with messages framed by their length (RFC 6587)."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, events: Sequence[AuditEvent]) -> None:
        """Write the events to the connection."""
        if self._streams is not None and self._streams[0].at_eof():
            await self.aclose()
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                if self._streams is None:
                    self._streams = await asyncio.open_connection(*self._address)
                writer = self._streams[1]
                lines = (syslog_line(event) for event in events)
                writer.write(b"".join(b"%d %s" % (len(line), line) for line in lines))
                await writer.drain()
        except (OSError, TimeoutError):
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


class SyslogDatagrams:
    """A syslog server over UDP, or this machine's own at a socket path: one datagram per event."""

    def __init__(self, where: str | tuple[str, int]) -> None:
        self._address = where
        self._socket: socket.socket | None = None

    async def send(self, events: Sequence[AuditEvent]) -> None:
        """Send each event. The text of one that is too long is cut at its end."""
        loop = asyncio.get_running_loop()
        if self._socket is None:
            self._socket = await self._connect()
        try:
            for event in events:
                line = syslog_line(event)[:_DATAGRAM_BYTES].decode("utf-8", "ignore").encode()
                await loop.sock_sendall(self._socket, line)
        except OSError:
            await self.aclose()
            raise

    async def _connect(self) -> socket.socket:
        if isinstance(self._address, str):
            family, address = socket.AF_UNIX, self._address
        else:
            loop = asyncio.get_running_loop()
            rows = await loop.getaddrinfo(*self._address, type=socket.SOCK_DGRAM)
            family, address = rows[0][0], rows[0][4]
        sock = socket.socket(family, socket.SOCK_DGRAM)
        sock.setblocking(False)
        try:
            sock.connect(address)
        except OSError:
            sock.close()
            raise
        return sock

    async def aclose(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def syslog_line(event: AuditEvent) -> bytes:
    """Format an event as an RFC 5424 message. The event's data, JSON, is the text."""
    severity = _WARNING if event.kind in _ALARMING else _INFO
    at = datetime.fromtimestamp(event.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    params = {
        "id": str(event.id), "request": event.request_id, "principal": event.principal,
        "owner": event.owner, "hash": event.hash.hex(),
    }  # fmt: skip
    pairs = "".join(f' {name}="{_escape(value)}"' for name, value in params.items() if value)
    host = "".join(sign for sign in socket.gethostname() if "!" <= sign <= "~")[:255] or "-"
    head = f"<{_FACILITY * 8 + severity}>1 {at} {host} whet-confirm {os.getpid()} {event.kind[:32]}"
    return f"{head} [whet@32473{pairs}] \N{ZERO WIDTH NO-BREAK SPACE}{event.data}".encode()


def _escape(text: str) -> str:
    return "".join(f"\\{sign}" if sign in '"\\]' else sign if sign.isprintable() else "?" for sign in text)


class LogExport:
    """Sends the log to one destination, from the stored position on."""

    def __init__(self, service: ConfirmService, address: str, destination: LogDestination) -> None:
        self._service = service
        self._address = address
        self._destination = destination
        self._fact_name = f"exported:{hashlib.sha256(address.encode()).hexdigest()[:16]}"
        row = service.database.read_one("SELECT value FROM facts WHERE name = ?", (self._fact_name,))
        self.sent_to: int = int(str(row[0])) if row else 0
        self._saved_to = self.sent_to
        self._saved_at_s = 0.0

    async def run(self) -> None:
        """Send until cancelled. The position is stored every few seconds."""
        failures = 0
        async with aclosing(self._destination):
            while True:
                future = self._service.hub.next_event(is_background=True)
                try:
                    if events := self._service.log.read_after(self.sent_to):
                        await self._destination.send(events)
                        self.sent_to = events[-1].id
                        failures = 0
                        await self._save_position()
                        continue
                    await self._wait(future)
                except (OSError, TimeoutError, StoreError) as error:
                    failures += 1
                    if failures in (1, 10):
                        _logger.warning("the log does not reach %s, trying again: %s", self._address, error)
                    await asyncio.sleep(min(0.5 * 2 ** min(failures, 10), _MAX_WAIT_S))
                finally:
                    self._service.hub.cancel_wait(future)

    async def _wait(self, future: asyncio.Future[None]) -> None:
        """Wait for new events. If none arrive for a while, store the position and return."""
        if self._saved_to != self.sent_to:
            await asyncio.wait((future,), timeout=_SAVE_EVERY_S)
            if not future.done():
                await self._save_position(is_idle=True)
                return
        else:
            await future
        await asyncio.sleep(_GATHER_S)

    async def _save_position(self, *, is_idle: bool = False) -> None:
        now_s = asyncio.get_running_loop().time()
        if not is_idle and now_s - self._saved_at_s < _SAVE_EVERY_S:
            return
        self._saved_at_s, self._saved_to = now_s, self.sent_to
        await self._service.change(lambda tx: self._store_position(tx, self.sent_to))

    def _store_position(self, tx: Tx, number: int) -> None:
        tx.connection.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (self._fact_name, str(number)))
