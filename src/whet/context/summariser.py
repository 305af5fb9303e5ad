"""Asks a model for a summary and checks the answer; after a failure, sets how long to wait before the next
attempt.

The call is injected: `summarise(messages, max_tokens=..., timeout_s=...)` returns text or raises. This
module formats the record and rejects unusable answers (empty, only thoughts, a web page, a text without
the requested parts). The compressor decides how a failure affects the conversation.
"""

from __future__ import annotations

import re
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from whet.context import rows as chat
from whet.context.artifacts import read_outcome
from whet.context.summary import sections
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
_AGAIN: frozenset[FailureKind] = frozenset({"network", "stream", "empty", "parts", "other"})
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
_PLACE = re.compile(r"\{(\w+)\}")
_HEADING = re.compile(r"## \d+\. ")
_REFERENCE = re.compile(r"\[#\d+(?:-\d+)?\]")
_NO_PARTS = "the model's answer has not the parts of a summary and is not used"
_CAPS = ((4000, 1500), (2000, 700), (1000, 300), (500, 150), (200, 60), (80, 40), (30, 20))


class Summarise(Protocol):
    """Calls a model from the engine's thread.

    The composition root passes a function that runs the call on the host's event loop
    (`asyncio.run_coroutine_threadsafe(...).result(timeout_s)`). `messages` are chat dicts: one user
    message. Returns the answer's text, with or without thoughts. May raise any WhetError, TimeoutError,
    OSError, ValueError or RuntimeError.
    """

    def __call__(self, messages: list[dict[str, Any]], *, max_tokens: int, timeout_s: float) -> str:
        """Ask, and wait for the whole answer."""
        ...


class Failure(NamedTuple):
    """Why there is no summary: the kind of failure, and one line for a person."""

    kind: FailureKind
    message: str


class SummaryRequest(NamedTuple):
    """The input for a summary. `previous` is the body of the summary to update."""

    rows: ChatRows
    previous: str
    focus: str
    recent: str
    sample: str
    today: date
    budget_tokens: int
    window_tokens: int


def rest_s(kind: FailureKind, before: int) -> float:
    """Return how long to wait after a failure, in seconds. `before`: failures of the same kind in a row
    before it."""
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
    if isinstance(first, Failure) and again is None and first.kind not in _AGAIN:
        return first
    second = _try(again or summarise, messages, max_tokens, timeout_s)
    return first if isinstance(second, Failure) and isinstance(first, str) else second


def clean_answer(text: str) -> str | Failure:
    """Return an answer's text without thoughts and fences, or why it is not usable."""
    if _HTML.match(text):
        return Failure("stream", "the model's server answered with a web page instead of a summary")
    bare = _THOUGHTS.sub("", text)
    if "</think>" in bare:
        bare = bare.rpartition("</think>")[2]
    bare = bare.strip()
    fenced = _FENCE.match(bare)
    bare = fenced[1].strip() if fenced else bare
    if not any(character.isalnum() for character in bare):
        why = "only thoughts" if text.strip() else "nothing"
        return Failure("empty", f"the model answered with {why} instead of a summary")
    return bare


def _has_parts(text: str) -> bool:
    """Return whether a text consists of the requested sections, none of them cut off or empty.

    Two are enough, or one whose items refer to messages of the record. A refusal, a remark on the next
    steps and other prose have none.
    """
    pieces = [piece for piece in sections(text) if _HEADING.match(piece)]
    titles = _asked_titles()
    filled = [piece for piece in pieces if any(map(str.isalnum, piece.partition("\n")[2]))]
    matching = [piece for piece in filled if piece.partition("\n")[0].strip() in titles]
    is_complete = bool(pieces) and pieces[-1] in filled and _is_closed(pieces[-1])
    return is_complete and (
        len(matching) > 1 or (len(matching) == 1 and _REFERENCE.search(matching[0]) is not None)
    )


def _is_closed(piece: str) -> bool:
    """Return whether a text does not end inside a reference or a block of code."""
    return "[#" not in piece.rpartition("]")[2] and piece.count("```") % 2 == 0


@cache
def _asked_titles() -> frozenset[str]:
    return frozenset(line.strip() for line in _template("sections.md").splitlines() if _HEADING.match(line))


def write_prompt(request: SummaryRequest, max_tokens: int) -> str:
    """Return the request as one text, with secrets masked, that fits the window of the model that reads
    it."""
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
        "sections": _sections(short=request.window_tokens < 6000),
        "previous": mask(previous),
    }
    template = _template("summary.md")
    used = sum(map(chat.text_tokens, (template, *fields.values())))
    room = request.window_tokens - max_tokens - used - 64
    fields["record"] = write_record(request.rows, max(room, request.window_tokens // 4))
    return _PLACE.sub(lambda found: fields[found[1]], template)


def write_record(rows: ChatRows, budget_tokens: int) -> str:
    """Return the rows as numbered text that fits the budget: each row is clipped, and if needed the middle is
    left out."""
    names = {call.id: call.name for row in rows for call in chat.calls_of(row)}
    masked = [_mask_row(row, names) for row in rows]
    lines: list[str] = []
    for text_chars, argument_chars in _CAPS:
        lines = [_line(row, text_chars, argument_chars) for row in masked]
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


class _Masked(NamedTuple):
    """A row with its secrets masked: head, text, a note on images, and its calls.

    Masking whole texts is slow, and a clipped secret is not recognised, so it is done once and before any
    cut.
    """

    head: str
    text: str
    images: str
    calls: list[tuple[str, str]]


def _mask_row(row: ChatRow, names: dict[str, str]) -> _Masked:
    reference = chat.ref(chat.seq_of(row))
    role = str(row.get("role"))
    if role == "tool":
        name = names.get(str(row.get("tool_call_id")), str(row.get("name") or "tool"))
        outcome = read_outcome(name, row)
        role = f"result of {name}{', ' + outcome if outcome else ''}"
    images = f" [{chat.images_in(row)} images]" if chat.images_in(row) else ""
    calls = [(call.name, mask(call.arguments)) for call in chat.calls_of(row)]
    return _Masked(f"[{reference + ' ' if reference else ''}{role}]", mask(chat.text_of(row)), images, calls)


def _line(row: _Masked, text_chars: int, argument_chars: int) -> str:
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
    usable = isinstance(answer, Failure) or _has_parts(answer)
    return answer if usable else Failure("parts", _NO_PARTS)


def _switched_language(summary: str, sample: str) -> bool:
    """Return whether the person writes in a script that the summary hardly uses."""
    theirs = [character for character in sample if character.isalpha()]
    foreign = sum(ord(character) > 0x24F for character in theirs)
    if len(theirs) < 4 or foreign * 2 < len(theirs):
        return False
    letters = [character for character in re.sub(r"^## .*$", "", summary, flags=re.M) if character.isalpha()]
    return sum(ord(character) > 0x24F for character in letters) * 20 < len(letters)


def _sections(*, short: bool) -> str:
    text = _template("sections.md")
    return "\n".join(line for line in text.splitlines() if line.startswith("##")) if short else text


@cache
def _template(name: str) -> str:
    return (Path(__file__).parent / "prompts" / name).read_text("utf-8").rstrip() + "\n"
