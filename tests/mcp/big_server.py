"""A server with a hundred tools, as those of issue trackers, file stores and calendars have them."""

from __future__ import annotations

import json
import sys

VERBS = {
    "create": "Make a new",
    "delete": "Remove a",
    "list": "Show every",
    "update": "Change a",
    "get": "Read one",
    "search": "Look for a",
    "archive": "Put away a",
    "share": "Give somebody access to a",
    "comment_on": "Say something about a",
    "export": "Download a",
}
THINGS = {
    "issue": "bug report or task of the tracker",
    "pull_request": "proposed change of the code",
    "invoice": "bill that a customer has to pay",
    "calendar_event": "meeting or appointment",
    "contact": "person of the address book",
    "spreadsheet": "table of numbers",
    "wiki_page": "page of the handbook",
    "photo": "picture of the album",
    "deployment": "release that runs on the servers",
    "alert": "alarm of the monitoring",
}
FIELDS = {"type": "object", "properties": {"id": {"type": "string"}, "text": {"type": "string"}}}


def tools():
    made = []
    for thing, about in THINGS.items():
        for verb, does in VERBS.items():
            description = f"{does} {about}. " + "Fields that are left out stay as they are. " * 4
            hints = {"destructiveHint": verb == "delete"}
            name = f"{verb}_{thing}"
            made.append(
                {"name": name, "description": description, "inputSchema": FIELDS, "annotations": hints}
            )
    return made


for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    result = {}
    if method == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
        result["serverInfo"] = {"name": "big", "version": "1"}
    elif method == "tools/list":
        result = {"tools": tools()}
    elif method == "tools/call":
        params = message["params"]
        said = f"{params['name']} {json.dumps(params['arguments'])}"
        result = {"content": [{"type": "text", "text": said}]}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
