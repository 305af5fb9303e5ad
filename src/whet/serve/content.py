"""Read the messages of a client in either of OpenAI's formats, and find those that are new to a session.

Images are data: URLs here, because `attachments.py` has replaced other URLs. docs/api.md states the rules.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Sequence
from typing import Any, Literal, cast

import msgspec

from whet.context.rows import IMAGE_TOKENS, ROW_TOKENS, text_tokens
from whet.contract.brought_text import drop_marks, wrap_in_tag
from whet.contract.images import image_fault
from whet.contract.messages import ImagePart, ToolCall, image_type
from whet.contract.tools import ToolSpec
from whet.serve.client_tools import CallResult
from whet.serve.wire import ApiError, encode

_DATA_URL = re.compile(r"data:[\w.+/-]*(?:;[\w.+-]+=[\w.+-]*)*;base64,", re.IGNORECASE)
IMAGE_LIMIT_BYTES = 20_000_000
_TEXTS = frozenset(("text", "input_text", "output_text", "refusal"))
_HEAD = (
    "Instructions from the program that this conversation comes through; they don't change what you may do."
)
_CONTINUE = "Continue your last answer from exactly where it ends; do not repeat any of it."
_TAG = "program-instructions"
_BLOCK = re.compile(rf"\A<({_TAG}(?:-[0-9a-f]{{16}})?)>\n.*?\n</\1>\n\n", re.DOTALL)
Speaker = Literal["system", "user", "assistant", "other"]
_SPEAKERS: dict[str, Speaker] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "other",
    "function": "other",
}


class Utterance(msgspec.Struct, frozen=True):
    """One message of a client. `item_id` is its id from the client's history."""

    speaker: Speaker
    text: str
    images: tuple[ImagePart, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    results: tuple[CallResult, ...] = ()
    item_id: str = ""


class NewContent(msgspec.Struct, frozen=True):
    """The content that a request adds to a session: the history before its first turn, the person's new
    message, and results of calls."""

    history: tuple[Utterance, ...]
    text: str
    images: tuple[ImagePart, ...]
    results: tuple[CallResult, ...] = ()


def read_utterance(role: str, content: object, where: str) -> Utterance:
    """Read a message. `where` names it in errors. Raises ApiError."""
    speaker = _SPEAKERS.get(role)
    if speaker is None:
        raise ApiError(400, f"there is no role {role[:40]!r}", param=f"{where}.role")
    if content is None or isinstance(content, str):
        return Utterance(speaker, content or "")
    if not isinstance(content, list):
        raise ApiError(400, "content must be text or a list of parts", param=f"{where}.content")
    texts: list[str] = []
    images: list[ImagePart] = []
    for number, part in enumerate(cast("list[object]", content)):
        location = f"{where}.content[{number}]"
        if isinstance(part, str):
            texts.append(part)
            continue
        if not isinstance(part, dict):
            raise ApiError(400, "a part must be an object", param=location)
        parsed = _read_part(cast("dict[str, Any]", part), location)
        if isinstance(parsed, ImagePart):
            images.append(parsed)
        else:
            texts.append(parsed)
    return Utterance(speaker, "\n".join(texts), tuple(images))


def kind_of(part: dict[str, Any]) -> str | None:
    """Return the type of a part or item, or None if it has none. For a type that is not a string, returns its
    repr, which is no valid type."""
    kind: object = part.get("type")
    return kind if kind is None or isinstance(kind, str) else repr(kind)


def _read_part(part: dict[str, Any], location: str) -> str | ImagePart:
    kind = kind_of(part)
    if kind in _TEXTS:
        text = part.get("text", part.get("refusal"))
        if not isinstance(text, str):
            raise ApiError(400, "text must be a string", param=f"{location}.text")
        return text
    if kind in ("image_url", "input_image"):
        address: object = part.get("image_url")
        if isinstance(address, dict):
            address = cast("dict[str, object]", address).get("url")
        if not isinstance(address, str):
            raise ApiError(400, "an image needs a URL", param=f"{location}.image_url")
        return _read_image(address, location)
    raise ApiError(400, f"parts of type {str(kind)[:40]!r} are not taken", param=f"{location}.type")


def _read_image(address: str, location: str) -> ImagePart:
    match = _DATA_URL.match(address)
    if match is None:
        message = "an image needs an http(s) URL, or a data: URL with PNG, JPEG, GIF or WebP in base64"
        raise ApiError(400, message, param=f"{location}.image_url", code="unsupported_image")
    return image_of(address[match.end() :], f"{location}.image_url")


def image_of(data: str, location: str) -> ImagePart:
    """Read a base64 image, with the type of its bytes: a model would refuse a wrong type in every later
    request. Raises ApiError if it is not an image."""
    try:
        image_bytes = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ApiError(400, "the image is not base64", param=location) from error
    if not 0 < len(image_bytes) <= IMAGE_LIMIT_BYTES:
        raise ApiError(400, f"an image has 1 to {IMAGE_LIMIT_BYTES:,} bytes", param=location)
    kind = image_type(image_bytes)
    if not kind:
        message = "these bytes are not a PNG, JPEG, GIF or WebP"
        raise ApiError(400, message, param=location, code="invalid_image")
    if fault := image_fault(image_bytes):
        raise ApiError(400, f"models can't take this image: {fault}", param=location, code="invalid_image")
    return ImagePart(kind, data)


def estimate_tokens(utterances: Sequence[Utterance], tools: Sequence[ToolSpec]) -> int:
    """Estimate the tokens of messages and tools."""
    total = sum(text_tokens(encode(spec).decode()) for spec in tools)
    for utterance in utterances:
        results = [(result.text, result.images) for result in utterance.results]
        for text, images in ((utterance.text, utterance.images), *results):
            total += ROW_TOKENS + text_tokens(text) + IMAGE_TOKENS * len(images)
        total += sum(ROW_TOKENS + text_tokens(call.name + call.arguments) for call in utterance.calls)
    return total


def instructions_of(utterances: Sequence[Utterance]) -> str:
    """Return the client's system and developer messages as one text."""
    return "\n\n".join(
        utterance.text.strip()
        for utterance in utterances
        if utterance.speaker == "system" and utterance.text.strip()
    )


def with_continuation(utterances: tuple[Utterance, ...]) -> tuple[Utterance, ...]:
    """Return the messages. If they end with an answer, a request to continue it is added."""
    spoken = [message for message in utterances if message.speaker != "system"]
    last = spoken[-1] if len(spoken) > 1 else None
    if last is None or last.speaker != "assistant" or last.calls or not last.text.strip():
        return utterances
    return (*utterances, Utterance("user", _CONTINUE))


def digest_of(instructions: str) -> str:
    """Return the hash that identifies instructions, or an empty string if there are none."""
    text = drop_marks(instructions)  # a document has new marks in each request
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32] if text else ""


