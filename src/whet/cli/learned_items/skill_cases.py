"""`whet skills check NAME`: replay a skill's steps on the sessions that they were taken from."""

from __future__ import annotations

from typing import Any

import apsw
import click

from whet.cli.learned_items.changes import with_learning
from whet.config.paths import Home
from whet.contract.errors import NotFound
from whet.memory import skill_store
from whet.memory.cases import Replay, load_cases, parse_steps, replay
from whet.memory.service import LearningService
from whet.terminal.output import emit, home_and_json
from whet.terminal.wording import printable


@click.command("check")
@click.argument("name")
@home_and_json
def skills_check(home: Home, name: str, as_json: bool) -> None:
    """Replay the steps of the skill NAME on the sessions that they were taken from.

    Nothing is run: recorded commands and their results are used instead. Ends with 1 if a step succeeded
    in none of them, or failed in the newest one that has it.
    """

    async def read(learning: LearningService) -> tuple[list[str], list[Replay]]:
        steps = parse_steps(skill_store.load(learning.library, name).text)
        trusted = learning.changes.trusted_tools

        def replay_all(connection: apsw.Connection) -> list[Replay]:
            return [replay(steps, case) for case in load_cases(connection, learning.profile, name, trusted)]

        return steps, await learning.database.read(replay_all)

    steps, replays = with_learning(home, read)
    if not steps:
        raise NotFound(f"the skill {name} has no numbered steps", hint=f"whet skills show {name}")
    verdicts = [(step, _verdict(step, replays)) for step in steps]
    is_good = all(verdict == "shown" for _, verdict in verdicts)
    emit(_as_object(name, verdicts, replays), _describe(verdicts, replays), as_json=as_json)
    if not is_good:
        raise SystemExit(1)


def _verdict(step: str, replays: list[Replay]) -> str:
    """Return the verdict of the newest case that has the step."""
    for case_replay in reversed(replays):
        if step in case_replay.shown:
            return "shown"
        if step in case_replay.failed:
            return "failed"
    return "no case"


def _as_object(name: str, verdicts: list[tuple[str, str]], replays: list[Replay]) -> dict[str, Any]:
    return {
        "name": name,
        "steps": [{"step": step, "verdict": verdict} for step, verdict in verdicts],
        "cases": [
            {
                "session_id": case_replay.case.session_id,
                "request": case_replay.case.request,
                "shown": len(case_replay.shown),
                "failed": list(case_replay.failed),
            }
            for case_replay in replays
        ],
    }


def _describe(verdicts: list[tuple[str, str]], replays: list[Replay]) -> str:
    lines = [f"{verdict:<8} {printable(step)}" for step, verdict in verdicts]
    lines += [
        f"case {case_replay.case.session_id}: {len(case_replay.shown)} of {len(verdicts)} steps,"
        f" {printable(case_replay.case.request)[:70]}"
        for case_replay in replays
    ]
    return "\n".join(lines if replays else [*lines, "no case: none of its sessions is there any more"])
