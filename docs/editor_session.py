"""Write docs/editors-session.md: a session between the protocol's own client and `whet acp`, as it was.

    .venv/bin/python docs/editor_session.py            writes it
    .venv/bin/python docs/editor_session.py --check    exit code 1 if it is stale

Both are real processes; the model is the practice model, a scripted stand-in. Ids and paths are given names,
and long texts are cut. It knows nothing of how `whet acp` works.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any, cast

from acp import PROTOCOL_VERSION, spawn_agent_process, text_block
from acp.connection import StreamDirection, StreamEvent
from acp.schema import (
    AcceptElicitationResponse,
    AllowedOutcome,
    ClientCapabilities,
    ElicitationCapabilities,
    ElicitationFormCapabilities,
    FileSystemCapabilities,
    Implementation,
    ReadTextFileResponse,
    RequestPermissionResponse,
)

from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

PAGE = Path(__file__).with_name("editors-session.md")
_MAX_LINE_CHARS = 80
_MAX_TEXT_CHARS = 40
_CALL = re.compile(r'"toolCallId": "[^"]*-([0-9]+)"')
_AT_ANY_TIME = ("usage_update", "config_option_update", "available_commands_update")
_PROMPT_SIZE = re.compile(r"prompt [0-9,]+ tokens, [0-9]+%")  # the prompt names the machine
_HEAD = """\
# A session in an editor

The messages between an editor and `whet acp`, for those who write an editor or debug one. To use Whet in
yours, see [editors](editors.md). To record the messages again:

    .venv/bin/python docs/editor_session.py