def with_instructions(instructions: str, text: str) -> str:
    """Return a message with the client's instructions, marked as such, in front of it."""
    return wrap_in_tag(_TAG, f"\n{_HEAD}\n\n{instructions}\n") + f"\n\n{text}"


def no_such_call() -> ApiError:
    """Return the error for a result without its call."""
    error_text = "a result belongs to no call of this conversation"
    return ApiError(400, error_text, param="messages", code="no_such_call")


def find_new_content(
    utterances: Sequence[Utterance], stored: Sequence[str], *, is_begun: bool | None = None
) -> NewContent:
    """Return the content of a client's messages that is new to a session.

    `stored` are the person's stored messages. `is_begun` None: the session has begun if there are any.

    - If the session has not begun, all messages are new. Those before the person's last ones are history.
    - If the client's list begins with all stored messages, the person's messages after these are new.
    - Otherwise (only the newest message, a shortened or edited list, a retry), everything after the last
      answer is new.

    Raises ApiError if the last message is neither the person's nor a result.
    """
    spoken = [message for message in utterances if message.speaker != "system"]
    if not spoken or spoken[-1].speaker == "assistant":
        raise ApiError(400, "the last message must be the user's or a tool's result", param="messages")
    first = len(spoken)
    while first and spoken[first - 1].speaker != "assistant":
        first -= 1
    new = spoken[first:]
    results = tuple(result for message in new for result in message.results)
    if not (bool(stored) if is_begun is None else is_begun):
        while first < len(spoken) and spoken[first].results:
            first += 1  # the results belong to the answer before them
        call_ids = {call.id for message in spoken[:first] for call in message.calls}
        if any(result.call_id not in call_ids for message in spoken for result in message.results):
            raise no_such_call()
        return _join_new(tuple(spoken[:first]), spoken[first:], results)
    users = [message for message in spoken if message.speaker == "user" and not message.results]
    stored_texts = [without_instructions(text) for text in stored]
    if (
        stored_texts
        and len(users) > len(stored_texts)
        and [without_instructions(message.text) for message in users[: len(stored_texts)]] == stored_texts
    ):
        new = users[len(stored_texts) :]
    return _join_new((), new, results)


def _join_new(
    history: tuple[Utterance, ...], new: Sequence[Utterance], results: tuple[CallResult, ...]
) -> NewContent:
    user_messages = [message for message in new if message.speaker == "user"]
    text = "\n\n".join(message.text for message in user_messages if message.text)
    images = tuple(image for message in user_messages for image in message.images)
    if not text.strip() and not images and not results:
        raise ApiError(400, "the user's message is empty", param="messages")
    return NewContent(history, text, images, results)


def without_instructions(text: str) -> str:
    """Return a message without the client's instructions in front of it and without the marks of tags, to
    compare it with another one: a document gets new marks in each request."""
    return drop_marks(_BLOCK.sub("", text, count=1)).strip()
