"""A hook for Claude Code: reads a PreToolUse or PermissionRequest event, asks a person, prints the decision.

Every failure is a denial with its reason: no service, no answer in time, an event that can't be read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, cast

from whet.contract.errors import WhetError
from whet_confirm.client import BlockingClient
from whet_confirm.names import GATE_PREFIX
from whet_confirm.tickets import ConfirmationRefused, ConfirmOptions

_PERMISSION = "PermissionRequest"


def run_hook(text: str, *, url: str, patterns: Sequence[str], timeout_s: int) -> str:
    """Return the hook's output: the decision as JSON, or an empty object for a tool that needs no
    confirmation."""
    try:
        decoded: object = json.loads(text)
    except (ValueError, RecursionError):
        decoded = None
    event = cast("dict[str, Any]", decoded) if isinstance(decoded, dict) else {}
    name = event.get("hook_event_name")
    tool = event.get("tool_name")
    if name not in ("PreToolUse", _PERMISSION) or not isinstance(tool, str):
        return _answer(str(name), "deny", "the hook's input is not a PreToolUse or PermissionRequest event")
    if patterns and not any(fnmatchcase(tool, pattern) for pattern in patterns):
        return "{}"
    try:
        reason = _ask(event, tool, url, timeout_s)
    except ConfirmationRefused as error:
        return _answer(name, "deny", f"not confirmed: {error.message}")
    except WhetError as error:
        return _answer(name, "deny", f"could not ask: {error.message}")
    return _answer(name, "allow", reason)


def _ask(event: dict[str, Any], tool: str, url: str, timeout_s: int) -> str:
    tool_input = event.get("tool_input")
    details = cast("dict[str, Any]", tool_input) if isinstance(tool_input, dict) else {"input": tool_input}
    session = str(event.get("session_id", ""))
    call = str(event.get("tool_use_id", ""))
    ask = ConfirmOptions(
        requester="claude-code",
        session_key=session[:1024],
        timeout_s=timeout_s,
        idempotency_key=f"{session}:{call}"[:255] if call else "",
    )
    folder = str(event.get("cwd", ""))
    with BlockingClient(url) as client:
        action, text = f"{GATE_PREFIX}{tool}", f"Claude Code wants to use {tool} in {folder}"
        ticket = client.confirm(action, text, details, ask)
    return f"approved by {ticket.resolved_by}"


def _answer(name: str, decision: str, reason: str) -> str:
    if name == _PERMISSION:
        answer: dict[str, Any] = {"behavior": decision}
        if decision == "deny":
            answer["message"] = reason
        specific: dict[str, Any] = {"hookEventName": name, "decision": answer}
    else:
        specific = {
            "hookEventName": "PreToolUse",
            "permissionDecision": decision,
            "permissionDecisionReason": reason,
        }
    return json.dumps({"hookSpecificOutput": specific}, ensure_ascii=False)
