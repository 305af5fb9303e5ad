"""Continues agents that ended before a person answered: stores their calls and builds the commands.

The hook stores a file for each request that may outlive its agent, and removes it once the agent got the
answer. While a hook waits it holds a lock, which the system releases if the hook is killed. So a file without
a lock belongs to an agent that has ended.
"""

from __future__ import annotations

import fcntl
import re
import shlex
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from whet.config.paths import read_small, replace_file
from whet.contract.texts import from_json

MAX_KEEP_S = 86_400  # the service knows a repeated submission for a day
_SESSION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,127}")
# From the programs' documentation, not tested with them. {session} and {prompt} are one word each.
_COMMANDS = {
    "claude-code": "claude --resume {session} -p {prompt}",
    "codex": "codex exec resume {session} {prompt}",
    "gemini": "gemini --resume {session} -p {prompt}",
    "qwen-code": "qwen --resume {session} -p {prompt}",
    "copilot": "copilot --resume={session} -p {prompt}",
    "opencode": "opencode run --session {session} {prompt}",
    "cursor": "cursor-agent --resume {session} -p {prompt}",
}


class KeptCall(msgspec.Struct, frozen=True):
    """A call whose request waits although its agent may have ended."""

    request_id: str
    agent: str
    session: str
    folder: str
    tool: str

    def command(self, record: dict[str, Any]) -> tuple[str, ...]:
        """Return the agent's command that continues the session, or () if there is none.

        `record` is the request that has ended. The prompt tells the agent the result.
        """
        template = _COMMANDS.get(self.agent, "")
        if not template or not _SESSION.fullmatch(self.session):
            return ()
        words = template.split()
        values = {"{session}": self.session, "{prompt}": self._prompt(record)}
        return tuple(_fill(word, values) for word in words)

    def _prompt(self, record: dict[str, Any]) -> str:
        if record["status"] == "approved":
            return f"Your call of {self.tool} was approved. Make it again, exactly as before, and go on."
        reason = f" The reason: {record['reason']}" if record.get("reason") else ""
        return (
            f"Your call of {self.tool} was not approved ({record['status']}).{reason} Do not make it; go on."
        )


def _fill(word: str, values: dict[str, str]) -> str:
    """Fill in the placeholder of a template's word. The value itself is not searched for placeholders."""
    for name, value in values.items():
        if name in word:
            return word.replace(name, value)
    return word


def format_command(call: KeptCall, words: tuple[str, ...]) -> str:
    """Return a shell line that runs the command in the agent's folder."""
    return f"cd {shlex.quote(call.folder)} && {shlex.join(words)}"


class KeptCalls:
    """The files of kept calls in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, call: KeptCall) -> None:
        """Store a call."""
        self._folder.mkdir(parents=True, exist_ok=True)
        replace_file(self._path(call), msgspec.json.encode(call).decode(), mode=0o600)

    def remove(self, call: KeptCall) -> None:
        """Forget a call."""
        self._path(call).unlink(missing_ok=True)
        self._path(call).with_suffix(".lock").unlink(missing_ok=True)

    def has(self, call: KeptCall) -> bool:
        """Return whether nobody has used the answer to a call yet."""
        return self._path(call).exists()

    @contextmanager
    def hold(self, call: KeptCall) -> Generator[None]:
        """Store a call, and mark its agent as alive while the block and its process run."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._path(call).with_suffix(".lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
            self.add(call)
            yield

    def is_held(self, call: KeptCall) -> bool:
        """Return whether a hook still waits for the answer to a call."""
        try:
            with self._path(call).with_suffix(".lock").open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    def __iter__(self) -> Iterator[KeptCall]:
        for path in sorted(self._folder.glob("*.json")):
            if text := read_small(path):
                yield from_json(text, KeptCall)

    def _path(self, call: KeptCall) -> Path:
        return self._folder / f"{call.request_id}.json"
