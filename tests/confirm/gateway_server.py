"""An MCP server of the official SDK for tests of the gateway: it notes each call in a file."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server import MCPServer

notes = Path(sys.argv[1])
server = MCPServer("notes")


def note(text: str) -> str:
    with notes.open("a") as file:
        file.write(f"{text} token={'CONFIRMATION_TOKEN' in os.environ}\n")
    return f"did {text}"


@server.tool(description=os.environ.get("DELETE_SAYS", "Delete a file."))
def delete_file(path: str) -> str:
    return note(f"delete {path}")


@server.tool()
def read_note(path: str) -> str:
    """Read a file."""
    return note(f"read {path}")


@server.tool()
def fail(path: str) -> str:
    """Fail always."""
    raise ValueError(path)


if sys.argv[2:]:  # over HTTP: with a stream of events for each answer, or with plain JSON
    listener = socket.create_server(("127.0.0.1", 0))
    app = server.streamable_http_app(json_response=sys.argv[2] == "json")

    class NoteKeys:
        """Notes the keys that requests carry."""

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            if keys := [value.decode() for name, value in scope.get("headers", ()) if name == b"x-key"]:
                notes.with_name("keys").write_text(keys[0])
            await app(scope, receive, send)

    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(NoteKeys(), log_level="error")).run(sockets=[listener])
else:
    server.run("stdio")
