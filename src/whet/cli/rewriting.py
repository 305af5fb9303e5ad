"""Editing a call before it runs: its command, its file or its arguments, in the person's editor.

What is saved becomes the call's arguments, so that it is checked, judged and shown like any other. It knows
no screen; who calls it gives the terminal away meanwhile.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from whet.amending import amended, editable
from whet.contract.errors import ConfigError
from whet.contract.protocols import ApprovalRequest

_EDITORS = ("sensible-editor", "nano", "vi", "vim")


def rewrite(request: ApprovalRequest, environ: Mapping[str, str]) -> dict[str, object] | None:
    """Have the person edit the call; give its new arguments, None where nothing was changed.

    Blocks while the editor runs. Raises ConfigError where there is no editor, or what was saved can't be
    read.
    """
    part = editable(request)
    return amended(request, _edit(part.text, part.suffix, environ))


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
