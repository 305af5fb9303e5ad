"""A request body whose bytes are encoded once: request n without its tail is a prefix of request n + 1.

`WireCache` keeps the messages of the last request and their bytes. The next request encodes only the
messages after the common prefix (compared by identity), so a call costs almost the same at step 1,000 as
at step 1. `WireCodec` and `Decoder` are the interfaces of a wire format; this module knows none of them.

JSON is built as bytes, piece by piece, so text from a model is inserted without changing its spacing. Ids
and names that a vendor would reject are always mapped to the same replacement, because a message's wire
bytes must not change between requests.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from whet.config.model_servers import ServerDialect as ServerDialect
from whet.contract.errors import ProviderError
from whet.contract.events import ReasoningDelta, TextDelta
from whet.contract.messages import ImagePart, Message, Part, TextPart, Usage, sent_content
from whet.contract.protocols import ModelInfo, ModelReply
from whet.contract.texts import NOT_JSON, is_object
from whet.contract.tools import TOOL_NAME, ToolSpec
from whet.late import late_pattern
from whet.providers.tool_schemas import accepted_schema

T = TypeVar("T")
ENCODER = msgspec.json.Encoder()
# msgspec can't decode a union with Raw, so an absent field is an empty Raw.
ABSENT = msgspec.Raw()
_NOT_NAME = late_pattern(r"[^A-Za-z0-9_-]")
# What `odd_events` leaves of split or invalid characters: halves of a surrogate pair, and single bytes.
_HALVES = late_pattern("[\ud800-\udfff]")
_NO_BYTES = late_pattern("[\ud800-\udc7f\udd00-\udfff]")
_BEGUN = late_pattern("(?:[\ud800-\udbff]|(?<![\ud800-\udbff])[\udcc2-\udcf4][\udc80-\udcbf]{0,2})\\Z")
SHORT_IDS = late_pattern(r"[A-Za-z0-9]{9}")
# Inserted between two messages of a user for servers that want turns to alternate.
PAUSE = b',{"role":"assistant","content":"Understood."}'
_USUAL_ENDS = frozenset(
    {"", "stop", "eos", "end_turn", "tool_calls", "tool_use", "function_call", "stop_sequence", "completed"}
)
Effort = Literal["", "none", "minimal", "low", "medium", "high"]
Deltas = Sequence[TextDelta | ReasoningDelta]


class RequestOptions(msgspec.Struct, frozen=True):
    """The constant options of a session's requests. `max_output_tokens` 0: the server's own limit. `extra`
    are fields from the owner's settings, which replace Whet's fields of the same name."""

    model: str
    session_id: str = ""
    max_output_tokens: int = 0
    reasoning_effort: Effort = ""
    extra: Mapping[str, Any] = {}


class PromptDetails(msgspec.Struct):
    """OpenAI's count of prompt tokens read from or written to the cache."""

    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class OutputDetails(msgspec.Struct):
    """OpenAI's count of the answer's reasoning tokens."""

    reasoning_tokens: int | None = None


class Decoder(Protocol):
    """Turns one stream's SSE data into deltas and a ModelReply. No I/O."""

    @property
    def is_done(self) -> bool:
        """Whether the answer is complete. A stream that ends earlier was cut."""
        ...

    @property
    def is_ended(self) -> bool:
        """Whether the terminal event arrived. No relevant data follows it."""
        ...

    @property
    def call_chars(self) -> int:
        """How many characters of tool calls' arguments were received. No delta contains them."""
        ...

    def usage(self) -> Usage:
        """Return the usage that the server has reported so far, with zeros for missing counts."""
        ...

    def feed(self, data: bytes) -> Deltas:
        """Decode one event's data. Raises ProviderError for an error inside the stream or invalid data."""
        ...

    def reply(self, used_ids: Iterable[str]) -> ModelReply:
        """Return the complete answer. Called once. `used_ids`: the call ids of earlier messages. Raises
        ModelRefused, Unavailable, WireError."""
        ...


