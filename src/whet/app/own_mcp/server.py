"""Whet as an MCP server: other programs search its sessions, read its memory and skills, and ask the agent.

It serves only the owner's data, without private sessions. The agent's calls pass the usual gate; no person
can be asked, so calls that the policy does not allow are denied. This module does not know how calls arrive.
"""

from __future__ import annotations

from typing import Any

import apsw
import msgspec

from whet.app.conversations.hosted import SessionHost
from whet.app.own_mcp import resources
from whet.contract.errors import NotFound, WhetError
from whet.contract.events import Emit, Event, ToolStarted
from whet.contract.messages import Message
from whet.contract.origin import Origin
from whet.contract.texts import as_object, round_amounts
from whet.contract.tools import clip
from whet.log import mask
from whet.rpc import INVALID_PARAMS, METHOD_NOT_FOUND, BadCall, RpcCall, answer_initialize, text_result
from whet.store import sessions
from whet.store.search import find, read_messages_around
from whet.tools.toolsets.skills import SKILL_VIEW

_TEXT: dict[str, Any] = {"type": "string"}
_READS = {"readOnlyHint": True, "openWorldHint": False}
_MESSAGE_CHARS = 4_000
_MAX_HITS = 50


def _tool(name: str, description: str, properties: dict[str, Any], *required: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"name": name, "description": description, "inputSchema": schema, "annotations": _READS}


