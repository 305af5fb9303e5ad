"""Servers that refuse a parameter, a field, an id or a role: one second try without it, remembered."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.listening import listening
from tests.providers.server import SSE, sse
from whet.config.model_servers import ServerDialect
from whet.config.schema import ModelSettings
from whet.contract.errors import BadRequest, ProviderError
from whet.contract.messages import Message, ToolCall, VendorReplay
from whet.contract.protocols import ModelLink, ModelReply
from whet.contract.tools import ToolSpec
from whet.providers.backoff import Backoff
from whet.providers.connect import ConnectOptions, ServerProvider, connect_one
from whet.providers.dialect_memory import LearnedDialect, find_dialect_faults, note_dialect, read_dialect
from whet.providers.tool_schemas import NO_CUTS

Body = dict[str, Any]
Rule = Callable[[Body], str]
"""Returns the server's refusal of a request, or an empty string."""
TOOL = ToolSpec("look", "Look.", {"type": "object", "properties": {}})
USER = Message("user", "hi")
DAY = date(2026, 11, 28)


def calls_of(row: Body) -> list[Body]:
    return row.get("tool_calls", [])


def refuses_parameter(name: str) -> Rule:
    return lambda body: f"Unrecognized request argument supplied: {name}" if name in body else ""


def refuses_null(body: Body) -> str:
    """vLLM's and FastAPI's way: the position in a list."""
    for index, row in enumerate(body["messages"]):
        if row.get("content", "") is None:
            return f"body.messages.{index}.content: Input should be a valid string"
    return ""


def refuses_empty_content(body: Body) -> str:
    for index, row in enumerate(body["messages"]):
        if calls_of(row) and "content" in row:
            return f"messages[{index}]: content must not be null or empty next to tool_calls"
    return ""


def refuses_system(body: Body) -> str:
    return "System role not supported" if body["messages"][0]["role"] == "system" else ""


def wants_developer(body: Body) -> str:
    if body["messages"][0]["role"] == "developer":
        return ""
    return "Unsupported value: 'messages[0].role' does not support 'system'; use 'developer' instead."


def wants_nine_characters(body: Body) -> str:
    """Mistral's."""
    for row in body["messages"]:
        for call in calls_of(row):
            if not re.fullmatch("[a-zA-Z0-9]{9}", call["id"]):
                return f"Tool call id was {call['id']} but must be a-z, A-Z, 0-9, with a length of 9."
    return ""


def wants_plain_ids(body: Body) -> str:
    """Bedrock's, through a proxy."""
    for index, row in enumerate(body["messages"]):
        for call in calls_of(row):
            if not re.fullmatch("[a-zA-Z0-9_-]+", call["id"]):
                return (
                    f"messages.{index}.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
                )
    return ""


def wants_reasoning(body: Body) -> str:
    """Kimi's: each message with calls needs a text that is not empty."""
    for index, row in enumerate(body["messages"]):
        if calls_of(row) and not row.get("reasoning_content"):
            return f"reasoning_content is missing in assistant tool call message at index {index}"
    return ""


def wants_its_reasoning(body: Body) -> str:
    """DeepSeek's."""
    if any(calls_of(row) and row.get("reasoning_content") != "I look." for row in body["messages"]):
        return "The `reasoning_content` in the thinking mode must be passed back to the API."
    return ""


def refuses_field(name: str) -> Rule:
    def rule(body: Body) -> str:
        for index, row in enumerate(body["messages"]):
            if name in row:
                return f"'messages.{index}' : property '{name}' is unsupported"
        return ""

    return rule


def refuses_max_tokens(body: Body) -> str:
    if "max_tokens" not in body:
        return ""
    return "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'"


