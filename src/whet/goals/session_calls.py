"""Read the calls of a goal's session, with the present state of the files that they ran on."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import apsw
import msgspec

from whet.contract.tools import tags_of
from whet.goals import base as goal_base
from whet.goals.claims import GoalCall, add_later_changes, join_facts, text_arguments
from whet.goals.test_proof import last_change_s, new_program, rerunnable_part, run_folder
from whet.rewind.recordings import Recordings
from whet.store import calls, facts, sessions
from whet.store.goals import GoalRow

_HIT = re.compile(r"\s*\d+\|")


def goal_calls(connection: apsw.Connection, session_id: str) -> list[GoalCall]:
    """Return the calls of a goal's session that were not undone."""
    key = sessions.key_of(connection, session_id)
    undone = calls.list_undone_turns(connection, key)
    stored = [call for call in calls.stream_calls(connection, key) if call.turn not in undone]
    return join_facts(stored, facts.list_session_facts(connection, key))


async def add_current_state(
    recordings: Recordings, workspace: Path, goal: GoalRow, recorded: Sequence[GoalCall]
) -> list[GoalCall]:
    """Add the present state of the workspace to the calls, for comparison with the state at the end of each
    command.

    A background process, a helper or a person may change files outside of any call. Calls that ran tests
    also get the program that runs them; calls that read a file get its present text.
    """
    steps = {call.step for call in recorded if call.facts.command and call.exit_code == 0}
    updated = add_later_changes(recorded, await recordings.changed_since(workspace, goal.session, steps))
    return await asyncio.to_thread(_add_programs, updated, workspace, goal)


def _add_programs(recorded: Sequence[GoalCall], workspace: Path, goal: GoalRow) -> list[GoalCall]:
    begun_s, folder = datetime.fromisoformat(goal.begun).timestamp(), workspace
    updated: list[GoalCall] = []
    for call in recorded:
        arguments = text_arguments(call.arguments)
        command = arguments.get("command", "") if call.facts.command else ""
        inside = workspace / arguments["workdir"] if arguments.get("workdir") else folder
        part = rerunnable_part(command, inside)
        reads = {"path", "local"} <= tags_of(call.name) and not call.changed_paths
        now = (
            goal_base.read_text(workspace / arguments["path"], workspace) or None
            if reads and "path" in arguments
            else None
        )
        unfit = (
            _read_objection(call, workspace, begun_s)
            if reads
            else _run_objection(part or command, inside, workspace, begun_s)
        )
        updated.append(msgspec.structs.replace(call, unfit=unfit, alone=part, now=now))
        folder = workspace / call.facts.folder if call.facts.folder is not None else folder
    return updated


def _run_objection(command: str, folder: Path, workspace: Path, begun_s: float) -> str:
    """Return why the tests that a command ran prove nothing (a new runner, or another folder), or an empty
    string."""
    if new := new_program(command, folder, begun_s):
        return f"{new} was made or changed during the goal, it is not a known test runner"
    ran_in = run_folder(command, folder).resolve()
    return "" if ran_in.is_relative_to(workspace.resolve()) else f"{ran_in} is not the workspace"


def _read_objection(call: GoalCall, workspace: Path, begun_s: float) -> str:
    """Return why a file proves nothing if it was read, or found by a search, but was written since the goal
    began."""
    names = [text_arguments(call.arguments).get("path", "")]
    if "search" in tags_of(call.name):
        names += [line for line in call.result.splitlines() if not _HIT.match(line)]
    new_name = next((name for name in names if name and last_change_s(workspace / name) > begun_s), "")
    return (
        f"{new_name} was made or changed during the goal: it shows only what was written" if new_name else ""
    )
