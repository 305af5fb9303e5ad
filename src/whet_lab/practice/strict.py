"""The validation that vendors share: error objects, API keys, parameters, tool schemas.

The practice server rejects the requests that the real servers reject, with their messages, so that a client
that works here works there. Each vendor's own rules are in chat_rules.py, messages_rules.py and
responses_rules.py. Sources: the vendors' API references and their servers' answers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from whet.contract.texts import shared_decoder
from whet_lab.practice.ask import Json

NAME = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")

_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_ARGUMENTS = shared_decoder(dict[str, msgspec.Raw])
_OPENAI_TYPES = {429: "requests", 402: "insufficient_quota"}


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the practice server; the defaults accept any key and have no window limit."""

    api_key: str = ""
    """If set, a request with another key or none is answered with 401."""
    window_tokens: int = 0
    """If set, a larger request is rejected as the vendor does."""
    require_json_arguments: bool = True
    """Whether arguments of earlier calls must be JSON objects."""
    extra_keys: tuple[str, ...] = ()
    """Top-level keys that are accepted in addition to the vendor's own."""
    keep_bytes: int = 64_000_000
    """The limit of recorded request bodies; older ones are dropped."""
    delay_s: float = 0.0
    """A pause before every chunk, for demonstrations."""
    chunk_chars: int = 0
    """If set, the responder's text is streamed in pieces of about this size."""


