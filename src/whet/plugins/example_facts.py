"""Example facts of a session: a value for every keyword that any hook is called with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whet.contract.errors import BadRequest
from whet.plugins.dispatch import ChatEvent, ChatGateway, ChatSource

_ASSISTANT_MESSAGE = {"role": "assistant", "content": "Hello."}
ROWS = [{"role": "user", "content": "Hello"}, _ASSISTANT_MESSAGE]
_USAGE = {
    "prompt_tokens": 9,
    "completion_tokens": 2,
    "total_tokens": 11,
    "input_tokens": 9,
    "output_tokens": 2,
}


def _next_call(*_args: object) -> str:
    return "a result"


_OF_SESSIONS = {
    "session_id": "doctor",
    "task_id": "doctor",
    "turn_id": "turn",
    "conversation_id": "doctor",
    "platform": "cli",
    "model": "model",
    "provider": "provider",
    "old_session_id": "former",
    "new_session_id": "doctor",
    "parent_session_id": "",
    "parent_turn_id": "",
    "child_session_id": "child",
    "child_subagent_id": "child",
    "child_role": "helper",
    "child_goal": "look",
    "child_status": "answered",
    "child_summary": "Looked.",
    "sender_id": "",
    "session_key": "doctor",
    "session_store": None,
    "is_first_turn": True,
}
_OF_TURNS = {
    "user_message": "Hello",
    "assistant_response": "Hello.",
    "response_text": "Hello.",
    "conversation_history": ROWS,
    "completed": True,
    "interrupted": False,
    "failed": False,
    "reason": "exit",
    "turn_exit_reason": "answered",
    "invalidation_reason": "",
    "coding": False,
    "attempt": 0,
    "final_response": "Hello.",
    "changed_paths": ["README.md"],
    "engine": "compressor",
    "messages_before": 9,
    "messages_after": 3,
    "tokens_before": 900,
    "tokens_after": 300,
}
_OF_TOOLS = {
    "tool_name": "doctor",
    "args": {"path": "README.md"},
    "original_args": {"path": "README.md"},
    "next_call": _next_call,
    "tool_call_id": "call",
    "result": "a result",
    "status": "ok",
    "duration_ms": 1,
    "error_type": None,
    "error_message": "",
    "command": "help",
    "output": "hi",
    "returncode": 0,
    "env_type": "local",
    "description": "It asks.",
    "pattern_key": "doctor",
    "pattern_keys": ["doctor"],
    "choice": "once",
    "decided_by": "person",
    "skill_name": "a-skill",
    "action": "created",
    "provenance": "local",
    "use_count": None,
    "reused": None,
    "reuse_after_patch": None,
}
_OF_REQUESTS = {
    "surface": "cli",
    "iteration": 1,
    "api_call_count": 1,
    "api_request_id": "turn.1",
    "api_duration": 0.1,
    "message_count": 2,
    "request_messages": ROWS,
    "request": {"body": {"model": "model", "messages": ROWS}},
    "response": {"assistant_message": _ASSISTANT_MESSAGE, "usage": _USAGE},
    "response_model": "model",
    "finish_reason": "stop",
    "usage": _USAGE,
    "assistant_message": _ASSISTANT_MESSAGE,
    "assistant_content_chars": 6,
    "assistant_tool_call_count": 0,
    "aux_task": "compression",
    "approx_input_tokens": 9,
    "delta": "Hello.",
    "kind": "text",
    "text": "Hello.",
    "already_streamed": True,
    "final_text": "Hello.",
    "finished": True,
    "error": BadRequest("an example"),
    "error_code": None,
    "error_body": {"error": {"message": "an example", "code": None}},
    "status_code": 400,
    "approx_tokens": 9,
    "context_length": 100_000,
    "num_messages": 2,
}
_OF_CHATS = {
    "alias_used": "help",
    "args_raw": "",
    "event": ChatEvent("Hello", ChatSource("telegram", "1", "dm", "1", "Ada")),
    "gateway": ChatGateway({}),
    "event_type": "message_edited",
    "payload": {
        "chat_id": "1",
        "thread_id": None,
        "message_id": "2",
        "user_id": "1",
        "user_name": "Ada",
        "text": "x",
    },
}
FACTS: Mapping[str, Any] = {**_OF_SESSIONS, **_OF_TURNS, **_OF_TOOLS, **_OF_REQUESTS, **_OF_CHATS}
