"""`whet skills check NAME`: replay a skill's steps on the sessions that they were taken from."""

from __future__ import annotations

from typing import Any

import apsw
import click

from whet.cli.learned import with_desk
from whet.cli.output import emit, home_and_json
from whet.cli.wording import printable
from whet.config.paths import Home
from whet.contract.errors import NotFound
from whet.memory import skill_store
from whet.memory.cases import Replay, cases_of, replay, steps_of
from whet.memory.desk import LearningService


@click.command("check")
@click.argument("name")
@home_and_json
def skills_check(home: Home, name: str, as_json: bool) -> None:
    """Replay the steps of the skill NAME on the sessions that they were taken from.

    Nothing is run: recorded commands and their results stand for the world. Ends
    with 1 where a step succeeded in none of them, or failed in the newest one
    that has it.
    """

    async def read(desk: LearningService) -> tuple[list[str], list[Replay]]:
        steps = steps_of(skill_store.load(desk.library, name).text)
        trusted = desk.changes.trusted_tools

        def work(connection: apsw.Connection) -> list[Replay]:
            return [replay(steps, case) for case in cases_of(connection, desk.profile, name, trusted)]

        return steps, await desk.database.read(work)

    steps, replays = with_desk(home, read)
    if not steps:
        raise NotFound(f"the skill {name} has no numbered steps", hint=f"whet skills show {name}")
    verdicts = [(step, _verdict(step, replays)) for step in steps]
    is_good = all(verdict == "shown" for _, verdict in verdicts)
    emit(_object(name, verdicts, replays), _lines(verdicts, replays), as_json=as_json)
    if not is_good:
        raise SystemExit(1)


def _verdict(step: str, replays: list[Replay]) -> str:
    for one in reversed(replays):
        if step in one.shown:
            return "shown"
        if step in one.failed:
            return "failed"
    return "no case"


def _object(name: str, verdicts: list[tuple[str, str]], replays: list[Replay]) -> dict[str, Any]:
    return {
        "name": name,
        "steps": [{"step": step, "verdict": verdict} for step, verdict in verdicts],
        "cases": [
            {
                "session_id": one.case.session_id,
                "request": one.case.request,
                "shown": len(one.shown),
                "failed": list(one.failed),
            }
            for one in replays
        ],
    }


def _lines(verdicts: list[tuple[str, str]], replays: list[Replay]) -> str:
    lines = [f"{verdict:<8} {printable(step)}" for step, verdict in verdicts]
    lines += [
        f"case {one.case.session_id}: {len(one.shown)} of {len(verdicts)} steps,"
        f" {printable(one.case.request)[:70]}"
        for one in replays
    ]
    return "\n".join(lines if replays else [*lines, "no case: none of its sessions is there any more"])
