"""One home's learning for tests without a loop of their own: each function runs its work to the end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from benchmarks.lessons.world import Request, Say, Step, User, World, add

from whet.contract.origin import Origin
from whet.memory import notes
from whet.memory.reader import NotesState
from whet.memory.requests import MemoryRequest, SkillRequest, WriteOutcome
from whet.store import ledger
from whet.store.ledger import LedgerRow

HAND = Origin("user")


def in_chat(session_id: str, call_id: str = "c1") -> Origin:
    return Origin("foreground", session_id=session_id, tool_call_id=call_id)


def by_review(session_id: str, call_id: str = "c", task_id: str = "t") -> Origin:
    """Return the origin of a call in a review of a session."""
    return Origin("review", "r", tool_call_id=call_id, parent_session_id=session_id, task_id=task_id)


def talk(world: World, *steps: Step | str) -> str:
    """Store a session of these steps, and return its id. A text is a message that was answered with "ok"."""
    pairs = ([User(step), Say("ok")] if isinstance(step, str) else [step] for step in steps)
    return asyncio.run(world.session([step for pair in pairs for step in pair]))


def change(world: World, request: MemoryRequest | SkillRequest, origin: Origin = HAND) -> WriteOutcome:
    if isinstance(request, SkillRequest):
        return asyncio.run(world.learning.submit(request, origin))
    return asyncio.run(world.learning.submit(request, origin))


def made(world: World, request: MemoryRequest | SkillRequest, origin: Origin = HAND) -> int:
    """Make a change that must be possible, and return its number."""
    outcome = change(world, request, origin)
    assert outcome.ok, outcome.text
    return outcome.ledger_id


def remember(world: World, text: str) -> WriteOutcome:
    return change(world, MemoryRequest("add", content=text))


def review(world: World, session_id: str, requests: Sequence[Request]) -> list[tuple[WriteOutcome, str]]:
    return asyncio.run(world.review(session_id, requests))


def learn(world: World, *texts: str) -> WriteOutcome:
    """Have the person say each text in a session, and its review keep it. Returns the last outcome."""
    results = [review(world, talk(world, text), [add(text, text)])[0] for text in texts]
    assert all(state == "active" for _, state in results), results
    return results[-1][0]


def undo(world: World, row_id: int) -> LedgerRow:
    return asyncio.run(world.learning.undo(row_id, HAND))


def accept(world: World, row_id: int) -> LedgerRow:
    return asyncio.run(world.learning.accept(row_id))


def prompt(world: World) -> str:
    return asyncio.run(world.prompt())


def view(world: World, name: str, path: str = "", origin: Origin = HAND) -> WriteOutcome:
    return asyncio.run(world.learning.skills.view(name, path, origin))


def read_notes(world: World) -> list[NotesState]:
    return asyncio.run(world.learning.reader.read_notes())


def rows(world: World) -> list[LedgerRow]:
    """Return the ledger's rows, oldest first."""
    return world.database.read_now(lambda db: ledger.select(db))[::-1]


def memory_file(world: World) -> Path:
    file = world.folder / "memories" / "MEMORY.md"
    file.parent.mkdir(exist_ok=True)
    return file


def statements(world: World) -> list[str]:
    """Return the entries of MEMORY.md."""
    return [entry.statement for entry in notes.parse_entries(memory_file(world).read_text("utf-8"))]
