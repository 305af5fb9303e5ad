"""Scripted replies and faults: what a test makes the practice model say, and how it goes wrong.

A script is a list of `ScriptedReply`, as Python objects or as JSON of the same shape. Replies are used in the
order in which requests arrive; one with `when` waits for a request whose body holds that text. The practice
model is a scripted stand-in, not a language model. This module does not know how a reply looks on a wire.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from whet.contract.texts import from_json
from whet.practice.ask import PracticeCall


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How an answer goes wrong; the defaults are an answer that does not. Chunks are the stream's events."""

    status: int = 200
    """Another status answers with an error instead of the reply."""
    headers: dict[str, str] = {}
    """Extra response headers, such as retry-after."""
    message: str = ""
    """The words of the vendor-shaped error."""
    code: str = ""
    """The error's code (OpenAI) or type (Anthropic); empty takes the usual one for the status."""
    body: str | None = None
    """Sent as it stands instead of any vendor shape."""
    content_type: str = ""
    drop: bool = False
    """Close the connection without any answer."""
    cut_after: int | None = None
    """Close the connection after so many chunks; without streaming, in the middle of the body."""
    stall_after: int | None = None
    """Go silent after so many chunks until the server's `release`; -1 sends not even the headers."""
    error_after: int | None = None
    """Send an error object inside the stream after so many chunks, and end."""
    split_utf8: bool = False
    """Cut every chunk in the middle of a character."""
    delay_s: float = 0.0
    """Wait before every chunk."""


class ScriptedReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One answer of the stand-in. `stop` is "" (end or tool calls), "length" or "refusal".

    `usage` replaces numbers of the wire's own usage object. `pieces` is how many deltas the text, the
    reasoning and each call's arguments are sent in. All empty is an empty reply, which is legal.
    """

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[PracticeCall, ...] = ()
    usage: dict[str, int] | None = None
    stop: str = ""
    pieces: int = 1
    fault: Fault = Fault()
    when: str = ""


def running(command: str) -> ScriptedReply:
    """Give a reply that has the shell run a command."""
    return ScriptedReply(
        tool_calls=(PracticeCall("terminal", msgspec.json.encode({"command": command}).decode()),)
    )


def writing(path: str, content: str) -> ScriptedReply:
    """Give a reply that has a file written."""
    arguments = msgspec.json.encode({"path": path, "content": content}).decode()
    return ScriptedReply(tool_calls=(PracticeCall("write_file", arguments),))


class ScriptFile(msgspec.Struct, forbid_unknown_fields=True):
    """The JSON form of a script."""

    replies: list[ScriptedReply]


class ReplyScript:
    """Replies not yet used, and how many were."""

    def __init__(self, replies: Iterable[ScriptedReply]) -> None:
        self._left = list(replies)
        self.used: int = 0

    def take(self, body: bytes) -> ScriptedReply | None:
        """Give the first reply that fits the request, and use it up; None where none is left."""
        for index, reply in enumerate(self._left):
            if not reply.when or reply.when.encode() in body:
                self.used += 1
                return self._left.pop(index)
        return None

    @property
    def exhausted_message(self) -> str:
        """What a request without a reply is told."""
        left = f", {len(self._left)} wait for other requests" if self._left else ""
        return f"practice script exhausted: {self.used} replies were used{left} and none fits this request"


def parse_script(source: bytes | str) -> list[ScriptedReply]:
    """Read a script from JSON: {"replies": [...]} . Raises msgspec.DecodeError, naming the field."""
    return from_json(source, ScriptFile).replies


def rate_limited(retry_after_s: float = 0.01) -> ScriptedReply:
    """429 with Retry-After."""
    fault = Fault(status=429, headers={"retry-after": f"{retry_after_s:g}"}, message="Rate limit reached")
    return ScriptedReply(fault=fault)


def server_error(status: int = 500, message: str = "The server had an error") -> ScriptedReply:
    """A vendor-shaped error of the given status."""
    return ScriptedReply(fault=Fault(status=status, message=message))


def html_page(status: int = 502) -> ScriptedReply:
    """A proxy's HTML error page."""
    page = f"<html><head><title>{status} Bad Gateway</title></head><body>nginx</body></html>"
    return ScriptedReply(fault=Fault(status=status, body=page, content_type="text/html"))