`→` is the editor (the protocol's own Python client), `←` is Whet with the [practice model](practice.md). Ids
and paths are replaced, long texts cut, repeated `fs/read_text_file` messages left out, and those that come at
any time: `usage_update`, `config_option_update`, `available_commands_update`.
`notes.txt` holds `milk` on the disk; in the editor the person has added `bread` and not saved it.
"""


class Editor:
    """An editor with one unsaved file, and a person who allows and answers."""

    def __init__(self, unsaved: dict[str, str]) -> None:
        self._unsaved = unsaved

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        """Show it: the recording does."""

    async def request_permission(self, **kwargs: Any) -> RequestPermissionResponse:
        """Allow once."""
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id="once"))

    async def create_elicitation(self, message: str, mode: Any, **kwargs: Any) -> AcceptElicitationResponse:
        """Answer a question."""
        return AcceptElicitationResponse(action="accept", content={"answer": "Butter."})

    async def read_text_file(self, session_id: str, path: str, **kwargs: Any) -> ReadTextFileResponse:
        """Give the unsaved text, or the disk's."""
        text = self._unsaved[path] if path in self._unsaved else Path(path).read_text()
        return ReadTextFileResponse(content=text)

    async def write_text_file(self, session_id: str, path: str, content: str, **kwargs: Any) -> None:
        """Save."""
        self._unsaved.pop(path, None)
        Path(path).write_text(content)


class Recording:
    """The messages as lines."""

    def __init__(self, names: dict[str, str]) -> None:
        self.lines: list[str] = []
        self.names = names
        self._methods: dict[tuple[str, int], str] = {}

    def observe(self, event: StreamEvent) -> None:
        """Take a message."""
        arrow, back = ("→", "←") if event.direction is StreamDirection.OUTGOING else ("←", "→")
        message = event.message
        method, number = message.get("method"), message.get("id", -1)
        if method == "session/update":
            update = dict(message["params"]["update"])
            kind = update.pop("sessionUpdate")
            if kind not in _AT_ANY_TIME:
                self._add(arrow, kind, update)
        elif method is not None:
            self._methods[arrow, number] = method
            self._add(arrow, method, message.get("params"))
        else:
            what = self._methods.get((back, number), "")
            self._add(arrow, f"  {what}:", message.get("result", message.get("error")))

    def say(self, text: str) -> None:
        """Put a line of words between the messages."""
        self.lines += ["```", "", text, "", "```"]

    def _add(self, arrow: str, what: str, fields: Any) -> None:
        text = json.dumps(_short(fields), ensure_ascii=False) if fields else ""
        text = _CALL.sub(r'"toolCallId": "T\1"', text)
        text = _PROMPT_SIZE.sub("prompt N tokens, N%", text)
        for found, name in self.names.items():
            text = text.replace(found, name)
        line = f"{arrow} {what} {text}".rstrip()
        self.lines.append(line if len(line) <= _MAX_LINE_CHARS else line[:_MAX_LINE_CHARS] + " …")


def drop_repeated_reads(lines: list[str]) -> list[str]:
    """Return the lines without a file's read and its result if both equal the last ones."""
    kept: list[str] = []
    last: tuple[str, str] = ("", "")
    at = 0
    while at < len(lines):
        pair = (lines[at], lines[at + 1] if at + 1 < len(lines) else "")
        is_read = "fs/read_text_file" in pair[0]
        if not (is_read and pair == last):
            kept += pair if is_read else pair[:1]
        last = pair if is_read else last
        at += 2 if is_read else 1
    return kept


def _short(value: Any) -> Any:
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {key: _short(one) for key, one in fields.items() if one is not None and key != "_meta"}
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return [_short(one) for one in items[:3]] + ([f"… {len(items) - 3} more"] if len(items) > 3 else [])
    if isinstance(value, str) and len(value) > _MAX_TEXT_CHARS:
        return value[:_MAX_TEXT_CHARS] + "…"
    return value


def _does(tool: str, **arguments: Any) -> ScriptedReply:
    return ScriptedReply(tool_calls=(PracticeCall(tool, json.dumps(arguments)),))


async def _record(root: Path, server: PracticeServer) -> list[str]:
    work = root / "shop"
    work.mkdir()
    notes = work / "notes.txt"
    notes.write_text("milk\n")
    recording = Recording({str(root): "/home/me"})
    command = [sys.executable, "-m", "whet", "acp", "--provider", "practice", "--base-url", server.base_url]
    able = ClientCapabilities(
        fs=FileSystemCapabilities(read_text_file=True, write_text_file=True),
        elicitation=ElicitationCapabilities(form=ElicitationFormCapabilities()),
    )
    editor: Any = Editor({str(notes): "milk\nbread\n"})
    async with spawn_agent_process(
        editor,
        *command,
        "--model",
        "practice",
        env={**os.environ, "WHET_HOME": str(root / "whet"), "WHET_REVIEW_WORKER": "off"},
        cwd=work,
        observers=[recording.observe],
        use_unstable_protocol=True,
    ) as (whet, _):
        recording.say("The editor starts Whet, and both list their capabilities.")
        await whet.initialize(
            protocol_version=PROTOCOL_VERSION,
            client_capabilities=able,
            client_info=Implementation(name="recorder", version="1"),
        )
        recording.say("Open a session.")
        made = await whet.new_session(cwd=str(work), mcp_servers=[])
        recording.lines = [line.replace(made.session_id, "S1") for line in recording.lines]
        recording.names[made.session_id] = "S1"
        recording.say("Send a prompt. Whet reads the unsaved text, asks, and writes through the editor.")
        server.install(
            [
                _does("read_file", path="notes.txt"),
                _does("clarify", question="What else do you need?"),
                _does("patch", path="notes.txt", old_string="bread", new_string="bread\nbutter"),
                ScriptedReply("Butter is on the list."),
            ]
        )
        await whet.prompt(session_id=made.session_id, prompt=[text_block("What is missing? Add it.")])
        recording.say("Send a slash command, and change the mode.")
        await whet.prompt(session_id=made.session_id, prompt=[text_block("/usage")])
        await whet.set_config_option(config_id="mode", session_id=made.session_id, value="auto")
        recording.say("Close the session. It stays in the list, and `whet chat --continue` continues it.")
        await whet.close_session(session_id=made.session_id)
        await whet.list_sessions(cwd=str(work))
    ended = notes.read_text().split()
    return [*drop_repeated_reads(recording.lines), "```", "", f"The disk now holds: {', '.join(ended)}."]


def main() -> None:
    """Write the page, or exit with 1 if it is stale."""
    with tempfile.TemporaryDirectory() as folder, PracticeServer() as server:
        lines = asyncio.run(_record(Path(folder), server))
    text = "\n".join([_HEAD.rstrip(), *lines[1:], ""])  # the first line would close a block that none opened
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(text)
    elif text != PAGE.read_text():
        sys.exit(f"{PAGE.name} is stale; write it again: python docs/editor_session.py")


if __name__ == "__main__":
    main()
