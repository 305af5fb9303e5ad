"""Whole turns of the agent, with its own tools, at servers that behave as public issue threads report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.app.opened import ask as ask_agent
from tests.app.opened import opened
from tests.providers.reported_requests import REQUESTS, Report
from tests.providers.reported_streams import DONE, LINES, STREAMS
from tests.providers.server import sse
from tests.providers.test_adapting import Body, RuledServer, running
from tests.providers.test_reported_rules import ReportedServer
from whet.contract.events import TurnEnd

pytestmark = pytest.mark.slow
END = sse(b'{"choices":[{"delta":{"content":"The end."},"finish_reason":"stop"}]}', DONE)
QUIET = {
    "approval.mode": "auto",
    "sandbox.mode": "off",
    "review.worker": "off",
    "schedules.worker": "off",
    "rewind.record": "false",
}


class StreamServer(RuledServer):
    """Answers the first request with a reported stream, and each one with results of calls with an end."""

    def __init__(self, first: bytes) -> None:
        super().__init__()
        self.first = first

    def _reply(self, body: Body) -> bytes:
        return END if any(row["role"] == "tool" for row in body["messages"]) else self.first


class TurnServer(ReportedServer):
    """Refuses what a report says; its own call is one of the agent's tools."""

    def _reply(self, body: Body) -> bytes:
        reply = super()._reply(body)
        return reply.replace(b'"look"', b'"list_jobs"') if b'"look"' in reply else reply


async def run_turn(
    server: RuledServer, workspace: Path, settings: dict[str, Any]
) -> tuple[TurnEnd, list[Body]]:
    """Run one turn with nothing set but the server's address and the model's name."""
    async with running(server):
        address = {"model.base_url": f"http://127.0.0.1:{server.port}/v1", "model.model": f"m{server.port}"}
        async with opened({**QUIET, **address, **settings}, workspace) as app:
            session = await app.new_session()
            end = await ask_agent(session, "go")
    return end, server.bodies


async def test_turns_end_right_at_every_reported_stream(home: Path, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text(f"This is {name}.")
    raw = {source: b"\n".join([*lines, b"", b"data: [DONE]", b"", b""]) for source, lines in LINES}
    answers = {source: (body, "ok", 0) for source, body in raw.items()}
    answers |= {row.source: (sse(*row.events, DONE), row.text, len(row.calls)) for row in STREAMS}
    wrong: dict[str, str] = {}
    for source, (first, text, count) in answers.items():
        end, bodies = await run_turn(StreamServer(first), tmp_path, {})
        results = [row for row in bodies[-1]["messages"] if row["role"] == "tool"]
        expected = f"{text}\n\nThe end." if text and count else "The end." if count else text
        if (end.reason, end.text in (expected, "The end." if count else text), len(results)) != (
            "answered",
            True,
            count,
        ):
            wrong[source] = f"{end.reason} {end.text!r} {end.error} with {len(results)} results"
    assert wrong == {}


async def test_turns_end_right_at_every_reported_refusal(home: Path, tmp_path: Path) -> None:
    async def try_report(report: Report) -> str:
        settings = {f"model.{name}": value for name, value in report.settings.items()}
        end, _ = await run_turn(TurnServer(report), tmp_path, {**settings, "model.max_retries": 2})
        return (
            "" if (end.reason, end.text) == ("answered", "done") else f"{end.reason} {end.text!r} {end.error}"
        )

    assert ({report.source: wrong for report in REQUESTS if (wrong := await try_report(report))}) == {}
