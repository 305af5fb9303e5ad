"""Lessons that the session does not support, made from the genuine ones: 200 tries of each of five kinds.

absent: a quote that stands nowhere. own: the assistant said it, nobody else. failed: only a failed result says
so. other: it was said in another session. unrelated: the quote is true and has nothing to do with the claim.
Seeded, so that every run tries the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from benchmarks.lessons import genuine
from benchmarks.lessons.world import Case, Request, Run, Say, Step, User, add
from whet.memory.requests import MemoryRequest

KINDS = ("absent", "own", "failed", "other", "unrelated")
_FILLER = ("I see, go on.", "Good.", "What about the rest?", "Fine, thanks.", "Have a look at the logs then.")
_INVENTED = (
    "The person said that they want this always.",
    "Tests passed with the new flag.",
    "Deployed to production at 14:05.",
    "From here on use the second server.",
    "All 412 checks are green.",
)


def cases(each: int = 200, seed: int = 7) -> list[Case]:
    """Give the whole corpus, `each` tries of every kind."""
    rng = random.Random(seed)
    base = [case for case in genuine.cases() if _plain(case)]
    makers: dict[str, Callable[[Case, Case, random.Random], Case | None]] = {
        "absent": _absent,
        "own": _own,
        "failed": _failed,
        "other": _other,
        "unrelated": _unrelated,
    }
    found: list[Case] = []
    for kind in KINDS:
        found += _draw(kind, makers[kind], base, each, rng)
    return found


def _draw(
    kind: str,
    make: Callable[[Case, Case, random.Random], Case | None],
    base: Sequence[Case],
    each: int,
    rng: random.Random,
) -> Iterator[Case]:
    made = 0
    while made < each:
        case, other = rng.sample(base, 2)
        if (one := make(case, other, rng)) is not None:
            yield replace(one, name=f"{kind}-{made}", family=kind, expect="no")
            made += 1


def _plain(case: Case) -> bool:
    return len(case.tries) == 1 and isinstance(case.tries[0], MemoryRequest) and case.tries[0].action == "add"


def _request(case: Case) -> MemoryRequest:
    request = case.tries[0]
    assert isinstance(request, MemoryRequest)
    return request


def _absent(case: Case, other: Case, rng: random.Random) -> Case:
    """The session is real and the quote is not in it: made up, or a true one with its words changed."""
    request = _request(case)
    quote = rng.choice(request.evidence)
    words = quote.split()
    if len(words) > 3 and rng.random() < 0.6:
        spot = rng.randrange(len(words))
        words[spot] = rng.choice(("never", "always", "9443", "production", "--force"))
        quote = " ".join(words)
    else:
        quote = f"{rng.choice(_INVENTED)} {request.content}"
    return replace(case, tries=[replace_quotes(request, quote)])


def _own(case: Case, other: Case, rng: random.Random) -> Case:
    """The assistant alone says it, in an answer, a file it writes, or what it has the terminal say."""
    request = _request(case)
    said = f"{request.content} {rng.choice(request.evidence)}"
    ways: tuple[list[Step], ...] = (
        [Say(said)],
        [Run("terminal", f"echo '{said}'", said)],
        [
            Run("write_file", {"path": "n.md", "content": said}, "ok"),
            Run("read_file", {"path": "n.md"}, said),
        ],
        [Run("todo", {"items": [{"content": said}]}, said)],
        [Run("memory", {"action": "add", "content": said}, f"Saved: {said}")],
    )
    steps = [User(rng.choice(_FILLER)), *rng.choice(ways), Say("ok"), User(rng.choice(_FILLER)), Say(said)]
    return replace(
        case, steps=steps, tries=[replace_quotes(request, said), replace_quotes(request, request.evidence[0])]
    )


def _failed(case: Case, other: Case, rng: random.Random) -> Case | None:
    """What would be the evidence stands in a failed result, and nowhere else."""
    request = _request(case)
    if request.content.startswith("Pitfall"):
        request = MemoryRequest(
            "add", request.target, request.content.removeprefix("Pitfall: "), evidence=request.evidence[-1:]
        )
    said = f"{request.content}\n" + "\n".join(request.evidence)
    steps = [
        User(rng.choice(_FILLER)),
        Run("terminal", "make thing", f"{said}\nerror: exit 2", ok=False),
        Say("It failed."),
    ]
    pitfall = MemoryRequest("add", "memory", f"Pitfall: {request.content}", evidence=request.evidence)
    return replace(case, steps=steps, tries=[request, pitfall])


def _other(case: Case, other: Case, rng: random.Random) -> Case:
    """The quotes stand in a session that is not the reviewed one."""
    return replace(case, steps=other.steps, before=case.steps, tries=case.tries)


def _unrelated(case: Case, other: Case, rng: random.Random) -> Case | None:
    """The claim is of one session, the true quote of the one that is reviewed."""
    request = _request(case)
    quotes = [
        line.strip()
        for step in other.steps
        for line in (
            step.text if isinstance(step, User) else step.result if isinstance(step, Run) and step.ok else ""
        ).splitlines()
        if len(line.strip()) > 14
    ]
    if not quotes or case.family == other.family == "languages":
        return None
    if rng.random() < 0.2 and (swapped := _swapped(_request(other), rng)):
        return replace(case, steps=other.steps, tries=[swapped])
    if rng.random() < 0.5:  # what is claimed stands in the same session, in other messages
        steps = [*other.steps, *case.steps]
        return replace(case, steps=steps, tries=[replace_quotes(request, *quotes[:1])])
    picked = rng.sample(quotes, min(len(quotes), rng.choice((1, 1, 2))))
    return replace(case, steps=other.steps, tries=[replace_quotes(request, *picked)])


_SWAPS = (
    ("Tuesdays", "Mondays"),
    ("pnpm, not npm", "npm, not pnpm"),
    ("8443", "9443"),
    ("British", "American"),
    ("read-only", "writable"),
    ("before", "after"),
    ("develop, not main", "main, not develop"),
    ("no emojis", "many emojis"),
    ("staging", "production"),
    ("Don't touch", "Always clean up"),
    ("passed", "failed"),
    ("append-only", "mutable"),
    ("60", "80"),
    ("Lisbon", "London"),
    ("20 seconds", "30 seconds"),
    ("Ines", "Tom"),
    ("short", "long"),
    ("day-month-year", "month-day-year"),
    ("finance", "sales"),
)


def _swapped(request: MemoryRequest, rng: random.Random) -> Request | None:
    """The same lesson with one thing in it turned round."""
    fitting = [pair for pair in _SWAPS if pair[0] in request.content]
    if not fitting:
        return None
    old, new = rng.choice(fitting)
    return add(request.content.replace(old, new), *request.evidence, target=request.target)


def replace_quotes(request: MemoryRequest, *quotes: str) -> Request:
    """The same request with other quotes."""
    return add(request.content, *quotes, target=request.target)
