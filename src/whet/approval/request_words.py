"""Word what only the gate knows of a question: what a call does, why it asks, what takes it back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath
from urllib.parse import urlsplit

from whet.approval.actions import ActionView
from whet.approval.risk import Shown
from whet.contract.changes import TextChange
from whet.contract.protocols import GateCall
from whet.contract.texts import join_names
from whet.contract.tools import Tool
from whet.sandbox.policy import Opening, shorten
from whet.visible import visible_line

_MAX_PROGRAMS, _MAX_NAME_CHARS = 4, 80
_OUTPUT = ">"
_WORD = re.compile(r"[\w./~+@:=%,$*?-]+")
_REWIND = "/rewind (shell: whet rewind) undoes this and Whet's later changes, not yours"
_ELSEWHERE = "not possible outside"
_UNRECORDED = "not possible: Whet does not record files here"


def describe_intent(call: GateCall, action: ActionView, openings: Sequence[Opening]) -> str:
    """Return what a call that shows no change does, as the end of "Whet wants to"."""
    tags, name = call.tool.tags, call.tool.name
    if "command" in tags:
        return _describe_command(action, openings)
    if "url" in tags:
        return f"read a page of {urlsplit(action.full_text).hostname or 'an address'}"
    if "path" in tags:
        return f"{'change' if 'edits' in tags else 'read'} {action.full_text}"
    if "mcp" in tags:
        _, server, tool = name.split("__", 2)
        return f"use the tool {tool} of the MCP server {server}"
    return f"use the tool {name}"


def _describe_command(action: ActionView, openings: Sequence[Opening]) -> str:
    """Return the programs of a command, the files that its output goes to, and what its sandbox blocks."""
    programs = {
        piece.program.rsplit("/", 1)[-1]
        for piece in action.pieces
        if piece.program not in ("", _OUTPUT) and "=" not in piece.text.split(" ", 1)[0]
    }
    names = [_quote(name) for name in sorted(programs, key=action.full_text.find)]
    if len(names) > _MAX_PROGRAMS:
        names[_MAX_PROGRAMS:] = [f"{len(names) - _MAX_PROGRAMS} more programs"]
    text = f"run {join_names(names or ['this command'])}"
    outputs = [piece.text.partition(" ") for piece in action.pieces if piece.program == _OUTPUT]
    is_added = all(">>" in operator for operator, _, _ in outputs)
    targets = dict.fromkeys(target for _, _, target in outputs)
    deeds = [f"{'add to' if is_added else 'overwrite'} {join_names(map(_quote, targets))}"] if outputs else []
    if any(opening.kind == "run" for opening in openings):
        text += " outside the sandbox, with all your rights"
    elif openings:
        text += " in the sandbox"
        deeds += [opening.words for opening in openings]
    return f"{text}, and to {join_names(deeds)}" if deeds else text


def describe_sandbox(openings: Sequence[Opening]) -> str:
    """Return what the sandbox blocks, and what a yes opens."""
    if any(opening.kind == "run" for opening in openings):
        return "it can't run in the sandbox; a yes lets it touch all your files and connect anywhere"
    words = " or ".join(opening.words for opening in openings)
    return f"the sandbox lets no command {words} without a yes"


def describe_mode(tool: Tool, *, has_changes: bool) -> str:
    """Return the rule of the modes that ask about a call without a risk of its own."""
    if has_changes:
        return 'mode "ask" asks before every change to a file'
    if "command" in tool.tags:
        return 'mode "ask" asks before every command that may change something'
    if "url" in tool.tags:
        return 'modes "ask" and "plan" ask before every page from the web'
    return 'mode "ask" asks before every tool that may change something'


def describe_undo(
    call: GateCall,
    action: ActionView,
    openings: Sequence[Opening],
    changes: Sequence[TextChange],
    *,
    is_confined: bool,
    is_recorded: bool,
) -> str:
    """Return what takes back which effects of a call. `is_confined`: a sandbox holds the command."""
    if changes:
        inside = all(change.absolute_path.startswith(f"{call.workspace.rstrip('/')}/") for change in changes)
        if not (inside and is_recorded):
            return _UNRECORDED if inside else "not possible: it is outside of the folder that Whet records"
        return _REWIND
    if "looks" in call.tool.tags:
        begin = "not possible" if action.level == "dangerous" else "not needed: it changes no file"
        return f"{begin}; what the model reads stays in the chat"
    if action.has_reason(Shown):
        return "not possible: the model gets what it prints, and it stays in the chat"
    if action.lasts:
        return "not possible: /rewind can't bring back what it deletes"
    if not is_recorded:
        return _UNRECORDED
    lost = _describe_lost(action, openings, is_confined=is_confined)
    folder = visible_line(PurePath(call.workspace).name)
    if "mcp" in call.tool.tags:
        return f"Whet can't know what the server does; in the workspace {folder}, {_REWIND}"
    if lost == _ELSEWHERE:
        return f"{lost} the workspace “{folder}”; inside, {_REWIND}"
    return f"{_REWIND}, nor {lost}" if lost else _REWIND


def _describe_lost(action: ActionView, openings: Sequence[Opening], *, is_confined: bool) -> str:
    """Return which effects of a command no rewind takes back, or an empty string if there are none."""
    kinds = {opening.kind for opening in openings}
    if "run" in kinds or not (is_confined or _stays_in_workspace(action)):
        return _ELSEWHERE
    written = [_quote(shorten(opening.target)) for opening in openings if opening.kind == "write"]
    lost = [f"its changes in {join_names(written)}"] if written else []
    lost += ["what it sends"] if "reach" in kinds else []
    lost += ["what the model reads"] if "read" in kinds else []
    return " or ".join(lost)


def _stays_in_workspace(action: ActionView) -> bool:
    """Return whether a command only reads, but for output to files of the workspace that its text names."""
    return not action.needs and all(
        piece.level == ("normal" if piece.program == _OUTPUT else "safe") for piece in action.pieces
    )


def _quote(name: str) -> str:
    """Return a name from a call on one line, cut if it is long, and quoted if it could be read as prose."""
    line = visible_line(name, _MAX_NAME_CHARS)
    return line if _WORD.fullmatch(line) else f"“{line}”"