class WireCodec(Protocol):
    """One wire format. Pure; the same input always produces the same bytes."""

    @property
    def dialect(self) -> ServerDialect:
        """How the server differs from others of its format."""
        ...

    @property
    def path(self) -> str:
        """The request's path below the base URL."""
        ...

    @property
    def models_query(self) -> str:
        """The path and query for the list of models, below the base URL."""
        ...

    def headers(self, key: str) -> dict[str, str]:
        """Return the headers of one request. `key` is empty if the server needs none."""
        ...

    def head(self, system: str, tools: Sequence[ToolSpec], options: RequestOptions) -> bytes:
        """Return the body up to the first message. It ends with `[` or with the system message."""
        ...

    def fragment(self, messages: Sequence[Message], index: int) -> bytes:
        """Encode messages[index] in the context of the messages before it. The result begins with a comma."""
        ...

    def tail(self, messages: Sequence[Message]) -> bytes:
        """Close the body after `messages`."""
        ...

    def adapt(self, refusal: ProviderError, body: bytes, prompt_tokens: int) -> tuple[WireCodec, str] | None:
        """Return a codec that avoids the refusal of `body`, and the change in words ("X, so ..."). Returns
        None if nothing can be sent in another way. `prompt_tokens`: an estimate."""
        ...

    def decoder(self, info: ModelInfo) -> Decoder:
        """Return a decoder for one answer."""
        ...


class WireCache:
    """One session's growing request body. `call_ids` are all call ids that it has encoded. Replay data of
    another server than `server` is left out."""

    def __init__(self, codec: WireCodec, head: bytes, server: str = "") -> None:
        self._codec = codec
        self._server = server
        self._sent: list[Message] = []
        self._body = bytearray(head)
        self._messages: list[Message] = []
        self._ends: list[int] = []
        self._head_size = len(head)
        self.call_ids: set[str] = set()

    def body(self, messages: Sequence[Message]) -> bytes:
        """Return the complete body for `messages`. Messages that are the same objects as last time are not
        encoded again."""
        self._cut(self._count_common(messages))
        for index in range(len(self._messages), len(messages)):
            self._sent.append(self._without_foreign_data(messages[index]))
            fragment = self._codec.fragment(self._sent, index)
            # The first element of an array has no comma before it.
            self._body += fragment[1:] if self._body[-1] == 0x5B else fragment
            self._messages.append(messages[index])
            self._ends.append(len(self._body))
            for call in messages[index].tool_calls:
                self.call_ids.add(call.id)
        return b"".join((self._body, self._codec.tail(self._sent)))

    def _without_foreign_data(self, message: Message) -> Message:
        replay = message.replay
        if replay is None or not replay.server or replay.server == self._server:
            return message
        return msgspec.structs.replace(message, replay=None)

    def _count_common(self, messages: Sequence[Message]) -> int:
        known_count = len(self._messages)
        # Messages compare by identity, so this is one fast pass for the usual case of a list that only grew.
        if list(messages[:known_count]) == self._messages:
            return known_count
        for index, (old, new) in enumerate(zip(self._messages, messages, strict=False)):
            if old is not new:
                return index
        return min(known_count, len(messages))

    def _cut(self, count: int) -> None:
        if count < len(self._messages):
            del self._body[self._ends[count - 1] if count else self._head_size :]
            del self._messages[count:], self._sent[count:]
            del self._ends[count:]


def caller_of(messages: Sequence[Message], index: int) -> Message | None:
    """Return the message with the call whose result is messages[index], or None."""
    call_id = messages[index].tool_call_id
    for message in reversed(messages[:index]):
        if any(call.id == call_id for call in message.tool_calls):
            return message
    return None


def images_before(messages: Sequence[Message], end: int) -> list[ImagePart]:
    """Return the images of the run of tool results that ends before `end`, in order."""
    images: list[ImagePart] = []
    start = end
    while start and messages[start - 1].role == "tool":
        start -= 1
    for message in messages[start:end]:
        if not isinstance(message.content, str):
            images.extend(part for part in message.content if isinstance(part, ImagePart))
    return images


