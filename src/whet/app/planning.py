"""Plan mode, for every interface: the session only reads and makes a plan, and runs it once it is approved.

The plan's steps are the model's todo list, which the person may rewrite. The effects of a step are those of
the calls made while it was in progress. This module does not know how a person is reached.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import apsw
import msgspec

from whet.contract.brought_text import wrap_in_tag
from whet.contract.errors import ConfigError
from whet.contract.tools import tags_of
from whet.store import calls, facts, sessions
from whet.tools.todo import TodoItem, TodoLists
from whet.visible import visible_line

if TYPE_CHECKING:
    from whet.app.services import Services

USAGE = "/plan TEXT begins, /plan shows the steps, /plan steps (one a line) changes them, /plan go, /plan off"
NOTE = (
    "[Plan mode: only read and look now; whatever changes something is denied. Make a plan for what was"
    " asked: write its steps down with todo, and answer with them; the person then decides.]"
)
_LINE_CHARS = 100
_APPROVED = "The plan is approved. Carry it out."
_STEPS = " Keep these steps as your list and mark each one as it is done:\n"
_NUMBER = re.compile(r"^\s*(?:\d+[.)]|[-*•☐]|\[.\])\s*")


class PlanReply(msgspec.Struct, frozen=True):
    """The text for the person, and the next message for the model (empty: no message)."""

    text: str
    message: str = ""


class PlanStep(msgspec.Struct, frozen=True):
    """A step of a session's plan, and the effects of its calls in one line."""

    text: str
    status: str
    effects: str = ""


class PlanState(msgspec.Struct, frozen=True):
    """Whether a session is in plan mode, and its steps."""

    is_planning: bool
    steps: tuple[PlanStep, ...]

    @property
    def lines(self) -> list[str]:
        """The steps as a person reads them."""
        marks = {"completed": "[x]", "in_progress": "[>]", "cancelled": "[-]"}
        return [
            f"{number}. {marks.get(step.status, '[ ]')} {step.text}  {step.effects}".rstrip()
            for number, step in enumerate(self.steps, 1)
        ]


async def set_planning(services: Services, session_id: str, is_on: bool) -> None:
    """Switch plan mode on or off from the next call on. It persists across restarts."""
    services.gate.get().plans.set(session_id, is_on)
    await services.database.write(lambda db: sessions.set_planning(db, session_id, is_on))


async def list_running(services: Services, session_id: str) -> list[str]:
    """Return one line for each background command of the session's person that is running. Plan mode does not
    stop these."""
    if services.processes.processes is None:
        return []
    from whet.tools.session_processes import open_session_processes  # noqa: PLC0415 - only after a command

    processes = await open_session_processes(services.processes, session_id)
    return [
        f"{process.id} still runs and may change files (/jobs stop {process.id} ends it):"
        f" {visible_line(process.command.text, _LINE_CHARS)}"
        for process in processes.list_background()
        if process.is_alive()
    ]


async def read_plan(services: Services, session_id: str) -> PlanState:
    """Return a session's plan: the todo list of this process if the session is open here, else the stored
    one."""

    def read(db: apsw.Connection) -> PlanState:
        items = services.todo_lists.get(session_id)
        effects, stored_items = _read_step_effects(db, session_id)
        steps = tuple(
            PlanStep(item.content, item.status or "pending", effects.get(item.id, ""))
            for item in items or stored_items
        )
        is_planning = services.gate.get().plans.has(session_id) or sessions.is_planning(db, session_id)
        return PlanState(is_planning, steps)

    return await services.database.read(read)


def set_steps(services: Services, session_id: str, lines: list[str]) -> None:
    """Replace the model's steps by the person's. Raises ConfigError if no line holds a step."""
    items = [TodoItem(content=text) for line in lines if (text := _NUMBER.sub("", line).strip())]
    if not items:
        raise ConfigError("there are no steps", hint=USAGE)
    services.todo_lists.update(session_id, items, merge=False)


async def approve_plan(services: Services, session_id: str) -> str:
    """End plan mode, so that the session may carry out its plan; the gate still asks as usual. Returns the
    message for the model."""
    await set_planning(services, session_id, False)
    items = services.todo_lists.get(session_id)
    if not items:
        return _APPROVED
    steps = "\n".join(f"{number}. {item.content}" for number, item in enumerate(items, 1))
    return _APPROVED + _STEPS + wrap_in_tag("plan", steps)


async def run_command(services: Services, session_id: str, argument: str) -> PlanReply:
    """Run the /plan command. Raises ConfigError."""
    word, _, lines = argument.partition("\n")
    if word == "steps":
        set_steps(services, session_id, lines.splitlines())
    elif argument == "go":
        return PlanReply("The plan is carried out.", await approve_plan(services, session_id))
    elif argument == "off":
        await set_planning(services, session_id, False)
        return PlanReply("Planning has ended; nothing was approved.")
    elif argument:
        await set_planning(services, session_id, True)
        text = "It only reads until you approve its plan: /plan go."
        return PlanReply("\n".join((text, *await list_running(services, session_id))), argument)
    plan = await read_plan(services, session_id)
    mode = "planning" if plan.is_planning else "not planning"
    return PlanReply("\n".join([*(plan.lines or ["there are no steps"]), f"({mode}; {USAGE})"]))


def _read_step_effects(connection: apsw.Connection, session_id: str) -> tuple[dict[str, str], list[TodoItem]]:
    """Return the effects of the calls made while each step was in progress, by the step's id, and the todo
    list as the model last wrote it."""
    key = sessions.key_of(connection, session_id)
    names = connection.execute("SELECT DISTINCT name FROM tool_calls WHERE session = ?", (key,))
    if not any("tasks" in tags_of(name) for (name,) in names):
        return {}, []
    fact_rows = facts.list_session_facts(connection, key)
    undone = calls.list_undone_turns(connection, key)
    lists, position = TodoLists(), 0
    by_step: dict[str, list[facts.FactRow]] = {}
    todo_arguments: list[str] = []
    for call in calls.stream_calls(connection, key):
        if not isinstance(call, calls.StoredCall) or call.error_kind:
            continue
        if call.turn in undone or "tasks" not in tags_of(call.name):
            continue
        while position < len(fact_rows) and fact_rows[position].seq < call.seq:
            _add_to_steps(fact_rows[position], lists.get(session_id), by_step)
            position += 1
        todo_arguments.append(call.arguments)
        lists.restore(session_id, todo_arguments)
    for row in fact_rows[position:]:
        _add_to_steps(row, lists.get(session_id), by_step)
    effects = {step_id: " · ".join(facts.sum_up(rows).parts) for step_id, rows in by_step.items()}
    return effects, lists.get(session_id)


def _add_to_steps(row: facts.FactRow, items: list[TodoItem], by_step: dict[str, list[facts.FactRow]]) -> None:
    """Add a call's facts to the steps that are in progress."""
    for item in items:
        if item.status == "in_progress":
            by_step.setdefault(item.id, []).append(row)
