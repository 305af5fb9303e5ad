"""An MCP server of the official SDK for tests of the gateway: it notes each call in a file."""

from __future__ import annotations

import os
import sys
from pathlib import Path

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


server.run("stdio")
