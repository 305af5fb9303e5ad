"""Derive the facts of a call (edits, command, tests, messages sent) from its tool, arguments and output. They
are stored with its result."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from whet.agent.test_runs import read_counts
from whet.contract.changes import FileEdit, TextChange, hash_bytes
from whet.contract.receipts import HASH_CHARS, CallEffects, FileLines
from whet.contract.texts import subject_of
from whet.contract.tools import Tool, ToolOutput
from whet.file_names import printable

_COMMAND_CHARS = 400
_ABOUT_CHARS = 200
_NEVER_RAN = frozenset({"denied", "bad_input", "unknown_tool", "cancelled"})


def derive_facts(
    tool: Tool,
    arguments: Mapping[str, object],
    output: ToolOutput,
    edits: tuple[FileEdit, ...],
    workspace: Path,
) -> str:
    """Return the call's facts as JSON, or an empty string if it had no effect for the turn's receipt."""
    if output.error_kind in _NEVER_RAN:
        return ""
    is_new_file = len(output.changes) == 1 and output.changes[0].old is None
    lines = tuple(
        FileLines(
            display_name(change, workspace),
            edit.added,
            edit.removed,
            "" if is_new_file else edit.diff,
            change.before[:HASH_CHARS],
            "" if change.new is None else hash_bytes(change.new.encode())[:HASH_CHARS],
        )
        for change, edit in zip(output.changes, edits, strict=True)
    )
    argument = arguments.get("command") if "command" in tool.tags else ""
    command = argument if isinstance(argument, str) else ""
    sent = ""
    sends = "send" in tool.effects or "sends" in tool.tags
    if sends and not tool.tags & {"command", "looks"}:
        sent = subject_of(arguments)[:_ABOUT_CHARS] or tool.name
    process = output.runs_on or output.over
    if not (lines or command or sent or process or output.folder is not None or output.received):
        return ""
    facts = CallEffects(
        edits=lines,
        command=command[:_COMMAND_CHARS],
        tests=read_counts(command, output.text) if command else None,
        sent=sent,
        folder=output.folder,
        pipeline=output.pipeline,
        received=output.received,
        runs_on=output.runs_on,
        over=output.over,
    )
    return msgspec.json.encode(facts).decode()


def display_name(change: TextChange, workspace: Path) -> str:
    """Return the name of a changed file, relative to the workspace if it is inside.

    Bytes that are not UTF-8 are escaped, because they can't be stored.
    """
    if not change.absolute_path:
        return printable(change.path)
    path = os.path.relpath(os.path.realpath(change.absolute_path), os.path.realpath(workspace))
    return printable(change.absolute_path if path.startswith("..") else path)
