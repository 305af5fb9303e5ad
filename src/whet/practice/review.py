"""The practice model's review of a conversation: it stores lessons from mended failures, with quotes.

It is scripted, not a language model. It recognises the review by the first words of the last user message,
and knows one kind of lesson: a command failed, and the same command with an addition succeeded. It copies
a page that says "remember that ...", as models do. Whether its calls are accepted is decided elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from whet.practice.ask import DoneCall, PracticeCall, PracticeRequest
from whet.practice.script import ScriptedReply

OPENING = "Self-improvement review"
"""The first words of the message that asks for a review."""

_PLANTED = re.compile(r"\bremember (?:that|this:?) +(.{8,200}?[.!])(?:\s|$)", re.I)
_WORD = re.compile(r"[A-Za-z][\w.-]{2,}")
_EXIT = re.compile(r"\b(?:exit(?:ed)?(?: code)?|status)\W+([1-9]\d*)")


class Mended(msgspec.Struct, frozen=True):
    """A failed command, its mended form that succeeded, and a line of each result."""

    wrong: str
    right: str
    complaint: str
    proof: str


def review_at(ask: PracticeRequest) -> int | None:
    """Return the index of the message that began the review, or None if no review is under way."""
    start: int | None = None
    for at in range(len(ask.heard) - 1, -1, -1):
        if ask.heard[at].role == "user":
            if not ask.heard[at].text.lstrip("# *").startswith(OPENING):
                break
            start = at  # a second message may ask an interrupted review to continue
    return start


def is_review(ask: PracticeRequest) -> bool:
    """Return whether the request asks for a review of the conversation."""
    return review_at(ask) is not None


def heard_before(ask: PracticeRequest) -> list[DoneCall]:
    """Return the calls of the conversation under review."""
    at = review_at(ask) or 0
    return [item for item in ask.done if item.at < at]


def made_since(ask: PracticeRequest) -> list[DoneCall]:
    """Return the calls that the review has made so far."""
    at = review_at(ask)
    return [] if at is None else [item for item in ask.done if item.at > at]


def proceed(ask: PracticeRequest) -> ScriptedReply:
    """Choose the review's next reply: make all calls once, then report them."""
    review_calls = made_since(ask)
    if review_calls:
        return ScriptedReply(f"Review done, {len(review_calls)} calls made.")
    calls = [call for mended in _mended(heard_before(ask)) for call in _lesson(ask, mended)]
    calls += [
        _call("memory", action="add", target="memory", content=sentence, evidence=[sentence])
        for item in heard_before(ask)
        if item.name != "memory"
        for sentence in _PLANTED.findall(item.result)
        if sentence not in ask.system
    ]
    calls = [call for call in calls if call.name in ask.offers]
    return ScriptedReply(tool_calls=tuple(calls)) if calls else ScriptedReply("Nothing to save.")


def _mended(done: list[DoneCall]) -> Iterator[Mended]:
    """Yield commands that failed and then succeeded with an addition; each mended form once."""
    failed: list[DoneCall] = []
    reported: set[str] = set()
    for item in done:
        command = str(item.arguments.get("command", ""))
        if item.name != "terminal" or not command or item.denied or item.interrupted:
            continue
        if _EXIT.search(item.result):
            failed.append(item)
            continue
        wrongs = ((call, str(call.arguments["command"])) for call in failed)
        earlier = next((call for call, wrong in wrongs if command != wrong and wrong in command), None)
        if earlier is not None and command not in reported:
            reported.add(command)
            wrong = str(earlier.arguments["command"])
            yield Mended(wrong, command, _complaint(earlier), _proof(item))


def _lesson(ask: PracticeRequest, found: Mended) -> Iterator[PracticeCall]:
    """Store a mended command as a note and as a skill, unless it is known."""
    if found.right in ask.system:
        return
    quotes = [quote for quote in (found.complaint, found.proof) if quote]
    yield _call(
        "memory",
        action="add",
        target="memory",
        content=f"Pitfall: here `{found.wrong}` fails with “{found.complaint}”. Run `{found.right}` instead.",
        evidence=quotes,
    )
    name = _name(found)
    if name not in ask.system:
        yield _call("skill_manage", action="create", name=name, content=_skill(name, found), evidence=quotes)


def _name(found: Mended) -> str:
    words = [word.lower().replace(".", "-").replace("_", "-") for word in _WORD.findall(found.wrong)]
    return "-".join(["run", *words[-1:]])


def _skill(name: str, found: Mended) -> str:
    subject = name.removeprefix("run-")
    return (
        f"---\nname: {name}\ndescription: Run {subject} in this project, with what it needs.\n---\n\n"
        f"1. In the project's folder, run `{found.right}`.\n"
        f"2. It went well when it prints “{found.proof}”.\n"
    )


def _complaint(item: DoneCall) -> str:
    """Return the line of the error: the last one with the name of an error in it."""
    lines = [line.strip() for line in item.result.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"\w*(?:Error|Exception|error)\b", line)]
    return (errors or lines or [""])[-1][:200]


def _proof(item: DoneCall) -> str:
    """Return the first line of a successful result that holds at least two words."""
    lines = (line.strip() for line in item.result.splitlines())
    return next((line for line in lines if len(_WORD.findall(line)) >= 2 and len(line) <= 160), "")


def _call(tool: str, **arguments: object) -> PracticeCall:
    return PracticeCall(tool, msgspec.json.encode(arguments).decode())
