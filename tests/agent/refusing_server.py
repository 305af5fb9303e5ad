"""A model server on loopback that speaks three wire formats and refuses requests by rules of its own."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec

from tests.listening import listening
from whet_lab.practice import dialects
from whet_lab.practice.ask import PracticeRequest
from whet_lab.practice.cache import TokenTally
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.strict import Options, VendorRefusal
from whet_lab.practice.wire import AnswerEnvelope

Body = dict[str, Any]
Refusal = tuple[int, Any]
Rule = Callable[[str, Body], Refusal | None]
"""Returns the status and the body with which a request of a wire format is refused, or None."""
Plan = Callable[[PracticeRequest], ScriptedReply]
ANSWER = ScriptedReply("All done.")
THOUGHTS = {
    "chat_completions": '{"reasoning_details":[{"type":"reasoning.encrypted","data":"SIG"}]}',
    "anthropic_messages": '[{"type":"thinking","thinking":"hm","signature":"SIG"},'
    '{"type":"text","text":"Said."}]',
    "responses": '[{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"SIG"},'
    '{"role":"assistant","content":"Said."}]',
}
"""What each wire format keeps of an answer's thoughts, which servers check by the text SIG in them."""


def says(message: str, *, status: int = 400, **fields: Any) -> Refusal:
    """A refusal in the usual error object."""
    return status, {"error": {"message": message, "type": "invalid_request_error", **fields}}


class RefusingServer:
    """Answers by `plan` what no rule refuses. `bodies`: the answered requests, `refused`: the other ones.

    `seed` signs its thoughts. `is_strict`: it has the vendors' own rules, too. `call_fields`: what comes
    before each call of a chat completion, as a delta.
    """

    def __init__(
        self, rules: Sequence[Rule] = (), plan: Plan = lambda request: ANSWER, seed: int = 0
    ) -> None:
        self.rules = list(rules)
        self.plan = plan
        self.is_strict = False
        self.call_fields: Body = {}
        self._formats = {
            "/v1/chat/completions": dialects.chat_completions(),
            "/v1/messages": dialects.messages(seed),
            "/v1/responses": dialects.responses(seed),
        }
        self.bodies: list[bytes] = []
        self.refused: list[tuple[bytes, str]] = []
        self.port = 0

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                size = re.search(r"(?i)content-length: (\d+)", head)
                body = await reader.readexactly(int(size[1] if size else 0))
                self._answer(writer, head.split(" ")[1], body)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    def _answer(self, writer: asyncio.StreamWriter, path: str, body: bytes) -> None:
        dialect = self._formats[path]
        fields: Body = msgspec.json.decode(body)
        refusal = next((it for rule in self.rules if (it := rule(dialect.format, fields))), None)
        if refusal is None and self.is_strict:
            try:
                dialect.check(fields, Options())
            except VendorRefusal as error:
                refusal = error.status, dialect.error(error)
        if refusal is not None:
            status, error = refusal
            data = error.encode() if isinstance(error, str) else msgspec.json.encode(error)
            self.refused.append((body, data.decode()))
            kind = "text/plain" if isinstance(error, str) else "application/json"
        else:
            self.bodies.append(body)
            status, kind = 200, "text/event-stream"
            reply = self.plan(dialect.read(fields))
            envelope = AnswerEnvelope("a1", "m", 1, TokenTally(len(body) // 4), 9, 0, True, fields)
            chunks = dialect.stream(reply, envelope)
            if reply.tool_calls and self.call_fields:
                event = msgspec.json.encode({"choices": [{"delta": self.call_fields}]})
                chunks.insert(0, b"data: " + event + b"\n\n")
            data = b"".join(chunks)
        head = f"HTTP/1.1 {status} Ruled\r\ncontent-type: {kind}\r\ncontent-length: {len(data)}\r\n\r\n"
        writer.write(head.encode() + data)


@asynccontextmanager
async def refusing(
    rules: Sequence[Rule] = (), plan: Plan = lambda request: ANSWER, seed: int = 0
) -> AsyncGenerator[RefusingServer, None]:
    server = RefusingServer(rules, plan, seed)
    async with listening(server.serve) as server.port:
        yield server


def items_of(body: Body) -> list[Body]:
    """Return the messages or input items of a request."""
    return cast("list[Body]", body.get("messages", body.get("input", [])))


def objects_in(value: Any, path: str = "") -> Iterator[tuple[str, Body]]:
    """Return every object of a request with its path in the vendors' spelling: messages.3.content.0."""
    if isinstance(value, dict):
        yield path, cast("Body", value)
        for key, inner in cast("Body", value).items():
            yield from objects_in(inner, f"{path}.{key}".lstrip("."))
    elif isinstance(value, list):
        for index, inner in enumerate(cast("list[Any]", value)):
            yield from objects_in(inner, f"{path}.{index}")
