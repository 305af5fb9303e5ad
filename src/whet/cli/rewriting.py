"""Editing a call before it runs: its command, its file or its arguments, in the person's editor.

What is saved becomes the call's arguments, so that it is checked, judged and shown like any other. It knows
no screen; who calls it gives the terminal away meanwhile.
"""

from __future__ import annotations

import difflib
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from whet.contract.changes import TextChange
from whet.contract.errors import ConfigError
from whet.contract.protocols import ApprovalRequest
from whet.contract.texts import NOT_JSON

_EDITORS = ("sensible-editor", "nano", "vi", "vim")


def rewrite(request: ApprovalRequest, environ: Mapping[str, str]) -> dict[str, object] | None:
    """Have the person edit the call; give its new arguments, None where nothing was changed.

    Blocks while the editor runs. Raises ConfigError where there is no editor, or what was saved can't be
    read.
    """
    change = request.changes[0] if len(request.changes) == 1 else None
    if isinstance(command := request.arguments.get("command"), str):
        text = _edit(command, ".sh", environ).removesuffix("\n")
        return None if text == command else {**request.arguments, "command": text}
    if change is not None and change.new is not None:
        text = _edit(change.new, Path(change.place).suffix, environ)
        return None if text == change.new else _writing(request.arguments, change, text)
    if isinstance(diff := request.arguments.get("diff"), str) and diff:
        text = _edit(diff, ".diff", environ)
        return None if text == diff else {**request.arguments, "diff": text}
    return _as_json(request.arguments, environ)


def _writing(arguments: Mapping[str, object], change: TextChange, text: str) -> dict[str, object]:
    """Give the arguments that make the file what the person saved."""
    if "content" in arguments:
        return {**arguments, "content": text}
    old = "/dev/null" if change.old is None else f"a/{change.path}"
    rows = difflib.unified_diff(_lines(change.old or ""), _lines(text), old, f"b/{change.path}")
    diff = "".join(row if row.endswith("\n") else f"{row}\n\\ No newline at end of file\n" for row in rows)
    return {"path": change.path, "diff": diff}


def _lines(text: str) -> list[str]:
    parts = text.split("\n")
    return (
        [*(f"{part}\n" for part in parts[:-1]), *parts[-1:]] if parts[-1] else [f"{p}\n" for p in parts[:-1]]
    )


def _as_json(arguments: Mapping[str, object], environ: Mapping[str, str]) -> dict[str, object] | None:
    before = msgspec.json.format(msgspec.json.encode(arguments), indent=2).decode()
    text = _edit(before, ".json", environ)
    try:
        found = msgspec.json.decode(text, type=dict[str, object])
    except NOT_JSON as error:
        raise ConfigError(f"what you saved is no JSON object: {error}") from error
    return None if found == arguments else found


def _edit(text: str, suffix: str, environ: Mapping[str, str]) -> str:
    """Give `text` as the editor saved it. Raises ConfigError where the editor can't be run or fails."""
    command = _command(environ)
    with tempfile.TemporaryDirectory(prefix="whet-edit-") as folder:
        path = Path(folder, f"edit{suffix}")
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        try:
            done = subprocess.run([*command, os.fspath(path)], check=False)
            if done.returncode:
                raise ConfigError(f"{command[0]} ended with {done.returncode}; nothing was changed")
            return path.read_bytes().decode("utf-8", "surrogateescape")
        except OSError as error:
            raise ConfigError(
                f"{command[0]} can't be started: {error.strerror}", hint="set EDITOR"
            ) from error


def _command(environ: Mapping[str, str]) -> list[str]:
    named = environ.get("VISUAL") or environ.get("EDITOR") or ""
    try:
        words = shlex.split(named)
    except ValueError:
        words = []
    if words:
        return words
    found = next((name for name in _EDITORS if shutil.which(name)), "")
    if not found:
        raise ConfigError("no editor is set", hint="export EDITOR=nano")
    return [found]