class RuledServer:
    """Answers each request with a tool call or, after a tool's result, with text; refuses what breaks a
    rule. Reasons in `field`."""

    def __init__(self, *rules: Rule, field: str = "", status: int = 400, param: str = "") -> None:
        self.rules = rules
        self.field = field
        self.status = status
        self.bodies: list[Body] = []
        self.refused: list[str] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                size = re.search(r"(?i)content-length: (\d+)", head)
                body = msgspec.json.decode(await reader.readexactly(int(size[1] if size else 0)))
                self._answer(writer, body)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    def _answer(self, writer: asyncio.StreamWriter, body: Body) -> None:
        self.bodies.append(body)
        refusal = next((text for rule in self.rules if (text := rule(body))), "")
        if refusal:
            self.refused.append(refusal)
            kind, status = "application/json", self.status
            data = msgspec.json.encode({"error": {"message": refusal, "type": "invalid_request_error"}})
        else:
            kind, status, data = SSE, 200, self._reply(body)
        head = f"HTTP/1.1 {status} Ruled\r\ncontent-type: {kind}\r\ncontent-length: {len(data)}\r\n\r\n"
        writer.write(head.encode() + data)

    def _reply(self, body: Body) -> bytes:
        if body.get("messages", [{}])[-1].get("role") == "tool":
            return sse(b'{"choices":[{"delta":{"content":"done"},"finish_reason":"stop"}]}', b"[DONE]")
        call = {"index": 0, "id": "functions.look:0", "function": {"name": "look", "arguments": "{}"}}
        delta: Body = {"tool_calls": [call], **({self.field: "I look."} if self.field else {})}
        chunk = {"choices": [{"delta": delta, "finish_reason": "tool_calls"}]}
        return sse(msgspec.json.encode(chunk), b"[DONE]")

    def provider(
        self,
        secrets: dict[str, str] | None = None,
        memory: Path | None = None,
        backoff: Backoff | None = None,
        **settings: Any,
    ) -> ServerProvider:
        url = f"http://127.0.0.1:{self.port}/v1"
        return connect_one(
            ModelSettings(base_url=url, model="m", **settings),
            secrets or {},
            backoff=backoff or Backoff(0),
            options=ConnectOptions(memory=memory),
        )


class MessagesServer(RuledServer):
    """Answers with text in the Messages format."""

    def _reply(self, body: Body) -> bytes:
        usage = {"input_tokens": 9, "output_tokens": 1}
        events: list[Body] = [
            {"type": "message_start", "message": {"id": "msg_1", "model": body["model"], "usage": usage}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "done"}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage},
            {"type": "message_stop"},
        ]
        return sse(*map(msgspec.json.encode, events))


@asynccontextmanager
async def running(server: RuledServer) -> AsyncGenerator[RuledServer, None]:
    async with listening(server.serve) as server.port:
        yield server


async def ask(link: ModelLink, *messages: Message) -> ModelReply:
    items = [item async for item in link.stream(list(messages))]
    reply = items[-1]
    assert isinstance(reply, ModelReply)
    return reply


def other_history(
    call_id: str = "toolu_01ABCDEFGHIJKLMNOPQRSTUV", replay: Body | None = None
) -> list[Message]:
    """A turn with a tool call that another model made."""
    blocks = VendorReplay("chat_completions", msgspec.json.encode(replay).decode()) if replay else None
    call = Message("assistant", "", tool_calls=(ToolCall(call_id, "look", "{}"),), replay=blocks)
    return [USER, call, Message("tool", "seen", tool_call_id=call_id)]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_goes_back_to_a_server_that_no_table_knows(field: str) -> None:
    async with running(RuledServer(field=field)) as server:
        source = server.provider()
        link = source.open("sys", [TOOL], "s")
        reply = (await ask(link, USER)).message
        await ask(link, USER, reply, Message("tool", "seen", tool_call_id=reply.tool_calls[0].id))
        await source.aclose()
        assert server.bodies[1]["messages"][2][field] == "I look."


async def test_a_thinking_model_behind_a_bare_url_is_never_refused() -> None:
    async with running(RuledServer(wants_its_reasoning, field="reasoning_content")) as server:
        source = server.provider()
        link = source.open("sys", [TOOL], "s")
        reply = (await ask(link, USER)).message
        await ask(link, USER, reply, Message("tool", "seen", tool_call_id=reply.tool_calls[0].id))
        await source.aclose()
        assert not server.refused


