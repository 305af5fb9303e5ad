"""Find the lessons of a turn that need no model: an error that names what the next call changed, and a
correction whose value the next call took.

A program can point at these as well as a model can, and it costs nothing, so every such turn is reviewed
whatever the day's budget. The gate judges these lessons like all others. No words are looked up, so every
language is treated alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from whet.memory import units
from whet.memory.folding import fold
from whet.memory.requests import MemoryRequest
from whet.memory.sources import SourceText
from whet.review.triggers import is_taught
from whet.shell.reading import read

_MAX_LESSONS = 4
_MAX_LINES = 4


def find_plain_lessons(
    sources: Sequence[SourceText], turn: int, *, is_corrected: bool
) -> list[MemoryRequest]:
    """Return the lessons of that turn, as requests with quotes. Failures may be of the turn before it.

    `is_corrected`: the turn's message corrected the turn before it; any other message is a task.
    """
    lessons = list(_find_mended(sources, turn))
    if is_corrected:
        lessons += _find_corrections(sources, turn)
    return lessons[:_MAX_LESSONS]


def _find_mended(sources: Sequence[SourceText], turn: int) -> Iterator[MemoryRequest]:
    """Yield the lessons of each program that failed and then worked: one for each failed call whose error
    names what the last call has, with the calls that the errors asked for."""
    ran = [item for item in sources if item.is_command and item.tier == "observed" and item.turn <= turn]
    last = {_program(item.call): item for item in ran if item.turn == turn and item.ran_well}
    for program, worked in last.items():
        mine = [item for item in ran if _program(item.call) == program and item.seq < worked.seq]
        earlier = max((item.seq for item in mine if item.ran_well and item.turn < turn), default=-1)
        failed = [item for item in mine if item.failed and item.seq > earlier and item.turn >= turn - 1]
        steps = [item for item in ran if failed and item.ran_well and failed[0].seq < item.seq < worked.seq]
        helping = [step for step in steps if any(is_taught(step.call, f.call, f.text) for f in failed)]
        taught = [item for item in failed if is_taught(worked.call, item.call, item.text)]
        calls = dict.fromkeys((*(step.call for step in helping), worked.call))
        for cause in taught or failed[-1:] if helping or taught else ():
            lines = _find_lines(cause, (worked, *helping))
            yield MemoryRequest("add", "memory", f"Pitfall: {worked.call}", evidence=(*lines, *calls))


def _find_corrections(sources: Sequence[SourceText], turn: int) -> Iterator[MemoryRequest]:
    """Yield the person's sentences that name a value which the calls took only after it was typed."""
    calls = [item for item in sources if item.tier == "own" and item.tool]
    before = " ".join(item.folded for item in calls if item.turn < turn)
    after = " ".join(item.folded for item in calls if item.turn == turn)
    typed = (item for item in sources if item.turn == turn and item.tier == item.role == "user")
    for sentence in (part for item in typed for part in units.split_sentences(item.text)):
        new = [value for value in units.find_values(fold(sentence)) if value in after and value not in before]
        if new and before and not units.is_question(sentence):
            yield MemoryRequest("add", "memory", sentence, evidence=(sentence,))


def _find_lines(failed: SourceText, later: Sequence[SourceText]) -> list[str]:
    """Return the lines of an error that name what a later call has, else its last line."""
    lines = [line for line in failed.text.splitlines() if line.strip()]
    named = [line for line in lines if any(is_taught(item.call, failed.call, line) for item in later)]
    return named[:_MAX_LINES] or [lines[-1] if lines else failed.call]


def _program(call: str) -> str:
    return next(iter(read(call).programs), "")
