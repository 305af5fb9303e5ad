"""Let the person edit a text in their own editor. The caller must release the terminal while it runs."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from whet.contract.errors import ConfigError
from whet.tools.encoding import decode

_EDITORS = ("sensible-editor", "nano", "vi", "vim")


def edit_bytes(content: bytes, suffix: str, environ: Mapping[str, str]) -> bytes:
    """Return `content` as the editor saved it. `suffix` is the ending of the file's name.

    Blocks while the editor runs. Raises ConfigError if the editor can't be run or fails.
    """
    command = _find_editor(environ)
    with tempfile.TemporaryDirectory(prefix="whet-edit-") as folder:
        path = Path(folder, f"edit{suffix}")
        path.write_bytes(content)
        try:
            process = subprocess.run([*command, os.fspath(path)], check=False)
            if process.returncode:
                raise ConfigError(f"{command[0]} ended with {process.returncode}; nothing was changed")
            return path.read_bytes()
        except OSError as error:
            raise ConfigError(
                f"{command[0]} can't be started: {error.strerror}", hint="set EDITOR"
            ) from error


def edit_text(text: str, suffix: str, environ: Mapping[str, str]) -> str:
    """Return `text` as the editor saved it, in any encoding, without the newline that editors add. Raises as
    edit_bytes does."""
    content = text.encode("utf-8", "replace")
    saved = edit_bytes(content, suffix, environ)
    if saved.removesuffix(b"\n") == content.removesuffix(b"\n"):
        return text
    decoded = decode(saved)
    edited = decoded[0] if decoded else saved.decode("utf-8", "replace")
    return edited.replace("\r\n", "\n").removesuffix("\n")


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