REFUSALS: dict[str, tuple[list[Rule], dict[str, Any]]] = {
    "stream_options": ([refuses_parameter("stream_options")], {}),
    "effort": ([refuses_parameter("reasoning_effort")], {"reasoning_effort": "low"}),
    "two": (
        [refuses_parameter("stream_options"), refuses_parameter("reasoning_effort")],
        {"reasoning_effort": "low"},
    ),
    "max_tokens": ([refuses_max_tokens], {"max_output_tokens": 100}),
    "any_max_tokens": (
        [refuses_max_tokens, refuses_parameter("max_completion_tokens")],
        {"max_output_tokens": 100},
    ),
    "null": ([refuses_null], {}),
    "no_content": ([refuses_null, refuses_empty_content], {}),
    "system": ([refuses_system], {}),
    "developer": ([wants_developer], {}),
    "nine": ([wants_nine_characters], {}),
    "plain_ids": ([wants_plain_ids], {}),
    "reasoning": ([wants_reasoning], {}),
    "reasoning_first": ([wants_reasoning, wants_nine_characters, refuses_null], {}),
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_a_refusal_that_names_its_cause_has_a_second_try_which_is_remembered(name: str) -> None:
    rules, settings = REFUSALS[name]
    async with running(RuledServer(*rules)) as server:
        source = server.provider(**settings)
        history = other_history("functions.look:0")
        reply = await ask(source.open("sys", [TOOL], "s"), *history)
        refused = len(server.refused)
        assert reply.message.text == "done" and refused and len(reply.notices) == refused
        await ask(source.open("sys", [TOOL], "s-2"), *history)
        await source.aclose()
        assert len(server.refused) == refused and server.bodies[-1]["model"] == "m"


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "reasoning_details"])
async def test_reasoning_that_another_server_sent_is_left_out_if_it_is_refused(name: str) -> None:
    history = other_history(replay={name: "hm" if name != "reasoning_details" else [{"type": "x"}]})
    async with running(RuledServer(refuses_field(name))) as server:
        source = server.provider()
        assert (await ask(source.open("sys", [TOOL], "s"), *history)).message.text == "done"
        await source.aclose()
        assert len(server.refused) == 1


async def test_deepseek_gets_a_reasoning_in_the_calls_of_other_models() -> None:
    async with running(RuledServer(wants_reasoning)) as server:
        source = server.provider({"K": "k-1"}, provider="deepseek", api_key_env="K")
        await ask(source.open("sys", [TOOL], "s"), *other_history())
        await source.aclose()
        assert not server.refused


async def test_a_template_error_of_a_local_server_has_a_second_try() -> None:
    async with running(RuledServer(refuses_null, status=500)) as server:
        source = server.provider()
        assert (await ask(source.open("sys", [TOOL], "s"), *other_history())).message.text == "done"
        await source.aclose()


@pytest.mark.parametrize(
    "text",
    ["temperature is out of range", "messages.0.content.1.image_url: not an image", "the model is thinking"],
)
async def test_a_refusal_that_names_nothing_of_the_request_fails_at_once(text: str) -> None:
    async with running(RuledServer(lambda _body: text)) as server:
        source = server.provider(reasoning_effort="low")
        with pytest.raises(BadRequest):
            await ask(source.open("sys", [TOOL], "s"), *other_history())
        await source.aclose()
        assert len(server.bodies) == 1


@pytest.mark.parametrize("wire", ["chat_completions", "anthropic_messages"])
@pytest.mark.parametrize("text", ["Model m is retired. Alternatively, use n.", "roles must alternate"])
async def test_a_request_that_stays_the_same_is_not_repeated(wire: str, text: str) -> None:
    async with running(RuledServer(lambda _body: text)) as server:
        source = server.provider(format=wire)
        with pytest.raises(BadRequest):
            await ask(source.open("sys", [TOOL], "s"), USER)
        await source.aclose()
        assert len(server.bodies) == 1


async def test_a_server_that_always_names_something_else_is_given_up() -> None:
    names = ("stream_options", "tool_call_id: invalid pattern", "reasoning_content is missing")
    async with running(RuledServer(lambda _body: " ".join(names))) as server:
        source = server.provider()
        with pytest.raises(BadRequest):
            await ask(source.open("sys", [TOOL], "s"), *other_history())
        await source.aclose()
        assert len(server.bodies) < 10


@pytest.mark.parametrize(
    ("wire", "name"), [("responses", "include"), ("anthropic_messages", "cache_control")]
)
async def test_other_wire_formats_leave_out_a_refused_parameter(wire: str, name: str) -> None:
    async with running(RuledServer(refuses_parameter(name))) as server:
        source = server.provider(format=wire)
        with pytest.raises(ProviderError):  # the answer is of another format
            await ask(source.open("sys", [], "s"), USER)
        await source.aclose()
        assert [name in body for body in server.bodies] == [True, False]