def content_json(message: Message, part: Callable[[Part], bytes]) -> bytes:
    """Return the content that the model reads as JSON. `part` encodes one part. If all parts are text, they
    become one string, because servers of text models accept no lists."""
    content = sent_content(message)
    if isinstance(content, str):
        return quote(content)
    texts = [item.text for item in content if isinstance(item, TextPart)]
    if len(texts) == len(content):
        return quote("\n".join(texts))
    return b"[" + b",".join(map(part, content)) + b"]"


def data_url(part: ImagePart) -> bytes:
    """Return an image as a quoted data URL."""
    return quote(f"data:{part.media_type};base64,{part.data_base64}")


def bearer_headers(key: str) -> dict[str, str]:
    """Return the headers of a JSON request, with the key, if there is one, as a bearer token."""
    headers = {"content-type": "application/json"}
    return headers | {"authorization": f"Bearer {key}"} if key else headers


def quote(text: str) -> bytes:
    """Return a JSON string. A lone surrogate (from a file name that is not UTF-8) becomes U+FFFD."""
    try:
        return ENCODER.encode(text)
    except UnicodeEncodeError:
        return ENCODER.encode(text.encode("utf-8", "replace").decode())


def encode(value: Any) -> bytes:
    """Return any value as JSON, with lone surrogates replaced."""
    try:
        return ENCODER.encode(value)
    except UnicodeEncodeError:
        return ENCODER.encode(_clean(value))


def without(fields: dict[str, Any], left_out: Collection[str]) -> dict[str, Any]:
    """Return a request's parameters without those that its server refused."""
    return {name: value for name, value in fields.items() if name not in left_out} if left_out else fields


def allowed_output(tokens: int, dialect: ServerDialect) -> int:
    """Return the output limit to send: `tokens`, but no more than the server allows."""
    return min(tokens, dialect.output_limit) if dialect.output_limit else tokens


def sent_schema(tool: ToolSpec) -> dict[str, Any]:
    """Return a tool's schema as it is sent: without unsent arguments, in a form that every vendor accepts."""
    return accepted_schema(tool.parameters, tool.unsent)


def read_replay(message: Message, form: str, shape: msgspec.json.Decoder[T]) -> tuple[str, T | None]:
    """Return the vendor's own data in the format `form`, as text and decoded, or ("", None)."""
    replay = message.replay
    if replay is None or replay.format != form:
        return "", None
    try:
        return replay.blocks_json, shape.decode(replay.blocks_json)
    except (msgspec.DecodeError, UnicodeError):
        return "", None


def object_or_empty(text: str) -> str:
    """Return `text` if it is a JSON object, else `{}`, because vendors refuse invalid arguments."""
    return text if is_object(text) else "{}"


def wire_name(name: str) -> str:
    """Return a tool name that every vendor accepts in a history: letters, digits, _ and -, at most 64."""
    if TOOL_NAME.fullmatch(name):
        return name
    return _NOT_NAME.sub("_", name)[:64] or "unnamed"


def wire_id(call_id: str, allowed: re.Pattern[str], length: int = 24) -> str:
    """Return `call_id` if `allowed` matches it, else `length` letters and digits derived from it.

    The derivation never changes, so that the requests of an old session keep their prefix.
    """
    if allowed.fullmatch(call_id):
        return call_id
    number = int.from_bytes(hashlib.sha256(call_id.encode("utf-8", "replace")).digest())
    digits: list[str] = []
    for _ in range(length):
        number, digit = divmod(number, 36)
        digits.append("0123456789abcdefghijklmnopqrstuvwxyz"[digit])
    return "".join(digits)


def unique_ids(ids: Sequence[str], used_ids: Iterable[str]) -> list[str]:
    """Return a unique id for each call: missing ones are numbered, repeated ones get `_2`, `_3`, ...

    They also differ from `used_ids`, those of earlier messages, because vendors require it.
    """
    used = used_ids if isinstance(used_ids, set | frozenset) else frozenset(used_ids)
    fresh: list[str] = []
    for position, call_id in enumerate(ids):
        base = call_id or f"call_{position}"
        fresh.append(_find_free_id(base, lambda candidate: candidate in used or candidate in fresh))
    return fresh


