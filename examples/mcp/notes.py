"""A small MCP server over stdio, standard library only: the notes (*.md) of one folder.

    whet mcp add notes -- python3 examples/mcp/notes.py ~/notes

Three tools, each note as a resource, and a prompt. Copy it and put your own in place of the notes.
"""

import json
import re
import sys
from pathlib import Path

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else ".").expanduser()
TEXT = {"type": "string"}
NAME = {"type": "string", "description": "letters, digits, - and _"}
TOOLS = [
    {
        "name": "list_notes",
        "description": "List the notes with their first lines.",
        "inputSchema": {"type": "object", "properties": {}},
        "annotations": {"readOnlyHint": True},
    },
    {
        "name": "read_note",
        "description": "Read a note.",
        "inputSchema": {"type": "object", "properties": {"name": NAME}, "required": ["name"]},
        "annotations": {"readOnlyHint": True},
    },
    {
        "name": "add_note",
        "description": "Write a new note; one that is there is never replaced.",
        "inputSchema": {
            "type": "object",
            "properties": {"name": NAME, "text": TEXT},
            "required": ["name", "text"],
        },
        "annotations": {"readOnlyHint": False, "destructiveHint": False},
    },
]
PROMPT = {
    "name": "tidy",
    "description": "Find notes that say the same.",
    "arguments": [{"name": "about", "description": "only notes about this"}],
}


class Problem(Exception):
    """What is told to whoever called."""


def path_of(name):
    """Give a note's path; only plain names, so that none leaves the folder."""
    if not isinstance(name, str) or not re.fullmatch(r"[\w-]{1,64}", name):
        raise Problem(f"{name!r} is not a name of a note")
    return FOLDER / f"{name}.md"


def read_note(name):
    try:
        return path_of(name).read_text(encoding="utf-8")
    except OSError as error:
        raise Problem(f"there is no note {name}") from error


def list_notes():
    notes = sorted(path for path in FOLDER.glob("*.md") if path.is_file())
    return [(path.stem, path.read_text(encoding="utf-8").partition("\n")[0]) for path in notes]


def call(name, arguments):
    """Run a tool; give its text."""
    if name == "list_notes":
        return "\n".join(f"{note}: {line}" for note, line in list_notes()) or "there are no notes"
    if name == "read_note":
        return read_note(arguments.get("name"))
    if name == "add_note":
        path = path_of(arguments.get("name"))
        FOLDER.mkdir(parents=True, exist_ok=True)
        try:
            with open(path, "x", encoding="utf-8") as file:
                file.write(str(arguments.get("text", "")))
        except FileExistsError as error:
            raise Problem(f"there is a note {path.stem} already") from error
        return f"{path.stem} is written"
    raise Problem(f"there is no tool {name}")


def text(value, is_error=False):
    return {"content": [{"type": "text", "text": value}], "isError": is_error}


def answer(method, params):
    """Give the result of a method; None where there is no such method."""
    if method == "initialize":
        return {
            "protocolVersion": params.get("protocolVersion", "2025-11-25"),
            "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
            "serverInfo": {"name": "notes", "version": "1"},
        }
    if method == "ping":
        return {}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        try:
            return text(call(params.get("name"), params.get("arguments") or {}))
        except (Problem, OSError) as error:
            return text(str(error), is_error=True)
    if method == "resources/list":
        rows = [{"uri": f"note:{note}", "name": note, "description": line} for note, line in list_notes()]
        return {"resources": rows}
    if method == "resources/read":
        uri = str(params.get("uri"))
        contents = {"uri": uri, "mimeType": "text/markdown", "text": read_note(uri.removeprefix("note:"))}
        return {"contents": [contents]}
    if method == "prompts/list":
        return {"prompts": [PROMPT]}
    if method == "prompts/get":
        about = (params.get("arguments") or {}).get("about") or "anything"
        words = f"Read my notes about {about} and say which of them repeat each other."
        return {"messages": [{"role": "user", "content": {"type": "text", "text": words}}]}
    return None


def main():
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        reply = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            found = answer(message["method"], message.get("params") or {})
            none = {"code": -32601, "message": f"there is no method {message['method']}"}
            reply.update({"result": found} if found is not None else {"error": none})
        except Problem as problem:
            reply["error"] = {"code": -32002, "message": str(problem)}
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
