"""Turns as OpenTelemetry traces, at a collector that takes OTLP over HTTP: one trace from the request at one
process to the calls at another, nothing of what was said in it; off, nothing of it is loaded."""

from __future__ import annotations

import gzip
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support import wait_until
from tests.team.processes import environment, served, start, worker
from tests.team.test_workers import ask, has_ended, opened
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply, terminal_reply
from whet_lab.practice.server import PracticeServer

trace_service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
SAID = "the blue door"


class Collector:
    """A receiver of OTLP over HTTP, with protobuf as the specification has it."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.bodies: list[bytes] = []
        self.types: set[str] = set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                outer.types.add(f"{self.path} {self.headers['content-type']}")
                request = trace_service.ExportTraceServiceRequest()
                request.ParseFromString(body)
                outer.bodies.append(body)
                for resource in request.resource_spans:
                    for scope in resource.scope_spans:
                        outer.spans += scope.spans
                self.send_response(200)
                self.send_header("content-type", "application/x-protobuf")
                self.end_headers()
                self.wfile.write(trace_service.ExportTraceServiceResponse().SerializeToString())

            def log_message(self, *values: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1/traces"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def named(self, name: str) -> list[Any]:
        return [span for span in list(self.spans) if span.name == name]


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


def facts(span: Any) -> dict[str, Any]:
    return {
        attribute.key: attribute.value.string_value or attribute.value.int_value
        for attribute in span.attributes
    }


@contextmanager
def team(url: str, folder: Path, collector: Collector, script: list[ScriptedReply]) -> Iterator[Any]:
    with PracticeServer(script=script) as model, ExitStack() as stack:
        given = environment(url, folder / "home", model, "practice") | {"WHET_TRACES_URL": collector.url}
        db, queue = stack.enter_context(opened(url))
        yield given, db, queue, stack


@pytest.mark.slow
def test_one_trace_goes_from_request_to_workers_calls(url: str, tmp_path: Path, collector: Collector) -> None:
    script = [terminal_reply(f"echo {SAID}"), ScriptedReply(f"it said {SAID}")]
    with team(url, tmp_path, collector, script) as (given, _, _, stack):
        stack.enter_context(worker(given, tmp_path))
        api = stack.enter_context(served(given, tmp_path))
        id_ = api.session()
        api.post(f"/api/sessions/{id_}/turns", text=f"say {SAID}")
        wait_until(lambda: len(collector.spans) >= 5, 60)
    (request,), (turn,) = collector.named("request"), collector.named("turn")
    parts = [span for span in collector.spans if span not in (request, turn)]
    assert {span.trace_id for span in collector.spans} == {request.trace_id}
    assert not request.parent_span_id and turn.parent_span_id == request.span_id
    assert {part.parent_span_id for part in parts} == {turn.span_id}
    assert [part.name for part in parts] == ["chat practice", "execute_tool terminal", "chat practice"]
    assert len({span.span_id for span in collector.spans}) == 5
    assert facts(turn)["gen_ai.conversation.id"] == facts(request)["gen_ai.conversation.id"] == id_
    assert facts(turn)["whet.turn.reason"] == "answered"
    assert facts(parts[0])["gen_ai.usage.output_tokens"] > 0
    assert request.start_time_unix_nano <= turn.end_time_unix_nano
    assert all(span.start_time_unix_nano <= span.end_time_unix_nano for span in collector.spans)
    assert collector.types == {"/v1/traces application/x-protobuf"}
    assert not any(SAID.encode() in body or b"echo" in body for body in collector.bodies)


@pytest.mark.slow
def test_a_turn_that_a_killed_worker_began_is_told_whole_by_the_one_that_ended_it(
    url: str, tmp_path: Path, collector: Collector
) -> None:
    marks = tmp_path / "marks.txt"
    command = msgspec.json.encode({"command": f"echo once >> {marks}; sleep 60"}).decode()
    script = [ScriptedReply(tool_calls=(PracticeCall("terminal", command),)), ScriptedReply("the answer")]
    with team(url, tmp_path, collector, script) as (given, db, queue, stack):
        first = stack.enter_context(worker(given, tmp_path))
        turn_id, _ = ask(db, queue, "do it")
        wait_until(marks.exists, 60)
        first.kill()
        stack.enter_context(worker(given, tmp_path))
        wait_until(lambda: has_ended(queue, turn_id), 60)
        wait_until(lambda: len(collector.spans) >= 4, 60)
    (turn,) = collector.named("turn")
    names = [span.name for span in collector.spans if span.parent_span_id == turn.span_id]
    assert names == ["chat practice", "execute_tool terminal", "chat practice"]
    (call,) = collector.named("execute_tool terminal")
    assert facts(call)["error.type"] == "interrupted" and not turn.parent_span_id


@pytest.mark.slow
def test_a_collector_that_does_not_answer_is_one_line_of_the_log(tmp_path: Path) -> None:
    with PracticeServer(script=[ScriptedReply("done")]) as model, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        home = tmp_path / "home"
        given = environment("", home, model, "practice")
        given["WHET_TRACES_URL"] = f"http://me:secret@127.0.0.1:{closed.getsockname()[1]}/v1/traces"
        process = start(["chat", "-q", "hi"], given, tmp_path)
        output, _ = process.communicate(timeout=120)
    log = (home / "logs" / "whet.log").read_text()
    assert output.endswith("\ndone\n") and log.count("traces can't be sent to http://127.0.0.1:") == 1


@pytest.mark.slow
def test_nothing_of_it_is_loaded_where_nobody_asked_for_it(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys, pathlib\n"
        "from whet.app.build import App\n"
        "from whet.config.load import load\n"
        "from whet.config.paths import Home\n"
        "from whet.contract.protocols import NobodyPresent\n"
        "async def main():\n"
        "    home = Home(pathlib.Path(sys.argv[1]))\n"
        "    given = {'WHET_MODEL_BASE_URL': 'http://127.0.0.1:1', 'WHET_MODEL_MODEL': 'm',"
        " 'WHET_MODEL_PROVIDER': 'practice'}\n"
        "    settings = load(home, {}, environ=given).settings\n"
        "    app = await App.start(home, settings, {}, NobodyPresent(), home.root)\n"
        "    assert app.services.tracing is None\n"
        "    await app.aclose()\n"
        "asyncio.run(main())\n"
        "assert not [name for name in sys.modules if name.startswith(('opentelemetry', 'google.protobuf'))]\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
