"""Export a session as JSON lines for programs or as Markdown for people, with secrets masked.

Both contain the whole transcript without undone turns, also messages that a compaction has replaced. They
are generators over one read transaction, so a long session is never in memory as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count, groupby
from operator import itemgetter
from typing import Any

import apsw
import msgspec

from whet.contract.messages import ImagePart, Message, to_dict
from whet.contract.texts import map_texts, to_json
from whet.log import mask
from whet.store import rows, sessions
from whet.store.parts import AnswerPart, CallPart, ConversationPart, PersonPart, list_parts

_BACKTICKS = re.compile("`+")
_NO_LABEL = re.compile(r"[^\w.-]")
_FENCE_LINE = re.compile(r"( {0,3})(`{3,}|~{3,})(.*)")


def as_jsonl(connection: apsw.Connection, session_id: str) -> Iterator[str]:
    """Yield {"meta": ...} and then each message as an OpenAI chat dict, without line ends. Raises
    NotFound."""
    session = sessions.get(connection, session_id)
    system, tools = sessions.read_prefix(connection, session_id)
    meta: dict[str, Any] = {**msgspec.to_builtins(session), "system_prompt": system, "tools": tools}
    yield to_json({"meta": _mask_texts(meta)})
    for message in iter_messages(connection, session_id):
        yield to_json(_mask_texts(to_dict(message)))


def as_markdown(connection: apsw.Connection, session_id: str) -> Iterator[str]:
    """Yield the transcript in blocks that end in a blank line, then its images as data URLs. Raises
    NotFound."""
    session = sessions.get(connection, session_id)
    yield mask(f"# {session.title or 'Session ' + session.id}\n\n")
    facts = (
        ("Session", session.id),
        ("Started", session.started),
        ("Model", " ".join(filter(None, (session.provider, session.model)))),
        ("Folder", session.workspace),
        ("Turns", str(session.turns)),
    )
    yield mask("\n".join(f"- {name}: {value}" for name, value in facts if value) + "\n\n")
    labels = _label_images(session.id)
    for part in _iter_parts(connection, session_id):
        yield from map(mask, _render_part(part))
        yield from (f"![{image.media_type}][{next(labels)}]\n\n" for image in _images_of(part))
    labels = _label_images(session.id)
    for part in _iter_parts(connection, session_id):
        for image in _images_of(part):
            yield f"[{next(labels)}]: data:{image.media_type};base64,{image.data_base64}\n\n"


def _iter_parts(connection: apsw.Connection, session_id: str) -> Iterator[ConversationPart]:
    for _, turn in groupby(iter_with_turns(connection, session_id), key=itemgetter(0)):
        yield from list_parts([message for _, message in turn])


def _images_of(part: ConversationPart) -> tuple[ImagePart, ...]:
    if isinstance(part, PersonPart):
        return part.images
    return part.result.images if isinstance(part, CallPart) and part.result is not None else ()


def _label_images(session_id: str) -> Iterator[str]:
    """Yield the link labels of the images in a session, which differ between the sessions in one file."""
    name = _NO_LABEL.sub("-", session_id)
    return (f"image {number} of {name}" for number in count(1))


def _render_part(part: ConversationPart) -> Iterator[str]:
    """Yield the blocks of a part, without its images."""
    if isinstance(part, PersonPart):
        yield f"## You\n\n{_close_fence(part.text())}\n\n"
        if part.attached:
            yield f"Sent with it:\n\n{_fence(part.attached)}"
    elif isinstance(part, AnswerPart):
        if part.text:
            yield f"## Assistant\n\n{_close_fence(part.text)}\n\n"
    else:
        yield f"Call of `{part.call.name}`:\n\n{_fence(part.call.arguments, 'json')}"
        if part.result is not None:
            failed = " (failed)" if part.state == "failed" else ""
            text = part.result.text
            fence = _fence(text) if text or not part.result.images else ""
            yield f"Result of `{part.call.name}`{failed}:\n\n{fence}"


def _close_fence(text: str) -> str:
    """Return a message with its last code fence closed, so that the heading after it is not code."""
    indent = fence = ""
    for line in text.splitlines():
        match = _FENCE_LINE.match(line)
        if match is None:
            continue
        if fence:
            is_end = match[2].startswith(fence) and not match[3].strip()
            fence = "" if is_end else fence
        elif match[2][0] == "~" or "`" not in match[3]:
            indent, fence = match[1], match[2]
    return f"{text.rstrip()}\n{indent}{fence}" if fence else text


def _fence(text: str, language: str = "") -> str:
    """Put text into a code fence that is longer than any run of backticks in it."""
    fence = max(["``", *_BACKTICKS.findall(text)], key=len) + "`"
    return f"{fence}{language}\n{text}\n{fence}\n\n"


def iter_messages(connection: apsw.Connection, session_id: str, *, last: int = 0) -> Iterator[Message]:
    """Yield the messages of a session, oldest first, without undone turns.

    With `last`, yield only that many of the newest ones.
    """
    return (message for _, message in iter_with_turns(connection, session_id, last=last))


def iter_with_turns(
    connection: apsw.Connection, session_id: str, *, last: int = 0
) -> Iterator[tuple[int, Message]]:
    """Yield (turn, message) as `iter_messages` does. Raises NotFound."""
    key = sessions.key_of(connection, session_id)
    cursor = connection.execute(
        "SELECT turn, role, content, extra FROM (SELECT * FROM messages m WHERE id > ? AND id < ? AND NOT"
        " EXISTS (SELECT 1 FROM turns t WHERE t.session = ? AND t.number = m.turn AND t.undone <> '')"
        " ORDER BY id DESC LIMIT ?) AS newest ORDER BY id",
        (*rows.ids_of(key), key, last or -1),
    )
    for turn, role, content, extra in cursor:
        yield int(turn), rows.unpack(role, content, extra)


def _mask_texts(value: Any) -> Any:
    """Mask every text in a JSON value. This happens before encoding because an escape would hide a secret."""
    return map_texts(value, mask)
