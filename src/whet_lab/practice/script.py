"""Scripted replies and faults, with which a test controls the practice model's answers and failures.

A script is a list of `ScriptedReply`, as Python objects or as JSON of the same shape. Replies are used in
the order in which requests arrive. One with `when` waits for a request whose body contains that text.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from whet.contract.texts import from_json
from whet_lab.practice.ask import PracticeCall


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How an answer fails; the defaults are not a failure. Chunks are the events of a stream."""

    status: int = 200
    """With an error status, an error is sent instead of the reply."""
    headers: dict[str, str] = {}
    """Extra response headers, such as retry-after."""
    message: str = ""
    """The message of the vendor's error object."""
    code: str = ""
    """The error's code (OpenAI) or type (Anthropic). If empty, the usual one for the status."""
    body: str | None = None
    """Sent unchanged in place of any vendor shape."""
    content_type: str = ""
    drop: bool = False
    """Close the connection without any answer."""
    cut_after: int | None = None
    """Close the connection after this many chunks; without streaming, in the middle of the body."""
    stall_after: int | None = None
    """Stop sending after this many chunks until the server's `release`; -1 holds back even the headers."""
    error_after: int | None = None
    """Send an error object inside the stream after this many chunks, and end."""
    split_utf8: bool = False
    """Cut every chunk in the middle of a character."""
    delay_s: float = 0.0
    """Wait before every chunk."""


class ScriptedReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One answer of the practice model. `stop` is "" (end or tool calls), "length" or "refusal".

    `usage` replaces numbers of the wire format's usage object. `pieces` is the number of deltas for the
    text, the reasoning and each call's arguments. With all fields empty it is an empty reply, which is
    legal.
    """

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[PracticeCall, ...] = ()
    usage: dict[str, int] | None = None
    stop: str = ""
    pieces: int = 1
    fault: Fault = Fault()
    when: str = ""


def terminal_reply(command: str) -> ScriptedReply:
    """Return a reply that calls the terminal tool with a command."""
    return ScriptedReply(
        tool_calls=(PracticeCall("terminal", msgspec.json.encode({"command": command}).decode()),)
    )


def write_file_reply(path: str, content: str) -> ScriptedReply:
    """Return a reply that calls the tool for writing a file."""
    arguments = msgspec.json.encode({"path": path, "content": content}).decode()
    return ScriptedReply(tool_calls=(PracticeCall("write_file", arguments),))


class ScriptFile(msgspec.Struct, forbid_unknown_fields=True):
    """The JSON form of a script."""

    replies: list[ScriptedReply]


class ReplyScript:
    """The replies that are still unused, and the number of used ones."""

    def __init__(self, replies: Iterable[ScriptedReply]) -> None:
        self._left = list(replies)
        self.used: int = 0

    def take(self, body: bytes) -> ScriptedReply | None:
        """Remove and return the first reply that may answer this body, or return None."""
        for index, reply in enumerate(self._left):
            if not reply.when or reply.when.encode() in body:
                self.used += 1
                return self._left.pop(index)
        return None

    @property
    def exhausted_message(self) -> str:
        """The error message for a request without a reply."""
        suffix = f", {len(self._left)} wait for other requests" if self._left else ""
        return f"practice script exhausted: {self.used} replies were used{suffix} and none fits this request"


def parse_script(source: bytes | str) -> list[ScriptedReply]:
    """Read a script from JSON: {"replies": [...]}. Raises msgspec.DecodeError, which names the field."""
    return from_json(source, ScriptFile).replies


def rate_limit_reply(retry_after_s: float = 0.01) -> ScriptedReply:
    """Return a 429 reply with Retry-After."""
    fault = Fault(status=429, headers={"retry-after": f"{retry_after_s:g}"}, message="Rate limit reached")
    return ScriptedReply(fault=fault)


def server_error(status: int = 500, message: str = "The server had an error") -> ScriptedReply:
    """Return an error in the vendor's shape with the given status."""
    return ScriptedReply(fault=Fault(status=status, message=message))


def html_page(status: int = 502) -> ScriptedReply:
    """Return a proxy's HTML error page."""
    page = f"<html><head><title>{status} Bad Gateway</title></head><body>nginx</body></html>"
    return ScriptedReply(fault=Fault(status=status, body=page, content_type="text/html"))
