"""`!command`: what the person runs here themselves, in the sandbox of the session's commands.

Nobody asks about it. What it printed goes to the model with the next message, marked as nobody's words. It
runs through the same tool as the model's commands, and is shown as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from whet.agent.session import Session
from whet.cli.attach import cap_text
from whet.cli.wording import OWN_COMMAND
from whet.contract.errors import ToolError, WhetError
from whet.contract.events import Emit, ToolFinished, ToolProgress, ToolStarted
from whet.contract.texts import tagged
from whet.contract.tools import Tool, ToolContext, ToolOutput

RAN = "I ran this here myself:"
_CALL = "here"
_LIMIT_S = 3600.0
_SHOWN_CHARS = 20_000


def shell_of(session: Session) -> Tool:
    """Give the session's tool for commands. Raises WhetError where it has none."""
    found = next((tool for tool in session.tools.values() if "command" in tool.tags), None)
    if found is None:
        raise WhetError("this session runs no commands", hint="tools.toolsets has no terminal")
    return found


async def run_here(session: Session, command: str, emit: Emit) -> str:
    """Run a command and give what the model is told of it. A cancel stops it."""
    tool = shell_of(session)

    def show(text: str) -> None:
        emit(ToolProgress(_CALL, text))

    async def nobody(question: str, choices: Sequence[str]) -> None:
        return None

    context = ToolContext(session.id, "", _CALL, session.workspace, show, nobody)
    arguments = {"command": command, "timeout_s": _LIMIT_S}
    emit(ToolStarted(_CALL, OWN_COMMAND, msgspec.json.encode(arguments).decode()))
    began_s = session.clock.monotonic_s()
    try:
        output = await tool.run(context, arguments)
    except ToolError as error:
        output = ToolOutput(error.message, error_kind=error.kind)
    took_s = session.clock.monotonic_s() - began_s
    emit(ToolFinished(_CALL, OWN_COMMAND, took_s, output.error_kind, output.exit_code, output.text[-400:]))
    told = tagged("pasted", f"$ {command}\n{cap_text(output.text, _SHOWN_CHARS)}")
    return f"{RAN}\n{told}"
