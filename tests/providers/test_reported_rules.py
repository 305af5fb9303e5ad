"""What servers refuse and stream by reports in public issue threads, each right with a bare base URL."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.providers.reported_requests import REQUESTS, STRICT, Report
from tests.providers.reported_streams import DONE, FAILURES, LINES, STREAMS
from tests.providers.server import sse
from tests.providers.test_adapting import Body, RuledServer, ask, running
from tests.providers.test_odd_streams import ask as ask_stream
from whet.contract.errors import ProviderError
from whet.contract.messages import Message
from whet.contract.protocols import ModelLink
from whet.providers.backoff import Backoff


class ReportedServer(RuledServer):
    """Refuses what a report says, in the envelope of the report; also speaks the Responses format."""

    def __init__(self, report: Report) -> None:
        super().__init__(status=report.status)
        self.report = report

    def _answer(self, writer: asyncio.StreamWriter, body: Body) -> None:
        is_over = self.report.times and len(self.refused) >= self.report.times
        if is_over or not self.report.breaks(body):
            super()._answer(writer, body)
            return
        self.refused.append(self.report.source)
        data = msgspec.json.encode(self.report.body)
        head = f"HTTP/1.1 {self.status} Refused\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)

    def _reply(self, body: Body) -> bytes:
        if "input" in body:
            return self._respond(body["input"])
        if body["messages"][-1]["role"] != "user" or len(body["messages"]) > 2:
            return sse(b'{"choices":[{"delta":{"content":"done"},"finish_reason":"stop"}]}', DONE)
        says = dict(self.report.says)
        call: Body = {"index": 0, "id": self.report.call_id, "function": {"name": "look", "arguments": "{}"}}
        if "extra_content" in says:
            call["extra_content"] = says.pop("extra_content")
        chunk = {"choices": [{"delta": {**says, "tool_calls": [call]}, "finish_reason": "tool_calls"}]}
        return sse(msgspec.json.encode(chunk), DONE)

    def _respond(self, items: list[Body]) -> bytes:
        item: Body = {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "done"}],
        }
        if len(items) == 1:
            item = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
        events = [
            {"type": "response.output_text.delta", "delta": "done"},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": {"output": [item]}},
        ]
        return sse(*map(msgspec.json.encode, events if len(items) > 1 else events[1:]))


async def _run_own_turn(link: ModelLink) -> str:
    """Return the text that ends a turn with a call of the server's own."""
    user = Message("user", "one")
    reply = (await ask(link, user)).message
    results = [Message("tool", "seen", tool_call_id=call.id) for call in reply.tool_calls]
    return (await ask(link, user, reply, *results)).message.text if results else "no call"


async def _try_request(report: Report) -> str:
    """Return what is wrong with the turns under a report, or an empty string."""
    async with running(ReportedServer(report)) as server:
        source = server.provider(backoff=Backoff(2, sleep=_sleep), **report.settings)
        try:
            link = source.open("sys", list(report.tools), "s")
            texts = [(await ask(link, *report.history)).message.text, await _run_own_turn(link)]
            refused = len(server.refused)
            texts.append(await _run_own_turn(source.open("sys", list(report.tools), "t")))
        except ProviderError as error:
            return f"{type(error).__name__}: {error.message}"
        finally:
            await source.aclose()
    if texts != ["done"] * 3:
        return f"the turns ended with {texts}"
    if len(server.refused) != refused + report.again or refused > 2:
        return f"refused {refused} times, then {len(server.refused)}"
    return ""


async def _sleep(_seconds: float) -> None:
    pass


async def test_refused_requests_are_sent_in_another_way_which_is_remembered() -> None:
    assert ({report.source: wrong for report in REQUESTS if (wrong := await _try_request(report))}) == {}


async def test_another_endpoint_is_remembered_by_later_processes(tmp_path: Path) -> None:
    report = next(report for report in REQUESTS if report.source == "caozhiyuan/copilot-api#102")
    async with running(ReportedServer(report)) as server:
        for _ in range(2):
            source = server.provider(memory=tmp_path / "model-servers.json")
            assert await _run_own_turn(source.open("sys", [STRICT], "s")) == "done"
            await source.aclose()
        assert len(server.refused) == 1


def test_reported_streams_are_read() -> None:
    wrong: dict[str, Any] = {}
    for report in STREAMS:
        try:
            message = ask_stream("chat_completions", sse(*report.events, DONE))[-1].message
            result: Any = (message.text, [(call.name, call.arguments) for call in message.tool_calls])
        except ProviderError as error:
            result = error.message
        if result != (report.text, report.calls):
            wrong[report.source] = result
    assert wrong == {}


@pytest.mark.parametrize("report", LINES, ids=lambda report: report[0])
def test_lines_between_events_are_no_text(report: tuple[str, list[bytes]]) -> None:
    body = b"\n".join([*report[1], b"", b"data: [DONE]", b"", b""])
    assert ask_stream("chat_completions", body)[-1].message.text == "ok"


class FailingServer(RuledServer):
    """Answers 200 with an error in the stream."""

    def __init__(self, event: bytes) -> None:
        super().__init__()
        self.event = event

    def _reply(self, body: Body) -> bytes:
        return sse(self.event, DONE)


@pytest.mark.parametrize("report", FAILURES, ids=lambda report: report[0])
async def test_an_error_inside_a_good_answer_is_an_error(report: tuple[str, bytes, str]) -> None:
    _, event, says = report
    async with running(FailingServer(event)) as server:
        source = server.provider()
        with pytest.raises(ProviderError, match=says):
            await ask(source.open("sys", [STRICT], "s"), Message("user", "one"))
        await source.aclose()
