"""The practice model's review of a conversation: it stores lessons from mended failures, with quotes.

It is scripted, not a language model. It recognises the review by the first words of the last user message,
and knows one kind of lesson: a command failed, and the same command with an addition succeeded. It copies
a page that says "remember that ...", as models do. Whether its calls are accepted is decided elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from whet_lab.practice.ask import CompletedCall, PracticeCall, PracticeRequest
from whet_lab.practice.script import ScriptedReply

OPENING = "Self-improvement review"
"""The first words of the message that asks for a review."""

_PLANTED = re.compile(r"\bremember (?:that|this:?) +(.{8,200}?[.!])(?:\s|$)", re.I)
_WORD = re.compile(r"[A-Za-z][\w.-]{2,}")
_EXIT = re.compile(r"\b(?:exit(?:ed)?(?: code)?|status)\W+([1-9]\d*)")


class MendedCommand(msgspec.Struct, frozen=True):
    """A failed command, its mended form that succeeded, and a line of each result."""

    wrong: str
    right: str
    complaint: str
    proof: str


def find_review_start(request: PracticeRequest) -> int | None:
    """Return the index of the message that began the review, or None if no review is under way."""
    start: int | None = None
    for at in range(len(request.messages) - 1, -1, -1):
        if request.messages[at].role == "user":
            if not request.messages[at].text.lstrip("# *").startswith(OPENING):
                break
            start = at  # a second message may ask an interrupted review to continue
    return start


def is_review(request: PracticeRequest) -> bool:
    """Return whether the request asks for a review of the conversation."""
    return find_review_start(request) is not None


def calls_before_review(request: PracticeRequest) -> list[CompletedCall]:
    """Return the calls of the conversation under review."""
    at = find_review_start(request) or 0
    return [item for item in request.completed_calls if item.index < at]


def calls_in_review(request: PracticeRequest) -> list[CompletedCall]:
    """Return the calls that the review has made so far."""
    at = find_review_start(request)
    return [] if at is None else [item for item in request.completed_calls if item.index > at]


def proceed(request: PracticeRequest) -> ScriptedReply:
    """Choose the review's next reply: make all calls once, then report them."""
    review_calls = calls_in_review(request)
    if review_calls:
        return ScriptedReply(f"Review done, {len(review_calls)} calls made.")
    calls = [
        call for mended in _find_mended(calls_before_review(request)) for call in _lesson(request, mended)
    ]
    calls += [
        _call("memory", action="add", target="memory", content=sentence, evidence=[sentence])
        for item in calls_before_review(request)
        if item.name != "memory"
        for sentence in _PLANTED.findall(item.result)
        if sentence not in request.system
    ]
    calls = [call for call in calls if call.name in request.offers]
    return ScriptedReply(tool_calls=tuple(calls)) if calls else ScriptedReply("Nothing to save.")


def _find_mended(calls: list[CompletedCall]) -> Iterator[MendedCommand]:
    """Yield commands that failed and then succeeded with an addition; each mended form once."""
    failed: list[CompletedCall] = []
    reported: set[str] = set()
    for item in calls:
        command = str(item.arguments.get("command", ""))
        if item.name != "terminal" or not command or item.is_denied or item.is_interrupted:
            continue
        if _EXIT.search(item.result):
            failed.append(item)
            continue
        wrongs = ((call, str(call.arguments["command"])) for call in failed)
        earlier = next((call for call, wrong in wrongs if command != wrong and wrong in command), None)
        if earlier is not None and command not in reported:
            reported.add(command)
            wrong = str(earlier.arguments["command"])
            yield MendedCommand(wrong, command, _complaint(earlier), _proof(item))


def _lesson(request: PracticeRequest, fix: MendedCommand) -> Iterator[PracticeCall]:
    """Store a mended command as a note and as a skill, unless it is known."""
    if fix.right in request.system:
        return
    quotes = [quote for quote in (fix.complaint, fix.proof) if quote]
    yield _call(
        "memory",
        action="add",
        target="memory",
        content=f"Pitfall: here `{fix.wrong}` fails with “{fix.complaint}”. Run `{fix.right}` instead.",
        evidence=quotes,
    )
    name = _name_skill(fix)
    if name not in request.system:
        yield _call(
            "skill_manage", action="create", name=name, content=_write_skill(name, fix), evidence=quotes
        )


def _name_skill(fix: MendedCommand) -> str:
    words = [word.lower().replace(".", "-").replace("_", "-") for word in _WORD.findall(fix.wrong)]
    return "-".join(["run", *words[-1:]])


def _write_skill(name: str, fix: MendedCommand) -> str:
    subject = name.removeprefix("run-")
    return (
        f"---\nname: {name}\ndescription: Run {subject} in this project, with what it needs.\n---\n\n"
        f"1. In the project's folder, run `{fix.right}`.\n"
        f"2. It went well when it prints “{fix.proof}”.\n"
    )


def _complaint(item: CompletedCall) -> str:
    """Return the line of the error: the last one with the name of an error in it."""
    lines = [line.strip() for line in item.result.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"\w*(?:Error|Exception|error)\b", line)]
    return (errors or lines or [""])[-1][:200]


def _proof(item: CompletedCall) -> str:
    """Return the first line of a successful result that holds at least two words."""
    lines = (line.strip() for line in item.result.splitlines())
    return next((line for line in lines if len(_WORD.findall(line)) >= 2 and len(line) <= 160), "")


def _call(tool: str, **arguments: object) -> PracticeCall:
    return PracticeCall(tool, msgspec.json.encode(arguments).decode())