_READING_TOOLS = (
    _tool(
        "search_sessions",
        "Search the owner's past conversations with Whet; gives session ids and message numbers.",
        {"query": _TEXT, "limit": {"type": "integer", "description": "default 10, at most 50"}},
        "query",
    ),
    _tool(
        "read_session",
        "Read the messages around one of a past conversation, as search_sessions names it.",
        {"session_id": _TEXT, "seq": {"type": "integer", "description": "default: the beginning"}},
        "session_id",
    ),
    _tool("read_memory", "Read what Whet remembers of its owner and of their work.", {}),
    _tool(
        "list_skills",
        "List Whet's skills, or those that fit some words.",
        {"query": {**_TEXT, "description": "default: all"}},
    ),
    _tool(
        "read_skill",
        "Read a skill, or one of its files.",
        {"name": _TEXT, "file_path": {**_TEXT, "description": "default: SKILL.md"}},
        "name",
    ),
)
_ASK_TOOL = {
    **_tool(
        "ask_agent",
        "Give Whet's agent a task or question and wait for its answer. It works with its own tools in its own"
        " workspace; what its owner's policy does not allow without a question is denied. Returns the answer"
        " and the session's id, which goes on in the same conversation.",
        {"message": _TEXT, "session_id": {**_TEXT, "description": "default: a new conversation"}},
        "message",
    ),
    "annotations": {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": True},
}


class OwnMcpServer:
    """The MCP tools of one process. `can_ask`: clients may also ask the agent."""

    def __init__(self, hosted: SessionHost, *, can_ask: bool = True) -> None:
        self._hosted = hosted
        self._database = hosted.services.database
        self._learning = hosted.services.learning
        self.tools: list[dict[str, Any]] = [*_READING_TOOLS, _ASK_TOOL] if can_ask else list(_READING_TOOLS)
        self._names = {str(tool["name"]) for tool in self.tools}

    async def answer(self, call: RpcCall) -> dict[str, Any]:
        """Return the result of a call. Raises BadCall."""
        if call.method == "initialize":
            return answer_initialize(call.params, "whet", "resources", "prompts")
        if call.method == "tools/list":
            return {"tools": self.tools}
        if call.method.startswith("resources/"):
            return await self._answer_resources(call)
        if call.method == "prompts/list":
            return await resources.list_prompts(self._learning.owner_service)
        if call.method == "prompts/get":
            return await resources.get_prompt(self._learning.owner_service, call.params)
        if call.method != "tools/call":
            raise BadCall(METHOD_NOT_FOUND, f"there is no method {call.method!r}")
        name, arguments = call.tool
        if name not in self._names:
            raise BadCall(INVALID_PARAMS, f"there is no tool {name!r}")
        try:
            return await self._run(name, arguments, call)
        except WhetError as error:
            message = f"{error.message}. {error.hint}".strip() if error.hint else error.message
            return text_result(mask(message), is_error=True)

    async def _answer_resources(self, call: RpcCall) -> dict[str, Any]:
        learning = self._learning.owner_service
        match call.method:
            case "resources/list":
                return await resources.list_resources(learning)
            case "resources/templates/list":
                return {"resourceTemplates": []}
            case "resources/read":
                return await resources.read_resource(learning, call.params.get("uri"))
            case _:
                raise BadCall(METHOD_NOT_FOUND, f"there is no method {call.method!r}")

    async def _run(self, name: str, arguments: dict[str, Any], call: RpcCall) -> dict[str, Any]:
        match name:
            case "search_sessions":
                return await self._search(_text(arguments, "query"), _number(arguments, "limit", 10))
            case "read_session":
                return await self._read(_text(arguments, "session_id"), _number(arguments, "seq", 1))
            case "read_memory":
                reader = self._learning.owner_service.reader
                texts = [
                    f"# {file.target} ({file.used})\n\n{reader.shorten(file).strip() or '(empty)'}"
                    for file in await reader.read_notes()
                ]
                return text_result(mask("\n\n".join(texts)))
            case "list_skills":
                return text_result(
                    await self._learning.owner_service.skills.describe(_text(arguments, "query", ""))
                )
            case "read_skill":
                origin = Origin("foreground", platform="mcp", tool_name=SKILL_VIEW)
                outcome = await self._learning.owner_service.skills.view(
                    _text(arguments, "name"), _text(arguments, "file_path", ""), origin, "mcp"
                )
                return text_result(outcome.text, is_error=not outcome.ok)
            case _:
                return await self._ask(_text(arguments, "message"), _text(arguments, "session_id", ""), call)

    async def _search(self, query: str, limit: int) -> dict[str, Any]:
        hits = await find(self._database, query, min(max(limit, 1), _MAX_HITS), profile="")
        rows = [
            {
                "session_id": hit.session_id,
                "seq": hit.seq,
                "when": hit.when,
                "role": hit.role,
                "title": mask(hit.title),
                "snippet": mask(hit.snippet),
            }
            for hit in hits
        ]
        return _structured_result({"hits": rows})

    async def _read(self, session_id: str, seq: int) -> dict[str, Any]:
        def read(db: apsw.Connection) -> list[tuple[int, Message]]:
            _check_readable(db, session_id)
            return read_messages_around(db, session_id, max(seq, 1), 4, 8)

        rows = await self._database.read(read)
        lines = [f"[{number}] {row.role}: {clip(row.text, _MESSAGE_CHARS)}" for number, row in rows]
        return text_result(mask("\n\n".join(lines)) or "Nothing there.")

    async def _ask(self, message: str, session_id: str, call: RpcCall) -> dict[str, Any]:
        if not message.strip():
            raise BadCall(INVALID_PARAMS, "message is empty")
        if session_id:
            await self._database.read(lambda db: _check_readable(db, session_id))
        else:
            session_id = await self._hosted.new_session(source="mcp")
        emit = _make_emitter(call)
        # Another program's model wrote it.
        end = await self._hosted.submit(session_id, message, emit=emit, origin="brought")
        if end is None:  # the message joined a turn that was already running
            raise WhetError("the message was taken by a turn that runs")
        facts: dict[str, Any] = {
            "text": end.text,
            "session_id": end.session_id,
            "end_reason": end.reason,
            "steps": end.steps,
        }
        if end.error:
            facts["error"] = mask(end.error)
        return {**_structured_result(facts), "isError": end.reason in ("failed", "refused", "crashed")}


def _check_readable(db: apsw.Connection, session_id: str) -> None:
    """Raise NotFound unless the session is a conversation of the owner and not private."""
    row = sessions.get(db, session_id)
    if row.private or row.kind != "chat" or sessions.profile_of(db, session_id):
        raise NotFound(f"there is no session {session_id}", hint="search_sessions gives the ids")


def _make_emitter(call: RpcCall) -> Emit:
    """Return an emitter that reports each started tool to the client, if the client asked for progress."""
    token: object = as_object(call.params.get("_meta")).get("progressToken")
    started_count = 0

    def emit(event: Event) -> None:
        nonlocal started_count
        if token is not None and isinstance(event, ToolStarted):
            started_count += 1
            facts: dict[str, Any] = {"progressToken": token, "progress": started_count, "message": event.name}
            call.notify("notifications/progress", facts)

    return emit


def _structured_result(value: dict[str, Any]) -> dict[str, Any]:
    value = round_amounts(value)
    return {**text_result(msgspec.json.encode(value).decode()), "structuredContent": value}


def _text(arguments: dict[str, Any], name: str, default: str | None = None) -> str:
    value = arguments.get(name, default)
    if not isinstance(value, str):
        raise BadCall(INVALID_PARAMS, f"{name} must be text")
    return value


def _number(arguments: dict[str, Any], name: str, default: int) -> int:
    value = arguments.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadCall(INVALID_PARAMS, f"{name} must be a whole number")
    return value
