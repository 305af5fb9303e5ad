"""Validation errors that repeat the request: only what the server says of it decides what is changed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.providers.test_adapting import TOOL, USER, Body, RuledServer, ask, running
from whet.contract.messages import Message, ToolCall

KINDS = ("System", "User", "Assistant", "Tool", "Function")
CALL_ID = "call_0123456789abcdef"
CALL = ToolCall(CALL_ID, "look", json.dumps({"pattern": "a-z", "tool_call_id": 1, "stream": "too long"}))
HISTORY = [USER, Message("assistant", "", tool_calls=(CALL,)), Message("tool", "seen", tool_call_id=CALL_ID)]


def find_errors(body: Body) -> list[dict[str, Any]]:
    """Return pydantic's errors about a message without text, tried as each kind of message."""
    errors: list[dict[str, Any]] = []
    for index, row in enumerate(body["messages"]):
        if row.get("content", "") is not None:
            continue
        for kind in KINDS:
            at = ["body", "messages", index, f"ChatCompletionRequest{kind}Message"]
            if kind == "Assistant":
                fields = {
                    "type": "string_type",
                    "loc": [*at, "content"],
                    "msg": "Input should be a valid string",
                }
                errors.append({**fields, "input": None})
                continue
            fields = {
                "type": "literal_error",
                "loc": [*at, "role"],
                "msg": f"Input should be '{kind.lower()}'",
            }
            errors.append({**fields, "input": "assistant", "ctx": {"expected": f"'{kind.lower()}'"}})
            if kind == "Tool":
                missing = {"type": "missing", "loc": [*at, "tool_call_id"], "msg": "Field required"}
                errors.append({**missing, "input": row})
    return errors


def in_lines(errors: list[dict[str, Any]]) -> str:
    """As llama-cpp-python's server prints them."""
    shown = [repr({**error, "loc": tuple(error["loc"])}) for error in errors]
    return f"{len(errors)} validation errors:\n" + "".join(f"  {line}\n" for line in shown)


def in_pydantic(errors: list[dict[str, Any]]) -> str:
    """As pydantic's own text has them."""
    return "\n".join(
        f"{'.'.join(map(str, error['loc']))}\n  {error['msg']} [type={error['type']},"
        f" input_value={error['input']!r}, input_type={type(error['input']).__name__}]"
        for error in errors
    )


FORMS: dict[str, Callable[[list[dict[str, Any]]], str]] = {
    "lines": in_lines,
    "json": json.dumps,
    "pydantic": in_pydantic,
}


@pytest.mark.parametrize("form", FORMS)
async def test_what_a_refusal_repeats_of_the_request_is_not_the_server_s_rule(form: str) -> None:
    def refuse(body: Body) -> str:
        errors = find_errors(body)
        return FORMS[form](errors) if errors else ""

    async with running(RuledServer(refuse, status=500)) as server:
        source = server.provider()
        reply = await ask(source.open("sys", [TOOL], "s"), *HISTORY)
        await source.aclose()
        assert reply.message.text == "done" and len(server.refused) == 1
        assert "content of a message with tool calls" in reply.notices[0]
        assert server.bodies[-1]["messages"][2]["tool_calls"][0]["id"] == CALL_ID


async def test_structured_errors_are_read_without_the_request_that_they_repeat() -> None:
    """FastAPI's own answer: the errors are a list beside no message."""

    class Validating(RuledServer):
        def _answer(self, writer: asyncio.StreamWriter, body: Body) -> None:
            errors = find_errors(body)
            if not errors:
                return super()._answer(writer, body)
            self.refused.append("null")
            self.bodies.append(body)
            data = json.dumps({"detail": errors}).encode()
            head = (
                f"HTTP/1.1 422 Ruled\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
            )
            writer.write(head.encode() + data)
            return None

    async with running(Validating()) as server:
        source = server.provider()
        reply = await ask(source.open("sys", [TOOL], "s"), *HISTORY)
        await source.aclose()
        assert reply.message.text == "done" and len(server.refused) == 1
        assert server.bodies[-1]["messages"][2]["tool_calls"][0]["id"] == CALL_ID