class VendorRefusal(Exception):
    """A rejected request: the status, and the fields of the vendor's error object."""

    def __init__(
        self, message: str, *, status: int = 400, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.param = param
        self.code = code


def openai_error(status: int, message: str, *, param: str | None = None, code: str | None = None) -> Json:
    """Return an error body of OpenAI's APIs."""
    kind = _OPENAI_TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    if status == 429 and code is None:
        code = "rate_limit_exceeded"
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def anthropic_error(status: int, message: str, *, kind: str = "") -> Json:
    """Return an error body of Anthropic's API."""
    kind = kind or _ANTHROPIC_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_practice"}


def check_openai_key(headers: Mapping[str, str], options: Options) -> None:
    """Reject a missing or wrong key if the server has an API key."""
    if not options.api_key:
        return
    key = headers.get("authorization", "").removeprefix("Bearer ").strip()
    if not key:
        raise VendorRefusal(
            "You didn't provide an API key. You need to provide your API key in an Authorization header using"
            " Bearer auth (i.e. Authorization: Bearer YOUR_KEY).",
            status=401,
        )
    if key != options.api_key:
        masked = key[:3] + "***" + key[-4:] if len(key) > 12 else "***"
        raise VendorRefusal(f"Incorrect API key provided: {masked}.", status=401, code="invalid_api_key")


def check_openai_keys(body: Json, allowed: frozenset[str], options: Options) -> None:
    """Reject unknown top-level keys and a missing model."""
    for key in body:
        if key not in allowed and key not in options.extra_keys:
            raise unknown_parameter(key)
    if not isinstance(body.get("model"), str) or not body["model"]:
        raise VendorRefusal("you must provide a model parameter")
    for key in ("stream", "store", "parallel_tool_calls"):
        if not isinstance(body.get(key), bool | None):
            raise wrong_type(key, "a boolean", body[key])
    if "stream_options" in body and body["stream_options"] is not None and not body.get("stream"):
        raise VendorRefusal(
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.", param="stream_options"
        )


def wrong_type(path: str, expected: str, got: object) -> VendorRefusal:
    """Return OpenAI's error for a wrong type."""
    return VendorRefusal(
        f"Invalid type for '{path}': expected {expected}, but got {describe_type(got)} instead.",
        param=path,
        code="invalid_type",
    )


def missing(path: str) -> VendorRefusal:
    """Return OpenAI's error for a missing field."""
    return VendorRefusal(
        f"Missing required parameter: '{path}'.", param=path, code="missing_required_parameter"
    )


def unknown_parameter(path: str) -> VendorRefusal:
    """Return OpenAI's error for an unknown field."""
    return VendorRefusal(f"Unknown parameter: '{path}'.", param=path, code="unknown_parameter")


def invalid_value(path: str, message: str) -> VendorRefusal:
    """Return OpenAI's error for an invalid value, with this `message`."""
    return VendorRefusal(message, param=path, code="invalid_value")


def unsupported_value(path: str, value: object, supported: str) -> VendorRefusal:
    """Return OpenAI's error for a value that is not one of the `supported` ones."""
    return invalid_value(path, f"Invalid value: '{value}'. Supported values are: {supported}.")


def empty_array(path: str) -> VendorRefusal:
    """Return OpenAI's error for an empty list that must hold an item."""
    return VendorRefusal(
        f"Invalid '{path}': empty array. Expected an array with minimum length 1, but got an empty array"
        " instead.",
        param=path,
        code="empty_array",
    )


def no_user(param: str) -> VendorRefusal:
    """Return the error for a conversation without a user message."""
    return VendorRefusal(
        f"Invalid '{param}': at least one message with role 'user' is required.", param=param
    )


def check_arguments(path: str, arguments: Any, options: Options) -> None:
    """Reject arguments of an earlier call that are not a string or, if required, not a JSON object."""
    if not isinstance(arguments, str):
        raise wrong_type(path, "a string", arguments)
    if options.require_json_arguments and not _is_json_object(arguments):
        raise invalid_value(path, f"Invalid '{path}': the value is not a valid JSON object.")


def _is_json_object(text: str) -> bool:
    try:
        _ARGUMENTS.decode(text)
    except msgspec.DecodeError:
        return False
    return True


def describe_type(value: object) -> str:
    """Return the name of a JSON value's type as OpenAI writes it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    names: dict[type, str] = {
        str: "a string",
        int: "an integer",
        float: "a decimal",
        list: "an array",
        dict: "an object",
    }
    return names.get(type(value), "an unknown type")


def check_openai_tools(tools: Any, *, nested: bool) -> None:
    """Reject invalid tools; `nested` is Chat Completions' form with a `function` object inside."""
    if tools is None:
        return
    if not isinstance(tools, list):
        raise wrong_type("tools", "an array of objects", tools)
    if not tools:
        raise empty_array("tools")
    names: set[str] = set()
    for index, tool in enumerate(cast("list[Any]", tools)):
        path = f"tools[{index}]"
        if not isinstance(tool, dict):
            raise wrong_type(path, "an object", tool)
        row = cast("Json", tool)
        if row.get("type") != "function":
            raise unsupported_value(f"{path}.type", row.get("type"), "'function'")
        name = _check_function(row.get("function") if nested else row, f"{path}.function" if nested else path)
        if name in names:
            raise invalid_value(f"{path}.name", f"Duplicate function name: '{name}'.")
        names.add(name)


def _check_function(function: Any, path: str) -> str:
    if not isinstance(function, dict):
        raise missing(path)
    row = cast("Json", function)
    name = row.get("name")
    if name is None:
        raise missing(f"{path}.name")
    if not isinstance(name, str) or not NAME.match(name):
        raise invalid_value(
            f"{path}.name",
            f"Invalid '{path}.name': string does not match pattern. Expected a string that matches the"
            " pattern '^[a-zA-Z0-9_-]+$' and has at most 64 characters.",
        )
    fault = find_schema_fault(row.get("parameters", {"type": "object"}), strict=bool(row.get("strict")))
    if fault:
        raise VendorRefusal(
            f"Invalid schema for function '{name}': {fault}",
            param=f"{path}.parameters",
            code="invalid_function_parameters",
        )
    return name


def find_schema_fault(schema: Any, *, strict: bool = False) -> str:
    """Return OpenAI's error text for a tool's parameters, or an empty string if they are valid."""
    if not isinstance(schema, dict):
        return f"{schema!r} is not of type 'object', 'boolean'."
    row = cast("Json", schema)
    if row.get("type") != "object":
        return f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{row.get('type')}\"'."
    return _find_nested_fault(row, "()", strict)


def _find_nested_fault(schema: Json, context: str, strict: bool) -> str:
    kind = schema.get("type")
    if kind == "array" and "items" not in schema:
        return f"In context={context}, array schema missing items."
    properties: Any = schema.get("properties", {})
    if not isinstance(properties, dict):
        return f"In context={context}, 'properties' is not an object."
    rows = cast("dict[str, Any]", properties)
    if strict and kind == "object" and schema.get("additionalProperties") is not False:
        return f"In context={context}, 'additionalProperties' is required to be supplied and to be false."
    if strict and kind == "object" and set(schema.get("required", ())) != set(rows):
        return (
            f"In context={context}, 'required' is required to be an array including every key in properties."
        )
    unknown = [name for name in schema.get("required", ()) if name not in rows]
    if unknown:
        return f"In context={context}, 'required' names {unknown[0]!r}, which is not a property."
    for name, child in rows.items():
        if not isinstance(child, dict):
            return f"In context=('properties', '{name}'), {child!r} is not of type 'object', 'boolean'."
        fault = _find_nested_fault(cast("Json", child), f"('properties', '{name}')", strict)
        if fault:
            return fault
    return ""
