"""The hook that an agent runs before a tool: reads the agent's event, asks a person, returns the decision.

Every failure is a denial with its reason: no service, no answer in time, an event that can't be read.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import signal
import threading
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, cast

import msgspec

from whet.cli.main import run_on_loop
from whet.contract.errors import WhetError
from whet_confirm.client import ConfirmClient
from whet_confirm.names import GATE_PREFIX
from whet_confirm.resume import KeptCall, KeptCalls
from whet_confirm.tickets import ConfirmationRefused, ConfirmOptions

_PERMISSION = "PermissionRequest"
_NO_EVENT = "the hook's input is not a tool call of this agent"


class ToolEvent(msgspec.Struct, frozen=True):
    """An agent's event before a tool. `name` is the event's, empty if the agent sends none."""

    name: str
    tool: str
    details: dict[str, Any]
    session: str
    call: str
    folder: str


class HookAsk(msgspec.Struct, frozen=True):
    """Which tools are asked about, and how long the hook waits for the answer (`timeout_s`).

    A tool passes if it matches `free`, or if there are `patterns` and it matches none. With `keep_s`, a
    request stays open that long, even after the hook and its agent have ended; a file in the folder `kept`
    describes the call. If the agent is continued and makes the same call, it gets the answer.
    """

    url: str = ""
    patterns: Sequence[str] = ()
    free: Sequence[str] = ()
    timeout_s: int = 300
    keep_s: int = 0
    kept: Path = Path()


def interrupt_if_unread(output: int) -> None:
    """Send SIGTERM to this process once nobody can read what it writes to the file descriptor `output`.

    An agent that was killed sends its hooks no signal, and they would still ask about a call that nobody
    would run. But the agent's end of the pipe or socket is closed.
    """

    def wait_for_hangup() -> None:
        poll = select.poll()
        poll.register(output, 0)  # errors and hang-ups are always reported
        if poll.poll():
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait_for_hangup, name="hook-reader", daemon=True).start()


def run_hook(text: str, agent: str, ask: HookAsk) -> str:
    """Ask, and return the hook's output: the decision as JSON, or `{}` for a tool that is not asked about."""
    style = _FORMATS[agent]
    event = _read_event(text)
    if event is None or event.name not in style.events:
        return _encode(style, event.name if event else "", "deny", _NO_EVENT)
    is_chosen = not ask.patterns or any(fnmatchcase(event.tool, pattern) for pattern in ask.patterns)
    if not is_chosen or any(fnmatchcase(event.tool, pattern) for pattern in ask.free):
        return "{}"
    try:
        ask_person = _ask_or_resume if ask.keep_s else _ask
        reason = run_on_loop(ask_person(event, (agent, style.title), ask))
    except ConfirmationRefused as error:
        return _encode(style, event.name, "deny", f"not confirmed: {error.message}")
    except WhetError as error:
        return _encode(style, event.name, "deny", f"could not ask: {error.message}")
    return _encode(style, event.name, "allow", reason)


def _read_event(text: str) -> ToolEvent | None:
    """Return the event, or None if it names no tool."""
    try:
        decoded: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    fields = cast("dict[str, Any]", decoded) if isinstance(decoded, dict) else {}

    def first(*names: str) -> Any:
        for name in names:
            if fields.get(name) is not None:
                return fields[name]
        return None

    tool = first("tool_name", "toolName")
    if not isinstance(tool, str):
        return None
    tool_input = first("tool_input", "toolArgs")
    details = cast("dict[str, Any]", tool_input) if isinstance(tool_input, dict) else {"input": tool_input}
    return ToolEvent(
        str(first("hook_event_name") or ""),
        tool,
        details,
        str(first("session_id", "sessionId", "conversation_id") or ""),
        str(first("tool_use_id") or ""),
        str(first("cwd") or ""),
    )


async def _ask(event: ToolEvent, agent: tuple[str, str], ask: HookAsk) -> str:
    # Both events of one call may ask, and an approval is valid for one of them.
    names = f"{event.session}\0{event.call}\0{event.name}"
    key = hashlib.sha256(names.encode("utf-8", "replace")).hexdigest()
    options = ConfirmOptions(
        requester=agent[0],
        session_key=event.session[:1024],
        timeout_s=ask.timeout_s,
        idempotency_key=key if event.call else "",
        is_attended=True,
    )
    async with ConfirmClient(ask.url) as client:
        ticket = await client.confirm(*_describe(event, agent[1]), event.details, options)
    return f"approved by {ticket.resolved_by}"


def _describe(event: ToolEvent, title: str) -> tuple[str, str]:
    return f"{GATE_PREFIX}{event.tool}", f"{title} wants to use {event.tool} in {event.folder}"


