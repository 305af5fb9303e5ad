"""Test a skill against the sessions that its steps came from, without running anything.

A case is the request of a session and the commands that ran there, with their outcomes. In a replay each step
of the procedure must be a command that succeeded in the session, in the procedure's order. A case disappears
when its session is deleted.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import apsw
import msgspec

from whet.contract.errors import NotFound
from whet.memory import entries, transcript, units
from whet.store import ledger, sessions

_STEP = re.compile(r"(?m)^\d+\. (`+)(.+?)\1(?!`)")


class SkillCase(msgspec.Struct, frozen=True):
    """One session as a recorded test. `commands` are in order, each with whether it failed."""

    session_id: str
    request: str
    commands: tuple[tuple[str, bool], ...]


class Replay(msgspec.Struct, frozen=True):
    """The result of replaying a procedure on a case: the steps that succeeded in order, and those that failed
    when last used."""

    case: SkillCase
    shown: tuple[str, ...]
    failed: tuple[str, ...]


def parse_steps(text: str) -> list[str]:
    """Return the commands of a procedure's numbered steps, in order."""
    return [match[2] for match in _STEP.finditer(text)]


def is_new_procedure(before: str, after: str) -> bool:
    """Return whether a change alters the steps, or their order, of a skill that already had steps."""
    return bool(parse_steps(before)) and parse_steps(before) != parse_steps(after)


def load_cases(
    connection: apsw.Connection, profile: str, name: str, trusted_tools: Collection[str] = ()
) -> list[SkillCase]:
    """Return the cases of a skill, oldest first: the sessions that its active changes cite as evidence.

    Private and deleted sessions are skipped.
    """
    from whet.memory.taint import strip_talk, why_not_own  # noqa: PLC0415 - settling needs the steps of a text only

    rows = ledger.select(connection, profile=profile, kind="skill", item=name, states=("active",))
    ids = dict.fromkeys(quote.session_id for row in reversed(rows) for quote in row.evidence)
    cases: list[SkillCase] = []
    for session_id in filter(None, ids):
        try:
            if sessions.get(connection, session_id).private:
                continue
            session = transcript.load_transcript(connection, session_id, trusted_tools)
        except NotFound:
            continue
        # A call that repeats untrusted text may have worked, but is not a step of a procedure.
        commands = tuple(
            (" ".join(strip_talk(source).split()), source.failed)
            for source in session.list_results()
            if source.failed or (source.ran_well and not why_not_own(source, session))
        )
        request = next((source.text for source in session.sources if source.tier == "user"), "")
        cases.append(SkillCase(session_id, units.split_sentences(request)[0] if request else "", commands))
    return cases


def replay(steps: Sequence[str], case: SkillCase) -> Replay:
    """Replay a procedure on a case's recorded commands."""
    succeeded: list[str] = []
    failed: list[str] = []
    position = 0
    for step in steps:
        matches = [
            index
            for index, (command, _) in enumerate(case.commands)
            if command == step or entries.restore_placeholders(step, command)
        ]
        successes = [index for index in matches if not case.commands[index][1] and index >= position]
        if successes:
            succeeded.append(step)
            position = successes[0] + 1
        elif matches and case.commands[matches[-1]][1]:
            failed.append(step)
    return Replay(case, tuple(succeeded), tuple(failed))