@pytest.mark.parametrize("limit", [4096, 8192])
async def test_a_messages_server_that_names_its_largest_answer_gets_it_at_once(limit: int) -> None:
    """The words of Anthropic's server, as in continuedev/continue#4225."""

    def refuse(body: Body) -> str:
        words = "which is the maximum allowed number of output tokens for claude-3-haiku-20240307"
        sent = body["max_tokens"]
        return f"max_tokens: {sent} > {limit}, {words}" if sent > limit else ""

    async with running(MessagesServer(refuse)) as server:
        source = server.provider(format="anthropic_messages", max_output_tokens=32_000)
        link = source.open("sys", [TOOL], "s")
        replies = [await ask(link, USER), await ask(link, USER)]
        await source.aclose()
        assert [reply.message.content for reply in replies] == ["done", "done"]
        assert [body["max_tokens"] for body in server.bodies] == [32_000, limit, limit]


async def test_later_processes_know_what_a_server_refuses(tmp_path: Path) -> None:
    rules = [refuses_parameter("stream_options"), wants_nine_characters, refuses_null]
    async with running(RuledServer(*rules)) as server:
        for refused in (len(rules), len(rules)):
            source = server.provider(memory=tmp_path / "home" / "model-servers.json")
            reply = await ask(source.open("sys", [TOOL], "s"), *other_history())
            await source.aclose()
            assert (reply.message.text, len(server.refused)) == ("done", refused)


async def test_a_memory_holds_no_password_of_an_address(tmp_path: Path) -> None:
    memory = tmp_path / "model-servers.json"
    async with running(RuledServer(refuses_parameter("stream_options"))) as server:
        url = f"http://user:pass-word@127.0.0.1:{server.port}/v1"
        for _ in range(2):
            model = ModelSettings(base_url=url, model="m")
            source = connect_one(model, {}, backoff=Backoff(0), options=ConnectOptions(memory=memory))
            await ask(source.open("sys", [TOOL], "s"), *other_history())
            await source.aclose()
        assert "pass-word" not in memory.read_text()
        assert len(server.refused) == 1


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"chat_completions x m": 1}', b"\xff"])
def test_a_memory_that_is_no_memory_counts_as_empty(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model-servers.json"
    path.write_bytes(content)
    assert read_dialect(path, "k", DAY) is None
    note_dialect(path, "k", ServerDialect(short_ids=True), NO_CUTS, DAY)
    learned = read_dialect(path, "k", DAY + timedelta(days=30))
    assert learned is not None and learned.dialect.short_ids
    assert read_dialect(path, "k", DAY + timedelta(days=31)) is None


def test_an_entry_without_a_day_was_written_by_a_person_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "model-servers.json"
    path.write_text('{"k": {"dialect": {"short_ids": true}}, "odd": {"dialect": 3}}')
    far = DAY + timedelta(days=999)
    learned = read_dialect(path, "k", far)
    assert learned is not None and learned.dialect.short_ids
    note_dialect(path, "k", msgspec.structs.replace(learned.dialect, alternates=True), NO_CUTS, DAY)
    again = read_dialect(path, "k", far)
    assert again is not None and (again.dialect.short_ids, again.dialect.alternates, again.day) == (
        True,
        True,
        "",
    )
    assert [fault.partition(":")[0] for fault in find_dialect_faults(path)] == ["odd"], (
        "nobody's line is lost"
    )


def test_a_memory_keeps_the_newest_servers(tmp_path: Path) -> None:
    path = tmp_path / "model-servers.json"
    entry = LearnedDialect(ServerDialect(), NO_CUTS, DAY.isoformat())
    path.write_bytes(msgspec.json.encode({f"k{number}": entry for number in range(101)}))
    note_dialect(path, "k101", ServerDialect(), NO_CUTS, DAY)
    numbers = [number for number in range(102) if read_dialect(path, f"k{number}", DAY)]
    assert numbers == list(range(2, 102))


async def test_a_tool_that_was_refused_is_offered_to_later_sessions(tmp_path: Path) -> None:
    def rule(body: Body) -> str:
        names = [tool["function"]["name"] for tool in body.get("tools", [])]
        return "Invalid schema for function 'look'" if "look" in names else ""

    async with running(RuledServer(rule)) as server:
        source = server.provider(memory=tmp_path / "model-servers.json")
        for session in ("s", "t"):
            link = source.open("sys", [TOOL, ToolSpec("other", "Do.", {"type": "object"})], session)
            reply = await ask(link, *other_history())
            assert "the tool look" in reply.warnings[0]
        await source.aclose()
        assert not (tmp_path / "model-servers.json").exists()  # nothing of it is for later processes