async def _ask_or_resume(event: ToolEvent, agent: tuple[str, str], ask: HookAsk) -> str:
    """Ask, or use the answer to the same call of an earlier run of this session."""
    details = msgspec.json.encode(event.details, order="deterministic")
    parts = (event.session, event.tool, event.folder, event.name, str(ask.keep_s))
    names = b"\0".join([*(part.encode("utf-8", "replace") for part in parts), details])
    key = hashlib.sha256(names).hexdigest()
    options = ConfirmOptions(
        requester=agent[0], session_key=event.session[:1024], timeout_s=ask.keep_s, idempotency_key=key
    )
    async with ConfirmClient(ask.url) as client:
        return await _submit_or_resume(client, event, (*agent, options), ask)


async def _submit_or_resume(
    client: ConfirmClient, event: ToolEvent, agent: tuple[str, str, ConfirmOptions], ask: HookAsk
) -> str:
    name, title, options = agent
    ticket = await client.submit(*_describe(event, title), event.details, options)
    record = await client.status(ticket.id)
    if record["status"] not in ("pending", "approved", "auto_approved") or record.get("consumed_at"):
        # The key belongs to an earlier call, whose approval was used or which was denied.
        key = f"{options.idempotency_key}:{hashlib.sha256(event.call.encode()).hexdigest()[:32]}"
        again = msgspec.structs.replace(options, idempotency_key=key)
        ticket = await client.submit(*_describe(event, title), event.details, again)
    call = KeptCall(ticket.id, name, event.session, event.folder, event.tool)
    kept = KeptCalls(ask.kept)
    with kept.hold(call):
        record = await client.wait(ticket.id, ask.timeout_s)
        if record["status"] == "pending":
            waits = f"nobody has answered yet; request {ticket.id} still waits"
            advice = "End your turn: you are continued after the answer"
            raise ConfirmationRefused(f"{waits}. {advice}", status="pending", request_id=ticket.id)
        kept.remove(call)
        used = await client.consume_approval(ticket, record)
    return f"approved by {used.resolved_by}"


def _claude_answer(event: str, decision: str, reason: str) -> dict[str, Any]:
    if event == _PERMISSION:
        answer: dict[str, Any] = {"behavior": decision}
        if decision == "deny":
            answer["message"] = reason
        specific: dict[str, Any] = {"hookEventName": event, "decision": answer}
    else:
        specific = {
            "hookEventName": "PreToolUse",
            "permissionDecision": decision,
            "permissionDecisionReason": reason,
        }
    return {"hookSpecificOutput": specific}


def _codex_answer(event: str, decision: str, reason: str) -> dict[str, Any]:
    """Codex rejects `allow` before a tool; an empty answer lets the tool run."""
    is_plain_yes = decision == "allow" and event != _PERMISSION
    return {} if is_plain_yes else _claude_answer(event, decision, reason)


def _gemini_answer(event: str, decision: str, reason: str) -> dict[str, Any]:
    return {"decision": decision, "reason": reason}


def _copilot_answer(event: str, decision: str, reason: str) -> dict[str, Any]:
    return {"permissionDecision": decision, "permissionDecisionReason": reason}


def _cursor_answer(event: str, decision: str, reason: str) -> dict[str, Any]:
    return {"permission": decision, "user_message": reason, "agent_message": reason}


class _HookFormat(msgspec.Struct, frozen=True):
    """An agent's name for people, the events that it sends to hooks, and the format of the answer."""

    title: str
    events: tuple[str, ...]
    encode: Callable[[str, str, str], dict[str, Any]] = _claude_answer


_FORMATS = {
    "claude-code": _HookFormat("Claude Code", ("PreToolUse", _PERMISSION)),
    "codex": _HookFormat("Codex", ("PreToolUse", _PERMISSION), _codex_answer),
    "gemini": _HookFormat("Gemini CLI", ("BeforeTool",), _gemini_answer),
    "qwen-code": _HookFormat("Qwen Code", ("PreToolUse", _PERMISSION)),
    "copilot": _HookFormat("Copilot CLI", ("", "preToolUse", "PreToolUse"), _copilot_answer),
    "cursor": _HookFormat("Cursor", ("preToolUse",), _cursor_answer),
    "opencode": _HookFormat("opencode", ("PreToolUse",)),
    "pi": _HookFormat("pi", ("PreToolUse",)),
}
HOOK_AGENTS = (*_FORMATS,)


def _encode(style: _HookFormat, event: str, decision: str, reason: str) -> str:
    return json.dumps(style.encode(event, decision, reason), ensure_ascii=False)
