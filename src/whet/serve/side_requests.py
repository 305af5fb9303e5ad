"""Recognise requests that a front end makes for itself: a title, tags, follow-up questions for a
conversation.

They offer no tools, and their last message asks for one of these things about a conversation and names a
form. If the request has no answer in it yet, its other messages and instructions count, too. Such a request
gets a private session, so that the conversation does not change. If a person asks for a title, they are
answered in a private session, too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from whet.serve.content import Utterance, instructions_of

_HEAD_CHARS = 600
_TAIL_CHARS = 400
_MAX_INSTRUCTIONS_CHARS = 4_000
# Open WebUI's words. A person may begin a message with `_TASK`, but rarely uses one of the marks, too.
_TASK = "### Task:"
_TASK_MARKS = ("<chat_history>", "### Guidelines", "### Output", "### **Output")
_ASKS = re.compile(
    r"\b(generate|provide|create|write|give|suggest|come up with|propose|produce|return|choose|extract|output"
    r"|name|label|summari[sz]e|generator)\b",
    re.IGNORECASE,
)
_THING = re.compile(
    r"\b(titles?|headline|name|tags?|keywords?|categor(y|ies)|emojis?|follow[- ]?ups?|next questions?"
    r"|suggested (questions?|replies)|suggestions)\b",
    re.IGNORECASE,
)
_ABOUT = re.compile(
    r"\b(conversations?|chats?|threads?|discussions?|dialog(ue)?s?|sessions?|exchanges?)\b", re.IGNORECASE
)
_FORM = re.compile(
    r"\b(only|nothing else|without|no (quotes?|punctuation|preamble|explanations?)|words?|characters?|concise"
    r"|short|brief|json|at most|max(imum)?)\b",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?<=[.!?:;])\s|\n")


def is_side_request(utterances: Sequence[Utterance], *, has_tools: bool) -> bool:
    """Return whether a front end asks for itself and not for a person."""
    spoken = [utterance for utterance in utterances if utterance.speaker != "system"]
    if has_tools or not spoken or spoken[-1].speaker != "user" or spoken[-1].images or spoken[-1].results:
        return False
    text, instructions = spoken[-1].text, instructions_of(utterances)
    is_unanswered = all(utterance.speaker == "user" for utterance in spoken)
    if is_unanswered:
        text = "\n\n".join(utterance.text for utterance in spoken)
    if is_unanswered and text.lstrip().startswith(_TASK) and any(mark in text for mark in _TASK_MARKS):
        return True
    if not _FORM.search(f"{_request_part(text)}\n{instructions[:_HEAD_CHARS]}"):
        return False
    is_short = len(instructions) <= _MAX_INSTRUCTIONS_CHARS
    return _asks(_request_part(text)) or (is_unanswered and is_short and _asks(instructions[:_HEAD_CHARS]))


def _request_part(text: str) -> str:
    """Return the beginning and the end of a request, which may quote a conversation in its middle."""
    return text if len(text) <= _HEAD_CHARS + _TAIL_CHARS else f"{text[:_HEAD_CHARS]}\n{text[-_TAIL_CHARS:]}"


def _asks(text: str) -> bool:
    """Return whether a sentence asks for a title or the like about a conversation."""
    return any(
        _ASKS.search(sentence) and _THING.search(sentence) and _ABOUT.search(sentence)
        for sentence in _SENTENCE.split(text)
    )
