"""The events of the Anthropic Messages stream. Events of other servers may lack their type; it is then
guessed from their fields."""

from __future__ import annotations

from typing import Any

import msgspec

from whet.contract.texts import shared_decoder
from whet.providers.wire import ABSENT


class CallUsage(msgspec.Struct):
    """Token counts in one event; None for those that it does not contain."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens_details: dict[str, Any] | None = None


class MessageStart(msgspec.Struct):
    """The message of a `message_start` event."""

    model: str = ""
    usage: CallUsage | None = None


class BlockPiece(msgspec.Struct):
    """The delta of a block or, with `stop_reason`, of the message."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class StreamEvent(msgspec.Struct):
    """One event of any type."""

    type: str = ""
    index: int | None = None
    delta: BlockPiece | None = None
    content_block: msgspec.Raw = ABSENT
    message: MessageStart | None = None
    usage: CallUsage | None = None


class BlockOpening(msgspec.Struct):
    """The beginning of a content block."""

    type: str = ""
    id: str | None = None
    name: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    input: msgspec.Raw = ABSENT


EVENT = shared_decoder(StreamEvent)
OPENING = shared_decoder(BlockOpening)


def kind_of_event(event: StreamEvent) -> str:
    """Return the type of an event that names none, from the fields that only events of that type have."""
    if bytes(event.content_block):
        return "content_block_start"
    if event.message is not None:
        return "message_start"
    if event.delta is not None and event.delta.stop_reason is None and event.usage is None:
        return "content_block_delta"
    return "message_delta" if event.delta is not None or event.usage is not None else ""


def kind_of_piece(piece: BlockPiece) -> str:
    """Return the type of a block's piece, from its fields if it names none."""
    if piece.type:
        return piece.type
    if piece.partial_json is not None:
        return "input_json_delta"
    if piece.thinking is not None:
        return "thinking_delta"
    return "signature_delta" if piece.signature is not None else "text_delta"
