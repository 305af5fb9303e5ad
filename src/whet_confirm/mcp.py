"""An MCP server over stdio with which an agent can ask for a confirmation and wait for it.

The wait that reports an approval also consumes it, so that it is valid for one action. No tool approves,
denies or lists other people's requests, and the server's token has no permission to.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec

from whet.rpc import INVALID_PARAMS, METHOD_NOT_FOUND, BadCall, RpcCall, answer_initialize, serve_stdio
from whet_confirm.client import ConfirmClient
from whet_confirm.tickets import ConfirmationRefused, ConfirmOptions, Failed, Unreachable

_LONGEST_WAIT_S = 300.0
_APPROVED = ("approved", "auto_approved")
_TEXT: dict[str, Any] = {"type": "string"}
TOOLS: list[dict[str, Any]] = [
    {
        "name": "request_confirmation",
        "description": "Ask a person to approve an action before you do it. Returns the request's id and"
        " status; the action may only be done after wait_for_confirmation says approved.",
        "inputSchema": {
            "type": "object",
            "required": ["action", "description"],
            "properties": {
                "action": {**_TEXT, "description": "what kind of action, e.g. deploy_production"},
                "description": {**_TEXT, "description": "what will happen, for a person"},
                "details": {"type": "object", "description": "the exact arguments"},
                "timeout_seconds": {"type": "integer", "description": "30 to 3600, default 300"},
            },
        },
    },
    {
        "name": "wait_for_confirmation",
        "description": "Wait for the decision on a request. Returns its status: pending means wait again;"
        " anything but approved means do not do it. It says approved once: then the approval is used up.",
        "inputSchema": {
            "type": "object",
            "required": ["id"],
            "properties": {
                "id": _TEXT,
                "seconds": {"type": "number", "description": "how long to wait, at most 300, default 60"},
            },
        },
    },
]


async def serve(url: str = "") -> None:
    """Answer calls on stdin and stdout until stdin ends. Waiting for one request does not block others."""
    async with ConfirmClient(url) as client:
        await serve_stdio(lambda call: answer_call(client, call))


async def answer_call(client: ConfirmClient, call: RpcCall) -> dict[str, Any]:
    """Return the result of one JSON-RPC call. Raises BadCall."""
    if call.method == "initialize":
        return answer_initialize(call.params, "whet-confirm")
    if call.method == "tools/list":
        return {"tools": TOOLS}
    if call.method == "tools/call":
        return await _call(client, *call.tool)
    raise BadCall(METHOD_NOT_FOUND, f"there is no method {call.method!r}")


async def _call(client: ConfirmClient, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    try:
        if name == "request_confirmation":
            return _tool_result(await _request(client, arguments))
        if name == "wait_for_confirmation":
            return _tool_result(await _wait(client, arguments))
    except (ConfirmationRefused, Failed, Unreachable) as error:
        return _tool_result(
            {"status": "refused", "message": f"{error.message}. Do not do it."}, is_error=True
        )
    raise BadCall(INVALID_PARAMS, f"there is no tool {name!r}")


async def _request(client: ConfirmClient, arguments: dict[str, Any]) -> dict[str, Any]:
    details: object = arguments.get("details") or {}
    seconds: object = arguments.get("timeout_seconds", 300)
    if not isinstance(details, dict) or not isinstance(seconds, int):
        raise BadCall(INVALID_PARAMS, "details must be an object and timeout_seconds a whole number")
    action, description = str(arguments.get("action", "")), str(arguments.get("description", ""))
    ask = ConfirmOptions(requester="mcp", timeout_s=seconds)
    ticket = await client.submit(action, description, cast("dict[str, Any]", details), ask)
    return {"id": ticket.id, "status": ticket.status, "digest": ticket.digest}


async def _wait(client: ConfirmClient, arguments: dict[str, Any]) -> dict[str, Any]:
    seconds = arguments.get("seconds", 60)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise BadCall(INVALID_PARAMS, "seconds must be a number")
    request_id = str(arguments.get("id", ""))
    if not request_id.isalnum():
        raise BadCall(INVALID_PARAMS, "id is required")
    record = await client.wait(request_id, min(float(seconds), _LONGEST_WAIT_S))
    if record.get("status") in _APPROVED:  # consumed before it is reported, even if the answer is lost
        await client.consume(request_id, str(record.get("digest", "")))
    names = ("id", "action", "status", "resolved_by", "reason", "digest", "details")
    return {name: record[name] for name in names if record.get(name) not in (None, "")}


def _tool_result(result: dict[str, Any], *, is_error: bool = False) -> dict[str, Any]:
    text = msgspec.json.encode(result).decode()
    return {"content": [{"type": "text", "text": text}], "structuredContent": result, "isError": is_error}
