"""Sessions as evidence, built from a few lines: the real sources, transcript and gate, without a store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from benchmarks.lessons.world import Run, Say, Step, User

from whet.contract.messages import Message, ToolCall
from whet.memory.gate import judge
from whet.memory.requests import Claim, GateVerdict, Refused
from whet.memory.sources import SourceText, StoredText, read_sources
from whet.memory.transcript import Passage, QuotableTranscript
from whet.store.ledger import Kind


def stored(steps: Sequence[Step]) -> list[StoredText]:
    """Give the messages that a session of these steps stores, with their numbers and turns."""
    rows: list[StoredText] = []
    turn = 0
    for step in steps:
        if isinstance(step, User):
            turn += 1
            rows.append(
                StoredText(
                    len(rows) + 1, turn, Message("user", step.text, origin="typed" if step.is_typed else "")
                )
            )
        elif isinstance(step, Say):
            rows.append(StoredText(len(rows) + 1, turn, Message("assistant", step.text)))
        else:
            call = ToolCall(f"c{len(rows)}", step.tool, json.dumps(step.given))
            rows.append(StoredText(len(rows) + 1, turn, Message("assistant", "", tool_calls=(call,))))
            result = Message(
                "tool", step.result, tool_call_id=call.id, tool_name=step.tool, is_error=not step.ok
            )
            rows.append(StoredText(len(rows) + 1, turn, result))
    return rows


def said_by(steps: Sequence[Step], **more: Any) -> list[SourceText]:
    """Give the sources of a session of these steps."""
    return read_sources(stored(steps), **more)


def session(*steps: Step) -> QuotableTranscript:
    return QuotableTranscript("s", said_by(steps))


def verdict(
    steps: Sequence[Step],
    text: str,
    *quotes: str,
    kind: Kind = "memory",
    known: str = "",
    existing: tuple[str, ...] = (),
    foreground: bool = False,
) -> GateVerdict | str:
    claim = Claim(kind, text, quotes, known, existing)
    try:
        return judge(claim, session(*steps), foreground=foreground)
    except Refused as error:
        return f"{error.message} / {error.hint}"


def accepted(steps: Sequence[Step], text: str, *quotes: str, **more: Any) -> GateVerdict:
    """Return the verdict on a claim that must not be refused."""
    given = verdict(steps, text, *quotes, **more)
    assert isinstance(given, GateVerdict), given
    return given


def locate(seen: QuotableTranscript, quote: str, **more: bool) -> Passage:
    """Return the passage that a quote must point at."""
    passage = seen.find_passage(quote, **more)
    assert passage is not None
    return passage


def trust(steps: Sequence[Step], text: str, *quotes: str, **more: Any) -> str:
    """Give the trust of what is kept ("quarantined" for what is not trusted), or why it is refused."""
    found = verdict(steps, text, *quotes, **more)
    if isinstance(found, str):
        return found
    return "quarantined" if found.trust == "untrusted" else found.trust


def shell(command: str, result: str = "done", *, ok: bool = True) -> Run:
    """A command that the assistant ran."""
    return Run("terminal", command, result, ok)
