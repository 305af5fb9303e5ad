"""Replace shell commands in a text by the slash commands that do the same in the chat."""

from __future__ import annotations

import re

CHAT_FORMS: dict[str, str] = {
    "agents": "/agents",
    "approvals": "/approvals",
    "config": "/config",
    "cron": "/cron",
    "doctor": "/doctor",
    "hooks": "/hooks",
    "mcp": "/mcp",
    "memory log": "/learned",
    "model list": "/model list",
    "model login": "/login",
    "plugins": "/plugins",
    "review inbox": "/inbox",
    "sandbox": "/sandbox",
    "sessions list": "/sessions",
    "sessions search": "/search",
    "undo": "/learned undo",
}
"""Commands of `whet`, and the slash commands that do the same."""
_SERVES = "mcp serve"  # in the shell only: its input is a program
_COMMAND = re.compile(rf"(?<![\w./-])whet (?!{_SERVES})({'|'.join(CHAT_FORMS)})(?![\w-])")


def name_chat_commands(text: str) -> str:
    """Return the text with slash commands in place of shell commands."""
    return _COMMAND.sub(lambda match: CHAT_FORMS[match[1]], text)
