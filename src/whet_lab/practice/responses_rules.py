"""Validates OpenAI Responses requests strictly, with OpenAI's error messages.

The server stores no conversation, as with `store: false`: earlier items must be complete, and reasoning
must have its encrypted content. responses_wire.py writes the answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from whet_lab.practice.ask import Json
from whet_lab.practice.strict import (
    NAME,
    Options,
    VendorRefusal,
    check_arguments,
    check_openai_keys,
    check_openai_tools,
    invalid_value,
    missing,
    no_user,
    unknown_parameter,
    unsupported_value,
    wrong_type,
)

# fmt: off
_KEYS = frozenset((
    "background", "context_management", "conversation", "include", "input", "instructions",
    "max_output_tokens", "max_tool_calls", "metadata", "model", "moderation", "parallel_tool_calls",
    "previous_response_id", "prompt", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention",
    "reasoning", "safety_identifier", "service_tier", "store", "stream", "stream_options", "temperature",
    "text", "tool_choice", "tools", "top_logprobs", "top_p", "truncation", "user",
))
# fmt: on
_PARTS = {
    "user": ("input_text", "input_image", "input_file"),
    "system": ("input_text",),
    "developer": ("input_text",),
    "assistant": ("output_text", "refusal"),
}
_ITEM_KEYS = {
    "message": frozenset(("type", "role", "content", "id", "status", "phase")),
    "function_call": frozenset(("type", "call_id", "name", "arguments", "id", "status")),
    "function_call_output": frozenset(("type", "call_id", "output", "id", "status")),
    "reasoning": frozenset(("type", "id", "summary", "encrypted_content", "content", "status")),
}
_ID_PREFIX = {"message": "msg", "function_call": "fc", "reasoning": "rs"}

Verify = Callable[[str, str], bool]
"""Returns whether a reasoning item's id and encrypted content are from this server."""


