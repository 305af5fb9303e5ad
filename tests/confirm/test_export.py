"""The audit log reaches receivers on loopback that speak the real protocols, whole and in order."""

from __future__ import annotations

import asyncio
import http.server
import json
import re
import socket
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from tests.confirm.people import Desk
from tests.confirm.running import SUBMIT, Running
from tests.support import quiet_port, wait_until
from whet.contract.errors import ConfigError
from whet_confirm.export import LogExport, parse_destination
from whet_confirm.records import AuditEvent

SYSLOG = re.compile(
    r"<(\d+)>1 (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) (\S+) whet-confirm (\d+) (\S{1,32}) "
    r'\[whet@32473((?: \w+="(?:[^"\\\]]|\\.)*")+)\] \ufeff(.*)',
    re.DOTALL,
)


class Collector:
    """Takes OTLP logs; refuses the first `refusals` requests."""

    def __init__(self, refusals: int = 0) -> None:
        self.records: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                nonlocal refusals
                refusals -= 1
                status = 503 if refusals >= 0 or self.path != "/v1/logs" else 200
                if status == 200:
                    collector.headers.append(dict(self.headers))
                    for resource in body["resourceLogs"]:
                        for scope in resource["scopeLogs"]:
                            collector.records += scope["logRecords"]
                self.send_response(status)
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = f"otlp:http://127.0.0.1:{self.server.server_address[1]}/v1/logs"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def ids(self) -> list[int]:
        return [int(value_of(record, "whet.confirm.event_id")) for record in self.records]


def value_of(record: dict[str, Any], key: str) -> str:
    value = next(attribute["value"] for attribute in record["attributes"] if attribute["key"] == key)
    return str(next(iter(value.values())))


@pytest.fixture
def collector():
    server = Collector(refusals=1)
    yield server
    server.server.shutdown()
    server.server.server_close()


def decided(server: Running) -> None:
    agent, alice = server.client("submit", "agent"), server.client("approve", 'al/"x'.replace('"', "."))
    request = agent.post("/confirm", json=SUBMIT | {"description": 'a "quoted" ] line\n\u202e'}).json()
    alice.post(f"/confirm/{request['id']}/deny", json={"reason": 'no "way" ]'})


def stored(server: Running) -> list[tuple[Any, ...]]:
    return server.rows("SELECT id, kind, principal, data, hash FROM events ORDER BY id")


@pytest.mark.slow
def test_a_collector_gets_every_event_and_goes_on_where_it_was_left(tmp_path, collector):
    secrets = {"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20abc, x-tenant=1"}
    with Running(tmp_path, exports=(collector.address,), secrets=secrets) as server:
        decided(server)
        events = stored(server)
        wait_until(lambda: set(collector.ids()) >= {row[0] for row in events})
        assert collector.ids() == sorted(collector.ids())
        record = next(one for one in collector.records if value_of(one, "event.name").endswith(".decided"))
        row = next(row for row in events if row[1] == "decided")
        assert record["body"]["stringValue"] == row[3]
        assert value_of(record, "whet.confirm.hash") == row[4].hex()
        assert int(record["timeUnixNano"]) > 1.7e18 and record["severityText"] == "INFO"
        sent = {name.lower(): value for name, value in collector.headers[0].items()}
        assert sent["authorization"] == "Bearer abc" and sent["x-tenant"] == "1"
        sql = "SELECT value FROM facts WHERE name LIKE 'exported:%'"
        wait_until(lambda: [int(row[0]) for row in server.rows(sql)] >= [events[-1][0]])
    last = collector.ids()[-1]
    before = len(collector.records)
    with Running(tmp_path, exports=(collector.address,), secrets=secrets) as server:
        decided_at = len(stored(server))
        wait_until(lambda: collector.ids()[-1] >= decided_at)
    assert min(collector.ids()[before:]) > last - 3  # not from the beginning again


def lines_of(receiver: socket.socket, count: int) -> list[bytes]:
    receiver.settimeout(60)
    return [receiver.recv(65_536) for _ in range(count)]


