"""Validates Chat Completions requests strictly, with OpenAI's error messages.

If vendors differ, the stricter rule applies (an assistant message needs content or calls, earlier arguments
must be JSON), so that a request accepted here is accepted everywhere. chat_wire.py writes the answers.
"""

from __future__ import annotations

from typing import Any, cast

from whet_lab.practice.ask import Json
from whet_lab.practice.strict import (
    NAME,
    Options,
    VendorRefusal,
    check_arguments,
    check_openai_keys,
    check_openai_tools,
    empty_array,
    invalid_value,
    missing,
    no_user,
    unknown_parameter,
    unsupported_value,
    wrong_type,
)

# fmt: off
_KEYS = frozenset((
    "audio", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs",
    "max_completion_tokens", "max_tokens", "messages", "metadata", "modalities", "model", "moderation", "n",
    "parallel_tool_calls", "prediction", "presence_penalty", "prompt_cache_key", "prompt_cache_options",
    "prompt_cache_retention", "reasoning_effort", "response_format", "safety_identifier", "seed",
    "service_tier", "stop", "store", "stream", "stream_options", "temperature", "tool_choice", "tools",
    "top_logprobs", "top_p", "user", "verbosity", "web_search_options",
))
# fmt: on
_SYSTEM = frozenset(("role", "content", "name"))
_MESSAGE_KEYS = {
    "system": _SYSTEM,
    "developer": _SYSTEM,
    "user": _SYSTEM,
    "tool": _SYSTEM | {"tool_call_id"},
    "assistant": _SYSTEM
    | {
        "tool_calls",
        "refusal",
        "audio",
        "annotations",
        "reasoning_content",
        "reasoning",
        "reasoning_details",
    },
}


def check(body: Json, options: Options) -> None:
    """Raise VendorRefusal for the first part that the vendor would reject."""
    check_openai_keys(body, _KEYS, options)
    messages = body.get("messages")
    if messages is None:
        raise missing("messages")
    if not isinstance(messages, list):
        raise wrong_type("messages", "an array of objects", messages)
    if not messages:
        raise empty_array("messages")
    tools = body.get("tools")
    check_openai_tools(tools, nested=True)
    for key in ("tool_choice", "parallel_tool_calls"):
        if tools is None and body.get(key) is not None:
            raise VendorRefusal(
                f"Invalid value for '{key}': '{key}' is only allowed when 'tools' are specified.", param=key
            )
    if body.get("max_tokens") is not None and body.get("max_completion_tokens") is not None:
        raise VendorRefusal(
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported."
        )
    _MessageChecker(options).check_messages(cast("list[Any]", messages))


