"""The trail of a conversation: files read and changed, commands with their exit codes, and addresses.

It is collected from the tool calls, without a model. Each summary contains it as a separate block, newest
first; entries that no longer fit can be found with recall.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from whet.context import rows as chat
from whet.contract.context_engine import ChatRow, ChatRows
from whet.contract.tools import tags_of
from whet.log import mask
from whet.store.trail import Kind, find_touched_items

TITLE = "## Trail (newest first)"
_VALUE_CHARS = 300
_LABELS: dict[Kind, str] = {"changed": "changed", "read": "read", "command": "ran", "url": "opened"}
_KINDS: dict[str, Kind] = {label: kind for kind, label in _LABELS.items()}
_LINE = re.compile(r"- (changed|read|ran|opened) (.+?)(?: -> (exit -?\d+|failed))?(?: \[#(\d+)\])?$")
_EXIT = re.compile(r"\[(?:no output, )?exit (-?\d+)")
_OLDER_LINE = "- older ones: recall with ref files, commands or urls"


class TrailEntry(msgspec.Struct, frozen=True):
    """One line of the trail. `value` is the file, command or address, `seq` the message number."""

    kind: Kind
    value: str
    outcome: str = ""
    seq: int = 0


def collect(rows: ChatRows) -> list[TrailEntry]:
    """Return the trail of the calls in a paired list, oldest first."""
    entries: list[TrailEntry] = []
    results = {str(row.get("tool_call_id")): row for row in rows if row.get("role") == "tool"}
    for row in rows:
        for call in chat.calls_of(row):
            outcome = read_outcome(call.name, results.get(call.id))
            seq = chat.seq_of(row)
            for item in find_touched_items(call.name, call.arguments):
                value = chat.line(mask(item.value), _VALUE_CHARS)
                entries.append(TrailEntry(item.kind, value, outcome if item.kind == "command" else "", seq))
    return entries


def read_outcome(tool: str, result: ChatRow | None) -> str:
    """Return "exit N" for a command's result, or an empty string for other results."""
    if result is None:
        return ""
    match = _EXIT.search(chat.text_of(result)[-400:])
    if match:
        return f"exit {match[1]}"
    return "exit 0" if "command" in tags_of(tool) else ""


def merge(old: Iterable[TrailEntry], new: Iterable[TrailEntry]) -> list[TrailEntry]:
    """Merge two trails, oldest first. Each file, command or address is listed once, at its newest position. A
    changed file that is read later stays "changed"."""
    merged: dict[tuple[str, str], TrailEntry] = {}
    for entry in (*old, *new):
        key = ("file" if entry.kind in ("changed", "read") else entry.kind, entry.value)
        earlier = merged.pop(key, None)
        if earlier is not None and earlier.kind == "changed" and entry.kind == "read":
            entry = msgspec.structs.replace(entry, kind="changed")
        merged[key] = entry
    return list(merged.values())


def render(entries: list[TrailEntry], budget_tokens: int) -> str:
    """Return the trail's block within the budget, newest first. Changed files take precedence over others."""
    if not entries:
        return ""
    newest = entries[::-1]
    tokens_left = budget_tokens - chat.text_tokens(TITLE) - chat.text_tokens(_OLDER_LINE)
    chosen_ids: set[int] = set()
    for entry in sorted(newest, key=lambda entry: entry.kind != "changed"):
        tokens = chat.text_tokens(_format(entry)) + 1
        if tokens <= tokens_left:
            tokens_left -= tokens
            chosen_ids.add(id(entry))
    lines = [TITLE, *(_format(entry) for entry in newest if id(entry) in chosen_ids)]
    if len(chosen_ids) < len(entries):
        lines.append(_OLDER_LINE)
    return "\n".join(lines)


def parse(block: str) -> list[TrailEntry]:
    """Return the entries of a block that `render` wrote, oldest first. Other lines are ignored."""
    entries: list[TrailEntry] = []
    for text in block.splitlines():
        match = _LINE.match(text)
        if match and text != _OLDER_LINE:
            label, value, outcome, seq = match.groups()
            entries.append(TrailEntry(_KINDS[label], value, outcome or "", int(seq or 0)))
    return entries[::-1]


def _format(entry: TrailEntry) -> str:
    outcome = f" -> {entry.outcome}" if entry.outcome else ""
    reference = f" [{chat.ref(entry.seq)}]" if entry.seq else ""
    return f"- {_LABELS[entry.kind]} {entry.value}{outcome}{reference}"
