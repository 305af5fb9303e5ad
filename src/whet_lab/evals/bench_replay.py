"""Converts a Claude Code session to a quotable transcript, and finds the quotes that a text takes from it.

The record is SkillLearnBench's (`claude-code.dataclaw.jsonl`): messages with tool uses, their inputs and
outputs. Tools with a counterpart get this program's names. The task's prompt counts in full as the
person's own message.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from whet.contract.errors import BadInput
from whet.contract.messages import Message, ToolCall
from whet.contract.texts import from_json
from whet.contract.tools import tags_of
from whet.memory.folding import fold
from whet.memory.sources import SourceText, StoredText, read_sources
from whet.memory.transcript import QuotableTranscript
from whet.tools.output import strip_terminal_control

RECORD = "claude-code.dataclaw.jsonl"
_NAMES = {
    "Bash": "terminal",
    "Read": "read_file",
    "Write": "write_file",
    "Edit": "patch",
    "Grep": "search_files",
    "Glob": "search_files",
    "Skill": "skill_view",
    "TodoWrite": "todo",
    "Agent": "delegate_task",
    "WebSearch": "web_search",
}
_FIELDS = {"file_path": "path", "skill": "name"}
_PIECE = re.compile(r"\n|\.\.\.|…")
_WORD = re.compile(r"\S+")
_TRIMMED_CHARS = "\"'`(),;{}[] "
_QUOTE_CHARS_MIN = 10


class _Output(msgspec.Struct):
    text: str = ""


class _Use(msgspec.Struct):
    tool: str
    input: dict[str, Any] = {}
    output: _Output = msgspec.field(default_factory=_Output)
    status: str = ""


class _RecordedMessage(msgspec.Struct):
    role: str
    content: Any = ""
    tool_uses: list[_Use] = []


class _Record(msgspec.Struct):
    messages: list[_RecordedMessage]


def read(prompt: str, record: Path) -> QuotableTranscript:
    """Read a recorded session. Raises BadInput."""
    stored: list[StoredText] = []
    seq = 2
    for line in filter(None, record.read_text("utf-8").split("\n")):
        try:
            messages = from_json(line, _Record).messages
        except msgspec.DecodeError as error:
            raise BadInput(f"{record} is not a recorded session: {error}") from error
        for message in messages:
            for stored_message in _messages(message, seq):
                stored.append(StoredText(seq, 1, stored_message))
                seq += 1
    assert "local" in tags_of(_NAMES["Bash"])
    task = SourceText(1, 1, "user", "user", prompt, fold(prompt))
    return QuotableTranscript("trajectory", [task, *read_sources(stored)])


def _messages(recorded: _RecordedMessage, seq: int) -> list[Message]:
    """Return an answer with its calls and their results. Later user messages of the record are dropped."""
    if recorded.role != "assistant":
        return []
    calls: list[ToolCall] = []
    results: list[Message] = []
    for number, use in enumerate(recorded.tool_uses):
        arguments = {_FIELDS.get(key, key): value for key, value in use.input.items()}
        call = ToolCall(
            f"c{seq}-{number}", _NAMES.get(use.tool, use.tool), msgspec.json.encode(arguments).decode()
        )
        calls.append(call)
        failed = use.status != "success"
        results.append(
            Message(
                "tool",
                strip_terminal_control(use.output.text),
                tool_call_id=call.id,
                tool_name=call.name,
                is_error=failed,
            )
        )
    text = recorded.content if isinstance(recorded.content, str) else ""
    return [Message("assistant", text, tool_calls=tuple(calls)), *results]


def find_quotes(evidence: str, session: QuotableTranscript) -> list[str]:
    """Return the parts of a text that occur verbatim in a session (runs of whole words), longest first."""
    sources = [source.folded for source in session.sources]
    unique_quotes: dict[str, None] = {}
    for piece in _PIECE.split(evidence.replace("\\n", "\n").replace('\\"', '"')):
        words = [match.span() for match in _WORD.finditer(piece)]
        first = 0
        while first < len(words):
            last = first
            while last < len(words) and _occurs(_run(piece, words, first, last), sources):
                last += 1
            if last > first and len(run := _run(piece, words, first, last - 1)) >= _QUOTE_CHARS_MIN:
                unique_quotes[run] = None
            first = max(last, first + 1)
    return sorted(unique_quotes, key=len, reverse=True)


def shows(session: QuotableTranscript, parts: Sequence[str]) -> bool:
    """Return whether one of these parts occurs in the prompt, or in the input or output of a tool."""
    done = [source.folded for source in session.sources if source.role != "assistant" or source.tool]
    return any(_occurs(part, done) for part in parts)


def _run(piece: str, words: Sequence[tuple[int, int]], first: int, last: int) -> str:
    return piece[words[first][0] : words[last][1]].strip(_TRIMMED_CHARS)


def _occurs(text: str, sources: Sequence[str]) -> bool:
    folded = fold(text)
    return any(folded in folded_text for folded_text in sources)
