"""Stored sessions for the tests of warm sessions: written through the real log, with results as given."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from tests.support import FixedClock
from whet.contract.messages import Message, ToolCall, Usage
from whet.contract.tools import ToolOutput, ToolSpec
from whet.store.database import StateDatabase
from whet.store.sessions import NewSession
from whet.store.transcript import Transcript

SPECS = tuple(
    ToolSpec(name, f"{name} does.", {"type": "object", "properties": properties})
    for name, properties in (
        ("terminal", {"command": {"type": "string"}, "stdin": {"type": "string"}}),
        ("read_file", {"path": {"type": "string"}, "offset": {"type": "integer"}}),
        ("search_files", {"pattern": {"type": "string"}, "path": {"type": "string"}}),
        ("write_file", {"path": {"type": "string"}, "content": {"type": "string"}}),
        ("patch", {"path": {"type": "string"}, "old_string": {}, "new_string": {}}),
        ("web_fetch", {"url": {"type": "string"}}),
        ("todo", {"items": {}}),
    )
)
TOOLS = {spec.name: spec for spec in SPECS}
_names = iter(range(1 << 60))


@dataclass(frozen=True)
class Did:
    """One call: the tool, its arguments (a text stays as it is), its result, and how it went."""

    name: str
    arguments: dict[str, object] | str
    result: str | None = "fine"
    error_kind: str = ""
    exit_code: int | None = None
    decided_by: str = "rule"

    @property
    def text(self) -> str:
        return (
            self.arguments
            if isinstance(self.arguments, str)
            else msgspec.json.encode(self.arguments).decode()
        )


@dataclass
class Turn:
    """What the person said, and the steps: calls made at once, or what the person typed meanwhile."""

    said: str
    steps: Sequence[Sequence[Did] | str] = field(default_factory=list)
    undone: bool = False


def sh(command: str, result: str = "done", code: int = 0, **more: object) -> Did:
    return Did("terminal", {"command": command}, result, "exit" if code else "", code, **more)  # type: ignore[arg-type]


def read(path: str, result: str = "1|text", kind: str = "") -> Did:
    return Did("read_file", {"path": path}, result, kind)


def steps(*calls: Did) -> list[list[Did]]:
    return [[call] for call in calls]


def store(database: StateDatabase, clock: FixedClock, *turns: Turn, end: str = "", **fields: Any) -> str:
    """Store a session and give its id."""
    return asyncio.run(stored(database, clock, turns, end, **fields))


async def stored(
    database: StateDatabase,
    clock: FixedClock,
    turns: Sequence[Turn],
    end: str = "",
    reason: str = "answered",
    **fields: Any,
) -> str:
    new = NewSession(
        id=str(fields.pop("id", "") or f"s{next(_names):06d}"),
        model="practice",
        tools_json=msgspec.json.encode(fields.pop("specs", SPECS)).decode(),
        **fields,  # type: ignore[arg-type]
    )
    log = await Transcript.create(database, new, clock)
    count = 0
    for turn in turns:
        clock.advance(60)
        open_turn = await log.begin_turn(Message("user", turn.said))
        for calls in turn.steps:
            if isinstance(calls, str):
                await log.append_user(open_turn, Message("user", calls))
                continue
            asked = tuple(ToolCall(f"c{count + n}", did.name, did.text) for n, did in enumerate(calls))
            count += len(calls)
            await log.append_reply(open_turn, Message("assistant", "", asked), Usage(), "practice")
            for did, open_call in zip(calls, log.open_calls(open_turn), strict=True):
                await log.store_call_start(open_turn, open_call, did.decided_by)
                if did.result is None:
                    continue
                output = ToolOutput(did.result, did.error_kind, did.exit_code)
                message = Message(
                    "tool",
                    did.result,
                    tool_call_id=open_call.call.id,
                    tool_name=did.name,
                    is_error=output.is_error,
                )
                await log.store_call_result(open_turn, open_call, message, output=output, duration_s=0.1)
        await log.append_reply(open_turn, Message("assistant", "So it is."), Usage(), "practice")
        await log.end_turn(open_turn, reason if turn is turns[-1] else "answered", "")  # type: ignore[arg-type]
        if turn.undone:
            await log.undo_last_turn()
    if end:
        await log.details.end(end)
    return new.id


def pitfalls(database: StateDatabase, clock: FixedClock, sessions: int = 3, **fields: Any) -> list[str]:
    """Sessions in which a file is looked for in the wrong place first, and found."""
    ids: list[str] = []
    for number in range(sessions):
        turns = [
            Turn(
                f"show me report {number}{turn}",
                steps(
                    read(
                        f"report{number}{turn}.txt", f"report{number}{turn}.txt does not exist", "bad_input"
                    ),
                    read(f"reports/2026/report{number}{turn}.txt", f"1|report {number}{turn} is in"),
                    sh("ls", "a\nb"),
                ),
            )
            for turn in range(3)
        ]
        ids.append(store(database, clock, *turns, **fields))
    return ids


def open_store(folder: Path, clock: FixedClock) -> StateDatabase:
    return StateDatabase.open(folder / "state.db", clock)
