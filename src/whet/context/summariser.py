"""Ask a model for a summary and check the answer. After a failure, say how long to wait before the next
attempt.

This module formats the record of messages for the model, and rejects unusable answers: an empty one, only
thoughts, a web page, a text without the requested sections. The model call is a parameter (`Summarise`).
"""

from __future__ import annotations

import re
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from whet.context import rows as chat
from whet.context.artifacts import read_outcome
from whet.context.summary import split_sections
from whet.contract.context_engine import ChatRow, ChatRows
from whet.contract.errors import (
    AuthRejected,
    BadRequest,
    ConfigError,
    ContextOverflow,
    ModelRefused,
    NotFound,
    QuotaExhausted,
    RateLimited,
    Unavailable,
    WhetError,
    WireError,
)
from whet.contract.tools import clip
from whet.lanes import attempt
from whet.log import mask

FailureKind = Literal[
    "no_provider", "auth", "quota", "timeout", "network", "stream", "empty", "parts", "other"
]
_REST_S: dict[FailureKind, tuple[float, ...]] = {
    "no_provider": (600,),
    "auth": (600,),
    "quota": (600,),
    "timeout": (60, 300, 900),
    "network": (60,),
    "stream": (30,),
    "empty": (60,),
    "parts": (60,),
    "other": (60,),
}
_TEMPORARY: frozenset[FailureKind] = frozenset({"network", "stream", "empty", "parts", "other"})
_KINDS: tuple[tuple[type[Exception], FailureKind], ...] = (
    (ConfigError, "no_provider"),
    (NotFound, "no_provider"),
    (AuthRejected, "auth"),
    (QuotaExhausted, "quota"),
    (RateLimited, "network"),
    (Unavailable, "network"),
    (WireError, "stream"),
    (ContextOverflow, "other"),
    (ModelRefused, "other"),
    (BadRequest, "other"),
    (TimeoutError, "timeout"),
    (OSError, "network"),
    (ValueError, "stream"),
)
_THOUGHTS = re.compile(r"<(think|thinking|reasoning|thought)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"\A```\w*\n(.*)\n```\Z", re.DOTALL)
_HTML = re.compile(r"\s*(?:<\?xml|<!doctype|<html|<head|<body)", re.IGNORECASE)
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_HEADING = re.compile(r"## \d+\. ")
_REFERENCE = re.compile(r"\[#\d+(?:-\d+)?\]")
_NO_PARTS = "the model's answer has not the parts of a summary and is not used"
_CAPS = ((4000, 1500), (2000, 700), (1000, 300), (500, 150), (200, 60), (80, 40), (30, 20))


class Summarise(Protocol):
    """Calls a model from the engine's thread. `messages` holds one user message, as a chat dict."""

    def __call__(self, messages: list[dict[str, Any]], *, max_tokens: int, timeout_s: float) -> str:
        """Return the text of the complete answer, with or without thoughts. May raise WhetError,
        TimeoutError, OSError, ValueError or RuntimeError."""
        ...


class Failure(NamedTuple):
    """Why there is no summary: the kind of failure, and one line for a person."""

    kind: FailureKind
    message: str


class SummaryRequest(NamedTuple):
    """The input for a summary. `previous` is the body of the summary to update, `recent` the person's latest
    words, and `sample` a text in the person's language."""

    rows: ChatRows
    previous: str
    focus: str
    recent: str
    sample: str
    today: date
    budget_tokens: int
    window_tokens: int


def rest_s(kind: FailureKind, before: int) -> float:
    """Return how many seconds to wait after a failure that follows `before` others of the same kind."""
    steps = _REST_S[kind]
    return steps[min(before, len(steps) - 1)]


def ask_for_summary(
    summarise: Summarise, again: Summarise | None, request: SummaryRequest, timeout_s: float
) -> str | Failure:
    """Ask for a summary. After a failure that may be temporary, ask once more, using `again` if there is
    one."""
    # A reasoning model spends output tokens before it writes, so the limit is far above the summary's size.
    max_tokens = min(2 * request.budget_tokens + 4096, max(request.window_tokens // 3, 256))
    messages: list[dict[str, Any]] = [{"role": "user", "content": write_prompt(request, max_tokens)}]
    first = _try(summarise, messages, max_tokens, timeout_s)
    if isinstance(first, str) and not _switched_language(first, request.sample):
        return first
    if isinstance(first, Failure) and again is None and first.kind not in _TEMPORARY:
        return first
    second = _try(again or summarise, messages, max_tokens, timeout_s)
    return first if isinstance(second, Failure) and isinstance(first, str) else second


def clean_answer(text: str) -> str | Failure:
    """Return an answer's text without thoughts and fences, or a Failure if nothing usable is left."""
    if _HTML.match(text):
        return Failure("stream", "the model's server answered with a web page instead of a summary")
    bare = _THOUGHTS.sub("", text)
    if "</think>" in bare:
        bare = bare.rpartition("</think>")[2]
    bare = bare.strip()
    fenced = _FENCE.match(bare)
    bare = fenced[1].strip() if fenced else bare
    if not any(character.isalnum() for character in bare):
        content = "only thoughts" if text.strip() else "nothing"
        return Failure("empty", f"the model answered with {content} instead of a summary")
    return bare


def _is_summary(text: str) -> bool:
    """Return whether a text has requested sections, and its last section is neither empty nor cut off.

    Two sections are enough, or one that refers to a message of the record. A refusal and other prose have
    none.
    """
    sections = [section for section in split_sections(text) if _HEADING.match(section)]
    filled = [section for section in sections if any(map(str.isalnum, section.partition("\n")[2]))]
    if not sections or sections[-1] not in filled or not _is_closed(sections[-1]):
        return False
    titles = _requested_titles()
    matching = [section for section in filled if section.partition("\n")[0].strip() in titles]
    return len(matching) > 1 or (len(matching) == 1 and _REFERENCE.search(matching[0]) is not None)


def _is_closed(section: str) -> bool:
    """Return whether a text does not end inside a reference or a block of code."""
    return "[#" not in section.rpartition("]")[2] and section.count("```") % 2 == 0


@cache
def _requested_titles() -> frozenset[str]:
    return frozenset(line.strip() for line in _template("sections.md").splitlines() if _HEADING.match(line))


def write_prompt(request: SummaryRequest, max_tokens: int) -> str:
    """Return the request as one text that fits the model's window, with secrets masked."""
    focus = f"The person's latest words: {chat.line(mask(request.recent), 700)}" if request.recent else ""
    if request.focus:
        focus = f"Give 60 to 70 % of the space to: {chat.line(mask(request.focus), 700)}. The rest shortly."
    previous = ""
    if request.previous:
        previous = (
            f"\nUpdate this earlier summary: keep what holds, move what got done.\n{request.previous}\n"
        )
    fields = {
        "today": request.today.isoformat(),
        "sample": chat.line(mask(request.sample), 160),
        "words": str(max(request.budget_tokens * 2 // 3, 60)),
        "focus": focus,
        "sections": _list_sections(only_titles=request.window_tokens < 6000),
        "previous": mask(previous),
    }
    template = _template("summary.md")
    used = sum(map(chat.text_tokens, (template, *fields.values())))
    room = request.window_tokens - max_tokens - used - 64
    fields["record"] = write_record(request.rows, max(room, request.window_tokens // 4))
    return _PLACEHOLDER.sub(lambda match: fields[match[1]], template)


def write_record(rows: ChatRows, budget_tokens: int) -> str:
    """Return the rows as numbered text that fits the budget. Long rows are clipped; if that is not enough,
    the middle is left out."""
    names = {call.id: call.name for row in rows for call in chat.calls_of(row)}
    masked = [_mask_row(row, names) for row in rows]
    lines: list[str] = []
    for text_chars, argument_chars in _CAPS:
        lines = [_format_row(row, text_chars, argument_chars) for row in masked]
        if sum(map(chat.text_tokens, lines)) <= budget_tokens:
            return "\n".join(lines)
    head: list[str] = []
    tail: list[str] = []
    half_budget = budget_tokens // 2
    for source, chosen in ((lines, head), (lines[::-1], tail)):
        used = 0
        for text in source:
            used += chat.text_tokens(text) + 1
            if used > half_budget:
                break
            chosen.append(text)
    skipped = len(lines) - len(head) - len(tail)
    return "\n".join((*head, f"[{skipped} messages left out here]", *tail[::-1]))


class _MaskedRow(NamedTuple):
    """A row with its secrets masked: head, text, a note on images, and its calls.

    Rows are masked before they are clipped, because a clipped secret is not recognised, and only once,
    because masking is slow.
    """

    head: str
    text: str
    images: str
    calls: list[tuple[str, str]]


def _mask_row(row: ChatRow, names: dict[str, str]) -> _MaskedRow:
    reference = chat.ref(chat.seq_of(row))
    role = str(row.get("role"))
    if role == "tool":
        name = names.get(str(row.get("tool_call_id")), str(row.get("name") or "tool"))
        outcome = read_outcome(name, row)
        role = f"result of {name}{', ' + outcome if outcome else ''}"
    images = f" [{chat.images_in(row)} images]" if chat.images_in(row) else ""
    calls = [(call.name, mask(call.arguments)) for call in chat.calls_of(row)]
    head = f"[{reference + ' ' if reference else ''}{role}]"
    return _MaskedRow(head, mask(chat.text_of(row)), images, calls)


def _format_row(row: _MaskedRow, text_chars: int, argument_chars: int) -> str:
    text = clip(row.text, text_chars + text_chars * 3 // 8)
    calls = "".join(f"\n  calls {name} {clip(arguments, argument_chars)}" for name, arguments in row.calls)
    return f"{row.head} {text}{row.images}{calls}".replace("</record>", "< /record>")


def _try(
    summarise: Summarise, messages: list[dict[str, Any]], max_tokens: int, timeout_s: float
) -> str | Failure:
    outcome = attempt(lambda: summarise(messages, max_tokens=max_tokens, timeout_s=timeout_s))
    error = outcome.error
    if error is not None:
        kinds: list[FailureKind] = [kind for type_, kind in _KINDS if isinstance(error, type_)]
        kinds.append("other")
        message = error.message if isinstance(error, WhetError) else str(error)
        return Failure(kinds[0], chat.line(mask(message), 300) or type(error).__name__)
    answer = clean_answer(outcome.value or "")
    if isinstance(answer, Failure) or _is_summary(answer):
        return answer
    return Failure("parts", _NO_PARTS)


def _switched_language(summary: str, sample: str) -> bool:
    """Return whether the person writes in a script other than Latin that the summary hardly uses."""
    sample_letters, sample_foreign = _count_letters(sample)
    if sample_letters < 4 or sample_foreign * 2 < sample_letters:
        return False
    letters, foreign = _count_letters(re.sub(r"^## .*$", "", summary, flags=re.M))
    return foreign * 20 < letters


def _count_letters(text: str) -> tuple[int, int]:
    """Return the number of letters, and of those that are not Latin."""
    letters = [character for character in text if character.isalpha()]
    return len(letters), sum(ord(character) > 0x24F for character in letters)


def _list_sections(*, only_titles: bool) -> str:
    text = _template("sections.md")
    return "\n".join(line for line in text.splitlines() if line.startswith("##")) if only_titles else text


@cache
def _template(name: str) -> str:
    return (Path(__file__).parent / "prompts" / name).read_text("utf-8").rstrip() + "\n"
