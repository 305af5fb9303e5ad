"""Read and hash the workspace files that a repository's hook runs, as far as texts name them.

A script can name a file in ways that no reader follows, so a repository's hook also runs with less rights.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

import msgspec

from whet.approval.run_files import find_run_files
from whet.regular import open_regular

_MAX_HASHED_BYTES = 200_000_000
_MAX_TEXT_BYTES = 400_000


class HookFile(msgspec.Struct, frozen=True):
    """A file that a hook runs. `name` is its path in the workspace, and `seal` represents its content in a
    hash. `text` is None if it is too large to show or not text."""

    name: str
    seal: bytes
    size_bytes: int = 0
    text: str | None = None


def read_files(workspace: Path, commands: list[str]) -> list[HookFile]:
    """Read every file that the commands run. After 200 MB in total, a file's seal is its size and times."""
    files: list[HookFile] = []
    left_bytes, left_text_bytes = _MAX_HASHED_BYTES, _MAX_TEXT_BYTES
    for path in sorted(find_run_files(workspace, commands)):
        name, text = str(path.relative_to(workspace)), None
        try:
            with open_regular(path) as file:
                state = os.fstat(file.fileno())
                left_bytes -= state.st_size
                if left_bytes < 0:
                    seal = f"{state.st_size} {state.st_mtime_ns} {state.st_ctime_ns}".encode()
                elif state.st_size > left_text_bytes:
                    seal = hashlib.file_digest(file, "sha256").digest()
                else:
                    data = file.read()
                    left_text_bytes -= len(data)
                    seal = hashlib.sha256(data).digest()
                    with suppress(UnicodeDecodeError):
                        text = data.decode()
        except OSError:
            files.append(HookFile(name, b"unreadable"))
        else:
            files.append(HookFile(name, seal, state.st_size, text))
    return files


def hash_files(files: list[HookFile]) -> str:
    """Return a hash of files by name and content."""
    seal = hashlib.sha256()
    for file in files:
        seal.update(b"\0" + file.name.encode("utf-8", "surrogateescape") + b"\0" + file.seal)
    return seal.hexdigest()
