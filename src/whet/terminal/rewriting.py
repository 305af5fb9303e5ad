"""Let the person edit a call before it runs, in their editor: its command, its file or its arguments.

The caller must release the terminal while the editor runs.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from whet.amending import apply_edit, find_editable
from whet.contract.errors import ConfigError
from whet.contract.protocols import ApprovalRequest

_EDITORS = ("sensible-editor", "nano", "vi", "vim")


def rewrite(request: ApprovalRequest, environ: Mapping[str, str]) -> dict[str, object] | None:
    """Let the person edit the call, and return its new arguments, or None if they changed nothing.

    Blocks while the editor runs. Raises ConfigError if there is no editor, or if the saved text can't be
    parsed.
    """
    editable = find_editable(request)
    return apply_edit(request, _edit(editable.text, editable.suffix, environ))


def _edit(text: str, suffix: str, environ: Mapping[str, str]) -> str:
    """Return `text` as the editor saved it. Raises ConfigError if the editor can't be run or fails."""
    command = _find_editor(environ)
    with tempfile.TemporaryDirectory(prefix="whet-edit-") as folder:
        path = Path(folder, f"edit{suffix}")
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        try:
            process = subprocess.run([*command, os.fspath(path)], check=False)
            if process.returncode:
                raise ConfigError(f"{command[0]} ended with {process.returncode}; nothing was changed")
            return path.read_bytes().decode("utf-8", "surrogateescape")
        except OSError as error:
            raise ConfigError(
                f"{command[0]} can't be started: {error.strerror}", hint="set EDITOR"
            ) from error


def _find_editor(environ: Mapping[str, str]) -> list[str]:
    value = environ.get("VISUAL") or environ.get("EDITOR") or ""
    try:
        words = shlex.split(value)
    except ValueError:
        words = []
    if words:
        return words
    program = next((name for name in _EDITORS if shutil.which(name)), "")
    if not program:
        raise ConfigError("no editor is set", hint="export EDITOR=nano")
    return [program]
