"""Read the calls of a goal's session, with changes of the workspace since each call."""

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
from whet.goals.test_proof import (
    find_new_program,
    find_run_folder,
    make_test_command,
    read_change_time_s,
)
from whet.rewind.recordings import Recordings
from whet.store import calls, facts, sessions
from whet.store.goals import GoalRow

_HIT = re.compile(r"\s*\d+\|")


def list_goal_calls(connection: apsw.Connection, session_id: str) -> list[GoalCall]:
    """Return the calls of a goal's session that were not undone."""
    key = sessions.key_of(connection, session_id)
    undone = calls.list_undone_turns(connection, key)
    stored = [call for call in calls.stream_calls(connection, key) if call.turn not in undone]
    return join_facts(stored, facts.list_session_facts(connection, key))


async def add_current_state(
    recordings: Recordings, workspace: Path, goal: GoalRow, recorded: Sequence[GoalCall]
) -> list[GoalCall]:
    """Return the calls with the files that changed after each, which also a background process, a helper or a
    person may have changed. Calls that ran tests get the command to run these again, and calls that read a
    file its present text."""
    steps = {call.step for call in recorded if call.facts.command and call.exit_code == 0}
    updated = add_later_changes(recorded, await recordings.changed_since(workspace, goal.session, steps))
    return await asyncio.to_thread(_add_objections, updated, workspace, goal)


def _add_objections(recorded: Sequence[GoalCall], workspace: Path, goal: GoalRow) -> list[GoalCall]:
    begun_s, shell_folder = datetime.fromisoformat(goal.begun).timestamp(), workspace
    updated: list[GoalCall] = []
    for call in recorded:
        arguments = text_arguments(call.arguments)
        command = arguments.get("command", "") if call.facts.command else ""
        folder = workspace / arguments["workdir"] if arguments.get("workdir") else shell_folder
        test_command = make_test_command(command, folder)
        present_text = None
        if {"path", "local"} <= tags_of(call.name) and not call.changed_paths:
            reason = _read_objection(call, workspace, begun_s)
            if "path" in arguments:
                present_text = goal_base.read_text(workspace / arguments["path"], workspace) or None
        else:
            reason = _run_objection(test_command or command, folder, workspace, begun_s)
        updated.append(
            msgspec.structs.replace(
                call, unfit_reason=reason, test_command=test_command, present_text=present_text
            )
        )
        if call.facts.folder is not None:
            shell_folder = workspace / call.facts.folder
    return updated


def _run_objection(command: str, folder: Path, workspace: Path, begun_s: float) -> str:
    """Return why the tests that a command ran prove nothing (a new runner, or a folder outside of the
    workspace), or an empty string."""
    if program := find_new_program(command, folder, begun_s):
        return f"{program} was made or changed during the goal, it is not a known test runner"
    test_folder = find_run_folder(command, folder).resolve()
    return "" if test_folder.is_relative_to(workspace.resolve()) else f"{test_folder} is not the workspace"


def _read_objection(call: GoalCall, workspace: Path, begun_s: float) -> str:
    """Return why a call that read or searched files proves nothing (a file was written since the goal began),
    or an empty string."""
    names = [text_arguments(call.arguments).get("path", "")]
    if "search" in tags_of(call.name):
        names += [line for line in call.result.splitlines() if not _HIT.match(line)]
    for name in names:
        if name and read_change_time_s(workspace / name) > begun_s:
            return f"{name} was made or changed during the goal: it shows only what was written"
    return ""
