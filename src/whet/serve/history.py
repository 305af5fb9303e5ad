"""Compute the fingerprint of a client's conversation, and convert it to a session's first messages.

A client that names no session sends the whole conversation each time: its next request begins with this one
and its answer. The fingerprint ignores spaces, line ends and how the words of one speaker are split into
messages, because frameworks join and trim them. It ignores the marks around documents, which are new in each
request. Two conversations with the same fingerprint may still be different ones: `identity.py` decides.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from whet.contract.brought_text import drop_marks
from whet.contract.messages import Message, Part, TextPart, Usage
from whet.serve.client_tools import CallResult
from whet.serve.content import Speaker, Utterance, instructions_of
from whet.store.bulk import PastMessage

_IMAGES = "[images]"
_NO_RESULT = "The program that this conversation comes from gave no result for this call."


def fingerprint(
    utterances: Sequence[Utterance], answer: str = "", owner: str = "", *, has_all: bool = True
) -> str:
    """Return the fingerprint of a conversation up to its last answer, or an empty string if it has no answer.

    With `answer`, the fingerprint covers the whole conversation and that answer. `owner` is the client that
    sends it. `has_all` False: only words and images count, not instructions, calls and results.
    """
    spoken = list(utterances)
    if answer:
        spoken.append(Utterance("assistant", answer))
    else:
        while spoken and spoken[-1].speaker != "assistant":
            spoken.pop()
    digest = hashlib.sha256(f"{owner}\0{has_all}".encode("utf-8", "replace"))
    last_speaker: Speaker | None = None
    if has_all:
        digest.update(drop_marks(instructions_of(spoken)).encode("utf-8", "replace"))
    for message in spoken:
        if has_all and message.speaker != "system":
            for text in _calls_of(message):
                digest.update(hashlib.sha256(text.encode("utf-8", "replace")).digest())
        if message.speaker == "system" or message.results:
            continue
        words = "".join(drop_marks(message.text).split())
        if message.speaker != last_speaker and (words or message.images):
            last_speaker = message.speaker
            digest.update(f"\0{last_speaker}\0".encode())
        digest.update(words.encode("utf-8", "replace"))
        for image in message.images:
            digest.update(hashlib.sha256(image.data_base64.encode()).digest())
    return f"tip:{digest.hexdigest()[:40]}" if last_speaker is not None else ""


def _calls_of(utterance: Utterance) -> Iterator[str]:
    for call in utterance.calls:
        yield f"call\0{call.id}\0{call.name}\0{''.join(call.arguments.split())}"
    for result in utterance.results:
        yield f"result\0{result.call_id}\0{result.is_error}\0{''.join(drop_marks(result.text).split())}"
        yield from (image.data_base64 for image in result.images)


def to_past_messages(utterances: Sequence[Utterance], now_ms: int) -> Iterator[PastMessage]:
    """Yield a history as messages to store: each answer, then its results in the order of its calls."""
    for index, utterance in enumerate(utterances):
        if utterance.speaker == "assistant":
            # No model server accepts images from an assistant.
            words = utterance.text or ("" if utterance.calls or not utterance.images else _IMAGES)
            yield PastMessage(Message("assistant", words, utterance.calls), now_ms, Usage())
            results = _results_after(utterances, index)
            for call in utterance.calls:
                result = results.get(call.id)
                is_error = result is None or result.is_error
                text = _NO_RESULT if result is None else result.text
                content = (TextPart(text), *result.images) if result and result.images else text
                message = Message(
                    "tool",
                    content,
                    tool_call_id=call.id,
                    tool_name=call.name,
                    is_error=is_error,
                    origin="brought",
                )
                kind = "interrupted" if result is None else "failed" if is_error else ""
                yield PastMessage(message, now_ms, error_kind=kind)
        elif utterance.speaker == "user" and (utterance.text or utterance.images):
            yield PastMessage(Message("user", _content(utterance)), now_ms, Usage())


def _results_after(utterances: Sequence[Utterance], index: int) -> dict[str, CallResult]:
    results: dict[str, CallResult] = {}
    for utterance in utterances[index + 1 :]:
        if utterance.speaker == "assistant":
            break
        results |= {result.call_id: result for result in utterance.results}
    return results


def _content(utterance: Utterance) -> str | tuple[Part, ...]:
    return (TextPart(utterance.text), *utterance.images) if utterance.images else utterance.text
