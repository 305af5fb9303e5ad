"""Validates Anthropic Messages requests strictly, with Anthropic's error messages.

Consecutive messages of one role are allowed and count as one, as the vendor does. messages_wire.py writes
the answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from whet_lab.practice.ask import Json
from whet_lab.practice.strict import NAME, Options, VendorRefusal

# fmt: off
_KEYS = frozenset((
    "cache_control", "container", "context_management", "diagnostics", "inference_geo", "max_tokens",
    "mcp_servers", "messages", "metadata", "model", "output_config", "service_tier", "speed",
    "stop_sequences", "stream", "system", "temperature", "thinking", "tool_choice", "tools", "top_k",
    "top_p", "user_profile_id", "workspace_id",
))
# fmt: on
_ID = re.compile(r"^[a-zA-Z0-9_-]+$")
# fmt: off
_TOOL_KEYS = frozenset((
    "name", "description", "input_schema", "cache_control", "type", "strict", "eager_input_streaming",
))
# fmt: on
_MEDIA = ("image/jpeg", "image/png", "image/gif", "image/webp")

Verify = Callable[[str, str], bool]
"""Returns whether a thinking text has the signature that this server gave it."""


def check_headers(headers: Mapping[str, str], options: Options) -> None:
    """Reject a missing version or a wrong key."""
    if options.api_key:
        # The vendor's clients up to 1.x send x-api-key, from 2.x a bearer token; the API takes both.
        bearer = headers.get("authorization", "").removeprefix("Bearer ").strip()
        key = headers.get("x-api-key", "") or bearer
        if not key:
            raise VendorRefusal("x-api-key header is required", status=401)
        if key != options.api_key:
            raise VendorRefusal("invalid x-api-key", status=401)
    if "anthropic-version" not in headers:
        raise VendorRefusal("anthropic-version: header is required")


def check(body: Json, options: Options, verify: Verify) -> None:
    """Raise VendorRefusal for the first part that the vendor would reject."""
    for key in ("model", "messages", "max_tokens"):
        if body.get(key) is None:
            raise VendorRefusal(f"{key}: Field required")
    for key in body:
        if key not in _KEYS and key not in options.extra_keys:
            raise VendorRefusal(f"{key}: Extra inputs are not permitted")
    if not isinstance(body["model"], str) or not body["model"]:
        raise VendorRefusal("model: Input should be a valid string")
    limit = body["max_tokens"]
    if not isinstance(limit, int) or isinstance(limit, bool):
        raise VendorRefusal("max_tokens: Input should be a valid integer")
    if limit < 1:
        raise VendorRefusal("max_tokens: Input should be greater than or equal to 1")
    _check_thinking(body.get("thinking"), limit)
    _check_system(body.get("system"))
    _check_tools(body.get("tools"), body.get("tool_choice"))
    if not isinstance(body["messages"], list):
        raise VendorRefusal("messages: Input should be a valid list")
    _MessageChecker(verify).check_messages(cast("list[Any]", body["messages"]))
    marks = _count_marks(body)
    if marks > 4:
        raise VendorRefusal(f"A maximum of 4 blocks with cache_control may be provided. Found {marks}.")


def _check_thinking(thinking: Any, limit: int) -> None:
    if thinking is None:
        return
    row = cast("Json", thinking) if isinstance(thinking, dict) else {}
    if row.get("type") not in ("enabled", "disabled", "adaptive"):
        raise VendorRefusal(
            f"thinking: Input tag '{row.get('type')}' found using 'type' does not match any of the expected"
            " tags: 'adaptive', 'disabled', 'enabled'"
        )
    if row["type"] == "enabled":
        budget = row.get("budget_tokens")
        if not isinstance(budget, int):
            raise VendorRefusal("thinking.enabled.budget_tokens: Field required")
        if budget < 1024:
            raise VendorRefusal(
                "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
            )
        if budget >= limit:
            raise VendorRefusal("`max_tokens` must be greater than `thinking.budget_tokens`.")


def _check_system(system: Any) -> None:
    if system is None or isinstance(system, str):
        return
    if not isinstance(system, list):
        raise VendorRefusal("system: Input should be a valid list")
    for index, block in enumerate(cast("list[Any]", system)):
        if not isinstance(block, dict) or cast("Json", block).get("type") != "text":
            raise VendorRefusal(f"system.{index}.type: Input should be 'text'")
        if not cast("Json", block).get("text"):
            raise VendorRefusal("system: text content blocks must be non-empty")


def _check_tools(tools: Any, choice: Any) -> None:
    if tools is None:
        if choice is not None:
            raise VendorRefusal("tool_choice: tool_choice may only be specified while providing tools")
        return
    if not isinstance(tools, list):
        raise VendorRefusal("tools: Input should be a valid list")
    names: set[str] = set()
    for index, tool in enumerate(cast("list[Any]", tools)):
        path = f"tools.{index}.custom"
        row = cast("Json", tool) if isinstance(tool, dict) else {}
        for key in row:
            if key not in _TOOL_KEYS:
                raise VendorRefusal(f"{path}.{key}: Extra inputs are not permitted")
        name = row.get("name")
        if not isinstance(name, str):
            raise VendorRefusal(f"{path}.name: Field required")
        if not NAME.match(name):
            raise VendorRefusal(f"{path}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,64}}$'")
        if name in names:
            raise VendorRefusal("tools: Tool names must be unique.")
        names.add(name)
        _check_schema(path, row.get("input_schema"))


def _check_schema(path: str, schema: Any) -> None:
    if schema is None:
        raise VendorRefusal(f"{path}.input_schema: Field required")
    if not isinstance(schema, dict):
        raise VendorRefusal(f"{path}.input_schema: Input should be a valid dictionary")
    row = cast("Json", schema)
    if "type" not in row:
        raise VendorRefusal(f"{path}.input_schema.type: Field required")
    if row["type"] != "object":
        raise VendorRefusal(f"{path}.input_schema.type: Input should be 'object'")
    if not isinstance(row.get("properties", {}), dict):
        raise VendorRefusal(f"{path}.input_schema.properties: Input should be a valid dictionary")


def _count_marks(body: Json) -> int:
    rows: list[Any] = list(body.get("tools") or ())
    if isinstance(body.get("system"), list):
        rows += body["system"]
    for message in body["messages"]:
        if isinstance(message["content"], list):
            rows += message["content"]
    return sum(1 for row in rows if row.get("cache_control")) + bool(body.get("cache_control"))


class _MessageChecker:
    """One pass over the messages. `open` holds the tool_use ids that the next message must answer."""

    def __init__(self, verify: Verify) -> None:
        self._verify = verify
        self._open: list[str] = []
        self._asked: set[str] = set()
        self._before = ""

    def check_messages(self, messages: list[Any]) -> None:
        if not messages:
            raise VendorRefusal("messages: at least one message is required")
        for index, message in enumerate(messages):
            row = cast("Json", message) if isinstance(message, dict) else {}
            role = row.get("role")
            if role not in ("user", "assistant"):
                raise VendorRefusal(_describe_role_error(index, role))
            for key in row:
                if key not in ("role", "content"):
                    raise VendorRefusal(f"messages.{index}.{key}: Extra inputs are not permitted")
            if index == 0 and role != "user":
                raise VendorRefusal('messages: first message must use the "user" role')
            content = row.get("content")
            if self._open and not (role == "user" and isinstance(content, list)):
                raise self._unanswered_error(index - 1)
            self._content(index, role, content)
            self._before = role
        if self._open:
            raise self._unanswered_error(len(messages) - 1)
        if self._before == "assistant":
            raise VendorRefusal(
                "This model does not support assistant message prefill. The conversation must end with a "
                "user message."
            )

    def _unanswered_error(self, index: int) -> VendorRefusal:
        return VendorRefusal(
            f"messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately after: "
            f"{', '.join(self._open)}. Each `tool_use` block must have a corresponding `tool_result` block"
            " in the next message."
        )

    def _content(self, index: int, role: str, content: Any) -> None:
        if content is None:
            raise VendorRefusal(f"messages.{index}.content: Field required")
        if isinstance(content, str):
            if not content.strip():
                raise _empty(index, content)
            return
        if not isinstance(content, list):
            raise VendorRefusal(f"messages.{index}.content: Input should be a valid list")
        if not content:
            raise _empty(index, "")
        rows = [cast("Json", b) if isinstance(b, dict) else {} for b in cast("list[Any]", content)]
        if role == "user":
            self._user(index, rows)
        else:
            self._assistant(index, rows)

    def _user(self, index: int, rows: list[Json]) -> None:
        expected, before = list(self._open), list(self._open)
        for number, row in enumerate(rows):
            path = f"messages.{index}.content.{number}"
            if row.get("type") != "tool_result":
                if expected:
                    raise self._unanswered_error(index - 1)
                _check_block(path, row, images=True)
                continue
            self._result(path, row, expected, before)
        if expected:
            self._open = expected
            raise self._unanswered_error(index - 1)
        self._open = []

    def _result(self, path: str, row: Json, expected: list[str], before: list[str]) -> None:
        use = row.get("tool_use_id")
        if not isinstance(use, str):
            raise VendorRefusal(f"{path}.tool_result.tool_use_id: Field required")
        if use not in expected:
            if use in before:
                raise VendorRefusal(
                    f"{path}: each tool_use must have a single result. Found multiple `tool_result` blocks "
                    f"with id: {use}"
                )
            raise VendorRefusal(
                f"{path}: unexpected `tool_use_id` found in `tool_result` blocks: {use}. Each `tool_result`"
                " block must have a corresponding `tool_use` block in the previous message."
            )
        expected.remove(use)
        content = row.get("content")
        if isinstance(content, list):
            for number, part in enumerate(cast("list[Any]", content)):
                inner = cast("Json", part) if isinstance(part, dict) else {}
                _check_block(f"{path}.tool_result.content.{number}", inner, images=True)
        elif not isinstance(content, str | None):
            raise VendorRefusal(f"{path}.tool_result.content: Input should be a valid string or list")

    def _assistant(self, index: int, rows: list[Json]) -> None:
        for number, row in enumerate(rows):
            path = f"messages.{index}.content.{number}"
            kind = row.get("type")
            if kind == "tool_use":
                self._use(path, row)
            elif kind == "thinking":
                thinking, signature = row.get("thinking"), row.get("signature")
                if not isinstance(thinking, str) or not isinstance(signature, str):
                    raise VendorRefusal(f"{path}.thinking.signature: Field required")
                if not self._verify(thinking, signature):
                    raise VendorRefusal(f"{path}: Invalid `signature` in `thinking` block")
            elif kind != "redacted_thinking":
                _check_block(path, row, images=False)

    def _use(self, path: str, row: Json) -> None:
        use, name = row.get("id"), row.get("name")
        if not isinstance(use, str):
            raise VendorRefusal(f"{path}.tool_use.id: Field required")
        if not _ID.match(use):
            raise VendorRefusal(f"{path}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
        if not isinstance(name, str) or not NAME.match(name):
            raise VendorRefusal(
                f"{path}.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{{1,64}}$'"
            )
        if not isinstance(row.get("input"), dict):
            raise VendorRefusal(f"{path}.tool_use.input: Input should be a valid dictionary")
        if use in self._asked:
            raise VendorRefusal("messages: `tool_use` ids must be unique")
        self._asked.add(use)
        self._open.append(use)


def check_lost_thinking(body: Json, thinking_calls: Mapping[str, None]) -> None:
    """Reject a tool loop whose last assistant message lost the thinking that came with its calls.

    `thinking_calls` holds the ids of calls that were sent together with thinking.
    """
    if cast("Json", body.get("thinking") or {}).get("type") != "enabled":
        return
    for index in range(len(body["messages"]) - 1, -1, -1):
        message = body["messages"][index]
        if message["role"] != "assistant":
            continue
        rows = cast("list[Json]", message["content"]) if isinstance(message["content"], list) else []
        first = rows[0]["type"] if rows else "text"
        lost = any(row["type"] == "tool_use" and row["id"] in thinking_calls for row in rows)
        if lost and first not in ("thinking", "redacted_thinking"):
            raise VendorRefusal(
                f"messages.{index}.content.0.type: Expected `thinking` or `redacted_thinking`, but found"
                f" `{first}`. When `thinking` is enabled, a final `assistant` message must start with a"
                " thinking block."
            )
        return


def _describe_role_error(index: int, role: Any) -> str:
    if role == "system":
        return (
            'messages: Unexpected role "system". The Messages API accepts a top-level `system` parameter,'
            ' not "system" as an input message role.'
        )
    return f"messages.{index}.role: Input should be 'user' or 'assistant'"


def _empty(index: int, text: str) -> VendorRefusal:
    if text:
        return VendorRefusal("messages: text content blocks must contain non-whitespace text")
    return VendorRefusal(
        f"messages.{index}: all messages must have non-empty content except for the optional final "
        f"assistant message"
    )


def _check_block(path: str, row: Json, *, images: bool) -> None:
    kind = row.get("type")
    if kind == "text":
        text = row.get("text")
        if not isinstance(text, str):
            raise VendorRefusal(f"{path}.text.text: Field required")
        if not text:
            raise VendorRefusal("messages: text content blocks must be non-empty")
        if not text.strip():
            raise VendorRefusal("messages: text content blocks must contain non-whitespace text")
    elif kind == "image" and images:
        _check_image(path, row.get("source"))
    elif kind != "document" or not images:
        raise VendorRefusal(
            f"{path}: Input tag '{kind}' found using 'type' does not match any of the expected tags: "
            "'document', 'image', 'text', 'thinking', 'tool_result', 'tool_use'"
        )


def _check_image(path: str, source: Any) -> None:
    row = cast("Json", source) if isinstance(source, dict) else {}
    if row.get("type") == "url" and isinstance(row.get("url"), str):
        return
    if row.get("type") != "base64" or not isinstance(row.get("data"), str) or not row["data"]:
        raise VendorRefusal(f"{path}.image.source: Field required")
    if row.get("media_type") not in _MEDIA:
        raise VendorRefusal(
            f"{path}.image.source.base64.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif'"
            " or 'image/webp'"
        )
