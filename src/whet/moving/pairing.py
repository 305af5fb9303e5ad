"""Build a session from another program's messages, with exactly one result after each call.

In a transcript, results may be missing, repeated, before their call, or without a call. The transcript
readers also share the parsing here: of JSON of unknown types, times, images, and the endings of calls. This
module does not know which program wrote a transcript.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast

import msgspec

from whet.contract.messages import ImagePart, Message, Part, TextPart, ToolCall, Usage, image_in
from whet.contract.protocols import ModelInfo
from whet.contract.texts import NOT_JSON
from whet.store.bulk import PastMessage, PastSession
from whet.store.sessions import NewSession, make_title

_UNPRICED = ModelInfo("", "", 0, 0)
MISSING = "No result of this call was recorded."


class PairedMessages(msgspec.Struct, frozen=True):
    """The messages in order. `sources[i]` is the original index of message i, -1 for a placeholder result.

    `left_out` counts results without a call and answers without content.
    """

    messages: tuple[PastMessage, ...]
    sources: tuple[int, ...]
    left_out: int


def pair(messages: Sequence[PastMessage]) -> PairedMessages:
    """Order `messages` and attach one result to each call."""
    results: dict[str, deque[int]] = defaultdict(deque)
    for index, past in enumerate(messages):
        if past.message.role == "tool":
            results[past.message.tool_call_id].append(index)
    left_out = 0
    ordered: list[PastMessage] = []
    sources: list[int] = []
    for index, past in enumerate(messages):
        message = past.message
        if message.role == "tool":
            continue
        if message.role == "assistant" and not message.tool_calls and not message.content:
            left_out += 1
            continue
        ordered.append(past)
        sources.append(index)
        for call in message.tool_calls:
            if results[call.id]:
                result_index = results[call.id].popleft()
                ordered.append(_set_tool_name(messages[result_index], call))
                sources.append(result_index)
            else:
                ordered.append(_make_placeholder(call, past.at_ms))
                sources.append(-1)
    left_out += sum(len(unused) for unused in results.values())
    return PairedMessages(tuple(ordered), tuple(sources), left_out)


def find_live(first: int, paired: PairedMessages) -> tuple[int, ...] | None:
    """Return the indices that a model saw if its context began at message `first`, or None for all."""
    if not first:
        return None
    total = len(paired.sources)
    start = next((position for position, source in enumerate(paired.sources) if source >= first), total)
    while start < total and paired.messages[start].message.role == "tool":
        start += 1  # skip a result whose call is only in the summary
    return tuple(range(start, total))


class TranscriptBuilder:
    """Collects the messages of a session, and which of them are summaries."""

    def __init__(self) -> None:
        self.messages: list[PastMessage] = []
        self._summaries: set[int] = set()
        self._views: list[tuple[int, int]] = []  # (next message, first message that the model saw from it on)

    def mark_summary(self, seen_from: int | None = None) -> None:
        """Mark the next message as a summary. The model saw messages from it or from index `seen_from` on."""
        self._summaries.add(len(self.messages))
        self.forget(seen_from)

    def forget(self, seen_from: int | None = None) -> None:
        """Record that the model saw messages from the next one or from index `seen_from` on."""
        position = len(self.messages)
        self._views.append((position, position if seen_from is None else seen_from))

    def remove_turns(self, count: int) -> None:
        """Remove the last turns, which the person took back. A turn begins with a message of the person."""
        starts = [
            index
            for index, past in enumerate(self.messages)
            if past.message.role == "user" and index not in self._summaries
        ]
        removed = starts[-count:] if count > 0 else []
        if not removed:
            return
        del self.messages[removed[0] :]
        self._summaries = {index for index in self._summaries if index < removed[0]}
        self._views = [view for view in self._views if view[0] <= removed[0]]

    def _tag_summary(self, index: int, past: PastMessage) -> PastMessage:
        """Put a summary with the user's role into tags: no lesson may quote it as the person's words."""
        if index not in self._summaries or past.message.role != "user":
            return past
        content = f"<earlier-conversation>\n{past.message.text}\n</earlier-conversation>"
        return msgspec.structs.replace(past, message=msgspec.structs.replace(past.message, content=content))

    def build_session(self, new_session: NewSession) -> PastSession | None:
        """Return the session, or None if it has no user message.

        A session without a title gets one from its first user message that is not a summary.
        """
        paired = pair([self._tag_summary(index, past) for index, past in enumerate(self.messages)])
        rows = paired.messages
        if not any(row.message.role == "user" for row in rows):
            return None
        user_texts = (
            row.message.text
            for row, source in zip(rows, paired.sources, strict=True)
            if row.message.role == "user" and source not in self._summaries
        )
        new_session = msgspec.structs.replace(
            new_session, title=make_title(new_session.title or next(user_texts, ""))
        )
        times = [row.at_ms for row in rows if row.at_ms] or [0]
        live = find_live(self._views[-1][1] if self._views else 0, paired)
        return PastSession(new_session, rows, min(times), max(times), "completed", live)


def build_usage(
    fresh: int, output: int, *, read_tokens: int = 0, written_tokens: int = 0, reasoning: int = 0
) -> Usage:
    """Return the usage of an answer whose price is unknown. `fresh` are the tokens that no cache was used
    for."""
    prompt = fresh + read_tokens + written_tokens
    return _UNPRICED.usage(
        prompt=prompt, output=output, cache_read=read_tokens, cache_write=written_tokens, reasoning=reasoning
    )


def build_result(message: Message, at_ms: int, *, is_error: bool = False) -> PastMessage:
    """Return a tool's result, with the call's ending from the text or from `is_error`."""
    ending = parse_ending(message.text, is_error=is_error)
    message = msgspec.structs.replace(message, is_error=bool(ending.error_kind))
    return PastMessage(message, at_ms, error_kind=ending.error_kind, exit_code=ending.exit_code)


def parse_image_url(url: object) -> ImagePart | None:
    """Return the image in a data URL, or None for any other value."""
    if not isinstance(url, str) or not url.startswith("data:"):
        return None
    return image_in(url.partition(";base64,")[2])


def join_images(text: str, images: Sequence[ImagePart]) -> str | tuple[Part, ...]:
    """Return the content of a message with these images, which is the text alone if there are none."""
    return (TextPart(text), *images) if images else text


def dicts_in(value: Any) -> list[dict[str, Any]]:
    """Return the objects in a list, or [] if the value is not a list."""
    items = cast(list[Any], value) if isinstance(value, list) else []
    return [item for item in items if isinstance(item, dict)]


def text_in(value: Any) -> str:
    """Return a string unchanged, or "" for any other value."""
    return value if isinstance(value, str) else ""


def parse_ms(stamp: Any) -> int:
    """Return an ISO time in milliseconds since 1970, or 0 if it is not a time."""
    try:
        return round(datetime.fromisoformat(text_in(stamp)).timestamp() * 1000)
    except (ValueError, OverflowError):
        return 0


def _make_placeholder(call: ToolCall, at_ms: int) -> PastMessage:
    message = Message(role="tool", content=MISSING, tool_call_id=call.id, tool_name=call.name, is_error=True)
    return PastMessage(message, at_ms, error_kind="interrupted")


def _set_tool_name(past: PastMessage, call: ToolCall) -> PastMessage:
    if past.message.tool_name:
        return past
    return msgspec.structs.replace(past, message=msgspec.structs.replace(past.message, tool_name=call.name))


_EXIT = re.compile(r"^(?:Exit code:? |Process exited with code )(-?\d+)\b", re.MULTILINE)
_OUTPUT = re.compile(r"^Output:[ \t]*$", re.MULTILINE)


class Ending(msgspec.Struct, frozen=True):
    """The ending of a call. `error_kind` is "" on success, otherwise "exit" or "failed", as in ToolOutput."""

    error_kind: str = ""
    exit_code: int | None = None


def parse_ending(text: str, *, is_error: bool = False) -> Ending:
    """Return the ending of a call from the text of its result."""
    # The program's status line is before the command's output, which may contain anything.
    output = _OUTPUT.search(text[:2_000])
    if match := _EXIT.search(text, 0, output.start()) if output else _EXIT.match(text):
        return _ending_of_exit(int(match[1]), is_error)
    if text.startswith("{"):
        try:
            parsed: Any = msgspec.json.decode(text)
        except NOT_JSON:
            parsed = None
        if isinstance(parsed, dict):
            return _ending_of_fields(cast(dict[str, object], parsed), is_error)
    return Ending("failed" if is_error else "")


def _ending_of_fields(fields: dict[str, object], is_error: bool) -> Ending:
    code = fields.get("exit_code")
    metadata = fields.get("metadata")
    if code is None and isinstance(metadata, dict):
        code = cast(dict[str, object], metadata).get("exit_code")
    if isinstance(code, int) and not isinstance(code, bool):
        return _ending_of_exit(code, is_error or bool(fields.get("error")))
    failed = is_error or fields.get("success") is False or bool(fields.get("error"))
    return Ending("failed" if failed else "")


def _ending_of_exit(code: int, is_error: bool) -> Ending:
    return Ending("exit" if code else "failed" if is_error else "", code)
