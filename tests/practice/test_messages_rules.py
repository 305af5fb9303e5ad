"""Anthropic Messages: what is accepted, and what is refused in which words."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import each
from whet_lab.practice.messages_rules import check, check_headers, check_lost_thinking
from whet_lab.practice.strict import Options, VendorRefusal


def user(*blocks):
    is_list = blocks and isinstance(blocks[0], dict)
    return {"role": "user", "content": list(blocks) if is_list else "".join(blocks) or "hi"}


def uses(*ids, first=()):
    rows = [{"type": "tool_use", "id": i, "name": "noop", "input": {}} for i in ids]
    return {"role": "assistant", "content": [*first, *rows]}


def result(use: str, content: Any = "ok", **more):
    return {"type": "tool_result", "tool_use_id": use, "content": content} | more


def text(words: Any = "t", **more):
    return {"type": "text", "text": words} | more


def body(*messages, **more):
    return {"model": "m", "max_tokens": 100, "messages": list(messages)} | more


def tool(name: Any = "noop", schema=None, **more):
    return {"name": name, "input_schema": {"type": "object"} if schema is None else schema} | more


MARK = {"cache_control": {"type": "ephemeral"}}
THINKING = {"type": "thinking", "thinking": "hm", "signature": "good"}
PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}

ACCEPTED = [
    body(user()),
    body(user(), {"role": "assistant", "content": "a"}, user("again")),
    body(user("a"), user("b")),
    body(user(), uses("a", "b"), user(result("b"), result("a"), text("and"))),
    body(
        user(), uses("a", first=[text()]), user(result("a", is_error=True)), uses("b"),
        user(result("b", None)),
    ),
    body(user(), uses("a", first=[THINKING]), user(result("a", [text(), PNG]))),
    body(user(PNG, text()), system=[text("s", **MARK)], tools=[tool(**MARK)]),
    body(
        user(), system="s", tools=[tool()], tool_choice={"type": "auto"}, stream=True, temperature=0,
        metadata={},
    ),
    body(user(), thinking={"type": "adaptive"}),
]  # fmt: skip

REFUSED = [
    ({"model": "m", "messages": [user()]}, "max_tokens: Field required"),
    ({"max_tokens": 1, "messages": [user()]}, "model: Field required"),
    (body(user(), max_tokens=0), "max_tokens: Input should be greater than or equal to 1"),
    (body(user(), max_tokens="5"), "max_tokens: Input should be a valid integer"),
    (body(user(), seed=1), "seed: Extra inputs are not permitted"),
    (body(), "messages: at least one message is required"),
    (body({"role": "system", "content": "s"}, user()), 'Unexpected role "system"'),
    (body({"role": "tool", "content": "s"}), "messages.0.role: Input should be 'user' or 'assistant'"),
    (body({"role": "assistant", "content": "a"}, user()), 'first message must use the "user" role'),
    (body(user() | {"name": "me"}), "messages.0.name: Extra inputs are not permitted"),
    (body({"role": "user"}), "messages.0.content: Field required"),
    (body({"role": "user", "content": ""}), "messages.0: all messages must have non-empty content"),
    (body({"role": "user", "content": []}), "must have non-empty content"),
    (body({"role": "user", "content": " \n"}), "text content blocks must contain non-whitespace text"),
    (body(user(text(""))), "text content blocks must be non-empty"),
    (body(user(text(" "))), "text content blocks must contain non-whitespace text"),
    (body(user({"type": "image_url"})), "Input tag 'image_url' found using 'type'"),
    (body(user(PNG | {"source": {"type": "base64", "media_type": "image/bmp", "data": "A"}})), "media_type"),
    (body(user(), {"role": "assistant", "content": "a"}), "does not support assistant message prefill"),
    (
        body(user(), uses("a")),
        "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: a",
    ),
    (body(user(), uses("a"), user("hi")), "without `tool_result` blocks immediately after: a"),
    (body(user(), uses("a", "b"), user(result("a"))), "without `tool_result` blocks immediately after: b"),
    (body(user(), uses("a"), user(text(), result("a"))), "without `tool_result` blocks immediately after: a"),
    (
        body(user(), uses("a"), {"role": "assistant", "content": "x"}, user(result("a"))),
        "immediately after: a",
    ),
    (body(user(result("a"))), "unexpected `tool_use_id` found in `tool_result` blocks: a"),
    (body(user(), uses("a"), user(result("a"), result("a"))), "each tool_use must have a single result"),
    (body(user(), uses("a"), user(result("a"), result("b"))), "unexpected `tool_use_id` found"),
    (body(user(), uses("a", "a"), user(result("a"))), "`tool_use` ids must be unique"),
    (
        body(user(), uses("a"), user(result("a")), uses("a"), user(result("a"))),
        "`tool_use` ids must be unique",
    ),
    (body(user(), uses("a.b"), user(result("a.b"))), "tool_use.id: String should match pattern"),
    (
        body(
            user(),
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "a", "name": "noop", "input": "{}"}],
            },
        ),
        "tool_use.input: Input should be a valid dictionary",
    ),
    (
        body(user(), uses("a", first=[THINKING | {"thinking": "other"}]), user(result("a"))),
        "Invalid `signature` in `thinking` block",
    ),
    (
        body(user(), uses("a", first=[{"type": "thinking", "thinking": "x"}]), user(result("a"))),
        "signature: Field required",
    ),
    (
        body(user(), tools=[tool("a b")]),
        "tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,64}$'",
    ),
    (body(user(), tools=[{"name": "noop"}]), "tools.0.custom.input_schema: Field required"),
    (body(user(), tools=[tool(schema={})]), "tools.0.custom.input_schema.type: Field required"),
    (body(user(), tools=[tool(schema={"type": "array"})]), "input_schema.type: Input should be 'object'"),
    (body(user(), tools=[tool(), tool()]), "Tool names must be unique"),
    (body(user(), tools=[tool(parameters={})]), "tools.0.custom.parameters: Extra inputs are not permitted"),
    (body(user(), tool_choice={"type": "auto"}), "tool_choice may only be specified while providing tools"),
    (body(user(), system=[text("")]), "text content blocks must be non-empty"),
    (body(user(), system={}), "system: Input should be a valid list"),
    (body(user(*[text(**MARK)] * 5)), "A maximum of 4 blocks with cache_control may be provided. Found 5."),
    (body(user(), thinking={"type": "enabled", "budget_tokens": 10}), "greater than or equal to 1024"),
    (body(user(), thinking={"type": "enabled", "budget_tokens": 2000}), "`max_tokens` must be greater than"),
    (body(user(), thinking={"type": "on"}), "Input tag 'on' found using 'type'"),
]


def is_good(thinking, signature):
    return (thinking, signature) == ("hm", "good")


@pytest.mark.parametrize("request_body", ACCEPTED)
def test_accepts(request_body):
    check(request_body, Options(), is_good)


@each(("request_body", "complaint"), REFUSED)
def test_refuses(request_body, complaint):
    with pytest.raises(VendorRefusal) as caught:
        check(request_body, Options(), is_good)
    assert complaint in caught.value.message
    assert caught.value.status == 400


def test_headers():
    check_headers({"anthropic-version": "2023-06-01"}, Options())
    with pytest.raises(VendorRefusal, match="anthropic-version: header is required"):
        check_headers({}, Options())
    with pytest.raises(VendorRefusal, match="x-api-key header is required"):
        check_headers({"anthropic-version": "2023-06-01"}, Options(api_key="k"))
    with pytest.raises(VendorRefusal, match="invalid x-api-key"):
        check_headers({"anthropic-version": "2023-06-01", "x-api-key": "no"}, Options(api_key="k"))


def test_thinking_that_came_with_calls_must_come_back():
    enabled = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    lost = body(user(), uses("a"), user(result("a")), **enabled)
    complaint = "Expected `thinking` or `redacted_thinking`, but found `tool_use`"
    with pytest.raises(VendorRefusal, match=complaint):
        check_lost_thinking(lost, {"a": None})
    check_lost_thinking(lost, {"b": None})
    check_lost_thinking(body(*lost["messages"]), {"a": None})
    check_lost_thinking(body(user(), uses("a", first=[THINKING]), user(result("a")), **enabled), {"a": None})