def check(lines: list[bytes], server: Running) -> None:
    events = {row[0]: row for row in stored(server)}
    for line in lines:
        match = SYSLOG.fullmatch(line.decode())
        assert match is not None, line
        facts = dict(re.findall(r'(\w+)="((?:[^"\\\]]|\\.)*)"', match[6]))
        row = events[int(facts["id"])]
        assert match[5] == row[1][:32] and match[7] == row[3] and facts["hash"] == row[4].hex()
        assert int(match[1]) == 13 * 8 + (4 if row[1] in ("refused", "login_failed") else 6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["udp", "unix"])
def test_syslog_gets_datagrams(tmp_path, kind):
    with socket.socket(socket.AF_UNIX if kind == "unix" else socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "log") if kind == "unix" else ("127.0.0.1", 0))
        name = receiver.getsockname()
        address = f"syslog+unix:{name}" if kind == "unix" else f"syslog+udp://127.0.0.1:{name[1]}"
        with Running(tmp_path, exports=(address,)) as server:
            decided(server)
            check(lines_of(receiver, len(stored(server))), server)


def framed(connection: socket.socket, count: int) -> list[bytes]:
    """Read messages as RFC 6587 counts them."""
    connection.settimeout(60)
    file, found = connection.makefile("rb"), []
    while len(found) < count:
        size = b""
        while (sign := file.read(1)) != b" ":
            assert sign.isdigit(), sign
            size += sign
        found.append(file.read(int(size)))
    return found


@pytest.mark.slow
def test_syslog_gets_counted_messages_over_tcp_also_after_it_was_away(tmp_path):
    port = quiet_port()
    with socket.create_server(("127.0.0.1", port)) as listener:
        listener.settimeout(60)
        address = f"syslog+tcp://127.0.0.1:{port}"
        with Running(tmp_path, exports=(address,)) as server:
            connection, _ = listener.accept()
            first = framed(connection, 1)
            check(first, server)
            connection.close()
            listener.close()
            decided(server)
            with socket.create_server(("127.0.0.1", port)) as again:
                again.settimeout(60)
                connection, _ = again.accept()
                check(framed(connection, 1), server)
                connection.close()


@pytest.mark.parametrize(
    "address", ["otlp:ftp://x", "syslog://x", "syslog+tcp://", "syslog+udp://x:port", "x"]
)
def test_what_is_no_destination_is_said(address):
    with pytest.raises(ConfigError, match="not a destination"):
        parse_destination(address, {})


class Odd:
    """A destination that fails at first, or takes everything."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.sent: list[int] = []
        self.is_closed = False
        self.tried = asyncio.Event()

    async def send(self, events: Sequence[AuditEvent]) -> None:
        self.tried.set()
        self.failures -= 1
        if self.failures >= 0:
            raise OSError("nobody there")
        self.sent += [event.id for event in events]

    async def aclose(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize("failures", [0, 1])
async def test_the_first_failure_is_said_and_the_place_is_kept(tmp_path, caplog, failures):
    desk, sql = Desk(tmp_path), "SELECT value FROM facts WHERE name LIKE 'exported:%'"
    destination = Odd(failures)
    export = LogExport(desk.service, "somewhere", destination)
    task = asyncio.create_task(export.run())
    async with asyncio.timeout(20):
        await destination.tried.wait()
    while not (failures or desk.service.database.read_one(sql, ())):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait((task,))
    size = desk.service.log.state().size
    assert destination.is_closed and destination.sent == ([] if failures else [*range(1, size + 1)])
    lines = failures * ["the log does not reach somewhere, trying again: nobody there"]
    assert [record.getMessage() for record in caplog.records] == lines
    assert export.sent_to == (0 if failures else size)
    assert LogExport(desk.service, "somewhere", destination).sent_to == export.sent_to
    assert LogExport(desk.service, "elsewhere", destination).sent_to == 0
    desk.close()
