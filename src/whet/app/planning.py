"""Plan mode, for every interface: a session only reads, writes down steps, and carries them out once they are
approved.

The steps are the model's todo list, which the person may rewrite. The effects of each step are read from
the calls made while it was in progress. This module does not know how a person is reached.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import apsw
import msgspec

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

    said: str
    sends: str = ""


class PlanStep(msgspec.Struct, frozen=True):
    """A step of a session's plan, and the effects of its calls in one line."""

    text: str
    status: str
    done: str = ""


class PlanState(msgspec.Struct, frozen=True):
    """Whether a session is in plan mode, and its steps."""

    planning: bool
    steps: tuple[PlanStep, ...]

    @property
    def lines(self) -> list[str]:
        """The steps as a person reads them."""
        marks = {"completed": "[x]", "in_progress": "[>]", "cancelled": "[-]"}
        return [
            f"{number}. {marks.get(step.status, '[ ]')} {step.text}" + (f"  {step.done}" if step.done else "")
            for number, step in enumerate(self.steps, 1)
        ]


async def set_planning(services: Services, session_id: str, on: bool) -> None:
    """Switch plan mode on or off from the next call on. It persists across restarts."""
    services.gate.get().plans.set(session_id, on)
    await services.database.write(lambda db: sessions.set_planning(db, session_id, on))


def list_running(services: Services) -> list[str]:
    """Return one line for each background command that is running. Plan mode does not stop these."""
    processes = services.processes.made
    running = processes.list_background() if processes is not None else []
    return [
        f"{process.id} still runs and may change files (/jobs stop {process.id} ends it):"
        f" {visible_line(process.command.text, _LINE_CHARS)}"
        for process in running
        if process.is_alive()
    ]


async def read_plan(services: Services, session_id: str) -> PlanState:
    """Return a session's plan: the list of this process if the session is open here, else the stored one."""

    def read(db: apsw.Connection) -> PlanState:
        items = services.todo_lists.get(session_id)
        done, stored = _read_step_effects(db, session_id)
        steps = tuple(
            PlanStep(item.content, item.status or "pending", done.get(item.id, ""))
            for item in items or stored
        )
        return PlanState(
            services.gate.get().plans.has(session_id) or sessions.is_planning(db, session_id), steps
        )

    return await services.database.read(read)


def set_steps(services: Services, session_id: str, lines: list[str]) -> None:
    """Replace the model's steps by the person's. Raises ConfigError if there are none."""
    items = [TodoItem(content=text) for line in lines if (text := _NUMBER.sub("", line).strip())]
    if not items:
        raise ConfigError("there are no steps", hint=USAGE)
    services.todo_lists.update(session_id, items, merge=False)


async def approve_plan(services: Services, session_id: str) -> str:
    """End plan mode, so that the session may carry out its plan (actions still ask as usual). Returns the
    message for the model."""
    await set_planning(services, session_id, False)
    items = services.todo_lists.get(session_id)
    return _APPROVED + (
        _STEPS + "\n".join(f"{n}. {item.content}" for n, item in enumerate(items, 1)) if items else ""
    )


async def run_command(services: Services, session_id: str, argument: str) -> PlanReply:
    """Run the /plan command. Raises ConfigError."""
    word, _, more = argument.partition("\n")
    if word == "steps":
        set_steps(services, session_id, more.splitlines())
    elif argument == "go":
        return PlanReply("The plan is carried out.", await approve_plan(services, session_id))
    elif argument == "off":
        await set_planning(services, session_id, False)
        return PlanReply("Planning has ended; nothing was approved.")
    elif argument:
        await set_planning(services, session_id, True)
        text = "It only reads until you approve its plan: /plan go."
        return PlanReply("\n".join((text, *list_running(services))), argument)
    now = await read_plan(services, session_id)
    head = "planning" if now.planning else "not planning"
    return PlanReply("\n".join([*(now.lines or ["there are no steps"]), f"({head}; {USAGE})"]))


def _read_step_effects(connection: apsw.Connection, session_id: str) -> tuple[dict[str, str], list[TodoItem]]:
    """Return the effects of the calls made while each step was in progress, by the step's id, and the list as
    the model last wrote it."""
    key = sessions.key_of(connection, session_id)
    names = connection.execute("SELECT DISTINCT name FROM tool_calls WHERE session = ?", (key,))
    if not any("tasks" in tags_of(name) for (name,) in names):
        return {}, []
    fact_rows = facts.list_session_facts(connection, key)
    undone = calls.list_undone_turns(connection, key)
    lists, by_step, at = TodoLists(), dict[str, list[facts.FactRow]](), 0
    stored = [item for item in calls.stream_calls(connection, key) if isinstance(item, calls.StoredCall)]
    todo_arguments: list[str] = []
    for call in stored:
        if call.turn in undone or "tasks" not in tags_of(call.name) or call.error_kind:
            continue
        while at < len(fact_rows) and fact_rows[at].seq < call.seq:
            _add_to_steps(fact_rows[at], lists.get(session_id), by_step)
            at += 1
        todo_arguments.append(call.arguments)
        lists.restore(session_id, todo_arguments)
    for row in fact_rows[at:]:
        _add_to_steps(row, lists.get(session_id), by_step)
    done = {step: " · ".join(facts.sum_up(rows).parts) for step, rows in by_step.items()}
    return done, lists.get(session_id)


def _add_to_steps(row: facts.FactRow, items: list[TodoItem], by_step: dict[str, list[facts.FactRow]]) -> None:
    for item in items:
        if item.status == "in_progress":
            by_step.setdefault(item.id, []).append(row)
