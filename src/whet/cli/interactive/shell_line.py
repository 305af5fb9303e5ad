"""Run `!command`, a command of the person's own, with the session's command tool and in its sandbox.

It needs no approval. Its output is shown like that of the model's commands, and sent to the model with the
next message, marked as pasted text.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from whet.agent.session import Session
from whet.contract.brought_text import wrap_in_tag
from whet.contract.errors import ToolError, WhetError
from whet.contract.events import Emit, ToolFinished, ToolProgress, ToolStarted
from whet.contract.tools import Tool, ToolContext, ToolOutput
from whet.store.parts import RAN
from whet.terminal.attach import cap_text
from whet.terminal.wording import OWN_COMMAND

_CALL = "here"
_LIMIT_S = 3600.0
_SHOWN_CHARS = 20_000


def shell_tool(session: Session) -> Tool:
    """Return the session's tool for commands. Raises WhetError if it has none."""
    command_tool = next((tool for tool in session.tools.values() if "command" in tool.tags), None)
    if command_tool is None:
        raise WhetError("this session runs no commands", hint="tools.toolsets has no terminal")
    return command_tool


async def run_here(session: Session, command: str, emit: Emit) -> str:
    """Run a command, and return a text with its output for the model. If cancelled, stops the command."""
    tool = shell_tool(session)

    def show(text: str) -> None:
        emit(ToolProgress(_CALL, text))

    async def ask_no_one(question: str, choices: Sequence[str]) -> None:
        return None

    context = ToolContext(session.id, "", _CALL, session.workspace, show, ask_no_one)
    arguments = {"command": command, "timeout_s": _LIMIT_S}
    emit(ToolStarted(_CALL, OWN_COMMAND, msgspec.json.encode(arguments).decode()))
    began_s = session.clock.monotonic_s()
    try:
        output = await tool.run(context, arguments)
    except ToolError as error:
        output = ToolOutput(error.message, error_kind=error.kind)
    took_s = session.clock.monotonic_s() - began_s
    emit(ToolFinished(_CALL, OWN_COMMAND, took_s, output.error_kind, output.exit_code, output.text[-400:]))
    pasted = wrap_in_tag("pasted", f"$ {command}\n{cap_text(output.text, _SHOWN_CHARS)}")
    return f"{RAN}\n{pasted}"