class _MessageChecker:
    """One pass over the messages. `open` holds the ids of calls that have no tool message yet."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._open: list[str] = []
        self._seen: set[str] = set()
        self._has_user = False

    def check_messages(self, messages: list[Any]) -> None:
        for index, message in enumerate(messages):
            if not isinstance(message, dict):
                raise wrong_type(f"messages[{index}]", "an object", message)
            row = cast("Json", message)
            role = row.get("role")
            if role == "tool":
                self._tool(index, row)
            elif self._open:
                raise self._unanswered_error(index)
            elif role == "assistant":
                self._assistant(index, row)
            else:
                self._prompt(index, role, row)
            _check_row_keys(index, row)
        if self._open:
            raise self._unanswered_error(len(messages))
        if not self._has_user:
            raise no_user("messages")

    def _unanswered_error(self, index: int) -> VendorRefusal:
        return VendorRefusal(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            "'tool_call_id'. The following tool_call_ids did not have response messages: "
            + ", ".join(self._open),
            param=f"messages.[{index}].role",
        )

    def _tool(self, index: int, row: Json) -> None:
        call_id = row.get("tool_call_id")
        if call_id is None:
            raise missing(f"messages[{index}].tool_call_id")
        if call_id not in self._open:
            raise VendorRefusal(
                "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with"
                " 'tool_calls'.",
                param=f"messages.[{index}].role",
            )
        self._open.remove(call_id)
        _check_content(index, row.get("content"), images=False)

    def _prompt(self, index: int, role: Any, row: Json) -> None:
        if role not in ("system", "developer", "user"):
            supported = "'system', 'assistant', 'user', 'function', 'tool', and 'developer'"
            raise unsupported_value(f"messages[{index}].role", role, supported)
        self._has_user = self._has_user or role == "user"
        content = row.get("content")
        _check_content(index, content, images=role == "user")
        if content == "":
            raise VendorRefusal(
                f"Invalid 'messages[{index}].content': empty string.", param=f"messages[{index}].content"
            )

    def _assistant(self, index: int, row: Json) -> None:
        calls = row.get("tool_calls")
        content = row.get("content")
        if calls is None:
            if content is None and not row.get("refusal"):
                raise VendorRefusal(
                    "Invalid value for 'content': expected a string, got null.",
                    param=f"messages.[{index}].content",
                )
            if content == "":
                raise VendorRefusal(
                    "Assistant message must have either content or tool_calls, but not none.",
                    param=f"messages[{index}]",
                )
        elif not isinstance(calls, list) or not calls:
            raise empty_array(f"messages[{index}].tool_calls")
        else:
            for number, call in enumerate(cast("list[Any]", calls)):
                self._call(f"messages[{index}].tool_calls[{number}]", call)
        if content is not None:
            _check_content(index, content, images=False)

    def _call(self, path: str, call: Any) -> None:
        if not isinstance(call, dict):
            raise wrong_type(path, "an object", call)
        row = cast("Json", call)
        call_id, function = row.get("id"), row.get("function")
        if not isinstance(call_id, str) or not call_id:
            raise missing(f"{path}.id")
        if row.get("type") != "function" or not isinstance(function, dict):
            raise missing(f"{path}.type" if row.get("type") is None else f"{path}.function")
        if call_id in self._seen:
            raise VendorRefusal(f"Duplicate value for 'tool_call_id' of '{call_id}'.", param=f"{path}.id")
        self._seen.add(call_id)
        self._open.append(call_id)
        self._function(path, cast("Json", function))

    def _function(self, path: str, function: Json) -> None:
        name, arguments = function.get("name"), function.get("arguments")
        if not isinstance(name, str) or not NAME.match(name):
            raise invalid_value(
                f"{path}.function.name",
                f"Invalid '{path}.function.name': string does not match pattern. Expected a string that"
                " matches the pattern '^[a-zA-Z0-9_-]+$'.",
            )
        check_arguments(f"{path}.function.arguments", arguments, self._options)


def _check_row_keys(index: int, row: Json) -> None:
    allowed = _MESSAGE_KEYS[row["role"]]
    for key in row:
        if key not in allowed:
            raise unknown_parameter(f"messages[{index}].{key}")


def _check_content(index: int, content: Any, *, images: bool) -> None:
    if isinstance(content, str):
        return
    path = f"messages[{index}].content"
    if not isinstance(content, list):
        kind = "null" if content is None else "an object"
        raise VendorRefusal(f"Invalid value for 'content': expected a string, got {kind}.", param=path)
    if not content:
        raise VendorRefusal(f"Invalid '{path}': empty array.", param=path, code="empty_array")
    for number, part in enumerate(cast("list[Any]", content)):
        _check_part(f"{path}[{number}]", part, images)


def _check_part(path: str, part: Any, images: bool) -> None:
    row = cast("Json", part) if isinstance(part, dict) else {}
    kind = row.get("type")
    if kind == "text":
        if not isinstance(row.get("text"), str):
            raise missing(f"{path}.text")
    elif kind == "image_url" and images:
        image = row.get("image_url")
        url = cast("Json", image).get("url") if isinstance(image, dict) else None
        if not isinstance(url, str):
            raise missing(f"{path}.image_url.url")
        if not url.startswith(("http://", "https://", "data:image/")):
            raise VendorRefusal(
                "Invalid image URL: expected a URL or a base64-encoded data URL with an image MIME type.",
                param=f"{path}.image_url.url",
                code="invalid_image_url",
            )
    else:
        supported = "'text' and 'image_url'" if images else "'text'"
        raise unsupported_value(f"{path}.type", kind, supported)
