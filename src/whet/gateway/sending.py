"""`send_file`: a file of the workspace, to whoever the conversation is with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from whet.contract.channels import Outgoing
from whet.contract.errors import BadInput, WhetError
from whet.contract.tools import Tool, ToolContext
from whet.gateway.files import outgoing
from whet.tools.signature import tool

Post = Callable[[str, Outgoing], Awaitable[bool]]
"""Queues a message for a session's conversation; False where it has none."""


def send_file_tool(post: Post, most_bytes: int) -> Tool:
    """Make the tool."""

    # It reaches whoever reads the answer and nobody else, so it does no more than reading the file aloud.
    @tool(toolset="file", effects={"read"}, timeout_s=30)
    async def send_file(ctx: ToolContext, path: Annotated[str, "in the workspace"], caption: str = "") -> str:
        """Send a file of the workspace to the person."""
        try:
            full = outgoing(ctx.workspace, path, most_bytes)
        except WhetError as error:
            raise BadInput(error.message, hint=error.hint) from None
        if not await post(ctx.session_id, Outgoing(caption[:1000], file=str(full), file_name=full.name)):
            raise BadInput("there is nobody to send it to here")
        return f"{full.name} is on its way."

    return send_file
