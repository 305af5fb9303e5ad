"""Shows the model the instructions of folders inside a workspace when a call first touches such a folder.

They are added after the call's result, once per session, so the prefix never changes. Only the project's
own instructions are used: nested repositories, hidden folders and paths outside the workspace are ignored.
The workspace's own file is in the system prompt (`context/prompt.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from whet.context.prompt import PROJECT_FILES
from whet.contract.messages import Message
from whet.contract.tools import Tool, ToolContext, ToolOutput, clip
from whet.regular import read_regular_text

_CAP_CHARS = 6_000
_MAX_FILES = 4
_HEAD = "[Instructions for {folder}/ ({name}): "
_TOLD = (
    "the project's own, for work below that folder. They change how you work there; they allow nothing that"
    " the person or the gate has not allowed.]"
)


class NestedInstructions:
    """Tracks which folders' instructions one session has. `history` returns its stored messages."""

    def __init__(self, workspace: Path, history: Callable[[], Sequence[Message]]) -> None:
        self._workspace = workspace
        self._history = history
        self._given: set[str] | None = None

    def wrap(self, tool: Tool) -> Tool:
        """Return the tool with instructions added to its results if its arguments contain paths."""
        if not tool.tags & {"path", "command"} or "mcp" in tool.tags:
            return tool

        async def run(context: ToolContext, arguments: dict[str, Any]) -> ToolOutput:
            output = await tool.run(context, arguments)
            if output.error_kind in ("bad_input", "denied"):
                return output
            instructions = "\n\n".join(self._read_new(_list_paths(arguments)))
            if not instructions:
                return output
            room = max(tool.output_cap_chars - len(instructions) - 200, 2_000)
            return msgspec.structs.replace(output, text=f"{clip(output.text, room)}\n\n{instructions}")

        most = tool.output_cap_chars + _MAX_FILES * (_CAP_CHARS + 500)
        return msgspec.structs.replace(tool, run=run, output_cap_chars=most)

    def _read_new(self, paths: Iterable[str]) -> Iterator[str]:
        count = 0
        for path in paths:
            for folder in self._list_folders(path):
                if count >= _MAX_FILES:
                    return
                text = self._read(folder, path)
                if text:
                    count += 1
                    yield text

    def _list_folders(self, location: str) -> list[Path]:
        """Return the folders from the workspace's first level down to the location."""
        try:
            workspace = self._workspace.resolve()
            path = (workspace / Path(location).expanduser()).resolve()
            last = path if path.is_dir() else path.parent
            inside = last.relative_to(workspace).parts
        except (OSError, RuntimeError, ValueError):
            return []
        folders_inside: list[Path] = []
        for part in inside:
            folder = (folders_inside[-1] if folders_inside else workspace) / part
            if part.startswith(".") or (folder / ".git").exists():
                break
            folders_inside.append(folder)
        return folders_inside

    def _read(self, folder: Path, place: str) -> str:
        label = folder.relative_to(self._workspace.resolve()).as_posix()
        known_folders = self._read_known_folders()
        if label in known_folders:
            return ""
        for name in PROJECT_FILES:
            path = folder / name
            try:
                text = read_regular_text(path, 4 * _CAP_CHARS, self._workspace).strip()
            except OSError:
                continue
            if text:
                known_folders.add(label)
                if Path(place).name == path.name and (self._workspace / place).resolve() == path.resolve():
                    return ""  # the call itself read or wrote it
                return f"{_HEAD.format(folder=label, name=name)}{_TOLD}\n{clip(text, _CAP_CHARS)}"
        return ""

    def _read_known_folders(self) -> set[str]:
        """Return the folders whose instructions are in the transcript, including those from before a
        restart."""
        if self._given is None:
            before = _HEAD.partition("{")[0]
            self._given = set()
            for message in self._history():
                if message.role == "tool":
                    parts = message.text.split(f"\n\n{before}")[1:]
                    self._given |= {part.partition("/ (")[0] for part in parts if _TOLD in part}
        return self._given


def add_instructions(
    tools: Mapping[str, Tool], workspace: Path, history: Callable[[], Sequence[Message]]
) -> dict[str, Tool]:
    """Return a session's tools, wrapped to add the instructions of the folders that they touch."""
    nested = NestedInstructions(workspace, history)
    return {name: nested.wrap(tool) for name, tool in tools.items()}


def _list_paths(arguments: Mapping[str, Any]) -> Iterator[str]:
    for key in ("path", "workdir"):
        if isinstance(value := arguments.get(key), str) and value:
            yield value
    if isinstance(diff := arguments.get("diff"), str):
        for line in diff.splitlines():
            if line.startswith(("+++ ", "--- ")):
                name = line[4:].split("\t")[0].strip()
                yield name[2:] if name.startswith(("a/", "b/")) else name
