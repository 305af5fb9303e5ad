"""A server made with the official SDK, as anybody would: run over stdio, or served over HTTP by a test."""

from __future__ import annotations

import base64
from typing import Any

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp_types import ToolAnnotations
from pydantic import BaseModel

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Weather(BaseModel):
    place: str
    degrees: float


def make(**extra: Any) -> MCPServer:
    """Give the server with its tools; `extra` is the SDK's own."""
    server = MCPServer("bench", version="1.2.3", **extra)

    @server.tool(annotations=ToolAnnotations(readOnlyHint=True))
    def add(a: int, b: int) -> int:
        """Add two whole numbers."""
        return a + b

    @server.tool()
    def weather(place: str) -> Weather:
        """Say how warm it is somewhere."""
        return Weather(place=place, degrees=21.5)

    @server.tool(annotations=ToolAnnotations(destructiveHint=True))
    def wipe(name: str) -> str:
        """Delete a record."""
        return f"{name} is gone"

    @server.tool()
    def picture() -> Image:
        """Give a picture."""
        return Image(data=PIXEL, format="png")

    @server.tool()
    def fail(reason: str) -> str:
        """Fail on purpose."""
        raise ValueError(reason)

    @server.tool()
    async def slow(steps: int, ctx: Context) -> str:
        """Report progress, then answer."""
        for step in range(steps):
            await ctx.report_progress(step, steps)
        return "done"

    return server


if __name__ == "__main__":
    make().run()
