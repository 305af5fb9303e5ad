"""A client's whole conversation: by what it is known again, and how it becomes a session's beginning.

A client that names no session sends everything each time. What it will send next begins with what it sent
now and what it was answered, and that is what a session is found by. Spaces and line ends are left out, and
so is how the words of one speaker are split into messages: frameworks join and trim them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from whet.contract.messages import Message, Part, TextPart, Usage
from whet.serve.client_tools import CallResult
from whet.serve.content import Utterance
from whet.store.bulk import PastMessage

_IMAGES = "[images]"
_NO_RESULT = "The program that this conversation comes from gave no result for this call."


def fingerprint(said: Sequence[Utterance], answer: str = "") -> str:
    """Give the key of a conversation up to the last answer in it; empty where there is none.

    With `answer`: of the whole conversation with that answer behind it.
    """
    spoken = list(said)
    if answer:
        spoken.append(Utterance("assistant", answer))
    else:
        while spoken and spoken[-1].speaker != "assistant":
            spoken.pop()
    digest, before = hashlib.sha256(), ""
    for one in spoken:
        if one.speaker == "system" or one.results:
            continue
        words = "".join(one.text.split())
        if one.speaker != before and (words or one.images):
            before = one.speaker
            digest.update(f"\0{before}\0".encode())
        digest.update(words.encode("utf-8", "replace"))
        for image in one.images:
            digest.update(hashlib.sha256(image.data_base64.encode()).digest())
    return f"tip:{digest.hexdigest()[:40]}" if before else ""


def as_past(said: Sequence[Utterance], now_ms: int) -> Iterator[PastMessage]:
    """Give a history as it is stored: each answer's results behind it, in the order of its calls."""
    for at, one in enumerate(said):
        if one.speaker == "assistant":
            # No server takes images that an assistant gave.
            words = one.text or ("" if one.calls or not one.images else _IMAGES)
            yield PastMessage(Message("assistant", words, one.calls), now_ms, Usage())
            given = _results_after(said, at)
            for call in one.calls:
                found = given.get(call.id)
                is_error = found is None or found.is_error
                text = _NO_RESULT if found is None else found.text
                content = (TextPart(text), *found.images) if found and found.images else text
                message = Message(
                    "tool", content, tool_call_id=call.id, tool_name=call.name, is_error=is_error
                )
                kind = "interrupted" if found is None else "failed" if is_error else ""
                yield PastMessage(message, now_ms, error_kind=kind)
        elif one.speaker == "user" and (one.text or one.images):
            yield PastMessage(Message("user", _content(one)), now_ms, Usage())


def _results_after(said: Sequence[Utterance], at: int) -> dict[str, CallResult]:
    found: dict[str, CallResult] = {}
    for one in said[at + 1 :]:
        if one.speaker == "assistant":
            break
        found |= {result.call_id: result for result in one.results}
    return found


def _content(one: Utterance) -> str | tuple[Part, ...]:
    return (TextPart(one.text), *one.images) if one.images else one.text