def _find_free_id(base: str, is_taken: Callable[[str], bool]) -> str:
    """Return `base`, or the first free of base_2, base_3, ...

    Searches by doubling and halving, because a server that gives all calls the same id has used many numbers.
    """
    if not is_taken(base):
        return base
    last_taken, free = 1, 2
    while is_taken(f"{base}_{free}"):
        last_taken, free = free, free * 2
    while free - last_taken > 1:
        middle = (last_taken + free) // 2
        if is_taken(f"{base}_{middle}"):
            last_taken = middle
        else:
            free = middle
    return f"{base}_{free}"


def join_pieces(pieces: Iterable[str]) -> str:
    """Join the pieces of a text, which may have been split within a character. Invalid bytes become
    U+FFFD."""
    text = "".join(pieces)
    if text.isascii() or not _HALVES.search(text):
        return text
    paired = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return _NO_BYTES.sub("\ufffd", paired).encode("utf-8", "surrogateescape").decode("utf-8", "replace")


class PieceJoiner:
    """Joins characters that were split between two pieces of a text, while the pieces arrive."""

    def __init__(self) -> None:
        self._begun = ""

    def feed(self, piece: str) -> str:
        """Take a piece and return the text that is complete now."""
        if not self._begun and (piece.isascii() or not _HALVES.search(piece)):
            return piece
        text = self._begun + piece
        match = _BEGUN.search(text)
        end = match.start() if match else len(text)
        self._begun = text[end:]
        return join_pieces([text[:end]])

    def finish(self) -> str:
        """Return the remains of an incomplete character as U+FFFD, or an empty string."""
        text, self._begun = join_pieces([self._begun]), ""
        return text


def read_events(info: ModelInfo, data: bytes, kind: type[T], shape: msgspec.json.Decoder[T]) -> Sequence[T]:
    """Decode one event's data, which usually contains one event. Raises ProviderError if it contains none or
    is an error."""
    try:
        if not data.isascii():
            data.decode()  # the decoder does not check fields that it keeps raw
        return (shape.decode(data),)
    except NOT_JSON as error:
        from whet.providers.odd_events import read_around  # noqa: PLC0415 most servers keep to the format

        try:
            return read_around(data, kind)
        except ValueError:
            raise event_error(info, data) from error


def event_error(info: ModelInfo, data: bytes) -> ProviderError:
    """Return the error for an event that reports an error or is invalid."""
    from whet.providers import failures  # noqa: PLC0415 read only where something failed

    return failures.from_payload(info, data)


def unreadable(info: ModelInfo, data: bytes, subject: str = "something that can't be read") -> ProviderError:
    """Return the error for an invalid part of an answer, described by `subject`."""
    from whet.providers import failures  # noqa: PLC0415 as above

    return failures.unreadable_error(info, data, subject)


def end_of(info: ModelInfo, reason: str, why: str = "") -> tuple[Literal["end", "length"], tuple[str, ...]]:
    """Return how an answer ended, and warnings for the person. `reason` is the server's finish reason, `why`
    the model's text if it declined.

    Raises ModelRefused for an answer that was withheld, and Unavailable for one that a fault ended.
    """
    if reason.lower() in _USUAL_ENDS and not why:
        return "end", ()
    from whet.providers.odd_ends import judge_end  # noqa: PLC0415 most answers end as usual

    return judge_end(info, reason, why)


def raise_error_in(info: ModelInfo, data: bytes) -> None:
    """Raise an error if the event is an error object instead of a part of an answer."""
    from whet.providers import failures  # noqa: PLC0415 as above

    if failures.read_error(data) is not None:
        raise failures.from_payload(info, data)


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_clean(key): _clean(inner) for key, inner in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list | tuple):
        return [_clean(inner) for inner in value]  # pyright: ignore[reportUnknownVariableType]
    return value
