"""Real conversations in a real database, as the loop stores them."""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tests.support import FixedClock
from whet.contract.messages import Message, ToolCall, Usage
from whet.contract.tools import ToolOutput
from whet.store.database import StateDatabase
from whet.store.sessions import NewSession
from whet.store.transcript import Transcript

USAGE = Usage(
    prompt_tokens=900, completion_tokens=100, total_tokens=1000, input_tokens=900, output_tokens=100
)


@dataclass(frozen=True)
class Said:
    """One turn: the question, perhaps one tool call with its result, the answer."""

    question: str
    answer: str
    command: str = ""
    result: str = ""
    error_kind: str = ""


def store(
    home: Path, clock: FixedClock, title: str, *turns: Said, private: bool = False, workspace: str = ""
) -> str:
    """Store a session and give its id."""
    home.mkdir(exist_ok=True, mode=0o700)
    with closing(StateDatabase.open(home / "state.db", clock)) as database:
        new = NewSession(
            id=clock.new_id(),
            title=title,
            model="practice",
            provider="practice",
            private=private,
            workspace=workspace,
        )
        asyncio.run(_store(database, clock, new, turns))
        return new.id


async def _store(
    database: StateDatabase, clock: FixedClock, new: NewSession, turns: tuple[Said, ...]
) -> None:
    log = await Transcript.create(database, new, clock)
    for said in turns:
        clock.advance(60)
        turn = await log.begin_turn(Message("user", said.question))
        if said.command:
            call = ToolCall(id=clock.new_id(), name="terminal", arguments=f'{{"command": "{said.command}"}}')
            await log.append_reply(turn, Message(role="assistant", tool_calls=(call,)), USAGE, "practice")
            for open_call in log.open_calls(turn):
                await log.store_call_start(turn, open_call, "rule")
                result = Message(
                    role="tool",
                    content=said.result,
                    tool_call_id=call.id,
                    tool_name=call.name,
                    is_error=bool(said.error_kind),
                )
                output = ToolOutput(said.result, error_kind=said.error_kind)
                await log.store_call_result(turn, open_call, result, output=output, duration_s=0.5)
        await log.append_reply(turn, Message("assistant", said.answer), USAGE, "practice")
        await log.end_turn(turn, "answered", "")
