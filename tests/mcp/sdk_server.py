"""A server made with the official SDK, as anybody would: run over stdio, or served over HTTP by a test."""

from __future__ import annotations

import base64
from typing import Any

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.streamable_http import EventMessage, EventStore
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

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def add(a: int, b: int) -> int:
        """Add two whole numbers."""
        return a + b

    @server.tool()
    def weather(place: str) -> Weather:
        """Say how warm it is somewhere."""
        return Weather(place=place, degrees=21.5)

    @server.tool(annotations=ToolAnnotations(destructive_hint=True))
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
            await ctx.report_progress(step, steps, "counting")
        return "done"

    return server


def make_growing(**extra: Any) -> MCPServer:
    """Give a server that gets a tool more at each `grow`, says so, and has resources and a prompt."""
    server = MCPServer("growing", version="1", **extra)
    grown: list[str] = []

    @server.tool()
    async def grow(ctx: Context) -> str:
        """Learn another trick."""
        grown.append(f"trick{len(grown)}")
        server.add_tool(lambda: "done", name=grown[-1], description="A trick.")
        await ctx.session.send_tool_list_changed()
        await ctx.notify_tools_changed()
        return f"has {len(grown)} tricks"

    @server.tool()
    async def nap(ctx: Context) -> str:
        """Hang up on the caller, and answer when it comes back."""
        await ctx.close_sse_stream()
        return "slept well"

    @server.resource("notes://boiler", description="About the boiler")
    def boiler() -> str:
        return "The boiler is in the cellar."

    @server.resource("notes://{room}/plan")
    def plan(room: str) -> str:
        return f"The {room} has two doors."

    @server.prompt(description="Sort the post.")
    def triage(colour: str, size: str = "any") -> str:
        return f"Put {size} {colour} letters first."

    return server


class Events(EventStore):
    """The simplest store of events, as the SDK's examples have it."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, Any]] = []

    async def store_event(self, stream_id: str, message: Any) -> str:
        self.kept.append((stream_id, message))
        return str(len(self.kept))

    async def replay_events_after(self, last_event_id: str, send_callback: Any) -> str | None:
        at = int(last_event_id)
        stream_id = self.kept[at - 1][0]
        for number, (stream, message) in enumerate(self.kept[at:], at + 1):
            if stream == stream_id and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream_id


if __name__ == "__main__":
    make().run()
