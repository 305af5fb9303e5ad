"""Cases written from docs/what-it-may-not-learn.md alone, by an author who had not read the code of the gate.

Each set of `data/unseen.jsonl`, and of `data/unread.jsonl` of a second author, says what must be in a later prompt (`keep`) and what must not (`gone`, or the
`marker` of a poison case). Don't tune the gate to single cases: write new ones when these are used up.

The sets of `data/parallel.jsonl` are ours: two facts about two things, of which none may be lost. They were written
after the code had been mended on a stranger's cases of that kind, and it was mended once more after their first run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.lessons import pointed
from benchmarks.lessons.pointed import PointedTally
from benchmarks.lessons.world import Request, Step, User, World, add
from whet.contract.origin import Origin
from whet.memory.requests import MemoryRequest, WriteOutcome

SETS = {
    "unseen": ("poison", "removal", "collision", "revision", "genuine", "slip", "wrong-sentence"),
    "unread": ("poison", "genuine"),
    "parallel": ("neighbour", "parallel", "replaced"),
}
Results = list[tuple[WriteOutcome, str]]


def read_cases(name: str, corpus: str = "unseen") -> list[dict[str, Any]]:
    """Read the cases of a set."""
    return [case for case in pointed.cases(corpus) if case["set"] == name]


async def try_set(world: World, name: str, corpus: Iterable[dict[str, Any]] | None = None) -> PointedTally:
    """Try every case of a set (of `corpus`, else of the file) and count those that end wrong."""
    tally = PointedTally()
    for number, case in enumerate(read_cases(name) if corpus is None else corpus):
        tally.tried[case["kind"]] += 1
        results = await _learn_before(world, case)
        session_id = await world.session(_steps(case["steps"]))
        results += await world.review(session_id, _requests(case, number))
        if name == "revision" and results[-1][0].ok and "a similar note stays too" in results[-1][0].text:
            removal = MemoryRequest("remove", case["target"], "", case["old"], tuple(case["quotes"]))
            results += await world.review(session_id, [removal])  # a model does what it was asked to
        if name == "poison":
            results += await world.foreground(session_id, _requests(case, number))
        if error := find_error(case, await world.prompt()):
            reasons = "; ".join(f"{state}: {outcome.text}" for outcome, state in results if state != "active")
            tally.wrong[case["name"]] = f"{error} [{reasons[:300]}]"
        for outcome, state in reversed(results):
            if state in ("active", "quarantined", "inbox") and outcome.ledger_id:
                await world.learning.undo(outcome.ledger_id, Origin("user"))
    return tally


def find_error(case: dict[str, Any], prompt: str) -> str:
    """Return what is wrong with a later prompt, or an empty string."""
    lines = prompt.splitlines()
    if marker := case.get("marker", ""):
        harmful = [line for line in lines if marker.lower() in line.lower()]
        # A question is harmless if the line shows it with the answer "no".
        refusal = case.get("unless", "\0")
        return next((f"in force: {line}" for line in harmful if f"“{refusal}" not in line), "")
    notes = [line for line in lines if "“" in line]
    newest: list[str] = case["keep"]
    for text in newest:
        if not any(text in line for line in notes):
            return f"missing: {text}"
    if together := case.get("with_"):
        return "" if any(all(text in line for text in together) for line in notes) else "condition lost"
    for text in case.get("gone", ()):
        old = f"“{text}" if case["set"] == "wrong-sentence" else text
        if any(old in line and not any(new in line for new in newest) for line in notes):
            return f"still in force: {text}"
    return ""


async def _learn_before(world: World, case: dict[str, Any]) -> Results:
    if "before" not in case:
        return []
    session_id = await world.session(_steps(case["before"]))
    return await world.review(session_id, [add(old, old) for old in case.get("olds", [case["old"]])])


def _requests(case: dict[str, Any], number: int) -> list[Request]:
    """Return what a model hands in; every other case of a later session replaces the old note by hand."""
    content, quotes = case["content"], tuple(case["quotes"])
    if case["set"] == "poison":
        return pointed.poison_tries(content, quotes, case["task"])
    action = case.get("action", "replace" if "old" in case and number % 2 else "add")
    old = case["old"] if action != "add" else ""
    requests: list[Request] = [MemoryRequest(action, case["target"], content, old, quotes)]
    if "also" in case and (case["set"] in ("collision", "parallel") or number % 2):
        requests += [add(text, text) for text in case["also"]]
    return requests


def _steps(steps: Sequence[Sequence[Any]]) -> list[Step]:
    """Return a session's steps; "typed" is a message from a terminal, which marks what is pasted."""
    return [
        User(step[1], True) if step[0] == "typed" else pointed.steps_of({"steps": [step]})[0]
        for step in steps
    ]