def check(body: Json, options: Options, verify: Verify) -> None:
    """Raise VendorRefusal for the first part that the vendor would reject."""
    check_openai_keys(body, _KEYS, options)
    previous = body.get("previous_response_id")
    if previous is not None:
        raise VendorRefusal(
            f"Previous response with id '{previous}' not found.",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    check_openai_tools(body.get("tools"), nested=False)
    input_value = body.get("input")
    if isinstance(input_value, str) and input_value:
        return
    if input_value is None or input_value == "":
        raise missing("input")
    if not isinstance(input_value, list):
        raise wrong_type("input", "one of a string or an array of input items", input_value)
    if not input_value:
        raise VendorRefusal("Invalid 'input': empty array.", param="input", code="empty_array")
    _ItemChecker(options, verify).check_items(cast("list[Any]", input_value))


class _ItemChecker:
    """One pass over the input items."""

    def __init__(self, options: Options, verify: Verify) -> None:
        self._options = options
        self._verify = verify
        self._open: dict[str, None] = {}
        self._seen: set[str] = set()
        self._has_user = False
        self._reasoning = ""

    def check_items(self, items: list[Any]) -> None:
        for index, item in enumerate(items):
            if not isinstance(item, dict):
                raise wrong_type(f"input[{index}]", "an object", item)
            row = cast("Json", item)
            kind = row.get("type", "message")
            path = f"input[{index}]"
            self._check_following(kind, row)
            if kind == "message":
                self._message(path, row)
            elif kind == "function_call":
                self._call(path, row)
            elif kind == "function_call_output":
                self._output(path, row)
            elif kind == "reasoning":
                self._reason(path, row)
            else:
                raise invalid_value(f"{path}.type", f"Invalid value: '{kind}'.")
            _check_item(path, kind, row)
        self._check_following("end", {})
        for call_id in self._open:
            raise VendorRefusal(f"No tool output found for function call {call_id}.", param="input")
        if not self._has_user:
            raise no_user("input")

    def _check_following(self, kind: str, row: Json) -> None:
        is_from_model = kind in ("function_call", "reasoning") or (
            kind == "message" and row.get("role") == "assistant"
        )
        if self._reasoning and not is_from_model:
            raise VendorRefusal(
                f"Item '{self._reasoning}' of type 'reasoning' was provided without its required following"
                " item.",
                param="input",
            )
        if kind != "reasoning":
            self._reasoning = ""

    def _message(self, path: str, row: Json) -> None:
        role = row.get("role")
        if role not in _PARTS:
            raise unsupported_value(f"{path}.role", role, "'assistant', 'system', 'developer', and 'user'")
        self._has_user = self._has_user or role == "user"
        content = row.get("content")
        if content is None:
            raise missing(f"{path}.content")
        if isinstance(content, str):
            if not content:
                raise VendorRefusal(f"Invalid '{path}.content': empty string.", param=f"{path}.content")
            return
        if not isinstance(content, list) or not content:
            raise wrong_type(
                f"{path}.content", "one of a string or an array of content parts", cast("object", content)
            )
        for number, part in enumerate(cast("list[Any]", content)):
            _check_part(f"{path}.content[{number}]", part, _PARTS[role])

    def _call(self, path: str, row: Json) -> None:
        call_id, name, arguments = row.get("call_id"), row.get("name"), row.get("arguments")
        if not isinstance(call_id, str) or not call_id:
            raise missing(f"{path}.call_id")
        if not isinstance(name, str) or not NAME.match(name):
            raise invalid_value(f"{path}.name", f"Invalid '{path}.name': string does not match pattern.")
        check_arguments(f"{path}.arguments", arguments, self._options)
        if call_id in self._seen:
            raise VendorRefusal(f"Duplicate function call with call_id '{call_id}'.", param=f"{path}.call_id")
        self._seen.add(call_id)
        self._open[call_id] = None

    def _output(self, path: str, row: Json) -> None:
        call_id = row.get("call_id")
        if call_id not in self._open:
            raise VendorRefusal(
                f"No tool call found for function call output with call_id {call_id}.", param="input"
            )
        del self._open[call_id]
        if not isinstance(row.get("output"), str | list):
            raise wrong_type(
                f"{path}.output", "one of a string or an array of content parts", row.get("output")
            )

    def _reason(self, path: str, row: Json) -> None:
        item_id = row.get("id")
        if not isinstance(item_id, str):
            raise missing(f"{path}.id")
        if not isinstance(row.get("summary"), list):
            raise missing(f"{path}.summary")
        sealed = row.get("encrypted_content")
        if not isinstance(sealed, str):
            raise VendorRefusal(
                f"Item with id '{item_id}' not found. Items are not persisted when `store` is set to false."
                " Try again with `store` set to true, or remove this item from your input.",
                status=404,
                param="input",
            )
        if not self._verify(item_id, sealed):
            raise VendorRefusal(
                f"The encrypted content for item {item_id} could not be verified.",
                param="input",
                code="invalid_encrypted_content",
            )
        self._reasoning = item_id


def _check_item(path: str, kind: str, row: Json) -> None:
    for key in row:
        if key not in _ITEM_KEYS[kind]:
            raise unknown_parameter(f"{path}.{key}")
    item_id, prefix = row.get("id"), _ID_PREFIX.get(kind)
    if item_id is not None and prefix and not str(item_id).startswith(prefix):
        message = f"Invalid '{path}.id': '{item_id}'. Expected an ID that begins with '{prefix}'."
        raise invalid_value(f"{path}.id", message)


def _check_part(path: str, part: Any, allowed: tuple[str, ...]) -> None:
    row = cast("Json", part) if isinstance(part, dict) else {}
    kind = row.get("type")
    if kind not in allowed:
        raise unsupported_value(f"{path}.type", kind, ", ".join(f"'{name}'" for name in allowed))
    needed = {"input_image": "image_url", "input_file": "file_data", "refusal": "refusal"}.get(
        str(kind), "text"
    )
    if not isinstance(row.get(needed), str):
        raise missing(f"{path}.{needed}")
