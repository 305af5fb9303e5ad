"""Replay transcripts of agents through the check on repeated calls, and print the turns that it would stop.

    python -m benchmarks.repetition --folder TRANSCRIPTS

Reads every `.json`, `.jsonl` and `.traj` file below the folder: chat messages with tool calls, messages of
mini-swe-agent with a command in each answer, trajectories of SWE-agent and events of OpenHands. A replay
knows no changes of files and no durations, so it stops at least what Whet would stop. Whether a stop was a
loop is for a person to judge. The transcripts come from other agents, so it is no row of the results.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

from whet.agent.repeated_calls import note_repetition, stop_repetition
from whet.contract.errors import Rambled
from whet.contract.messages import Message, ToolCall
from whet.contract.tools import ToolOutput

_Row: TypeAlias = Mapping[str, Any]
_COMMAND = re.compile(r"```\S*\n(.*?)\n```", re.DOTALL)
_NOTE = "\n\n[Whet: this call came "
_SHOWN_CHARS = 160


class RecordedCall(NamedTuple):
    """A call of a transcript with its result."""

    name: str
    arguments: str
    result: str


Transcript: TypeAlias = list[list[RecordedCall]]
"""The calls of each reply; an empty reply stands for a message of a person."""


class Replay(NamedTuple):
    """What the check did in a transcript: notes for the model, and the call that it was stopped at."""

    calls: int
    notes: int
    stopped_at: int = 0
    stopped: RecordedCall | None = None


def replay(transcript: Transcript) -> Replay:
    """Pass the calls through the check until it ends the turn."""
    messages: list[Message] = [Message(role="user", content="go")]
    steps = calls = notes = 0
    for reply in transcript:
        steps += 1
        if not reply:
            messages.append(Message(role="user", content="go on"))
            continue
        asked = tuple(ToolCall(f"{calls + n}", call.name, call.arguments) for n, call in enumerate(reply))
        messages.append(Message(role="assistant", content="", tool_calls=asked))
        for tool_call, call in zip(asked, reply, strict=True):
            calls += 1
            text = note_repetition(messages, tool_call.id, ToolOutput(call.result), 0.0, steps, lambda: 0)
            notes += _NOTE in text
            messages.append(
                Message(role="tool", content=text, tool_call_id=tool_call.id, tool_name=call.name)
            )
            try:
                stop_repetition(messages)
            except Rambled:
                return Replay(calls, notes, steps, call)
    return Replay(calls, notes)


def read_folder(folder: Path) -> Iterator[tuple[str, Transcript]]:
    """Yield the transcripts below a folder that hold calls, each with its name."""
    for path in sorted(folder.rglob("*")):
        if path.suffix not in {".json", ".jsonl", ".traj"} or not path.is_file():
            continue
        for number, document in enumerate(_read_documents(path)):
            transcript = read_transcript(document)
            if any(transcript):
                yield f"{path.relative_to(folder)}:{number}", transcript


def _read_documents(path: Path) -> list[Any]:
    text = path.read_text("utf-8", "replace")
    try:
        if path.suffix == ".jsonl":
            return [json.loads(line) for line in text.splitlines() if line.strip()]
        value = json.loads(text)
    except ValueError:
        return []
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def read_transcript(document: object) -> Transcript:
    """Return the calls of a document in one of the known forms, or an empty list."""
    if not isinstance(document, dict):
        return []
    fields = cast("_Row", document)
    if rows := _rows_of(fields, "trajectory"):
        return [[RecordedCall("run", str(row.get("action")), str(row.get("observation")))] for row in rows]
    if rows := _rows_of(fields, "history"):
        return _read_events(rows)
    for name in ("messages", "traj"):
        if rows := _rows_of(fields, name):
            has_calls = any(row.get("tool_calls") for row in rows)
            return _read_messages(rows) if has_calls else _read_commands(rows)
    return []


def _rows_of(fields: _Row, name: str) -> list[_Row]:
    rows: Any = fields.get(name)
    is_rows = isinstance(rows, list) and all(isinstance(row, dict) for row in cast("list[Any]", rows))
    return cast("list[_Row]", rows) if is_rows else []


def _read_messages(rows: Sequence[_Row]) -> Transcript:
    """Read chat messages, in which each call of an answer has a message with its result."""
    results = {row["tool_call_id"]: str(row.get("content")) for row in rows if row.get("tool_call_id")}
    replies: Transcript = []
    for row in rows:
        if row.get("role") == "user":
            replies.append([])
        elif row.get("tool_calls"):
            functions = [(call["function"], results.get(call["id"], "")) for call in row["tool_calls"]]
            replies.append([RecordedCall(one["name"], one["arguments"], text) for one, text in functions])
    return replies


def _read_commands(rows: Sequence[_Row]) -> Transcript:
    """Read answers with a command each, whose output is the next message."""
    replies: Transcript = []
    for row, following in pairwise(rows):
        match = _COMMAND.search(str(row.get("content"))) if row.get("role") == "assistant" else None
        if match is not None and following.get("role") == "user":
            replies.append([RecordedCall("run", match[1], str(following.get("content")))])
    return replies


def _read_events(rows: Sequence[_Row]) -> Transcript:
    """Read events, of which an observation names the call and the answer that it belongs to."""
    observations: list[tuple[str, RecordedCall]] = []
    for row in rows:
        metadata = row.get("tool_call_metadata")
        if "observation" not in row or not metadata:
            continue
        answer = metadata["model_response"]
        asked: list[_Row] = answer["choices"][0]["message"]["tool_calls"] or []
        functions: dict[str, _Row] = {call["id"]: call["function"] for call in asked}
        function = functions.get(metadata["tool_call_id"], {"name": "", "arguments": ""})
        call = RecordedCall(function["name"], function["arguments"], str(row.get("content")))
        observations.append((answer["id"], call))
    return [[call for _, call in group] for _, group in groupby(observations, key=lambda item: item[0])]


def main() -> None:
    """Replay the transcripts of a folder and print each stop."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    transcripts = calls = notes = stops = 0
    for name, transcript in read_folder(parser.parse_args().folder):
        result = replay(transcript)
        transcripts, calls, notes = transcripts + 1, calls + result.calls, notes + bool(result.notes)
        if result.stopped is not None:
            stops += 1
            call = result.stopped
            print(f"{name}: stopped at reply {result.stopped_at} of {len(transcript)}")
            print(f"  {call.name} {call.arguments[:_SHOWN_CHARS]!r}\n  -> {call.result[:_SHOWN_CHARS]!r}")
    print(f"{transcripts} transcripts, {calls:,} calls, {notes} with a note, {stops} stopped")


if __name__ == "__main__":
    main()
